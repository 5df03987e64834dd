"""Simple assignment if all members subscribe to the same topics (Kafka's SimpleHomogeneousAssignmentBuilder)."""

from __future__ import annotations

from math import ceil

from kops.coordinators.groups.assignors.java_maps import JavaMap, JavaSet, number_hash, pair_hash
from kops.coordinators.groups.assignors.spec import (
    CyclicIterator,
    GroupSpec,
    MutablePartitions,
    PartitionCount,
    Partitions,
    deep_copy,
    first,
    frozen,
    new_numbers,
    no_topic,
)
from kops.protocol.json_text import uuid_text

Pair = tuple[bytes, int]


def roomy(count: int) -> int:
    """The initial capacity that Kafka's share assignor chooses (AssignorHelpers.newHashMap)."""
    return int((count + 1) / 0.75) + 1


def shares(sharing: int, partition_count: int, member_count: int) -> list[int]:
    """Return how many partitions each member should have: the fractional share, rounded so that the sum is exact."""
    precise = sharing * partition_count / member_count
    return [ceil(precise * (index + 1)) - ceil(precise * index) for index in range(member_count)]


def sharing_of(partition_count: int, member_count: int) -> int:
    """Return how many members should share a partition."""
    return (member_count + partition_count - 1) // partition_count if partition_count else 0


class SimpleHomogeneousBuilder:
    """One run of the assignor."""

    def __init__(self, spec: GroupSpec, partition_count: PartitionCount) -> None:
        member = first(spec.members.values())
        self._topic_ids = member.subscribed_topic_ids
        self._subscription_size = member.subscription_size
        self._member_ids = list(spec.members)
        self._old = [member.partitions for member in spec.members.values()]
        self._targets: list[Pair] = []
        for topic_id in self._topic_ids:
            count = partition_count(topic_id)
            if count == -1:
                raise no_topic(uuid_text(topic_id))
            self._targets += ((topic_id, partition) for partition in range(count) if spec.is_assignable(topic_id, partition))
        member_count = len(self._member_ids)
        self._sharing = sharing_of(len(self._targets), member_count)
        self._wanted = shares(self._sharing, len(self._targets), member_count)
        self._new: dict[int, MutablePartitions] = {}
        self._by_partition: JavaMap[Pair, JavaSet[int]] = JavaMap(pair_hash, capacity=roomy(len(self._targets)))
        self._by_member: dict[int, JavaSet[Pair]] = {}
        self._unfilled: JavaSet[int] = JavaSet(number_hash, capacity=roomy(member_count))
        self._overfilled: JavaSet[int] = JavaSet(number_hash, capacity=roomy(member_count))

    def build(self) -> dict[str, Partitions]:
        """Return the target assignment."""
        if not self._subscription_size:
            return {}
        for index in range(len(self._member_ids)):
            self._revoke_unassignable(index)
        for index in self._overfilled:
            self._revoke_overfilled(index)
        self._revoke_overshared()
        for pair in self._targets:
            self._by_partition.compute_if_absent(pair, new_numbers)
        self._assign_remaining()
        return {
            member_id: frozen(self._new[index]) if index in self._new else self._old[index]
            for index, member_id in enumerate(self._member_ids)
        }

    def _revoke_unassignable(self, index: int) -> None:
        """Record the member's partitions, and revoke those of topics to which it does not subscribe."""
        old = self._old[index]
        changed: MutablePartitions | None = None
        count, wanted = 0, self._wanted[index]
        for topic_id, partitions in old.items():
            if topic_id not in self._topic_ids:
                changed = deep_copy(old) if changed is None else changed
                changed.discard(topic_id)
                continue
            for partition in partitions:
                count += 1
                self._note(index, (topic_id, partition))
                if count >= wanted and changed is None:
                    changed = deep_copy(old)
        if changed is not None:
            self._new[index] = changed
        if count < wanted:
            self._unfilled.add(index)
        elif count > wanted:
            self._overfilled.add(index)

    def _note(self, index: int, pair: Pair) -> None:
        self._by_partition.compute_if_absent(pair, new_numbers).add(index)
        self._by_member.setdefault(index, JavaSet(pair_hash)).add(pair)

    def _revoke_overfilled(self, index: int) -> None:
        """Revoke the partitions that the member has above its share."""
        assigned = self._by_member[index]
        for topic_id, partition in list(assigned):
            if len(assigned) <= self._wanted[index]:
                break
            self._new[index][topic_id].discard(partition)
            self._by_partition[topic_id, partition].discard(index)
            assigned.discard((topic_id, partition))

    def _revoke_overshared(self) -> None:
        """Revoke partitions that too many members share."""
        for pair, members in self._by_partition.items():
            count = len(members)
            if count <= self._sharing:
                continue
            for index in list(members):
                numbers = self._changed(index).get(pair[0])
                if numbers is not None and numbers.discard(pair[1]):
                    count -= 1
                    members.discard(index)
                    self._by_member[index].discard(pair)
                    self._unfilled.add(index)
                if count <= self._sharing:
                    break

    def _assign_remaining(self) -> None:
        """Assign partitions with too few members to members with too few partitions."""
        if not self._unfilled:
            return
        members = CyclicIterator(self._unfilled)
        has_assigned = False
        for (topic_id, partition), assigned in self._by_partition.items():
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
                self._changed(index).compute_if_absent(topic_id, new_numbers).add(partition)
                own = self._by_member.setdefault(index, JavaSet(pair_hash))
                own.add((topic_id, partition))
                missing -= 1
                has_assigned = True
                if len(own) >= self._wanted[index]:
                    members.remove()
            if not self._unfilled:
                break

    def _changed(self, index: int) -> MutablePartitions:
        if index not in self._new:
            self._new[index] = deep_copy(self._old[index])
        return self._new[index]
