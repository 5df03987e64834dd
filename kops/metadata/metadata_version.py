"""The metadata versions of Kafka 4.3, and the records that each allows in the metadata log.

Source: Kafka's MetadataVersion. Versions after 4.3-IV0 are unstable and not supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FEATURE_NAME: Final = "metadata.version"


@dataclass(frozen=True, slots=True, order=True)
class MetadataVersion:
    """A version: its feature level, its name (`4.3-IV0`) and whether it changed the records."""

    level: int
    name: str
    did_metadata_change: bool

    @property
    def release(self) -> str:
        """The release that introduced it, such as `4.3`."""
        return self.name.partition("-")[0]

    @property
    def bumps_leader_epoch_on_isr_shrink(self) -> bool:
        """Whether a replica that leaves the ISR increases the leader epoch, as until 3.6-IV0 (KAFKA-15021)."""
        return self.level < 12

    @property
    def has_transactions(self) -> bool:
        """Whether BeginTransactionRecord and the other records of transactions may be written."""
        return self.level >= 13

    @property
    def has_controller_registration(self) -> bool:
        """Whether controllers register (KIP-919)."""
        return self.level >= 15

    @property
    def has_directory_assignment(self) -> bool:
        """Whether partitions have the directory of each replica (KIP-858)."""
        return self.level >= 17

    @property
    def has_elr(self) -> bool:
        """Whether partitions may have eligible leader replicas (KIP-966)."""
        return self.level >= 23

    @property
    def has_cordoned_log_dirs(self) -> bool:
        """Whether brokers report the directories that take no new partitions."""
        return self.level >= 30

    @property
    def register_broker_record_version(self) -> int:
        """The version of RegisterBrokerRecord."""
        if self.has_cordoned_log_dirs:
            return 4
        if self.has_directory_assignment:
            return 3
        return 2 if self.level >= 8 else 1

    @property
    def partition_record_version(self) -> int:
        """The version of PartitionRecord, and of PartitionChangeRecord."""
        if self.has_elr:
            return 2
        return 1 if self.has_directory_assignment else 0

    def __str__(self) -> str:
        return self.name


_NAMES: Final = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0"),
)
_CHANGED: Final = {"3.3-IV3", "3.4-IV0", "3.5-IV2", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV2", "4.0-IV1", "4.3-IV0"}
VERSIONS: Final = tuple(MetadataVersion(level, name, name in _CHANGED) for level, name in enumerate(_NAMES, 7))
MINIMUM: Final = VERSIONS[0]
LATEST_PRODUCTION: Final = VERSIONS[-2]
LATEST_TESTING: Final = VERSIONS[-1]


def from_level(level: int) -> MetadataVersion | None:
    """Return the version of a feature level, or None if there is none."""
    index = level - MINIMUM.level
    return VERSIONS[index] if 0 <= index < len(VERSIONS) else None


def metadata_changed_between(one: MetadataVersion, other: MetadataVersion) -> bool:
    """Whether the records changed between two versions (checkIfMetadataChanged)."""
    low, high = sorted((one, other))
    return any(version.did_metadata_change for version in VERSIONS if low < version <= high)
