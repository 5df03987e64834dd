"""Records of streams groups (from Kafka's StreamsCoordinatorRecordHelpers)."""

from __future__ import annotations

from collections.abc import Mapping

from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kops.protocol.messages.streams_group_current_member_assignment_value import StreamsGroupCurrentMemberAssignmentValue
from kops.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kops.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kops.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kops.protocol.messages.streams_group_metadata_value import LastAssignmentConfig, StreamsGroupMetadataValue
from kops.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kops.protocol.messages.streams_group_target_assignment_member_value import StreamsGroupTargetAssignmentMemberValue
from kops.protocol.messages.streams_group_target_assignment_metadata_key import StreamsGroupTargetAssignmentMetadataKey
from kops.protocol.messages.streams_group_target_assignment_metadata_value import StreamsGroupTargetAssignmentMetadataValue
from kops.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kops.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue


def member_record(group_id: str, member_id: str, value: StreamsGroupMemberMetadataValue) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    return CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id, member_id), value, 0)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member."""
    return CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id, member_id))


def metadata_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, assignment_configs: Mapping[str, str]
) -> CoordinatorRecord:
    """Return the record of the group's epoch, the hash of its topics' metadata, the epoch of the ready topology, and the assignor's
    settings."""
    configs = [LastAssignmentConfig(key, assignment_configs[key]) for key in sorted(assignment_configs)]
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=configs,
    )
    return CoordinatorRecord(StreamsGroupMetadataKey(group_id), value, 0)


def metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group."""
    return CoordinatorRecord(StreamsGroupMetadataKey(group_id))


def target_assignment_record(group_id: str, member_id: str, value: StreamsGroupTargetAssignmentMemberValue) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    return CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), value, 0)


def target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's target assignment."""
    return CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id))


def target_assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the target assignment's epoch and time."""
    value = StreamsGroupTargetAssignmentMetadataValue(epoch, timestamp)
    return CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id), value, 0)


def target_assignment_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the group's target assignment."""
    return CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id))


def current_assignment_record(group_id: str, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue) -> CoordinatorRecord:
    """Return the record of a member's current assignment."""
    return CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), value, 0)


def current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's current assignment."""
    return CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id))


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    """Return the record of the application's topology."""
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id), value, 0)


def topology_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the topology."""
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id))


def removed_member_records(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return all tombstones of a member."""
    return [
        current_assignment_tombstone(group_id, member_id),
        target_assignment_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]
