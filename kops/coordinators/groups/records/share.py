"""Records of share groups (from Kafka's GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Mapping

from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from kops.protocol.messages.share_group_current_member_assignment_value import ShareGroupCurrentMemberAssignmentValue, TopicPartitions
from kops.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kops.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from kops.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kops.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from kops.protocol.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from kops.protocol.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from kops.protocol.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from kops.protocol.messages.share_group_target_assignment_member_value import ShareGroupTargetAssignmentMemberValue, TopicPartition
from kops.protocol.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from kops.protocol.messages.share_group_target_assignment_metadata_value import ShareGroupTargetAssignmentMetadataValue

Partitions = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id."""
NamedPartitions = Mapping[bytes, tuple[str, tuple[int, ...]]]
"""Topics by id, with their names and partitions."""


def member_record(group_id: str, member_id: str, value: ShareGroupMemberMetadataValue) -> CoordinatorRecord:
    """Return the record of a member and its subscription."""
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id), value, 0)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member."""
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id))


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of the group's epoch and the hash of its topics' metadata."""
    return CoordinatorRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash), 0)


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group."""
    return CoordinatorRecord(ShareGroupMetadataKey(group_id))


def target_assignment_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    topics = [TopicPartition(topic_id, list(numbers)) for topic_id, numbers in partitions.items()]
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), ShareGroupTargetAssignmentMemberValue(topics), 0)


def target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's target assignment."""
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id))


def target_assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the target assignment's epoch and time."""
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id), ShareGroupTargetAssignmentMetadataValue(epoch, timestamp), 0)


def target_assignment_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group's target assignment."""
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id))


def current_assignment_record(
    group_id: str, member_id: str, epoch: int, previous_epoch: int, state: int, partitions: Partitions
) -> CoordinatorRecord:
    """Return the record of a member's current assignment."""
    topics = [TopicPartitions(topic_id, list(numbers)) for topic_id, numbers in partitions.items()]
    value = ShareGroupCurrentMemberAssignmentValue(epoch, previous_epoch, state, topics)
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), value, 0)


def current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's current assignment."""
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id))


def state_partitions_record(
    group_id: str, initializing: NamedPartitions, initialized: NamedPartitions, deleting: Mapping[bytes, str]
) -> CoordinatorRecord:
    """Return the record of the partitions whose share state is being initialized, is initialized, or is being deleted."""
    value = ShareGroupStatePartitionMetadataValue(
        [TopicPartitionsInfo(topic_id, name, list(numbers)) for topic_id, (name, numbers) in initializing.items()],
        [TopicPartitionsInfo(topic_id, name, list(numbers)) for topic_id, (name, numbers) in initialized.items()],
        [TopicInfo(topic_id, name) for topic_id, name in deleting.items()],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id), value, 0)


def state_partitions_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group's share state partitions."""
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id))
