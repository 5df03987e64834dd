"""What an assignor is told and what it gives (Kafka's GroupSpec, MemberSubscription, SubscribedTopicDescriber, GroupAssignment).

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
"""An assignment that an assignor changes."""

PartitionCount = Callable[[bytes], int]
"""How many partitions a topic has; -1 if there is no such topic."""

T = TypeVar("T")


class AssignorError(KopsError):
    """The assignor cannot assign (Kafka's PartitionAssignorException)."""


class MemberSpec(NamedTuple):
    """A member: what it subscribes to and what it was assigned.

    `subscribed_topic_ids` are those of the topics that exist, `subscription_size` counts all.
    """

    rack_id: str | None
    instance_id: str | None
    subscribed_topic_ids: Collection[bytes]
    subscription_size: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members in Kafka's order, whether all subscribe to the same, and who was assigned which partition.

    `assignable` names the partitions that may be assigned at all; None for every one.
    """

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    owners: Mapping[tuple[bytes, int], str]
    assignable: Mapping[bytes, Collection[int]] | None = None

    def is_assigned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member was assigned the partition."""
        return (topic_id, partition) in self.owners

    def is_assignable(self, topic_id: bytes, partition: int) -> bool:
        """Whether the partition may be assigned."""
        return self.assignable is None or partition in self.assignable.get(topic_id, ())


def deep_copy(partitions: Partitions) -> MutablePartitions:
    """A copy that can be changed (AssignorHelpers.deepCopyAssignment)."""
    copied: MutablePartitions = JavaMap(uuid_hash, capacity=len(partitions))
    for topic_id, numbers in partitions.items():
        copied[topic_id] = JavaSet(number_hash, numbers, capacity=max(int(len(numbers) / 0.75) + 1, 16))
    return copied


def frozen(partitions: MutablePartitions) -> dict[bytes, tuple[int, ...]]:
    """The assignment that came out."""
    return {topic_id: tuple(numbers) for topic_id, numbers in partitions.items()}


def new_numbers() -> JavaSet[int]:
    """An empty set of numbers."""
    return JavaSet(number_hash)


class CyclicIterator:
    """An iterator over a shrinking set that may begin again."""

    def __init__(self, left: JavaSet[int]) -> None:
        self._left = left
        self._order: list[int] = []
        self._next = 0
        self.begin()

    def begin(self) -> None:
        """Begin again with what is left."""
        self._order = list(self._left)
        self._next = 0

    @property
    def has_next(self) -> bool:
        """Whether one comes."""
        return self._next < len(self._order)

    def next(self) -> int:
        """The next one. Kafka's assignor can ask for one where none is left; its heartbeat ends with an unknown error then."""
        if not self.has_next:
            raise ApiError("UNKNOWN_SERVER_ERROR")
        self._next += 1
        return self._order[self._next - 1]

    def remove(self) -> None:
        """Remove the last one from the set."""
        self._left.discard(self._order[self._next - 1])


def no_topic(topic: str) -> AssignorError:
    """A member subscribes to a topic that is not there."""
    return AssignorError(f"Members are subscribed to topic {topic} which doesn't exist in the topic metadata.")


def first(values: Iterable[T]) -> T:
    """The first of some values."""
    return next(iter(values))
