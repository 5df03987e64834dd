"""Indexes the partitions that a broker leads, is in sync for, may lead, or keeps in a directory. An event of the broker changes these.

Source: Kafka's BrokersToIsrs, BrokersToElrs and the directories' map of ReplicationControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.metadata.directory_id import is_reserved
from kops.metadata.partition_registration import NO_LEADER
from kops.timeline import Timeline, TimelineDict

if TYPE_CHECKING:
    from kops.metadata.partition_registration import PartitionRegistration


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class _Sets:
    """Maps keys to partitions, each with a mark."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._sets: dict[int | bytes, TimelineDict[TopicIdPartition, bool]] = {}

    def get(self, key: int | bytes) -> TimelineDict[TopicIdPartition, bool]:
        """Return the partitions of a key."""
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = TimelineDict(self._timeline)
        return found

    def replace(self, partition: TopicIdPartition, old: dict[int | bytes, bool], new: dict[int | bytes, bool]) -> None:
        """Set the keys of a partition, and its mark for each key."""
        if old == new:
            return
        for key in old.keys() - new.keys():
            del self.get(key)[partition]
        for key, mark in new.items():
            if old.get(key) is not mark:
                self.get(key)[partition] = mark


_NOWHERE: Final[dict[int | bytes, bool]] = {}


class PartitionIndex:
    """All partitions by brokers and directories, kept up to date by `replace`."""

    def __init__(self, timeline: Timeline) -> None:
        self._in_isr = _Sets(timeline)
        self._in_elr = _Sets(timeline)
        self._in_directory = _Sets(timeline)

    def replace(self, partition: TopicIdPartition, old: PartitionRegistration | None, new: PartitionRegistration | None) -> None:
        """Handle a partition that was created, changed or removed."""
        self._in_isr.replace(partition, _isr(old), _isr(new))
        self._in_elr.replace(partition, _elr(old), _elr(new))
        self._in_directory.replace(partition, _directories(old), _directories(new))

    def in_isr(self, broker_id: int) -> list[TopicIdPartition]:
        """Return the partitions with the broker in their ISR."""
        return list(self._in_isr.get(broker_id))

    def in_elr(self, broker_id: int) -> list[TopicIdPartition]:
        """Return the partitions with the broker in their ELR."""
        return list(self._in_elr.get(broker_id))

    def without_leader(self) -> list[TopicIdPartition]:
        """Return the partitions without a leader."""
        return list(self._in_isr.get(NO_LEADER))

    def has_leaderships(self, broker_id: int) -> bool:
        """Whether the broker leads any partition."""
        return any(self._in_isr.get(broker_id).values())

    def in_directory(self, directory: bytes) -> list[TopicIdPartition]:
        """Return the partitions with a replica in the directory."""
        return list(self._in_directory.get(directory))


def _isr(partition: PartitionRegistration | None) -> dict[int | bytes, bool]:
    """Return the members of the ISR, each with whether it leads. Without a leader, NO_LEADER counts as a member."""
    if partition is None:
        return _NOWHERE
    found: dict[int | bytes, bool] = {replica: replica == partition.leader for replica in partition.isr}
    if not partition.has_leader:
        found[NO_LEADER] = True
    return found


def _elr(partition: PartitionRegistration | None) -> dict[int | bytes, bool]:
    return _NOWHERE if partition is None else dict.fromkeys(partition.elr, False)


def _directories(partition: PartitionRegistration | None) -> dict[int | bytes, bool]:
    if partition is None:
        return _NOWHERE
    return {directory: False for directory in partition.directories if not is_reserved(directory)}
