"""The assignor "range": each topic's partitions in ranges, in the order of the members (Kafka's RangeAssignor)."""

from __future__ import annotations

from collections.abc import Iterable

from kops.coordinators.groups.assignors.java_maps import JavaMap, capacity_for, uuid_hash
from kops.coordinators.groups.assignors.spec import AssignorError, GroupSpec, PartitionCount, Partitions

NAME = "range"


class _Topic:
    """A topic, the number of its members, and its remaining partitions."""

    __slots__ = ("extra", "member_count", "next", "partition_count", "quota")

    def __init__(self, partition_count: int, member_count: int) -> None:
        self.partition_count = partition_count
        self.member_count = member_count
        self.quota = -1
        self.extra = -1
        self.next = 0

    def take(self) -> tuple[int, ...]:
        """Return the next member's range."""
        if self.quota == -1:
            self.quota, self.extra = divmod(self.partition_count, self.member_count)
        quota = self.quota
        if self.extra > 0:
            quota += 1
            self.extra -= 1
        start = self.next
        self.next = min(start + quota, self.partition_count)
        return tuple(range(start, self.next))


def assign(spec: GroupSpec, partition_count: PartitionCount) -> dict[str, Partitions]:
    """Return the target assignment. Raises AssignorError."""
    member_ids = sorted(spec.members, key=lambda member_id: _order(spec, member_id))
    if not member_ids:
        return {}
    topics: dict[bytes, _Topic] = {}
    if spec.is_homogeneous:
        shared = list(spec.members[member_ids[0]].subscribed_topic_ids)
        for topic_id in shared:
            topics[topic_id] = _topic(topic_id, partition_count, len(member_ids))
        return {member_id: _ranges(shared, len(shared), topics) for member_id in member_ids}
    for member_id in member_ids:
        for topic_id in spec.members[member_id].subscribed_topic_ids:
            if topic_id not in topics:
                topics[topic_id] = _topic(topic_id, partition_count, 0)
            topics[topic_id].member_count += 1
    assigned: dict[str, Partitions] = {}
    for member_id in member_ids:
        member = spec.members[member_id]
        assigned[member_id] = _ranges(member.subscribed_topic_ids, member.subscription_size, topics)
    return assigned


def _topic(topic_id: bytes, partition_count: PartitionCount, member_count: int) -> _Topic:
    count = partition_count(topic_id)
    if count == -1:
        raise AssignorError("Member is subscribed to a non-existent topic")
    return _Topic(count, member_count)


def _ranges(topic_ids: Iterable[bytes], count: int, topics: dict[bytes, _Topic]) -> Partitions:
    assigned: JavaMap[bytes, tuple[int, ...]] = JavaMap(uuid_hash, capacity=capacity_for(count))
    for topic_id in topic_ids:
        numbers = topics[topic_id].take()
        if numbers:
            assigned[topic_id] = numbers
    return assigned.to_dict()


def _order(spec: GroupSpec, member_id: str) -> tuple[int, bytes]:
    """Return the sort key of a member. Static members come first, by instance id. Java compares UTF-16 units."""
    instance_id = spec.members[member_id].instance_id
    text = member_id if instance_id is None else instance_id
    return int(instance_id is None), text.encode("utf-16-be", "surrogatepass")
