"""Builds the record that changes a partition: new ISR and replicas, the end of a reassignment, the new leader, eligible leaders.

Source: Kafka's PartitionChangeBuilder (KIP-455, KIP-841, KIP-858, KIP-966).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java_hash import HashOrder
from kops.metadata.controller.partitions.reassignment_replicas import complete_reassignment
from kops.metadata.partition_registration import NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_CHANGE, LeaderRecoveryState
from kops.protocol.messages import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.metadata.metadata_version import MetadataVersion
    from kops.metadata.partition_registration import PartitionRegistration


class Election(Enum):
    """How the leader is chosen: PREFERRED tries the first replica first, ONLINE keeps the leader if possible, UNCLEAN may lose records."""

    PREFERRED = auto()
    ONLINE = auto()
    UNCLEAN = auto()


class ChangeRules(NamedTuple):
    """The constraints of the cluster. `min_isr` is the topic's min.insync.replicas, at most its replication factor."""

    version: MetadataVersion
    min_isr: int
    elr_enabled: bool
    default_dir: Callable[[int], bytes]


@dataclass(slots=True)
class PartitionTarget:
    """The target of a partition. Fields that do not change are None. `directories` are the new ones by replica."""

    isr: list[int] | None = None
    replicas: list[int] | None = None
    removing: list[int] | None = None
    adding: list[int] | None = None
    recovery_state: LeaderRecoveryState | None = None
    directories: dict[int, bytes] = field(default_factory=dict)
    unclean_shutdown_replicas: tuple[int, ...] = ()
    election: Election = Election.ONLINE


def change_partition(
    partition: PartitionRegistration,
    topic_id: bytes,
    partition_id: int,
    target: PartitionTarget,
    rules: ChangeRules,
    is_acceptable_leader: Callable[[int], bool],
) -> tuple[PartitionChangeRecord, int] | None:
    """Return the record that changes the partition to the target, and its version, or None if nothing changes."""
    record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    _Change(partition, target, rules, is_acceptable_leader, record).build()
    return None if _is_no_op(record) else (record, rules.version.partition_record_version)


def _is_no_op(record: PartitionChangeRecord) -> bool:
    lists = (record.isr, record.eligible_leader_replicas, record.last_known_elr, record.replicas)
    others = (record.removing_replicas, record.adding_replicas, record.directories)
    unchanged = all(value is None for value in (*lists, *others))
    return unchanged and record.leader == NO_LEADER_CHANGE and record.leader_recovery_state == NO_RECOVERY_CHANGE


