"""Planted bugs in whole nodes. Each is found within a stated number of lives.

Some bugs need an order of messages that one connection hardly ever produces. They are planted only in `test_replication`, where messages
are late, duplicated and in any order: stale responses, changes of the ISR that the controller rejects or that are in flight, broker epochs
of an earlier life. A start or a cleaner that takes a failed read for the end of a log is tested in `tests/faults/test_read_errors`. Here a
killed node leads only after it has fetched again what it lost, and hardly anything is left to clean while a disk fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kops.broker.quorum.raft_log import KafkaRaftLog
from kops.files.crash import _CrashFile
from kops.metadata.partition_registration import NO_LEADER_CHANGE, PartitionRegistration
from kops.metadata.raft.roles.leader import LeaderState, ReplicaProgress
from kops.metadata.raft.roles.states import Candidate, Follower, Prospective, Unattached
from kops.protocol.messages import PartitionChangeRecord
from kops.storage import log_retention
from kops.storage.cleaning import _hot_clean
from kops.storage.producers.state import ProducerStateManager
from kops.storage.start import loader
from kops.storage.unified_log import UnifiedLog
from tests.simulation.node_life import live_all
from tests.simulation.node_world import Mix
from tests.simulation.replication.test_replication import (
    acknowledge_before_replication,
    divergence_one_too_far,
    high_watermark_at_the_end,
    truncate_one_too_little,
    truncate_to_the_high_watermark,
)
from tests.support.planted import plant

FIRST_SEED = 300
Patch = pytest.MonkeyPatch


def acknowledge_metadata_before_the_flush(patch: Patch) -> None:
    """Committed metadata may be on no disk."""
    patch.setattr(KafkaRaftLog, "start_flush", lambda self: True)


def acknowledge_before_the_flush(patch: Patch) -> None:
    """`flush.messages` has no effect, so a replica acknowledges records that it has not synced."""
    patch.setattr(UnifiedLog, "_flush", lambda self, offset, *, inclusive: None)


def vote_for_everybody(patch: Patch) -> None:
    """A voter grants its vote to every candidate of an epoch, even if the candidate's log is behind."""
    for state in (Unattached, Prospective, Candidate, Follower):
        patch.setattr(state, "can_grant_vote", lambda self, candidate, *, is_up_to_date, pre_vote: True)


def commit_metadata_alone(patch: Patch) -> None:
    """The leader of the quorum takes everything in its own log for committed."""

    def to_the_end(self: LeaderState) -> bool:
        end = max(one.end_offset or 0 for one in self._by_descending_end())
        grows = end > (self.high_watermark or 0)
        self.high_watermark = max(end, self.high_watermark or 0)
        return grows

    patch.setattr(LeaderState, "_maybe_update_high_watermark", to_the_end)


def two_leaders_of_one_epoch(patch: Patch) -> None:
    """A newly elected leader keeps the epoch of its predecessor."""
    merge = PartitionRegistration.merge

    def same_epoch(self: PartitionRegistration, change: PartitionChangeRecord) -> PartitionRegistration:
        merged = merge(self, change)
        return replace(merged, leader_epoch=self.leader_epoch) if change.leader != NO_LEADER_CHANGE else merged

    patch.setattr(PartitionRegistration, "merge", same_epoch)


def delete_one_segment_too_many(patch: Patch) -> None:
    """Retention by size deletes one segment too many."""
    over_size = log_retention.over_size

    def one_more(log: UnifiedLog) -> list[Any]:
        found = over_size(log)
        segments = list(log.segments)
        return segments[: len(found) + 1] if 0 < len(found) < len(segments) - 1 else found

    patch.setattr(log_retention, "over_size", one_more)


def append_twice(patch: Patch) -> None:
    """A batch that is sent again is appended again."""
    plant(patch, ProducerStateManager, loader, find_duplicate_batch=lambda self, batch: None)


def read_above_the_high_watermark(patch: Patch) -> None:
    """A consumer gets everything that the leader has."""
    patch.setattr(UnifiedLog, "read", _read_to_the_end(UnifiedLog.read))


def _read_to_the_end(read: Callable[..., Any]) -> Callable[..., Any]:
    from kops.storage.log_offsets import Isolation

    return lambda self, start, size, isolation, **named: read(self, start, size, Isolation.LOG_END, **named)


def swap_in_before_the_flush(patch: Patch) -> None:
    """A cleaned segment replaces others before it is on the disk."""
    sync = _CrashFile.sync
    patch.setattr(_CrashFile, "sync", lambda self: None if self.path.endswith(".cleaned") else sync(self))


def drop_tombstones_at_once(patch: Patch) -> None:
    """The first cleaning removes a tombstone, before all readers have seen it."""
    choose: Callable[..., Any] = _hot_clean.choose

    def without_grace(*arguments: Any) -> Any:
        *others, _, runs = arguments
        return choose(*others, False, runs)

    patch.setattr(_hot_clean, "choose", without_grace)


def count_observers(patch: Patch) -> None:
    """A broker that follows the metadata log counts as a voter."""

    def by_descending_end(self: LeaderState) -> list[ReplicaProgress]:
        followers = [*self.voters.values(), *self.observers.values()]
        return sorted(followers, key=lambda each: (-1 if each.end_offset is None else each.end_offset, -each.key.id), reverse=True)

    patch.setattr(LeaderState, "_by_descending_end", by_descending_end)
    patch.setattr(LeaderState, "is_voter", lambda self, key: key in self.observers or key.id in self.voters)


PLAIN = Mix(shapes=("combined",), compacted=0, failures=("full", "dead", "bad"), disks=3)
COMPACTING = Mix(shapes=("combined",), compacted=1)
OBSERVED = Mix(shapes=("a broker beside", "all kinds"), compacted=0)
BUGS: list[tuple[Callable[[Patch], None], Mix, int]] = [
    (acknowledge_before_replication, PLAIN, 20),
    (high_watermark_at_the_end, PLAIN, 20),
    (truncate_to_the_high_watermark, PLAIN, 20),
    (truncate_one_too_little, PLAIN, 20),
    (divergence_one_too_far, PLAIN, 60),
    (acknowledge_metadata_before_the_flush, PLAIN, 60),
    (acknowledge_before_the_flush, PLAIN, 20),
    (vote_for_everybody, PLAIN, 20),
    (commit_metadata_alone, PLAIN, 20),
    (two_leaders_of_one_epoch, PLAIN, 20),
    (delete_one_segment_too_many, PLAIN, 20),
    (append_twice, PLAIN, 20),
    (read_above_the_high_watermark, PLAIN, 20),
    (swap_in_before_the_flush, COMPACTING, 20),
    (drop_tombstones_at_once, COMPACTING, 20),
    (count_observers, OBSERVED, 20),
]
"""A bug, the mix of its lives, and the number of lives within which it must be found."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("bug", "mix", "lives"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_planted_bug_is_found(bug: Callable[[Patch], None], mix: Mix, lives: int, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(FIRST_SEED, FIRST_SEED + lives), mix)
    assert "python -m tests.simulation.node_life" in caught.value.__notes__[0]
