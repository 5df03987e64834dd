"""Simple assignment, topic by topic, if members subscribe to different topics (Kafka's SimpleHeterogeneousAssignmentBuilder)."""

from __future__ import annotations

from kops.coordinators.groups.assignors.java_maps import JavaMap, JavaSet, number_hash, uuid_hash
from kops.coordinators.groups.assignors.simple_homogeneous import roomy, shares, sharing_of
from kops.coordinators.groups.assignors.spec import (
    CyclicIterator,
    GroupSpec,
    MutablePartitions,
    PartitionCount,
    Partitions,
    deep_copy,
    frozen,
    new_numbers,
    no_topic,
)
from kops.protocol.json_text import uuid_text


class SimpleHeterogeneousBuilder:
    """One run of the assignor."""

    def __init__(self, spec: GroupSpec, partition_count: PartitionCount) -> None:
        self._member_ids = list(spec.members)
        self._old = [member.partitions for member in spec.members.values()]
        self._new: dict[int, MutablePartitions] = {}
        self._topic_ids: JavaSet[bytes] = JavaSet(uuid_hash)
        self._subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(spec.members.values()):
            for topic_id in member.subscribed_topic_ids:
                self._topic_ids.add(topic_id)
                self._subscribers.setdefault(topic_id, []).append(index)
        self._targets: dict[bytes, list[int]] = {}
        for topic_id in self._topic_ids:
            count = partition_count(topic_id)
            if count == -1:
                raise no_topic(uuid_text(topic_id))
            self._targets[topic_id] = [partition for partition in range(count) if spec.is_assignable(topic_id, partition)]

    def build(self) -> dict[str, Partitions]:
        """Return the target assignment."""
        if not self._topic_ids:
            return {}
        for topic_id in self._topic_ids:
            _TopicBuilder(topic_id, self._targets[topic_id], self._subscribers[topic_id], self._old, self._new).build()
        return {
            member_id: frozen(self._new[index]) if index in self._new else self._old[index]
            for index, member_id in enumerate(self._member_ids)
        }


class _TopicBuilder:
    """The assignment of one topic."""

    def __init__(
        self, topic_id: bytes, targets: list[int], subscribers: list[int], old: list[Partitions], new: dict[int, MutablePartitions]
    ) -> None:
        self._topic_id = topic_id
        self._targets = targets
        self._subscribers = subscribers
        self._old = old
        self._new = new
        self._by_partition: JavaMap[int, JavaSet[int]] = JavaMap(number_hash, capacity=roomy(len(targets)))
        self._by_member: JavaMap[int, JavaSet[int]] = JavaMap(number_hash, capacity=roomy(len(subscribers)))
        self._sharing = sharing_of(len(targets), len(subscribers))
        self._wanted = [0] * len(old)
        for index, wanted in zip(subscribers, shares(self._sharing, len(targets), len(subscribers)), strict=True):
            self._wanted[index] = wanted

    def build(self) -> None:
        """Compute the topic's assignment in `new`."""
        for index, old in enumerate(self._old):
            for partition in old.get(self._topic_id, ()):
                self._by_partition.compute_if_absent(partition, new_numbers).add(index)
                self._by_member.compute_if_absent(index, new_numbers).add(partition)
        self._revoke_overfilled()
        self._revoke_overshared()
        for partition in self._targets:
            self._by_partition.compute_if_absent(partition, self._new_members)
        self._assign_remaining()

    def _new_members(self) -> JavaSet[int]:
        return JavaSet(number_hash, capacity=roomy(len(self._subscribers)))

    def _revoke_overfilled(self) -> None:
        """Revoke partitions from members that have too many."""
        for index, assigned in self._by_member.items():
            for partition in list(assigned):
                if len(assigned) <= self._wanted[index]:
                    break
                self._by_partition[partition].discard(index)
                assigned.discard(partition)
                self._changed(index)[self._topic_id].discard(partition)

    def _revoke_overshared(self) -> None:
        """Revoke partitions that too many members share."""
        for partition, members in self._by_partition.items():
            count = len(members)
            if count <= self._sharing:
                continue
            for index in list(members):
                numbers = self._changed(index).get(self._topic_id)
                if numbers is not None and numbers.discard(partition):
                    count -= 1
                    members.discard(index)
                    self._by_member[index].discard(partition)
                if count <= self._sharing:
                    break

    def _assign_remaining(self) -> None:
        """Assign partitions with too few members to members with too few partitions."""
        unfilled: JavaSet[int] = JavaSet(number_hash, capacity=roomy(len(self._old)))
        for index in self._subscribers:
            if len(self._by_member.get(index) or ()) < self._wanted[index]:
                unfilled.add(index)
        members = CyclicIterator(unfilled)
        has_assigned = False
        for partition, assigned in self._by_partition.items():
            missing = self._sharing - len(assigned)
            while missing > 0:
                if not members.has_next:
                    if not has_assigned:
                        break
                    members.begin()
                    has_assigned = False
                index = members.next()
                if index in assigned:
                    continue
                self._changed(index).compute_if_absent(self._topic_id, new_numbers).add(partition)
                own = self._by_member.compute_if_absent(index, new_numbers)
                own.add(partition)
                missing -= 1
                has_assigned = True
                if len(own) >= self._wanted[index]:
                    members.remove()
            if not unfilled:
                break

    def _changed(self, index: int) -> MutablePartitions:
        if index not in self._new:
            self._new[index] = deep_copy(self._old[index])
        return self._new[index]
