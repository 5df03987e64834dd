"""The sticky assignment for members with different topics: as balanced as possible, with as few moves as possible.

Source: Kafka's AbstractStickyAssignor (GeneralAssignmentBuilder, PartitionMovements, PartitionComparator, TopicComparator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java_hash import string_hash, utf16
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.groups.assignors import Assignment, Racks, Subscription
    from kops.client.groups.racks import RackInfo

_NO_GENERATION = -1


class MemberData(NamedTuple):
    """The partitions that a member had, and in which generation, if it tells."""

    owned: Sequence[TopicPartition]
    generation: int | None


class _Pair(NamedTuple):
    """A move from one member to another."""

    source: str
    destination: str


class _HashSet:
    """A HashSet of partitions. Only the first element of its iterator matters."""

    def __init__(self) -> None:
        self._keys: dict[TopicPartition, None] = {}
        self._bins = 16

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: TopicPartition) -> None:
        self._keys[key] = None
        if len(self._keys) > self._bins * 3 // 4:
            self._bins *= 2

    def remove(self, key: TopicPartition) -> None:
        del self._keys[key]

    def first(self) -> TopicPartition:
        return min(self._keys, key=self._bin)

    def _bin(self, key: TopicPartition) -> int:
        code = ((31 + key.partition) * 31 + string_hash(key.topic)) & 0xFFFF_FFFF
        return (code ^ code >> 16) & (self._bins - 1)


class _Movements:
    """Moved partitions by topic and pair of members. Instead of a move in the other direction, a moved partition of the same topic
    returns."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, _Pair] = {}
        self._by_topic: dict[str, dict[_Pair, _HashSet]] = {}

    def move(self, key: TopicPartition, source: str, destination: str) -> None:
        before = self._pairs.pop(key, None)
        if before is None:
            self._add(key, _Pair(source, destination))
            return
        topic = self._by_topic[key.topic]
        topic[before].remove(key)
        if not topic[before]:
            del topic[before]
        if not topic:
            del self._by_topic[key.topic]
        if before.source != destination:
            self._add(key, _Pair(before.source, destination))

    def _add(self, key: TopicPartition, pair: _Pair) -> None:
        self._pairs[key] = pair
        self._by_topic.setdefault(key.topic, {}).setdefault(pair, _HashSet()).add(key)

    def really_moved(self, key: TopicPartition, source: str, destination: str) -> TopicPartition:
        """Return the partition to move instead of `key`."""
        topic = self._by_topic.get(key.topic)
        if topic is None:
            return key
        before = self._pairs.get(key)
        found = topic.get(_Pair(destination, source if before is None else before.source))
        return key if found is None else found.first()


