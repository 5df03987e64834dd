"""A partition in the metadata log: replicas, ISR, leader, reassignment, eligible leaders (Kafka PartitionRegistration)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kops.metadata.directory_id import MIGRATING
from kops.protocol.messages import PartitionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.metadata.metadata_version import MetadataVersion
    from kops.protocol.messages import PartitionChangeRecord

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and has not yet reported its recovery."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition. `directories` has one id for each of `replicas`. `leader` is NO_LEADER if there is none."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        """Return the partition of a PartitionRecord. Raises ValueError if the numbers of directories and replicas differ."""
        return cls(
            replicas=tuple(record.replicas),
            directories=_directories(record.directories, len(record.replicas)),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
        )

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Return the partition after a change. If the change names a leader, even the same one, the leader epoch increases."""
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        led_anew = change.leader != NO_LEADER_CHANGE
        recovery = change.leader_recovery_state
        return PartitionRegistration(
            replicas=replicas,
            directories=_directories(self.directories if change.directories is None else change.directories, len(replicas)),
            isr=_changed(self.isr, change.isr),
            leader=change.leader if led_anew else self.leader,
            leader_epoch=self.leader_epoch + led_anew,
            partition_epoch=self.partition_epoch + 1,
            removing_replicas=_changed(self.removing_replicas, change.removing_replicas),
            adding_replicas=_changed(self.adding_replicas, change.adding_replicas),
            elr=_changed(self.elr, change.eligible_leader_replicas),
            last_known_elr=_changed(self.last_known_elr, change.last_known_elr),
            leader_recovery_state=self.leader_recovery_state if recovery == NO_RECOVERY_CHANGE else LeaderRecoveryState(recovery),
        )

    def to_record(self, topic_id: bytes, partition: int, version: MetadataVersion, *, with_elr: bool) -> tuple[PartitionRecord, int]:
        """Return the PartitionRecord of this partition and its version. `with_elr` says whether the feature of eligible leaders is on."""
        record = PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if version.has_directory_assignment else [],
            eligible_leader_replicas=(list(self.elr) or None) if with_elr else None,
            last_known_elr=(list(self.last_known_elr) or None) if with_elr else None,
        )
        return record, version.partition_record_version

    @property
    def has_leader(self) -> bool:
        """Whether there is a leader."""
        return self.leader != NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads."""
        return self.leader == (self.replicas[0] if self.replicas else NO_LEADER)

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, replica: int) -> bytes:
        """Return the directory of a replica. Raises ValueError if the broker has none."""
        return self.directories[self.replicas.index(replica)]


def _changed(old: tuple[int, ...], new: list[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _directories(given: Sequence[bytes], count: int) -> tuple[bytes, ...]:
    """Return the directories of `count` replicas. If nothing is known, all are MIGRATING."""
    if all(directory == MIGRATING for directory in given):
        return (MIGRATING,) * count
    if len(given) != count:
        raise ValueError(f"{len(given)} directories for {count} replicas")
    return tuple(given)
