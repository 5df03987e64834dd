"""What all groups have whose assignments the coordinator computes: consumer, share and streams groups.

Kafka has it twice, in ModernGroup and in StreamsGroup.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kops.coordinators.groups.assignors.java_maps import TimelineSlots, text_hash
from kops.coordinators.groups.group import Group
from kops.errors import ApiError
from kops.timeline import Timeline, TimelineDict, TimelineValue

_METADATA_REFRESH_INTERVAL_MS: Final = 2**31 - 1  # GroupMetadataManager.METADATA_REFRESH_INTERVAL_MS


class AssignedMember(Protocol):
    """The interface of a member."""

    @property
    def member_id(self) -> str:
        """Its id."""


M = TypeVar("M", bound=AssignedMember)
A = TypeVar("A")


class AssignmentMetadata(NamedTuple):
    """Epoch and time of the target assignment."""

    epoch: int = 1
    timestamp: int = 0


class AssignedGroup(Group, Generic[M, A]):
    """A group with members M and target assignments A. The timeline tracks all changes except the deadline of the next metadata check."""

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        self.group_id = group_id
        self._members: TimelineDict[str, M] = TimelineDict(timeline)
        self._slots = TimelineSlots()
        self._group_epoch: TimelineValue[int] = TimelineValue(timeline, 1)
        self._metadata_hash: TimelineValue[int] = TimelineValue(timeline, 0)
        self._assignment: TimelineValue[AssignmentMetadata] = TimelineValue(timeline, AssignmentMetadata())
        self._target_assignment: TimelineDict[str, A] = TimelineDict(timeline)
        self._refresh_deadline_ms = 0
        self._refresh_epoch = 0

    @property
    def group_epoch(self) -> int:
        """The group's epoch. It rises with each change of members, subscriptions, topics or settings."""
        return self._group_epoch.value

    @property
    def metadata_hash(self) -> int:
        """The hash of the metadata of its topics."""
        return self._metadata_hash.value

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
    def members(self) -> Mapping[str, M]:
        """The members by id, in no particular order."""
        return self._members

    def ordered_members(self) -> Iterator[M]:
        """The members in the order of Kafka's map."""
        members = self._members
        return (members[member_id] for member_id in self._slots.ordered(members, text_hash))

    def member(self, member_id: str) -> M:
        """Return a member. Raises ApiError UNKNOWN_MEMBER_ID."""
        member = self._members.get(member_id)
        if member is None:
            raise self._unknown_member(member_id)
        return member

    @property
    def member_count(self) -> int:
        return len(self._members)

    def has_member(self, member_id: str) -> bool:
        return member_id in self._members

    def _unknown_member(self, member_id: str | None) -> ApiError:
        text = "null" if member_id is None else member_id
        return ApiError("UNKNOWN_MEMBER_ID", f"Member {text} is not a member of group {self.group_id}.")

    @property
    def target_assignments(self) -> Mapping[str, A]:
        """The target assignments by member."""
        return self._target_assignment

    def note_metadata_check(self, now_ms: int, epoch: int) -> None:
        """Set the time at which the metadata must be checked again. The time counts only if this epoch is written."""
        self._refresh_deadline_ms, self._refresh_epoch = now_ms + _METADATA_REFRESH_INTERVAL_MS, epoch

    def request_metadata_refresh(self) -> None:
        self._refresh_deadline_ms, self._refresh_epoch = 0, 0

    def has_metadata_expired(self, now_ms: int) -> bool:
        """Whether the metadata must be checked now."""
        return now_ms >= self._refresh_deadline_ms or self.group_epoch < self._refresh_epoch

    @abstractmethod
    def _update_state(self) -> None:
        """Compute the state after a change of epochs or members."""