class _Change:
    """One change while it is being worked out."""

    def __init__(
        self,
        partition: PartitionRegistration,
        target: PartitionTarget,
        rules: ChangeRules,
        is_acceptable_leader: Callable[[int], bool],
        record: PartitionChangeRecord,
    ) -> None:
        self._partition = partition
        self._target = target
        self._rules = rules
        self._is_acceptable = is_acceptable_leader
        self._record = record
        self._isr = list(partition.isr) if target.isr is None else target.isr
        self._replicas = list(partition.replicas) if target.replicas is None else target.replicas
        self._removing = list(partition.removing_replicas) if target.removing is None else target.removing
        self._adding = list(partition.adding_replicas) if target.adding is None else target.adding
        self._elr = list(partition.elr)

    def build(self) -> None:
        """Fill in the record."""
        self._complete_reassignment()
        self._find_eligible_leaders()
        self._elect()
        self._bump_leader_epoch_for_removed_replicas()
        self._set_elr()
        changed = self._isr != list(self._partition.isr)
        if self._record.isr is None and changed and (self._isr or self._rules.elr_enabled):
            self._record.isr = self._isr
        self._bump_leader_epoch_for_shrunk_isr()
        self._set_last_known_leader()
        self._set_assignment()
        recovery_state = self._target.recovery_state
        if recovery_state is not None and recovery_state != self._partition.leader_recovery_state:
            self._record.leader_recovery_state = recovery_state

    def _complete_reassignment(self) -> None:
        completed = complete_reassignment(self._removing, self._adding, self._replicas, self._isr)
        if completed is not None:
            self._isr, self._replicas = completed.isr, completed.replicas
            self._removing, self._adding = [], []

    def _find_eligible_leaders(self) -> None:
        """Update the ELR. A replica that left the ISR while this was too small has everything that is committed, unless it lost unflushed
        data.

        As in Kafka, a broker does not leave the ELR when it stops being a replica. A broker that was moved away stays in the ELR until the
        ISR is large enough or the broker starts after a crash. It can't lead meanwhile, because only replicas can lead.
        """
        if not self._rules.elr_enabled:
            return
        if len(self._isr) >= self._rules.min_isr:
            self._elr = []
            return
        candidates = _in_hash_order([*self._elr, *self._partition.isr])
        gone = {*self._isr, *self._target.unclean_shutdown_replicas}
        self._elr = [replica for replica in candidates if replica not in gone]

    # Election

    def _elect(self) -> None:
        leader, is_unclean = self._preferred_leader() if self._target.election is Election.PREFERRED else self._any_leader()
        if leader == self._partition.leader:
            return
        if leader in self._elr:
            self._isr = [leader]
            self._elr = [replica for replica in self._elr if replica != leader]
        self._record.leader = leader
        if is_unclean:
            # Its log is the only one that counts from now on, so no other replica can be in sync.
            self._record.isr = [leader]
            if self._partition.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                self._record.leader_recovery_state = LeaderRecoveryState.RECOVERING

    def _preferred_leader(self) -> tuple[int, bool]:
        first, *others = self._replicas
        return self._clean_leader([first, self._partition.leader, *others])

    def _any_leader(self) -> tuple[int, bool]:
        found, is_unclean = self._clean_leader([self._partition.leader, *self._replicas])
        if found == NO_LEADER and self._target.election is Election.UNCLEAN:
            online = next((replica for replica in self._replicas if self._is_acceptable(replica)), None)
            if online is not None:
                return online, True
        return found, is_unclean

    def _clean_leader(self, candidates: Iterable[int]) -> tuple[int, bool]:
        found = next((replica for replica in candidates if self._may_lead(replica)), None)
        if found is not None:
            return found, False
        if self._may_last_known_leader_lead():
            return self._partition.last_known_elr[0], True
        return NO_LEADER, False

    def _may_lead(self, replica: int) -> bool:
        is_eligible = replica in self._isr or (not self._isr and replica in self._elr)
        return is_eligible and self._is_acceptable(replica)

    def _may_last_known_leader_lead(self) -> bool:
        """Whether the last known leader may lead, because the ISR and the ELR are empty."""
        known = self._partition.last_known_elr
        nobody = self._rules.elr_enabled and not self._elr and not self._isr
        return nobody and len(known) == 1 and self._is_acceptable(known[0])

    # Leader epochs

    def _bump_leader_epoch_for_removed_replicas(self) -> None:
        """Increase the leader epoch if necessary, because a removed replica must not continue to fetch as a follower of this epoch."""
        if self._record.leader == NO_LEADER_CHANGE and not set(self._partition.replicas).issubset(self._replicas):
            self._record.leader = self._partition.leader

    def _bump_leader_epoch_for_shrunk_isr(self) -> None:
        if not self._rules.version.bumps_leader_epoch_on_isr_shrink or self._record.leader != NO_LEADER_CHANGE:
            return
        if self._record.isr is not None and not set(self._partition.isr).issubset(self._record.isr):
            self._record.leader = self._partition.leader

    # The rest of the record

    def _set_elr(self) -> None:
        # An unclean election has already set its ISR, so earlier eligible leaders no longer count.
        if self._record.isr is not None or not self._rules.elr_enabled:
            self._elr = []
        if self._elr != list(self._partition.elr):
            self._record.eligible_leader_replicas = self._elr

    def _set_last_known_leader(self) -> None:
        if not self._rules.elr_enabled:
            return
        known = self._partition.last_known_elr
        if self._record.leader == NO_LEADER and not known:
            self._record.last_known_elr = [self._partition.leader]
        elif self._record.leader >= 0 and known:
            self._record.last_known_elr = []

    def _set_assignment(self) -> None:
        if self._replicas:
            if self._rules.version.has_directory_assignment:
                self._set_directories()
            if self._replicas != list(self._partition.replicas):
                self._record.replicas = self._replicas
        if self._removing != list(self._partition.removing_replicas):
            self._record.removing_replicas = self._removing
        if self._adding != list(self._partition.adding_replicas):
            self._record.adding_replicas = self._adding

    def _set_directories(self) -> None:
        known = {**dict(zip(self._partition.replicas, self._partition.directories, strict=True)), **self._target.directories}
        directories = [known[replica] if replica in known else self._rules.default_dir(replica) for replica in self._replicas]
        if directories != list(self._partition.directories):
            self._record.directories = directories


def _in_hash_order(replicas: Iterable[int]) -> list[int]:
    """Return each replica once, in the order of Java's HashSet, because the order goes into the log."""
    order: HashOrder[int] = HashOrder()
    for replica in dict.fromkeys(replicas):
        order.put(replica)
    return list(order)
