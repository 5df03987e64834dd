"""The state shared by consumer groups and share groups (Kafka's ModernGroup)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from kops.coordinators.groups.assignors.java_maps import TimelineSlots, numbers_of_list, put_ordered, text_hash, uuid_hash
from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.group import Group
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


class AssignmentMetadata(NamedTuple):
    """Epoch and time of the target assignment."""

    epoch: int = 1
    timestamp: int = 0


def partitions_from_lists(topics: Mapping[bytes, list[int]]) -> Partitions:
    """A target assignment from its record, in the order of Kafka's maps."""
    return put_ordered({topic_id: numbers_of_list(numbers) for topic_id, numbers in topics.items()}, uuid_hash)


def same_partitions(first: Partitions, second: Partitions) -> bool:
    """Whether two assignments have the same partitions, in any order."""
    if first.keys() != second.keys():
        return False
    return all(numbers == second[topic_id] or set(numbers) == set(second[topic_id]) for topic_id, numbers in first.items())


class ModernGroup(Group, Generic[M]):
    """A group. The timeline tracks all changes except the deadline of the next metadata check."""

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        self.group_id = group_id
        self._members: TimelineDict[str, M] = TimelineDict(timeline)
        self._slots = TimelineSlots()
        self._group_epoch: TimelineValue[int] = TimelineValue(timeline, 1)
        self._metadata_hash: TimelineValue[int] = TimelineValue(timeline, 0)
        self._is_homogeneous: TimelineValue[bool] = TimelineValue(timeline, True)
        self._assignment: TimelineValue[AssignmentMetadata] = TimelineValue(timeline, AssignmentMetadata())
        self._target_assignment: TimelineDict[str, Partitions] = TimelineDict(timeline)
        self._owners: TimelineDict[tuple[bytes, int], str] = TimelineDict(timeline)
        self.subscribed_topic_names: TimelineDict[str, SubscriptionCount] = TimelineDict(timeline)
        self._refresh_deadline_ms = 0
        self._refresh_epoch = 0

    @property
    def group_epoch(self) -> int:
        """The group's epoch. It rises with each change of members, subscriptions or metadata."""
        return self._group_epoch.value

    def set_group_epoch(self, epoch: int) -> None:
        """Set the epoch of a record."""
        self._group_epoch.value = epoch
        self._update_state()

    @property
    def metadata_hash(self) -> int:
        """The hash of the metadata of its topics."""
        return self._metadata_hash.value

    @metadata_hash.setter
    def metadata_hash(self, value: int) -> None:
        self._metadata_hash.value = value

    @property
    def assignment_epoch(self) -> int:
        """The epoch of the target assignment."""
        return self._assignment.value.epoch

    @property
    def assignment_timestamp(self) -> int:
        """When the target assignment was computed, or 0 if that is unknown."""
        return self._assignment.value.timestamp

    def set_assignment_metadata(self, epoch: int, timestamp: int) -> None:
        """Set the epoch and time of the target assignment from a record."""
        self._assignment.value = AssignmentMetadata(epoch, timestamp)
        self._update_state()

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return self._is_homogeneous.value

    @property
    def members(self) -> Mapping[str, M]:
        """The members by id, in no particular order."""
        return self._members

    def ordered_members(self) -> Iterator[M]:
        """The members in the order of Kafka's map."""
        members = self._members
        return (members[member_id] for member_id in self._slots.ordered(members, text_hash))

    @property
    def member_count(self) -> int:
        return len(self._members)

    def has_member(self, member_id: str) -> bool:
        return member_id in self._members

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self.subscribed_topic_names

    @property
    def target_assignments(self) -> Mapping[str, Partitions]:
        """The target assignments by member."""
        return self._target_assignment

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

    def set_metadata_refresh_deadline(self, deadline_ms: int, epoch: int) -> None:
        """Set the time at which the metadata must be checked again. The deadline is valid only if this epoch is written."""
        self._refresh_deadline_ms, self._refresh_epoch = deadline_ms, epoch

    def request_metadata_refresh(self) -> None:
        self.set_metadata_refresh_deadline(0, 0)

    def has_metadata_expired(self, now_ms: int) -> bool:
        """Whether the metadata must be checked now."""
        return now_ms >= self._refresh_deadline_ms or self.group_epoch < self._refresh_epoch

    @abstractmethod
    def _update_state(self) -> None:
        """Compute the state after a change of epochs or members."""
