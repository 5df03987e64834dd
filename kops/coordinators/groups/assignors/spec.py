"""The input and output of an assignor (Kafka's GroupSpec, MemberSubscription, SubscribedTopicDescriber, GroupAssignment).

All mappings are in the order of Kafka's maps. Topic ids are 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kops.coordinators.groups.assignors.java_maps import JavaMap, JavaSet, number_hash, uuid_hash
from kops.errors import ApiError, KopsError

Partitions = Mapping[bytes, tuple[int, ...]]
"""An assignment: the partitions of each topic."""

MutablePartitions = JavaMap[bytes, JavaSet[int]]
"""An assignment under construction."""

PartitionCount = Callable[[bytes], int]
"""Returns the number of partitions of a topic, or -1 if there is no such topic."""

T = TypeVar("T")


class AssignorError(KopsError):
    """The assignor cannot assign (Kafka's PartitionAssignorException)."""


class MemberSpec(NamedTuple):
    """A member, its subscription and its current assignment.

    `subscribed_topic_ids` has only existing topics; `subscription_size` counts all subscribed topics.
    """

    rack_id: str | None
    instance_id: str | None
    subscribed_topic_ids: Collection[bytes]
    subscription_size: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members in Kafka's order, whether all have the same subscription, and the current owners of partitions.

    `assignable` has the partitions that may be assigned; None means all.
    """

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    owners: Mapping[tuple[bytes, int], str]
    assignable: Mapping[bytes, Collection[int]] | None = None

    def is_assigned(self, topic_id: bytes, partition: int) -> bool:
        """Whether the partition is currently assigned to a member."""
        return (topic_id, partition) in self.owners

    def is_assignable(self, topic_id: bytes, partition: int) -> bool:
        """Whether the partition may be assigned."""
        return self.assignable is None or partition in self.assignable.get(topic_id, ())


def deep_copy(partitions: Partitions) -> MutablePartitions:
    """Return a copy that can be changed (AssignorHelpers.deepCopyAssignment)."""
    copied: MutablePartitions = JavaMap(uuid_hash, capacity=len(partitions))
    for topic_id, numbers in partitions.items():
        copied[topic_id] = JavaSet(number_hash, numbers, capacity=max(int(len(numbers) / 0.75) + 1, 16))
    return copied


def frozen(partitions: MutablePartitions) -> dict[bytes, tuple[int, ...]]:
    """Return the finished assignment."""
    return {topic_id: tuple(numbers) for topic_id, numbers in partitions.items()}


def new_numbers() -> JavaSet[int]:
    """Return an empty set of numbers."""
    return JavaSet(number_hash)


class CyclicIterator:
    """An iterator over a shrinking set that can start again."""

    def __init__(self, left: JavaSet[int]) -> None:
        self._left = left
        self._order: list[int] = []
        self._next = 0
        self.begin()

    def begin(self) -> None:
        """Start again with the remaining elements."""
        self._order = list(self._left)
        self._next = 0

    @property
    def has_next(self) -> bool:
        """Whether there is a next element."""
        return self._next < len(self._order)

    def next(self) -> int:
        """Return the next element. Kafka's assignor may call this when none is left; the heartbeat then fails with an unknown error."""
        if not self.has_next:
            raise ApiError("UNKNOWN_SERVER_ERROR")
        self._next += 1
        return self._order[self._next - 1]

    def remove(self) -> None:
        """Remove the last returned element from the set."""
        self._left.discard(self._order[self._next - 1])


def no_topic(topic: str) -> AssignorError:
    """Return the error for a member that subscribes to a topic that does not exist."""
    return AssignorError(f"Members are subscribed to topic {topic} which doesn't exist in the topic metadata.")


def first(values: Iterable[T]) -> T:
    """Return the first of some values."""
    return next(iter(values))
