"""A set of partitions with the iteration order of a java.util.HashSet, so that records equal Kafka's byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from kops.config.values.java_hash import string_hash
from kops.records.log_offsets import TopicPartition

_MIN_CAPACITY: Final = 16
_MASK: Final = 0xFFFF_FFFF


class PartitionSet:
    """A HashSet of TopicPartitions: bin by bin, and within a bin in the order of insertion. Its table never shrinks."""

    __slots__ = ("_bins", "_members")

    def __init__(self, partitions: Iterable[TopicPartition] = ()) -> None:
        members = list(partitions)
        bins = _MIN_CAPACITY
        while bins < int(len(members) / 0.75) + 1:
            bins *= 2
        self._bins = bins
        self._members: dict[TopicPartition, None] = {}
        self.update(members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, partition: object) -> bool:
        return partition in self._members

    def __iter__(self) -> Iterator[TopicPartition]:
        if len(self._members) < 2:
            return iter(tuple(self._members))
        last = self._bins - 1
        return iter(sorted(self._members, key=lambda each: _spread(each) & last))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSet) and self._members.keys() == other._members.keys()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PartitionSet({list(self)})"

    def has_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these are in the set."""
        return all(partition in self._members for partition in partitions)

    def update(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions."""
        for partition in partitions:
            self._members[partition] = None
            if len(self._members) > self._bins * 3 // 4:
                self._bins *= 2

    def discard(self, partition: TopicPartition) -> None:
        """Remove a partition."""
        self._members.pop(partition, None)


@lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return string_hash(topic)


def _spread(key: TopicPartition) -> int:
    code = (31 * (31 + key.partition) + _topic_hash(key.topic)) & _MASK
    return code ^ code >> 16
