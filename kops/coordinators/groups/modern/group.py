"""The state shared by consumer groups and share groups (Kafka's ModernGroup)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from kops.coordinators.groups.assignors.java_maps import numbers_of_list, put_ordered, uuid_hash
from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.modern.assigned_group import AssignedGroup
from kops.coordinators.groups.modern.subscriptions import Names, SubscriptionCount
from kops.timeline import Timeline, TimelineDict, TimelineValue


class ModernMember(Protocol):
    """The interface of a member."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def instance_id(self) -> str | None:
        """The instance id of a static member."""

    @property
    def rack_id(self) -> str | None:
        """Its rack."""

    @property
    def subscribed_topic_names(self) -> Names:
        """The topics to which it subscribes by name."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has reached the assignment of this epoch."""


M = TypeVar("M", bound=ModernMember)


def partitions_from_lists(topics: Mapping[bytes, list[int]]) -> Partitions:
    """A target assignment from its record, in the order of Kafka's maps."""
    return put_ordered({topic_id: numbers_of_list(numbers) for topic_id, numbers in topics.items()}, uuid_hash)


def same_partitions(first: Partitions, second: Partitions) -> bool:
    """Whether two assignments have the same partitions, in any order."""
    if first.keys() != second.keys():
        return False
    return all(numbers == second[topic_id] or set(numbers) == set(second[topic_id]) for topic_id, numbers in first.items())


class ModernGroup(AssignedGroup[M, Partitions], Generic[M]):
    """A group whose members subscribe to topics."""

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        super().__init__(timeline, group_id)
        self._is_homogeneous: TimelineValue[bool] = TimelineValue(timeline, True)
        self._owners: TimelineDict[tuple[bytes, int], str] = TimelineDict(timeline)
        self.subscribed_topic_names: TimelineDict[str, SubscriptionCount] = TimelineDict(timeline)

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Set the values of a record."""
        self._group_epoch.value = epoch
        self._metadata_hash.value = metadata_hash
        self._update_state()

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return self._is_homogeneous.value

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self.subscribed_topic_names

    def target_assignment(self, member_id: str) -> Partitions:
        """Return the target assignment of a member."""
        return self._target_assignment.get(member_id, {})

    @property
    def owners(self) -> Mapping[tuple[bytes, int], str]:
        """The owners of partitions in the target assignment."""
        return self._owners

    def update_target_assignment(self, member_id: str, partitions: Partitions) -> None:
        """Set a member's target assignment from a record."""
        self._change_owners(member_id, self.target_assignment(member_id), partitions)
        self._target_assignment[member_id] = partitions

    def remove_target_assignment(self, member_id: str) -> None:
        """Remove a member's target assignment after a tombstone."""
        self._change_owners(member_id, self.target_assignment(member_id), {})
        self._target_assignment.pop(member_id, None)

    def _change_owners(self, member_id: str, old: Partitions, new: Partitions) -> None:
        owners = self._owners
        for topic_id in {**old, **new}:
            before, after = set(old.get(topic_id, ())), set(new.get(topic_id, ()))
            for partition in before - after:
                if owners.get((topic_id, partition)) == member_id:
                    del owners[topic_id, partition]
            for partition in after - before:
                owners[topic_id, partition] = member_id
