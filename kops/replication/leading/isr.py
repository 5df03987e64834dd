"""A partition's in-sync replicas, committed or proposed, and its assignment.

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
    """A partition in the metadata. `leader` is -1 if it has none."""

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
    """A member of a proposed ISR. `broker_epoch` is -1 if the leader has not received a fetch from it yet."""

    broker_id: int
    broker_epoch: int


class ProposedIsr(NamedTuple):
    """The ISR that a leader proposes to the controller (LeaderAndIsr, as it is sent)."""

    leader: int
    leader_epoch: int
    isr: tuple[BrokerState, ...]
    leader_recovery_state: int
    partition_epoch: int


class LeaderAndIsr(NamedTuple):
    """The controller's answer."""

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
        """All replicas that may be in the ISR, whatever the outcome of a change in flight."""
        return self.isr


class PendingExpandIsr(NamedTuple):
    """A replica is about to join. It counts for the high watermark at once, because the controller may already have accepted it."""

    new_in_sync_replica_id: int
    sent: ProposedIsr
    last_committed: CommittedIsr

    @property
    def isr(self) -> frozenset[int]:
        """The ISR that is known to be committed."""
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The ISR including the joining replica."""
        return self.last_committed.isr | {self.new_in_sync_replica_id}

    @property
    def leader_recovery_state(self) -> int:
        """A leader that changes its ISR is recovered."""
        return RECOVERED


class PendingShrinkIsr(NamedTuple):
    """Replicas are about to leave. They count for the high watermark until the controller has confirmed that."""

    out_of_sync_replica_ids: frozenset[int]
    sent: ProposedIsr
    last_committed: CommittedIsr

    @property
    def isr(self) -> frozenset[int]:
        """The ISR that is known to be committed."""
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The ISR including the leaving replicas."""
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
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those being added."""
        return sum(replica not in self.adding for replica in self.replicas)
