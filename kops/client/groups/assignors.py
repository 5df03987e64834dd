"""The assignors range and roundrobin. Their results are exactly those of Kafka's assignors, in the same order.

Source: Kafka's ConsumerPartitionAssignor, AbstractPartitionAssignor, RangeAssignor (rack-aware, KIP-881), RoundRobinAssignor. Java keeps
members and topics in hash maps, whose order decides in some cases, so this module follows that order (`put_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kops.config.values.java_hash import put_order, utf16
from kops.records.log_offsets import TopicPartition

Racks = Sequence[frozenset[str]]  # by partition: the racks of its replicas
Assignment = dict[str, list[TopicPartition]]


class Subscription(NamedTuple):
    """The subscription of a member. `generation` is None if the member had none before, or does not report it (older members)."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int | None = None
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


class Assignor(Protocol):
    """Divides partitions among members."""

    name: str
    is_cooperative: bool

    def user_data(self) -> bytes | None:
        """Return the user data that a member with this assignor adds to its subscription."""

    def on_assignment(self, keys: Sequence[TopicPartition], generation: int) -> None:
        """Store the partitions that this member got, and their generation."""

    def assign(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> Assignment:
        """Return the partitions of each member. `members` are in the order of the coordinator's answer."""


def hash_ordered(topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> tuple[dict[str, Racks], dict[str, Subscription]]:
    """Return both in the order of Java's hash maps: the existing topics to which a member subscribes, and the members."""
    ordered = {name: members[name] for name in put_order(members)}
    wanted = put_order(put_order(topic for member in ordered.values() for topic in member.topics))
    return {topic: topics[topic] for topic in wanted if topics.get(topic)}, ordered


def uses_racks(consumer_racks: set[str], partition_racks: set[str], racks: Iterable[frozenset[str]]) -> bool:
    """Whether racks matter: members and partitions share racks, and not every partition is on all racks."""
    return not consumer_racks.isdisjoint(partition_racks) and not all(one == partition_racks for one in racks)


def _sorted_members(members: Mapping[str, Subscription]) -> list[str]:
    """Static members first, by instance id; the others by member id."""

    def key(name: str) -> tuple[bool, list[int]]:
        instance_id = members[name].instance_id
        return instance_id is None, utf16(name if instance_id is None else instance_id)

    return sorted(members, key=key)


class RoundRobin:
    """Assigns the partitions to the members in turn."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self) -> bytes | None:
        """Return None: this assignor remembers nothing from one assignment to the next."""
        return None

    def on_assignment(self, keys: Sequence[TopicPartition], generation: int) -> None:
        """Keep nothing."""

    def assign(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> Assignment:
        """Give each member, by turns, the next partition of the topics to which it subscribes."""
        assignment: Assignment = {name: [] for name in members}
        turn = _sorted_members(members)
        index = 0
        for topic in sorted({topic for member in members.values() for topic in member.topics}, key=utf16):
            for partition in range(len(topics.get(topic, ()))):
                while topic not in members[turn[index % len(turn)]].topics:
                    index += 1
                assignment[turn[index % len(turn)]].append(TopicPartition(topic, partition))
                index += 1
        return assignment


class _TopicState:
    """A topic that is being divided into ranges."""

    def __init__(self, topic: str, racks: Racks, members: Mapping[str, Subscription]) -> None:
        self.topic = topic
        interested = {name: member for name, member in members.items() if topic in member.topics}
        self.consumers = {name: interested[name].rack or None for name in _sorted_members(interested)}
        self.left = [TopicPartition(topic, partition) for partition in range(len(racks))]
        self._counts = dict.fromkeys(self.consumers, 0)
        self._quota, self._extra = divmod(len(racks), len(self.consumers)) if self.consumers else (0, 0)
        consumer_racks = {rack for rack in self.consumers.values() if rack is not None}
        self.racks = racks if consumer_racks else ()
        self.needs_racks = uses_racks(consumer_racks, set().union(*self.racks), self.racks)

    def rack_matches(self, consumer: str, key: TopicPartition) -> bool:
        rack = self.consumers[consumer]
        return rack is None or (bool(self.racks) and rack in self.racks[key.partition])

    def room(self, consumer: str) -> int:
        """Return how many partitions a consumer may still get."""
        return max(0, self._quota + (self._extra > 0) - self._counts[consumer])

    def assigned(self, consumer: str, keys: Sequence[TopicPartition]) -> None:
        self._counts[consumer] += len(keys)
        if self._counts[consumer] > self._quota:
            self._extra -= 1
        self.left = [key for key in self.left if key not in keys]


class Range:
    """Assigns a range of each topic's partitions to each member, first those with a replica on the member's rack."""

    name = "range"
    is_cooperative = False

    def user_data(self) -> bytes | None:
        """Return None: this assignor remembers nothing from one assignment to the next."""
        return None

    def on_assignment(self, keys: Sequence[TopicPartition], generation: int) -> None:
        """Keep nothing."""

    def assign(self, topics: Mapping[str, Racks], members: Mapping[str, Subscription]) -> Assignment:
        """Give each member a range of the partitions of each topic to which it subscribes."""
        ordered, _ = hash_ordered(topics, members)
        states = [_TopicState(topic, racks, members) for topic, racks in ordered.items()]
        assignment: Assignment = {name: [] for name in members}
        by_rack = any(state.needs_racks for state in states)
        if by_rack:
            _assign_by_rack(states, assignment)
        for state in states:
            _assign_ranges(state, lambda *_: True, assignment)
        if by_rack:
            for keys in assignment.values():
                keys.sort(key=lambda key: (utf16(key.topic), key.partition))
        return assignment


def _assign_ranges(state: _TopicState, may_get: Callable[[str, TopicPartition], bool], assignment: Assignment) -> None:
    for consumer in state.consumers:
        found = [key for key in state.left if may_get(consumer, key)][: state.room(consumer)]
        if found:
            assignment[consumer] += found
            state.assigned(consumer, found)


def _assign_by_rack(states: Sequence[_TopicState], assignment: Assignment) -> None:
    """Assign by rack. Topics with the same number of partitions and the same members stay copartitioned, which has priority over racks."""
    groups: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_TopicState]] = {}
    for state in states:
        groups.setdefault((tuple(state.consumers.items()), len(state.racks)), []).append(state)
    for (consumers, count), together in groups.items():
        if len(together) > 1:
            _assign_together(dict(consumers), count, together, assignment)
        elif together[0].needs_racks:
            _assign_ranges(together[0], together[0].rack_matches, assignment)


def _assign_together(consumers: Iterable[str], count: int, states: Sequence[_TopicState], assignment: Assignment) -> None:
    left = list(consumers)
    for partition in range(count):
        for consumer in left:
            keys = [(state, TopicPartition(state.topic, partition)) for state in states]
            if all(state.rack_matches(consumer, key) and state.room(consumer) > 0 for state, key in keys):
                for state, key in keys:
                    assignment[consumer].append(key)
                    state.assigned(consumer, [key])
                if not any(state.room(consumer) for state in states):
                    left.remove(consumer)
                break
