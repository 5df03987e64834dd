"""The records of __share_group_state. Source: ShareCoordinatorRecordHelpers."""

from __future__ import annotations

from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.offset import ShareGroupOffset
from kops.protocol.messages.share_snapshot_key import ShareSnapshotKey
from kops.protocol.messages.share_snapshot_value import ShareSnapshotValue
from kops.protocol.messages.share_snapshot_value import StateBatch as SnapshotBatch
from kops.protocol.messages.share_update_key import ShareUpdateKey
from kops.protocol.messages.share_update_value import ShareUpdateValue
from kops.protocol.messages.share_update_value import StateBatch as UpdateBatch


def snapshot_record(key: SharePartitionKey, state: ShareGroupOffset) -> CoordinatorRecord:
    """Return a snapshot record with the whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp,
        write_timestamp=state.write_timestamp,
        state_batches=[SnapshotBatch(each.first_offset, each.last_offset, *reversed(each.delivery)) for each in state.state_batches],
    )
    return CoordinatorRecord(ShareSnapshotKey(*key), value, 0)


def update_record(key: SharePartitionKey, state: ShareGroupOffset) -> CoordinatorRecord:
    """Return an update record with the changes since the last snapshot or update."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=[UpdateBatch(each.first_offset, each.last_offset, *reversed(each.delivery)) for each in state.state_batches],
    )
    return CoordinatorRecord(ShareUpdateKey(*key), value, 0)


def tombstone_record(key: SharePartitionKey) -> CoordinatorRecord:
    """Return a tombstone that deletes the state. It has the key of a snapshot, even if updates came last."""
    return CoordinatorRecord(ShareSnapshotKey(*key))
