"""The assignor cooperative-sticky. Members keep their partitions if the balance allows it, and revoke partitions before others get them.

Source: Kafka's CooperativeStickyAssignor, AbstractStickyAssignor (allSubscriptionsEqual, ConstrainedAssignmentBuilder).
`kops.client.groups.sticky_general` has the algorithm for members with different topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from kops.client.groups.assignors import Assignment, Racks, Subscription, hash_ordered
from kops.client.groups.racks import RackInfo
from kops.client.groups.sticky_general import GeneralAssignment
from kops.config.values.java_hash import utf16
from kops.records.log_offsets import TopicPartition

NO_GENERATION = -1


class CooperativeSticky:
    """Remembers the highest generation that it has seen, as Kafka's assignor does."""

    name = "cooperative-sticky"
    is_cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION
        self._max_generation = NO_GENERATION

    def user_data(self) -> bytes | None:
        """The generation of this member's partitions."""
        return self._generation.to_bytes(4, "big", signed=True)

    def on_assignment(self, generation: int) -> None:
        """Store the generation."""
        self._generation = generation

    def assign(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> Assignment:
        """Compute the assignment. A partition that another member must revoke first is not assigned in this round."""
        topics, members = hash_ordered(topics, members)
        owners = _Owners(topics, members)
        self._max_generation = max(self._max_generation, owners.max_generation)
        racks = RackInfo(topics, members)
        if owners.are_equal:
            constrained = _ConstrainedAssignment(topics, racks, owners)
            assignment, moving = constrained.build(), constrained.moving
        else:
            general = GeneralAssignment(topics, racks, owners.owned, members, generations(members), self._max_generation)
            assignment = general.build()
            moving = _moving(members, assignment)
        for key, consumer in moving.items():
            assignment[consumer].remove(key)
        return assignment


def _generation(member: Subscription) -> int | None:
    """Return the generation of a member's partitions. Older members send it in their user data."""
    if member.generation is not None:
        return member.generation
    if member.user_data is None:
        return None
    return int.from_bytes(member.user_data[:4], "big", signed=True) if len(member.user_data) >= 4 else NO_GENERATION


def generations(members: Mapping[str, Subscription]) -> dict[str, int | None]:
    """Return the generation of each member."""
    return {name: _generation(member) for name, member in members.items()}


class _Owners:
    """The owned partitions of members. If two members claim a partition, the later generation wins; if these are equal, none owns it."""

    def __init__(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> None:
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
            self._add(name, member)

    def _add(self, name: str, member: Subscription) -> None:
        own = _generation(member)
        generation = NO_GENERATION if own is None else own
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
