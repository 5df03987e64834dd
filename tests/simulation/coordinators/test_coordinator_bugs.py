"""Planted bugs in the coordinators of whole nodes. Each is found within a stated number of lives.

Two bugs that lives have found are too rare to be found again in the time of a test: the markers of a loaded decision that is not committed
yet, and partitions that have no leader when their marker is due. `tests/unit/broker/transactions` tests them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kops.broker.coordinators.writer import LogWriter
from kops.broker.transactions import service
from kops.coordinators.groups.consumer.state.current_assignment import Reconciliation
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
from kops.coordinators.transactions import coordinator
from kops.coordinators.transactions.coordinator import TransactionCoordinator
from kops.coordinators.transactions.ending import TransactionEnding
from kops.coordinators.transactions.metadata import TransactionMetadata, Transition
from kops.coordinators.transactions.state import TV_0, TransactionState
from kops.coordinators.transactions.state_manager import TransactionStateManager
from kops.records.log_offsets import TopicPartition
from tests.simulation.coordinators.faults import CoordinatorFaults
from tests.simulation.coordinators.world import CoordinatorWorld
from tests.simulation.node_life import Kind, live_all
from tests.simulation.node_world import Mix
from tests.support.planted import plant

FIRST_SEED = 503
NO_PRODUCER = -1
Patch = pytest.MonkeyPatch


class _EarlyLog:
    """A log that reports at once that all replicas have a record."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def append(self, partition: int, batch: bytes, timeout_ms: int, done: Callable[[str], None]) -> None:
        self._log.append(partition, batch, timeout_ms, lambda _: None)
        done("NONE")


def send_markers_before_the_decision_is_durable(patch: Patch) -> None:
    """The coordinator answers and writes the markers while the record of the decision is still being replicated."""
    append = TransactionStateManager.append
    early = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    def append_early(
        self: TransactionStateManager, transactional_id: str, epoch: int, target: Transition, *rest: Any, **named: Any
    ) -> None:
        log = self._log
        if target.state in early:
            self._log = _EarlyLog(log)  # type: ignore[assignment]
        try:
            append(self, transactional_id, epoch, target, *rest, **named)
        finally:
            self._log = log

    plant(patch, TransactionStateManager, service, append=append_early)


def keep_the_epoch_after_a_time_out(patch: Patch) -> None:
    """A producer that was too slow may continue in a transaction that was aborted."""
    end = TransactionEnding.end

    def fence(self: TransactionMetadata) -> Transition:
        return self._prepare(self._target(TransactionState.PREPARE_EPOCH_FENCE))

    def end_in_version_0(self: TransactionEnding, name: str, producer_id: int, epoch: int, version: int, *rest: Any, **named: Any) -> None:
        end(self, name, producer_id, epoch, version if named["is_from_client"] else TV_0, *rest, **named)

    patch.setattr(TransactionMetadata, "prepare_fence_producer_epoch", fence)
    plant(patch, TransactionEnding, coordinator, end=end_in_version_0)


def forget_pending_markers(patch: Patch) -> None:
    """A new coordinator does not complete the transactions that its predecessor has begun to end."""
    patch.setattr(TransactionCoordinator, "end_load", lambda self, load: self.manager.end_load(load))


def show_offsets_before_the_commit(patch: Patch) -> None:
    """The offsets of a transaction count at once."""
    replay = GroupCoordinatorShard.replay
    patch.setattr(GroupCoordinatorShard, "replay", lambda self, offset, _, epoch, record: replay(self, offset, NO_PRODUCER, epoch, record))


def answer_before_records_are_committed(patch: Patch) -> None:
    """The group coordinator answers as soon as its own log has the records: it takes the end of the log for the high watermark."""
    append = LogWriter.append
    listeners: dict[tuple[LogWriter, TopicPartition], Callable[[int], object]] = {}

    def append_and_tell(self: LogWriter, key: TopicPartition, *rest: Any) -> int:
        end = append(self, key, *rest)
        listeners[self, key](end)
        return end

    patch.setattr(LogWriter, "register_listener", lambda self, key, listener: listeners.update({(self, key): listener}))
    patch.setattr(LogWriter, "deregister_listener", lambda self, key, listener: listeners.pop((self, key)))
    patch.setattr(LogWriter, "append", append_and_tell)


def give_what_another_member_has(patch: Patch) -> None:
    """A member of a consumer group gets its partitions before their former owners have given them up."""
    next_member = Reconciliation.next_member
    patch.setattr(Reconciliation, "next_member", lambda self, member: next_member(replace(self, partition_epoch=lambda *_: -1), member))

    def add(self: ConsumerGroup, owned: Any, epoch: int) -> None:
        for topic_id, partitions in owned.items():
            for partition in partitions:
                self._partition_epochs[topic_id, partition] = epoch

    def remove(self: ConsumerGroup, member: Any) -> None:
        for owned in (member.assigned_partitions, member.partitions_pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    self._partition_epochs.pop((topic_id, partition), None)

    patch.setattr(ConsumerGroup, "_add_partition_epochs", add)
    patch.setattr(ConsumerGroup, "_remove_partition_epochs", remove)


class HandOvers(CoordinatorFaults):
    """Faults that kill coordinators, often with records that the other nodes do not have."""

    def __init__(self, world: CoordinatorWorld) -> None:
        super().__init__(world)
        self._kinds = [self.kill_one, self.cut_off_and_kill, self.replace, self.replace, self.replace]


HANDED_OVER = Kind(CoordinatorWorld, HandOvers, "tests.simulation.coordinators.test_coordinator_bugs")
PLAIN = Mix(shapes=("combined",), compacted=0)
BUGS: list[tuple[Callable[[Patch], None], int]] = [
    (send_markers_before_the_decision_is_durable, 30),
    (keep_the_epoch_after_a_time_out, 30),
    (forget_pending_markers, 20),
    (show_offsets_before_the_commit, 20),
    (answer_before_records_are_committed, 20),
    (give_what_another_member_has, 20),
]
"""A bug, and the number of lives within which it must be found."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("bug", "lives"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_of_coordinators_is_found(bug: Callable[[Patch], None], lives: int, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        live_all(range(FIRST_SEED, FIRST_SEED + lives), PLAIN, HANDED_OVER)
    assert "python -m tests.simulation.coordinators" in caught.value.__notes__[0]
