"""The assignors sticky and cooperative-sticky. Members keep their partitions if the balance allows it. With cooperative-sticky, they revoke
partitions before others get them; with sticky, they revoke all, and tell the leader in their user data what they had.

Source: Kafka's StickyAssignor, CooperativeStickyAssignor, AbstractStickyAssignor (allSubscriptionsEqual, ConstrainedAssignmentBuilder).
`kops.client.groups.sticky_general` has the algorithm for members with different topics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence

from kops.client.groups.assignors import Assignment, Racks, Subscription, hash_ordered
from kops.client.groups.racks import RackInfo
from kops.client.groups.sticky_general import GeneralAssignment, MemberData
from kops.config.values.java_hash import hash_map_order, utf16
from kops.records.log_offsets import TopicPartition

NO_GENERATION = -1


class _AnySticky(ABC):
    """What both have in common: the highest generation that they have seen."""

    def __init__(self) -> None:
        self._generation = NO_GENERATION
        self._max_generation = NO_GENERATION

    @abstractmethod
    def _data(self, member: Subscription) -> MemberData:
        """Return what a member had."""

    def _divide(
        self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]
    ) -> tuple[Assignment, dict[TopicPartition, str] | None]:
        """Return the assignment, and the partitions that another member had, if the algorithm knows them. Both maps are in Java's order."""
        data = {name: self._data(member) for name, member in members.items()}
        owners = _Owners(topics, members, data)
        self._max_generation = max(self._max_generation, owners.max_generation)
        racks = RackInfo(topics, members)
        if owners.are_equal:
            constrained = _ConstrainedAssignment(topics, racks, owners)
            return constrained.build(), constrained.moving
        return GeneralAssignment(topics, racks, owners.owned, members, data, self._max_generation).build(), None


