"""Records of consumer groups (from Kafka's GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages.consumer_group_current_member_assignment_key import ConsumerGroupCurrentMemberAssignmentKey
from kops.protocol.messages.consumer_group_current_member_assignment_value import ConsumerGroupCurrentMemberAssignmentValue
from kops.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kops.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kops.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kops.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kops.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kops.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kops.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from kops.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from kops.protocol.messages.consumer_group_target_assignment_member_value import ConsumerGroupTargetAssignmentMemberValue, TopicPartition
from kops.protocol.messages.consumer_group_target_assignment_metadata_key import ConsumerGroupTargetAssignmentMetadataKey
from kops.protocol.messages.consumer_group_target_assignment_metadata_value import ConsumerGroupTargetAssignmentMetadataValue


def member_record(group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue) -> CoordinatorRecord:
    """Return the record of a member and its subscription."""
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), value, 0)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member."""
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id))


def subscription_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the subscription metadata that groups had before Kafka 4.1."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id))


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of the group's epoch."""
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash), 0)


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group."""
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id))


def target_assignment_record(group_id: str, member_id: str, partitions: Mapping[bytes, Iterable[int]]) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = ConsumerGroupTargetAssignmentMemberValue([TopicPartition(topic_id, list(numbers)) for topic_id, numbers in partitions.items()])
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value, 0)


def target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's target assignment."""
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id))


def target_assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the target assignment's epoch and time."""
    value = ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), value, 0)


def target_assignment_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group's target assignment."""
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id))


def current_assignment_record(group_id: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue) -> CoordinatorRecord:
    """Return the record of a member's current assignment."""
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), value, 0)


def current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's current assignment."""
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id))


def regex_record(group_id: str, regex: str, topics: Iterable[str], version: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the topics that a regular expression matches."""
    ordered = sorted(topics, key=lambda topic: topic.encode("utf-16-be", "surrogatepass"))
    value = ConsumerGroupRegularExpressionValue(ordered, version, timestamp)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, regex), value, 0)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the tombstone of a regular expression without subscribers."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, regex))


def removed_member_records(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return all tombstones of a member."""
    return [
        current_assignment_tombstone(group_id, member_id),
        target_assignment_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]
