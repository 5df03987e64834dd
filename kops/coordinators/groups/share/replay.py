"""Replay of share groups' records (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kops.coordinators.groups.modern.group import partitions_from_lists
from kops.coordinators.groups.modern.replaying import broken, replay_target_assignment_epoch
from kops.coordinators.groups.share.group import ShareGroup
from kops.coordinators.groups.share.member import LEAVE_EPOCH
from kops.coordinators.groups.share.state_partitions import StatePartitions
from kops.coordinators.groups.surroundings import Surroundings
from kops.protocol.declaration import Message
from kops.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from kops.protocol.messages.share_group_current_member_assignment_value import ShareGroupCurrentMemberAssignmentValue
from kops.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kops.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from kops.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kops.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kops.protocol.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from kops.protocol.messages.share_group_state_partition_metadata_value import ShareGroupStatePartitionMetadataValue
from kops.protocol.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from kops.protocol.messages.share_group_target_assignment_member_value import ShareGroupTargetAssignmentMemberValue
from kops.protocol.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from kops.protocol.messages.share_group_target_assignment_metadata_value import ShareGroupTargetAssignmentMetadataValue


class Replays:
    """The replay function of each record type. A tombstone for a missing entry changes nothing."""

    def __init__(self, around: Surroundings, states: StatePartitions) -> None:
        self._around = around
        self._states = states
        self.by_key: Mapping[type[Message], Callable[[Any, Any], None]] = {
            ShareGroupMetadataKey: self._epoch,
            ShareGroupMemberMetadataKey: self._member,
            ShareGroupTargetAssignmentMetadataKey: self._target_assignment_epoch,
            ShareGroupTargetAssignmentMemberKey: self._target_assignment,
            ShareGroupCurrentMemberAssignmentKey: self._current_assignment,
            ShareGroupStatePartitionMetadataKey: self._state_partitions,
        }

    def _group(self, group_id: str, *, create: bool) -> ShareGroup | None:
        store = self._around.store
        group = store.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise broken(f"Group {group_id} is not a share group.")
        if not create:
            return None
        made = ShareGroup(self._around.timeline, group_id)
        store.put(made)
        return made

    def _epoch(self, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None) -> None:
        group = self._group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.set_epoch(value.epoch, value.metadata_hash)
            return
        delete = f"Received a tombstone record to delete group {key.group_id} but"
        if group.members:
            raise broken(f"{delete} the group still has {len(group.members)} members.")
        if group.target_assignments:
            raise broken(f"{delete} the target assignment still has {len(group.target_assignments)} members.")
        if group.assignment_epoch != -1:
            raise broken(f"{delete} target assignment epoch in invalid.")
        self._around.store.remove(key.group_id)

    def _member(self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None) -> None:
        group = self._group(key.group_id, create=value is not None)
        if group is None or (value is None and not group.has_member(key.member_id)):
            return
        before = set(group.subscribed_topic_names)
        if value is not None:
            group.update_member(group.member_or_new(key.member_id).with_subscription(value))
        else:
            delete = f"Received a tombstone record to delete member {key.member_id}"
            if group.member(key.member_id).member_epoch != LEAVE_EPOCH:
                raise broken(f"{delete} with invalid leave group epoch.")
            if key.member_id in group.target_assignments:
                raise broken(f"{delete} but member exists in target assignment.")
            group.remove_member(key.member_id)
        self._around.store.update_subscriptions(group.group_id, before, group.subscribed_topic_names)

    def _target_assignment_epoch(
        self, key: ShareGroupTargetAssignmentMetadataKey, value: ShareGroupTargetAssignmentMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, create=value is not None)
        if group is not None:
            replay_target_assignment_epoch(group, value)

    def _target_assignment(self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None) -> None:
        group = self._group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.remove_target_assignment(key.member_id)
        else:
            partitions = partitions_from_lists({topic.topic_id: topic.partitions for topic in value.topic_partitions})
            group.update_target_assignment(key.member_id, partitions)

    def _current_assignment(self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        group = self._group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.update_member(group.member_or_new(key.member_id).with_assignment(value))
        elif group.has_member(key.member_id):
            group.update_member(group.member(key.member_id).without_assignment())

    def _state_partitions(self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        self._group(key.group_id, create=value is not None)
        self._states.replay(key.group_id, value)
