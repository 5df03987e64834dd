"""A share group (Kafka's ShareGroup)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kops.coordinators.groups.assignors.java_maps import text_hash
from kops.coordinators.groups.group import CommitPartitionValidator, GroupType
from kops.coordinators.groups.modern.group import ModernGroup
from kops.coordinators.groups.modern.subscriptions import SubscriptionCount, count_names
from kops.coordinators.groups.offset_and_metadata import BaseTimestamp
from kops.coordinators.groups.records import share as records_of
from kops.coordinators.groups.share.member import ShareGroupMember
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError
from kops.protocol.messages.share_group_describe_response import DescribedGroup
from kops.timeline import Timeline, TimelineValue

EMPTY: Final = "Empty"
STABLE: Final = "Stable"


class ShareGroup(ModernGroup[ShareGroupMember]):
    """The group. The share coordinator stores its offsets."""

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        super().__init__(timeline, group_id)
        self._state = TimelineValue(timeline, EMPTY)

    @property
    def type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def state_text(self) -> str:
        return self._state.value

    @property
    def committed_state_text(self) -> str:
        return self._state.committed

    @property
    def protocol_type_text(self) -> str:
        return "share"

    @property
    def is_empty(self) -> bool:
        return self._state.value == EMPTY

    @property
    def should_expire(self) -> bool:
        return False

    def member_or_new(self, member_id: str) -> ShareGroupMember:
        """Return a member. A new one is added to the group."""
        member = self.members.get(member_id)
        if member is None:
            member = ShareGroupMember(member_id)
            self.update_member(member)
        return member

    def update_member(self, new: ShareGroupMember) -> None:
        """Add or replace a member."""
        old = self.members.get(new.member_id)
        self._slots.before_put(self.member_count)
        self._members[new.member_id] = new
        self._count(old, new)

    def remove_member(self, member_id: str) -> None:
        """Replay the removal of a member."""
        self._count(self._members.pop(member_id, None), None)

    def topics_with(self, old: ShareGroupMember | None, new: ShareGroupMember | None) -> dict[str, SubscriptionCount]:
        """Return the subscribed topics if `new` replaced `old`."""
        counts = dict(self.subscribed_topic_names)
        count_names(counts, {} if old is None else old.subscribed_topic_names, -1)
        count_names(counts, {} if new is None else new.subscribed_topic_names, 1)
        return counts

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id_or_member_epoch: int, is_transactional: bool, api_version: int
    ) -> CommitPartitionValidator:
        raise self._no_consumer_group()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, *, require_stable: bool) -> None:
        raise self._no_consumer_group()

    def validate_offset_delete(self) -> None:
        raise self._no_consumer_group()

    def validate_delete_group(self) -> None:
        if not self.is_empty:
            raise ApiError("NON_EMPTY_GROUP", "The group is not empty.")

    def offset_expiration_condition(self) -> BaseTimestamp | None:
        raise AssertionError("share groups have no offsets here")

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        ids = [member.member_id for member in self.ordered_members()]
        records += (records_of.current_assignment_tombstone(self.group_id, member_id) for member_id in ids)
        records += (records_of.target_assignment_tombstone(self.group_id, member_id) for member_id in ids)
        records.append(records_of.target_assignment_epoch_tombstone(self.group_id))
        records += (records_of.member_tombstone(self.group_id, member_id) for member_id in ids)
        records.append(records_of.state_partitions_tombstone(self.group_id))
        records.append(records_of.epoch_tombstone(self.group_id))

    def describe(self, assignor: str, image: CoordinatorImage) -> DescribedGroup:
        """Return the committed group for a description."""
        members = dict(self._members.committed_items())
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self._state.committed,
            group_epoch=self._group_epoch.committed,
            assignment_epoch=self._assignment.committed.epoch,
            assignor_name=assignor,
            members=[members[member_id].describe(image) for member_id in self._slots.ordered(members, text_hash)],
        )

    def _count(self, old: ShareGroupMember | None, new: ShareGroupMember | None) -> None:
        if old is not None:
            count_names(self.subscribed_topic_names, old.subscribed_topic_names, -1)
        if new is not None:
            count_names(self.subscribed_topic_names, new.subscribed_topic_names, 1)
        self._update_state()
        self._is_homogeneous.value = is_homogeneous(self.subscribed_topic_names, self.member_count)

    def _update_state(self) -> None:
        self._state.value = STABLE if self._members else EMPTY

    def _no_consumer_group(self) -> ApiError:
        return ApiError("GROUP_ID_NOT_FOUND", f"Group {self.group_id} is not a consumer group.")


def is_homogeneous(topics: Mapping[str, SubscriptionCount], member_count: int) -> bool:
    """Whether all members subscribe to the same topics."""
    return all(topic.by_name == member_count for topic in topics.values())
