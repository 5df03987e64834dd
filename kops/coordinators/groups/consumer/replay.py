"""Replay of the records of consumer groups (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from kops.coordinators.groups.consumer.lookup import GroupLookup
from kops.coordinators.groups.consumer.state.group import ConsumerGroup, ResolvedRegex
from kops.coordinators.groups.consumer.state.member import LEAVE_EPOCH
from kops.coordinators.groups.modern.group import partitions_from_lists
from kops.coordinators.groups.modern.replaying import broken, replay_target_assignment_epoch
from kops.coordinators.groups.modern.subscriptions import names_of
from kops.protocol.declaration import Message
from kops.protocol.messages.consumer_group_current_member_assignment_key import ConsumerGroupCurrentMemberAssignmentKey
from kops.protocol.messages.consumer_group_current_member_assignment_value import ConsumerGroupCurrentMemberAssignmentValue
from kops.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kops.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kops.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kops.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kops.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kops.protocol.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
from kops.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kops.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from kops.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from kops.protocol.messages.consumer_group_target_assignment_member_value import ConsumerGroupTargetAssignmentMemberValue
from kops.protocol.messages.consumer_group_target_assignment_metadata_key import ConsumerGroupTargetAssignmentMetadataKey
from kops.protocol.messages.consumer_group_target_assignment_metadata_value import ConsumerGroupTargetAssignmentMetadataValue


class Replays:
    """The replay function of each record type. A tombstone for a missing entry changes nothing."""

    def __init__(self, lookup: GroupLookup) -> None:
        self._lookup = lookup
        self.by_key: Mapping[type[Message], Callable[[Any, Any], None]] = {
            ConsumerGroupMetadataKey: self._epoch,
            ConsumerGroupPartitionMetadataKey: self._subscription_metadata,
            ConsumerGroupMemberMetadataKey: self._member,
            ConsumerGroupTargetAssignmentMetadataKey: self._target_assignment_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._target_assignment,
            ConsumerGroupCurrentMemberAssignmentKey: self._current_assignment,
            ConsumerGroupRegularExpressionKey: self._regex,
        }

    def _epoch(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        group_id = key.group_id
        group = self._lookup.persisted_group(group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.set_epoch(value.epoch, value.metadata_hash)
            return
        delete = f"Received a tombstone record to delete group {group_id} but"
        if group.members:
            raise broken(f"{delete} the group still has {group.member_count} members.")
        if group.target_assignments:
            raise broken(f"{delete} the target assignment still has {len(group.target_assignments)} members.")
        if group.assignment_epoch != -1:
            raise broken(f"{delete} did not receive ConsumerGroupTargetAssignmentMetadataValue tombstone.")
        self._lookup.around.store.remove(group_id)

    def _subscription_metadata(self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None) -> None:
        group = self._lookup.persisted_group(key.group_id, create=value is not None)
        if group is not None:
            group.has_subscription_metadata_record = value is not None

    def _member(self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> None:
        member_id = key.member_id
        group = self._lookup.persisted_group(key.group_id, create=value is not None)
        if group is None:
            return
        before = set(group.subscribed_topic_names)
        if value is not None:
            group.update_member(group.member_or_new(member_id).with_subscription(value))
        else:
            member = group.members.get(member_id)
            if member is None:
                return
            missing = f"Received a tombstone record to delete member {member_id} but did not receive"
            if member.member_epoch != LEAVE_EPOCH:
                raise broken(f"{missing} ConsumerGroupCurrentMemberAssignmentValue tombstone.")
            if member_id in group.target_assignments:
                raise broken(f"{missing} ConsumerGroupTargetAssignmentMetadataValue tombstone.")
            group.remove_member(member_id)
        self._update_topics(group, before)

    def _target_assignment_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        group = self._lookup.persisted_group(key.group_id, create=value is not None)
        if group is not None:
            replay_target_assignment_epoch(group, value)

    def _target_assignment(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        group = self._lookup.persisted_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.remove_target_assignment(key.member_id)
        else:
            partitions = partitions_from_lists({topic.topic_id: topic.partitions for topic in value.topic_partitions})
            group.update_target_assignment(key.member_id, partitions)

    def _current_assignment(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        group = self._lookup.persisted_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.update_member(group.member_or_new(key.member_id).with_assignment(value))
        elif (member := group.members.get(key.member_id)) is not None:
            group.update_member(member.without_assignment())

    def _regex(self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> None:
        group = self._lookup.persisted_group(key.group_id, create=value is not None)
        if group is None:
            return
        before = set(group.subscribed_topic_names)
        resolved = None if value is None else ResolvedRegex(names_of(value.topics), value.version, value.timestamp)
        group.update_resolved_regex(key.regular_expression, resolved)
        self._update_topics(group, before)

    def _update_topics(self, group: ConsumerGroup, before: Set[str]) -> None:
        """Update the index of groups by subscribed topic."""
        store, after = self._lookup.around.store, group.subscribed_topic_names
        store.update_subscriptions(group.group_id, before, after)
        for topic in before:
            if topic not in after and not store.groups_subscribed_to(topic):
                self._lookup.topic_hashes.forget(topic)
