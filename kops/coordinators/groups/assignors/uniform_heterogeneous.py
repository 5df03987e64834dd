"""Uniform assignment if members subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).

Unassigned partitions go to the least loaded subscribers, topic by topic. Then topics are balanced one after the other, until a round
moves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kops.coordinators.groups.assignors.java_maps import JavaMap, JavaSet, capacity_for, number_hash
from kops.coordinators.groups.assignors.spec import (
    GroupSpec,
    MutablePartitions,
    PartitionCount,
    Partitions,
    deep_copy,
    frozen,
    no_topic,
)
from kops.protocol.json_text import uuid_text

_MAX_ROUNDS: Final = 16


class _Balancer:
    """The subscribers of a topic sorted by load, with the ranges of the least and the most loaded ones."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._sorted: list[int] = []
        self._least_end = 0
        self._least_count = -1
        self._next_least = 0
        self._most_start = 0
        self._most_end = 0
        self._most_count = 1
        self._next_most = -1

    def begin(self, members: Sequence[int]) -> int:
        """Begin with these subscribers, and return the difference between the largest and smallest load."""
        sizes = self._sizes
        self._sorted = sorted(members, key=lambda member: (sizes[member], member))
        least, most = sizes[self._sorted[0]], sizes[self._sorted[-1]]
        self._least_end = 0
        self._least_count = least - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_count = most + 1
        self._next_most = len(self._sorted) - 1
        return most - least

    def next_least(self) -> int:
        """Return the member that should get a partition."""
        if self._next_least >= self._least_end:
            self._least_count += 1
            while self._least_end < len(self._sorted) and self._sizes[self._sorted[self._least_end]] == self._least_count:
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._sorted[self._next_least - 1]

    def next_most(self) -> int:
        """Return the member that should give a partition, or -1."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_count = self._sizes[self._sorted[self._most_start - 1]]
            else:
                self._most_count -= 1
            while self._most_start > 0 and self._sizes[self._sorted[self._most_start - 1]] == self._most_count:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return -1
        self._next_most -= 1
        return self._sorted[self._next_most + 1]

    def exclude_most(self) -> None:
        """Exclude the last member of `next_most`, which has no partition of this topic to give."""
        place = self._next_most + 1
        self._sorted[place], self._sorted[self._most_end - 1] = self._sorted[self._most_end - 1], self._sorted[place]
        self._most_end -= 1

    @property
    def is_balanced(self) -> bool:
        """Whether the loads of the two ranges differ by at most one."""
        return self._most_count - self._least_count <= 1


class UniformHeterogeneousBuilder:
    """One run of the assignor."""

    def __init__(self, spec: GroupSpec, partition_count: PartitionCount) -> None:
        self._spec = spec
        self._member_ids = list(spec.members)
        self._subscribers: dict[bytes, list[int]] = {}
        self._counts: dict[bytes, int] = {}
        for index, member in enumerate(spec.members.values()):
            for topic_id in member.subscribed_topic_ids:
                if topic_id not in self._counts:
                    count = partition_count(topic_id)
                    if count == -1:
                        raise no_topic(uuid_text(topic_id))
                    self._counts[topic_id] = count
                self._subscribers.setdefault(topic_id, []).append(index)
        self._sizes = [0] * len(self._member_ids)
        self._owners = {topic_id: [-1] * count for topic_id, count in self._counts.items()}
        self._target: dict[str, Partitions | MutablePartitions] = {}

    def build(self) -> dict[str, Partitions]:
        """Return the target assignment."""
        if not self._counts:
            return {}
        self._revoke()
        self._assign_remaining()
        balanced = [topic_id for topic_id in self._counts if len(self._subscribers[topic_id]) >= 2]
        if balanced:
            self._balance(self._sort(balanced))
        return {member_id: frozen(found) if isinstance(found, JavaMap) else found for member_id, found in self._target.items()}

    def _sort(self, topic_ids: Collection[bytes]) -> list[bytes]:
        """Sort topics by partitions per subscriber, largest first."""

        def order(topic_id: bytes) -> tuple[float, int, int, int]:
            subscribers = len(self._subscribers[topic_id])
            high, low = (int.from_bytes(half, "big", signed=True) for half in (topic_id[:8], topic_id[8:]))
            return -self._counts[topic_id] / subscribers, subscribers, high, low

        return sorted(topic_ids, key=order)

    def _revoke(self) -> None:
        """Revoke partitions of topics to which members no longer subscribe."""
        for index, (member_id, member) in enumerate(self._spec.members.items()):
            changed: MutablePartitions | None = None
            subscribed = member.subscribed_topic_ids
            for topic_id, partitions in member.partitions.items():
                if topic_id in subscribed:
                    self._sizes[index] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = index
                else:
                    changed = deep_copy(member.partitions) if changed is None else changed
                    changed.discard(topic_id)
            self._target[member_id] = member.partitions if changed is None else changed

    def _assign_remaining(self) -> None:
        free: Mapping[bytes, list[int]] = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == -1] for topic_id, owners in self._owners.items()
        }
        balancer = _Balancer(self._sizes)
        for topic_id in self._sort([topic_id for topic_id, partitions in free.items() if partitions]):
            balancer.begin(self._subscribers[topic_id])
            for partition in free[topic_id]:
                self._give(topic_id, partition, balancer.next_least())

    def _balance(self, topic_ids: list[bytes]) -> None:
        last_moved = -1
        balancer = _Balancer(self._sizes)
        for _ in range(_MAX_ROUNDS):
            for index, topic_id in enumerate(topic_ids):
                if index == last_moved:
                    return
                if self._balance_topic(topic_id, balancer) or last_moved == -1:
                    last_moved = index

    def _balance_topic(self, topic_id: bytes, balancer: _Balancer) -> bool:
        """Balance one topic. Returns whether a partition moved."""
        if balancer.begin(self._subscribers[topic_id]) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        has_moved = False
        while not balancer.is_balanced:
            giver = balancer.next_most()
            while giver != -1 and not owned.get(giver):
                balancer.exclude_most()
                giver = balancer.next_most()
            if giver == -1:
                break
            partition = owned[giver].pop()
            taker = balancer.next_least()
            if balancer.is_balanced:
                break
            self._give(topic_id, partition, taker)
            has_moved = True
        return has_moved

    def _give(self, topic_id: bytes, partition: int, index: int) -> None:
        owners = self._owners[topic_id]
        before = owners[partition]
        if before != -1:
            partitions = self._changed(before)
            numbers = partitions.get(topic_id)
            if numbers is not None:
                numbers.discard(partition)
                if not numbers:
                    partitions.discard(topic_id)
            self._sizes[before] -= 1
        self._changed(index).compute_if_absent(topic_id, lambda: self._new_numbers(topic_id)).add(partition)
        owners[partition] = index
        self._sizes[index] += 1

    def _new_numbers(self, topic_id: bytes) -> JavaSet[int]:
        count, subscribers = self._counts[topic_id], len(self._subscribers[topic_id])
        return JavaSet(number_hash, capacity=capacity_for((count + subscribers - 1) // subscribers))

    def _changed(self, index: int) -> MutablePartitions:
        member_id = self._member_ids[index]
        found = self._target[member_id]
        if not isinstance(found, JavaMap):
            found = self._target[member_id] = deep_copy(found)
        return found
