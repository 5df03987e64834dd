"""The delivery state of a share partition. Source: ShareGroupOffset."""

from __future__ import annotations

from typing import Final, NamedTuple

from kops.coordinators.share.batches import StateBatch
from kops.protocol.messages.initialize_share_group_state_request import PartitionData as InitializePartition
from kops.protocol.messages.share_snapshot_value import ShareSnapshotValue
from kops.protocol.messages.share_update_value import ShareUpdateValue

UNINITIALIZED_START_OFFSET: Final = -1
UNINITIALIZED_DELIVERY_COMPLETE_COUNT: Final = -1
DEFAULT_STATE_EPOCH: Final = 0
DEFAULT_LEADER_EPOCH: Final = 0
_NO_TIMESTAMP: Final = 0


class ShareGroupOffset(NamedTuple):
    """The state in a snapshot record. An update record has neither state epoch nor timestamps."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...] = ()
    create_timestamp: int = _NO_TIMESTAMP
    write_timestamp: int = _NO_TIMESTAMP

    @classmethod
    def from_record(cls, value: ShareSnapshotValue | ShareUpdateValue) -> ShareGroupOffset:
        """Return the state in a record."""
        batches = tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state) for batch in value.state_batches
        )
        counts = value.leader_epoch, value.start_offset, value.delivery_complete_count
        if isinstance(value, ShareUpdateValue):
            return cls(value.snapshot_epoch, DEFAULT_STATE_EPOCH, *counts, batches)
        return cls(value.snapshot_epoch, value.state_epoch, *counts, batches, value.create_timestamp, value.write_timestamp)

    @classmethod
    def initial(cls, data: InitializePartition, snapshot_epoch: int, now_ms: int) -> ShareGroupOffset:
        """Return the initial state of a partition. Its lag is known only if a start offset is given."""
        complete = UNINITIALIZED_DELIVERY_COMPLETE_COUNT if data.start_offset == UNINITIALIZED_START_OFFSET else 0
        return cls(snapshot_epoch, data.state_epoch, DEFAULT_LEADER_EPOCH, data.start_offset, complete, (), now_ms, now_ms)