class CooperativeSticky(_AnySticky):
    """Members keep what they have until another one needs it."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self) -> bytes | None:
        """The generation of this member's partitions."""
        return self._generation.to_bytes(4, "big", signed=True)

    def on_assignment(self, keys: Sequence[TopicPartition], generation: int) -> None:
        """Store the generation."""
        self._generation = generation

    def _data(self, member: Subscription) -> MemberData:
        """Older members send the generation in their user data."""
        generation, data = member.generation, member.user_data
        if generation is None and data is not None:
            generation = int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else NO_GENERATION
        return MemberData(member.owned, generation)

    def assign(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> Assignment:
        """Compute the assignment. A partition that another member must revoke first is not assigned in this round."""
        topics, members = hash_ordered(topics, members)
        assignment, moving = self._divide(topics, members)
        for key, consumer in (_moving(members, assignment) if moving is None else moving).items():
            assignment[consumer].remove(key)
        return assignment


class Sticky(_AnySticky):
    """Members give everything away before a rebalance, and get most of it back."""

    name = "sticky"
    is_cooperative = False

    def __init__(self) -> None:
        super().__init__()
        self._keys: Sequence[TopicPartition] | None = None

    def user_data(self) -> bytes | None:
        """The partitions of this member and their generation."""
        return None if self._keys is None else write_user_data(self._keys, self._generation)

    def on_assignment(self, keys: Sequence[TopicPartition], generation: int) -> None:
        """Store both."""
        self._keys, self._generation = list(keys), generation

    def _data(self, member: Subscription) -> MemberData:
        return read_user_data(member.user_data) if member.user_data else MemberData((), None)

    def assign(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> Assignment:
        """Compute the assignment."""
        return self._divide(*hash_ordered(topics, members))[0]


def write_user_data(keys: Sequence[TopicPartition], generation: int) -> bytes:
    """Return the user data of the assignor sticky, in version 1."""
    by_topic: dict[str, list[int]] = {}
    for key in keys:
        by_topic.setdefault(key.topic, []).append(key.partition)
    found = bytearray(len(by_topic).to_bytes(4, "big"))
    for topic in hash_map_order(key.topic for key in keys):
        name = topic.encode()
        found += len(name).to_bytes(2, "big") + name + len(by_topic[topic]).to_bytes(4, "big")
        for partition in by_topic[topic]:
            found += partition.to_bytes(4, "big")
    return bytes(found) + generation.to_bytes(4, "big", signed=True)


def read_user_data(data: bytes) -> MemberData:
    """Return what a member with the assignor sticky had. Version 0 has no generation. Data that can't be read count as none."""
    keys: list[TopicPartition] = []
    place = 0

    def number(size: int) -> int:
        nonlocal place
        if place + size > len(data):
            raise IndexError
        place += size
        return int.from_bytes(data[place - size : place], "big", signed=True)

    def count() -> int:
        found = number(4)
        if not 0 <= found <= len(data) - place:
            raise IndexError
        return found

    try:
        for _ in range(count()):
            size = number(2)
            if not 0 <= size <= len(data) - place:
                raise IndexError
            place += size
            topic = data[place - size : place].decode(errors="replace")
            keys += [TopicPartition(topic, number(4)) for _ in range(count())]
    except IndexError:
        return MemberData((), NO_GENERATION)
    return MemberData(keys, number(4) if place + 4 <= len(data) else None)


class _Owners:
    """The owned partitions of members. If two members claim a partition, the later generation wins; if these are equal, none owns it."""

    def __init__(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription], data: Mapping[str, MemberData]) -> None:
        self.owned: dict[str, list[TopicPartition]] = {}
        self.claimed_twice: set[TopicPartition] = set()
        self.are_equal = True  # whether all members subscribe to the same topics
        self.max_generation = NO_GENERATION
        self._topics = topics
        self._members = members
        self._owner: dict[TopicPartition, str] = {}
        wanted: set[str] = set()
        for name, member in members.items():
            if not wanted:
                wanted = set(member.topics)
            elif not (len(member.topics) == len(wanted) and wanted.issuperset(member.topics)):
                self.are_equal = False
            self._add(name, data[name])

    def _add(self, name: str, member: MemberData) -> None:
        generation = NO_GENERATION if member.generation is None else member.generation
        self.max_generation = max(self.max_generation, generation)
        owned = self.owned[name] = []
        for key in member.owned:
            if key.topic not in self._topics:
                continue
            other = self._owner.get(key)
            if other is None:
                owned.append(key)
                self._owner[key] = name
                continue
            found = self._members[other].generation
            others = NO_GENERATION if found is None else found
            if generation < others:
                continue
            if generation > others:
                owned.append(key)
            else:
                self.claimed_twice.add(key)
            if key in self.owned[other]:
                self.owned[other].remove(key)
            self._owner[key] = name


class _ConstrainedAssignment:
    """The assignment if all members subscribe to the same topics: each gets the same number of partitions, or one more."""

    def __init__(self, topics: Mapping[str, Racks], racks: RackInfo, owners: _Owners) -> None:
        self._topics = topics
        self._racks = racks
        self._owned = owners.owned
        self._claimed_twice = owners.claimed_twice
        self.moving: dict[TopicPartition, str] = {}
        self._revoked: dict[TopicPartition, str] = {}
        self._low: list[str] = []  # members below the minimum
        self._exact: deque[str] = deque()  # members with the minimum that may get one more
        self._total = sum(map(len, topics.values()))
        self._min, self._over_count = divmod(self._total, len(self._owned))
        self._max = self._min + (self._over_count > 0)
        self._over = 0  # members with more than the minimum
        self._assignment: Assignment = {name: [] for name in self._owned}

    def build(self) -> Assignment:
        for name in self._owned:
            self._keep_owned(name)
        assigned = {key for keys in self._assignment.values() for key in keys}
        left = [TopicPartition(topic, index) for topic in sorted(self._topics, key=utf16) for index in range(len(self._topics[topic]))]
        left = self._racks.sort([key for key in left if key not in assigned])
        self._low.sort(key=utf16)
        self._exact = deque(sorted(self._exact, key=utf16))
        self._assign_near(left)
        self._assign_in_turn(left)
        return self._assignment

    def _keep_owned(self, name: str) -> None:
        """Let a member keep its partitions, up to its quota."""
        owned = []
        for key in self._owned[name]:
            if self._racks.mismatches(name, key):
                self._revoked[key] = name
            elif key not in self._claimed_twice:
                owned.append(key)
        owned.sort(key=lambda key: (key.partition, utf16(key.topic)))
        if len(owned) < self._min:
            self._assignment[name] += owned
            self._low.append(name)
            return
        count = self._min
        if len(owned) >= self._max and self._over < self._over_count:
            count = self._max
            self._over += 1
            if self._over == self._over_count:
                self._exact.clear()
        elif self._over < self._over_count:
            self._exact.append(name)
        self._assignment[name] += owned[:count]
        self._revoked.update(dict.fromkeys(owned[count:], name))

    def _assign_near(self, left: list[TopicPartition]) -> None:
        """Assign partitions to members on the same rack, up to their quota. Removes them from `left`."""
        if not self._racks.of_consumer:
            return
        first = 0
        for key in list(left):
            consumer = None
            index = self._racks.next_near(key, self._low, first)
            if index >= 0:
                consumer = self._low[index]
                count = len(self._assignment[consumer]) + 1
                if count >= self._min:
                    self._low.remove(consumer)
                    if count < self._max and self._over < self._over_count:
                        self._exact.append(consumer)
                else:
                    index += 1
                first = index % len(self._low) if self._low else 0
            elif self._exact:
                index = self._racks.next_near(key, self._exact, 0)
                if index >= 0:
                    consumer = self._exact[index]
                    if len(self._assignment[consumer]) + 1 == self._max:
                        del self._exact[index]
                        self._over += 1
                        if self._over == self._over_count:
                            self._exact.clear()
            if consumer is not None:
                self._give(key, consumer)
                left.remove(key)

    def _assign_in_turn(self, left: Sequence[TopicPartition]) -> None:
        index = 0
        for key in left:
            if index >= len(self._low):
                index = 0
            if self._low:
                consumer = self._low[index]
                if self._give(key, consumer) == self._min:
                    del self._low[index]
                    self._exact.append(consumer)
                else:
                    index += 1
            else:
                self._give(key, self._exact.popleft())

    def _give(self, key: TopicPartition, consumer: str) -> int:
        keys = self._assignment[consumer]
        keys.append(key)
        if self._revoked.get(key, consumer) != consumer or key in self._claimed_twice:
            self.moving[key] = consumer
        return len(keys)


def _moving(members: Mapping[str, Subscription], assignment: Assignment) -> dict[TopicPartition, str]:
    """Return the partitions that a member gets and another one must revoke first."""
    added, revoked = {}, set()
    for consumer, keys in assignment.items():
        owned = set(members[consumer].owned)
        added.update({key: consumer for key in keys if key not in owned})
        revoked |= owned.difference(keys)
    return {key: consumer for key, consumer in added.items() if key in revoked}