class GeneralAssignment:
    """One run of the algorithm."""

    def __init__(
        self,
        topics: Mapping[str, Racks],
        racks: RackInfo,
        owned: Assignment,
        members: Mapping[str, Subscription],
        data: Mapping[str, MemberData],
        max_generation: int,
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._members = members
        self._current = owned
        self._consumer_of = {key: name for name, keys in owned.items() for key in keys}
        self._topics_of = {name: [topic for topic in member.topics if topic in topics] for name, member in members.items()}
        self._consumers_of: dict[str, list[str]] = {topic: [] for topic in topics}
        for name, found in self._topics_of.items():
            for topic in found:
                self._consumers_of[topic].append(name)
        self._movements = _Movements()
        self._must_revoke = False
        self._active: set[str] = set()  # members that take part in the balance
        self._before = self._previous_owners(data, max_generation)
        ordered = sorted(topics, key=lambda topic: (len(self._consumers_of[topic]), utf16(topic)))
        self._all = [TopicPartition(topic, index) for topic in ordered for index in range(len(topics[topic]))]

    def _previous_owners(self, data: Mapping[str, MemberData], max_generation: int) -> dict[TopicPartition, str]:
        """Return for each partition its latest owner in an earlier generation."""
        found: dict[TopicPartition, tuple[str, int]] = {}
        for name, member in data.items():
            known = member.generation
            generation = _NO_GENERATION if known is None else known
            if generation >= max_generation:
                continue
            for key in member.owned:
                if key not in found or generation > found[key][1]:
                    found[key] = name, generation
        return {key: name for key, (name, _) in found.items()}

    def build(self) -> Assignment:
        """Return the partitions of each member."""
        assigned = self._keep_owned()
        self._active = set(self._current)
        self._balance([key for key in self._all if key not in assigned])
        return self._current

    def _keep_owned(self) -> set[TopicPartition]:
        kept: set[TopicPartition] = set()
        for name, keys in self._current.items():
            stay = []
            for key in keys:
                if key.topic not in self._members[name].topics or self._racks.mismatches(name, key):
                    self._must_revoke = True
                else:
                    stay.append(key)
            keys[:] = stay
            kept.update(stay)
        return kept

    def _sorted_active(self) -> list[str]:
        """Sort members by their number of partitions, smallest first."""
        return sorted(self._active, key=lambda name: (len(self._current[name]), utf16(name)))

    def _is_balanced(self) -> bool:
        ordered = self._sorted_active()
        if len(self._current[ordered[0]]) >= len(self._current[ordered[-1]]) - 1:
            return True
        owner = {key: name for name, keys in self._current.items() for key in keys}
        for name in ordered:
            own = self._current[name]
            if len(own) == self._most(name):
                continue
            for topic in self._topics_of[name]:
                for index in range(len(self._topics[topic])):
                    key = TopicPartition(topic, index)
                    if key not in own and len(own) + 1 < len(self._current[owner[key]]):
                        return False
        return True

    def _most(self, name: str) -> int:
        """Return how many partitions a member could have."""
        return sum(len(self._topics[topic]) for topic in self._topics_of[name])

    def _assign(self, keys: Sequence[TopicPartition], *, near: bool) -> set[TopicPartition]:
        """Assign partitions to the members with the fewest. Returns the assigned ones."""
        given = set()
        for key in keys:
            if not self._consumers_of[key.topic]:
                continue
            for name in self._sorted_active():
                if key.topic in self._topics_of[name] and not (near and self._racks.mismatches(name, key)):
                    self._current[name].append(key)
                    self._consumer_of[key] = name
                    given.add(key)
                    break
        return given

    def _balance(self, unassigned: list[TopicPartition]) -> None:
        is_first = not self._current[self._sorted_active()[-1]]
        left = unassigned
        if self._racks.of_consumer:
            given = self._assign(left, near=True)
            left = [key for key in left if key not in given]
        self._assign(left, near=False)
        movable = [key for key in self._all if self._can_move(key.topic)]
        new = [key for key in unassigned if self._can_move(key.topic)]
        fixed = {name: self._current.pop(name) for name in self._topics_of if not self._takes_part(name)}
        self._active.difference_update(fixed)
        saved = {name: list(keys) for name, keys in self._current.items()}
        saved_consumer_of = dict(self._consumer_of)
        if not self._must_revoke:
            self._reassign(new)
        was_changed = self._reassign(movable)
        if not is_first and was_changed and _score(self._current) >= _score(saved):
            self._current = saved
            self._consumer_of = saved_consumer_of
        self._current.update(fixed)

    def _can_move(self, topic: str) -> bool:
        return len(self._consumers_of[topic]) >= 2

    def _takes_part(self, name: str) -> bool:
        keys = self._current[name]
        return len(keys) < self._most(name) or any(self._can_move(key.topic) for key in keys)

    def _reassign(self, keys: Sequence[TopicPartition]) -> bool:
        """Move partitions until no move improves the balance. Returns whether any was moved."""
        was_changed = False
        again = True
        while again:
            again = False
            for key in keys:
                if self._is_balanced():
                    break
                if self._improve(key):
                    was_changed = again = True
        return was_changed

    def _improve(self, key: TopicPartition) -> bool:
        """Move one partition if that helps: to its previous owner, otherwise to the member with the fewest partitions.

        Kafka's assignor fails if the previous owner does not take part.
        """
        size = len(self._current[self._consumer_of[key]])
        previous = self._before.get(key)
        if previous in self._current and size > len(self._current[previous]) + 1:
            self._move(key, previous)
            return True
        if all(size <= len(self._current[other]) + 1 for other in self._consumers_of[key.topic]):
            return False
        self._move(key, next(name for name in self._sorted_active() if key.topic in self._topics_of[name]))
        return True

    def _move(self, key: TopicPartition, destination: str) -> None:
        moved = self._movements.really_moved(key, self._consumer_of[key], destination)
        source = self._consumer_of[moved]
        self._movements.move(moved, source, destination)
        self._current[source].remove(moved)
        self._current[destination].append(moved)
        self._consumer_of[moved] = destination


def _score(assignment: Assignment) -> int:
    """The sum of the differences between all pairs of members."""
    sizes = sorted(map(len, assignment.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
