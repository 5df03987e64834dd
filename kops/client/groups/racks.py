"""The racks of members and partitions, for the sticky assignor.

Source: Kafka's AbstractStickyAssignor (RackInfo), AbstractPartitionAssignor (useRackAwareAssignment).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kops.client.groups.assignors import Racks, Subscription, uses_racks
from kops.records.log_offsets import TopicPartition


class RackInfo:
    """Racks of members and partitions. They are empty if racks do not matter."""

    def __init__(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> None:
        by_rack: dict[str, list[str]] = {}
        for name, member in members.items():
            if member.rack:
                by_rack.setdefault(member.rack, []).append(name)
        all_racks = {TopicPartition(topic, index): found for topic, racks in topics.items() for index, found in enumerate(racks)}
        if not by_rack:
            all_racks = {}
        # Even if racks do not matter, partitions with fewer members on their racks come first.
        self._consumer_counts = {key: sum(len(by_rack.get(rack, ())) for rack in racks) for key, racks in all_racks.items()}
        self.of_consumer: dict[str, str] = {}
        self.of_partition: dict[TopicPartition, frozenset[str]] = {}
        if uses_racks(set(by_rack), set().union(*all_racks.values()), all_racks.values()):
            self.of_consumer = {name: rack for rack, names in by_rack.items() for name in names}
            self.of_partition = all_racks

    def mismatches(self, consumer: str, key: TopicPartition) -> bool:
        """Whether a partition has no replica on the consumer's rack."""
        rack = self.of_consumer.get(consumer)
        return rack is not None and rack not in self.of_partition.get(key, frozenset())

    def sort(self, keys: list[TopicPartition]) -> list[TopicPartition]:
        """Sort partitions by the number of members on their racks, smallest first."""
        return sorted(keys, key=lambda key: self._consumer_counts.get(key, 0)) if self._consumer_counts else keys

    def next_near(self, key: TopicPartition, consumers: Sequence[str], first: int) -> int:
        """Return the index of the next consumer on a rack of the partition, searching cyclically from `first`, or -1."""
        racks = self.of_partition.get(key, frozenset())
        for step in range(len(consumers)):
            index = (first + step) % len(consumers)
            if self.of_consumer.get(consumers[index]) in racks:
                return index
        return -1
