"""Records of classic groups and of offsets (from Kafka's GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from typing import Final

from kops.coordinators.groups.offset_and_metadata import OffsetAndMetadata
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages.group_metadata_key import GroupMetadataKey
from kops.protocol.messages.group_metadata_value import GroupMetadataValue
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_value import OffsetCommitValue

_GROUP_METADATA_VERSION: Final = 3
_OFFSET_COMMIT_VERSION: Final = 4
_OFFSET_COMMIT_VERSION_WITH_EXPIRE_TIMESTAMP: Final = 1


def group_metadata_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    """Return the record of a classic group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value, _GROUP_METADATA_VERSION)


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a classic group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id))


def offset_commit_record(group_id: str, topic: str, partition: int, offset: OffsetAndMetadata) -> CoordinatorRecord:
    """Return the record of a committed offset. Only version 1 of the value has an expiry time."""
    has_expiry = offset.expire_timestamp_ms is not None
    value = OffsetCommitValue(
        offset=offset.committed_offset,
        leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=-1 if offset.expire_timestamp_ms is None else offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    version = _OFFSET_COMMIT_VERSION_WITH_EXPIRE_TIMESTAMP if has_expiry else _OFFSET_COMMIT_VERSION
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def offset_commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the tombstone of a committed offset."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
