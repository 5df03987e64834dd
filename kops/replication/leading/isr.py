"""A partition's in-sync replicas, committed or asked for, and its assignment.

Sources: Kafka's PartitionState (CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr), LeaderAndIsr, AssignmentState
(SimpleAssignmentState, OngoingReassignmentState), PartitionRegistration, LeaderRecoveryState.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

RECOVERED: Final = 0
RECOVERING: Final = 1
UNKNOWN_BROKER_EPOCH: Final = -1


class PartitionRegistration(Protocol):
    """What the metadata says of a partition; `leader` is -1 where it has none."""

    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def isr(self) -> Sequence[int]: ...
    @property
    def adding_replicas(self) -> Sequence[int]: ...
    @property
    def removing_replicas(self) -> Sequence[int]: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def leader_recovery_state(self) -> int: ...


class BrokerState(NamedTuple):
    """A member of an ISR that is asked for; `broker_epoch` is -1 where the leader has not heard of it yet."""

    broker_id: int
    broker_epoch: int


class ProposedIsr(NamedTuple):
    """What a leader asks the controller for (LeaderAndIsr, as it is sent)."""

    leader: int
    leader_epoch: int
    isr: tuple[BrokerState, ...]
    leader_recovery_state: int
    partition_epoch: int


class LeaderAndIsr(NamedTuple):
    """What the controller answers."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


class CommittedIsr(NamedTuple):
    """The ISR that the controller knows."""

    isr: frozenset[int] = frozenset()
    leader_recovery_state: int = RECOVERED

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everyone who may be in the ISR, whatever becomes of the change in flight."""
        return self.isr


class PendingExpandIsr(NamedTuple):
    """One replica is to join; it counts at once for the high watermark, as the controller may have taken it already."""

    new_in_sync_replica_id: int
    sent: ProposedIsr
    last_committed: CommittedIsr

    @property
    def isr(self) -> frozenset[int]:
        """The ISR that is known to be committed."""
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        """With the one that is to join."""
        return self.last_committed.isr | {self.new_in_sync_replica_id}

    @property
    def leader_recovery_state(self) -> int:
        """A leader that changes its ISR is recovered."""
        return RECOVERED


class PendingShrinkIsr(NamedTuple):
    """Replicas are to leave; they count for the high watermark until that is certain."""

    out_of_sync_replica_ids: frozenset[int]
    sent: ProposedIsr
    last_committed: CommittedIsr

    @property
    def isr(self) -> frozenset[int]:
        """The ISR that is known to be committed."""
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        """With those that are to leave."""
        return self.last_committed.isr

    @property
    def leader_recovery_state(self) -> int:
        """A leader that changes its ISR is recovered."""
        return RECOVERED


PendingChange = PendingExpandIsr | PendingShrinkIsr
IsrState = CommittedIsr | PendingChange


class Assignment(NamedTuple):
    """The replicas, and which of them a reassignment adds or removes."""

    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """How many replicas count; those being added don't yet."""
        return sum(replica not in self.adding for replica in self.replicas)
