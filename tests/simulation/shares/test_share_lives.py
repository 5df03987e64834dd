"""Lives of whole nodes with a share group, and planted bugs; see `world`.

`pytest -m slow tests/simulation/shares --seeds 1000` runs a thousand lives. A failure prints its seed, what happened, and the command that
repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.core.consumer import ShareCore
from kops.client.share.core.fetched import CompletedFetch
from kops.client.share.core.records import ShareRecord
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.partition.in_flight import AcquisitionLock, InFlightState
from kops.coordinators.share.partition.persisting import PersistedState
from kops.coordinators.share.partition.record_state import RecordState
from kops.coordinators.share.partition.share_partition import SharePartition
from kops.protocol.messages.share_fetch_response import AcquiredRecords, PartitionData
from kops.records import read_batches
from tests.simulation import node_life
from tests.simulation.node_life import live, live_all
from tests.simulation.node_world import Mix
from tests.simulation.shares.life import SHARES

FIRST_SEED, FIRST_BUG_SEED, SLOW_SEEDS = 16, 40, 2
GOOD_DISKS = Mix(compacted=0, disks=0)
PLAIN = Mix(shapes=("combined",), compacted=0, disks=0)
EVENTS = ("ends confirmed", "delivered again", "acknowledgements refused", "members died", "renew sent", "release sent")
Patch = pytest.MonkeyPatch


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_lives_of_a_share_group(seed_count: int | None) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + (SLOW_SEEDS if seed_count is None else seed_count)):
        counts += live(seed, mix=GOOD_DISKS, kind=SHARES).counts
    assert min(counts[event] for event in EVENTS) > 0, counts


def end_locks_early(patch: Patch) -> None:
    """A record is given to another member while the first one still has it."""
    lock = SharePartition.lock

    def short(self: SharePartition, member_id: str, first_offset: int, last_offset: int, delay_ms: int | None = None) -> AcquisitionLock:
        return lock(self, member_id, first_offset, last_offset, 100)

    patch.setattr(SharePartition, "lock", short)


def confirm_without_writing(patch: Patch) -> None:
    """Acknowledgements are confirmed, but the next leader does not know them."""
    patch.setattr(SharePartition, "_write", lambda self, batches: Promise.of(None))


def deliver_for_ever(patch: Patch) -> None:
    """The number of deliveries has no limit."""
    update = InFlightState.update

    def unlimited(self: InFlightState, state: RecordState, limit: int, *rest: Any, **named: Any) -> bool:
        return update(self, state, 1_000, *rest, **named)

    patch.setattr(InFlightState, "update", unlimited)


def begin_behind_what_was_delivered(patch: Patch) -> None:
    """A new leader skips records that were released."""
    begin = SharePartition._begin

    def behind(self: SharePartition, state: PersistedState) -> None:
        ends: Sequence[int] = [batch.last_offset + 1 for batch in state.batches]
        begin(self, state._replace(start_offset=max([state.start_offset, *ends]), batches=()))

    patch.setattr(SharePartition, "_begin", behind)


# the consumer


def accept_released_records(patch: Patch) -> None:
    """A record that the program releases is accepted, so nobody else gets it."""
    acknowledge = ShareCore.acknowledge

    def accept(self: ShareCore, topic: str, partition: int, offset: int, kind: AcknowledgeType, *, is_record: bool) -> None:
        changed = AcknowledgeType.ACCEPT if kind is AcknowledgeType.RELEASE else kind
        acknowledge(self, topic, partition, offset, changed, is_record=is_record)

    patch.setattr(ShareCore, "acknowledge", accept)


def accept_what_the_program_did_not_get(patch: Patch) -> None:
    """The last record of a poll is accepted without the program."""
    collect = ShareCore.collect

    def collect_less(self: ShareCore, now_ms: float) -> list[ShareRecord]:
        records = collect(self, now_ms)
        for record in records[-1:] if len(records) > 1 else ():
            self.acknowledge(record.topic, record.partition, record.offset, AcknowledgeType.ACCEPT, is_record=True)
            records = records[:-1]
        return records

    patch.setattr(ShareCore, "collect", collect_less)


def deliver_what_was_not_acquired(patch: Patch) -> None:
    """The program gets all records of an answer, also those that other members have."""
    make = CompletedFetch.__init__

    def make_with_all(self: CompletedFetch, node_id: int, partition: TopicIdPartition, data: PartitionData, *rest: Any) -> None:
        data.acquired_records = [
            AcquiredRecords(batch.base_offset, batch.last_offset, 1) for batch in read_batches(cast(bytes, data.records or b""))
        ]
        make(self, node_id, partition, data, *rest)

    patch.setattr(CompletedFetch, "__init__", make_with_all)


def hide_refused_acknowledgements(patch: Patch) -> None:
    """The program learns only of acknowledgements that were confirmed."""
    take = ShareCore.take_outcomes
    patch.setattr(ShareCore, "take_outcomes", lambda self: [one for one in take(self) if one[2] is None])


BUGS: list[tuple[Callable[[Patch], None], int]] = [
    (end_locks_early, 5),
    (confirm_without_writing, 5),
    (deliver_for_ever, 20),
    (begin_behind_what_was_delivered, 10),
    (accept_released_records, 3),
    (accept_what_the_program_did_not_get, 3),
    (deliver_what_was_not_acquired, 3),
    (hide_refused_acknowledgements, 3),
]
"""A bug, and the number of lives within which it must be found."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("bug", "lives"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_of_share_groups_is_found(bug: Callable[[Patch], None], lives: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(node_life, "trace", lambda *_: "")  # the trace of a life that must fail would double its time
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(FIRST_BUG_SEED, FIRST_BUG_SEED + lives), PLAIN, SHARES)
    assert "python -m tests.simulation.shares" in caught.value.__notes__[0]
