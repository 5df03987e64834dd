"""The base class of all groups (Kafka's Group, Group.GroupType, CommitPartitionValidator)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from enum import Enum

from kops.coordinators.groups.offset_and_metadata import BaseTimestamp
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.timers import CoordinatorTimer
from kops.protocol.messages.list_groups_response import ListedGroup


class GroupType(Enum):
    """The kinds of groups."""

    CONSUMER = "consumer"
    CLASSIC = "classic"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"

    @classmethod
    def parse(cls, name: str) -> GroupType:
        """Return the type with this name in upper or lower case, or UNKNOWN."""
        return next((kind for kind in cls if kind.value == name.lower()), cls.UNKNOWN)


CommitPartitionValidator = Callable[[str, bytes, int], None]
"""Called with the topic name, topic id and partition of each offset to commit. Raises ApiError if the member may not commit it."""


def any_partition(topic: str, topic_id: bytes, partition: int) -> None:
    """The validator of groups that do not check partitions."""


class Group(ABC):
    """A group. Methods use the current state unless they say that they use the committed state."""

    group_id: str

    @property
    @abstractmethod
    def type(self) -> GroupType:
        """The kind of the group."""

    @property
    @abstractmethod
    def state_text(self) -> str:
        """Kafka's name of the state."""

    @property
    @abstractmethod
    def committed_state_text(self) -> str:
        """Kafka's name of the committed state. Classic groups return the current state."""

    @property
    @abstractmethod
    def protocol_type_text(self) -> str:
        """The protocol type in lists of groups: `consumer`, or the type of a classic group's members."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """The number of members."""

    @abstractmethod
    def has_member(self, member_id: str) -> bool:
        """Whether the group has this member."""

    @abstractmethod
    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, or may do so."""

    @abstractmethod
    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id_or_member_epoch: int, is_transactional: bool, api_version: int
    ) -> CommitPartitionValidator:
        """Check whether a member may commit. Raises ApiError."""

    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, *, require_stable: bool) -> None:
        """Check whether a member may fetch offsets, by the committed state unless `require_stable`. Raises ApiError."""

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Check whether offsets may be deleted. Raises ApiError."""

    @abstractmethod
    def validate_delete_group(self) -> None:
        """Check whether the group may be deleted. Raises ApiError."""

    @abstractmethod
    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        """Append the tombstones that remove the group."""

    @abstractmethod
    def offset_expiration_condition(self) -> BaseTimestamp | None:
        """Return the function that returns the time from which offsets age, or None if offsets do not expire now."""

    def as_listed_group(self) -> ListedGroup:
        """Return the committed group for a list of groups."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type_text,
            group_state=self.committed_state_text,
            group_type=self.type.value,
        )

    def is_in_states(self, states: Set[str]) -> bool:
        """Whether the committed state is one of `states`, which are in lower case."""
        return self.committed_state_text.lower() in states

    def cancel_timers(self, timer: CoordinatorTimer) -> None:  # noqa: B027 - most groups have none to cancel
        """Cancel timers when the group is deleted."""

    def request_metadata_refresh(self) -> None:  # noqa: B027 - classic groups have nothing to refresh
        """Handle a change of one of the group's topics."""

    @property
    def should_expire(self) -> bool:
        """Whether the group and its offsets may expire."""
        return True
