"""The share coordinator of one partition of __share_group_state. Source: ShareCoordinatorShard.

A request is for one share partition; kops.coordinators.share.requests splits larger ones. A write creates an update record, and
after a number of updates a snapshot. Only Initialize changes the state epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.share.batches import StateBatch, combine_batches
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.offset import (
    DEFAULT_LEADER_EPOCH,
    DEFAULT_STATE_EPOCH,
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    ShareGroupOffset,
)
from kops.coordinators.share.records import snapshot_record, tombstone_record, update_record
from kops.coordinators.share.redundant_offsets import RedundantOffsets
from kops.coordinators.share.responses import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from kops.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from kops.protocol.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
from kops.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
from kops.protocol.messages.initialize_share_group_state_response import InitializeShareGroupStateResponse
from kops.protocol.messages.read_share_group_state_request import ReadShareGroupStateRequest
from kops.protocol.messages.read_share_group_state_response import ReadShareGroupStateResponse
from kops.protocol.messages.read_share_group_state_response import StateBatch as ReadBatch
from kops.protocol.messages.read_share_group_state_summary_request import ReadShareGroupStateSummaryRequest
from kops.protocol.messages.read_share_group_state_summary_response import ReadShareGroupStateSummaryResponse
from kops.protocol.messages.share_snapshot_key import ShareSnapshotKey
from kops.protocol.messages.share_snapshot_value import ShareSnapshotValue
from kops.protocol.messages.share_update_key import ShareUpdateKey
from kops.protocol.messages.share_update_value import ShareUpdateValue
from kops.protocol.messages.write_share_group_state_request import PartitionData as WritePartition
from kops.protocol.messages.write_share_group_state_request import WriteShareGroupStateRequest
from kops.protocol.messages.write_share_group_state_response import WriteShareGroupStateResponse
from kops.timeline import Timeline, TimelineDict

NEGATIVE_PARTITION = "The partition id cannot be a negative number."
WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
# The name of an error and its message; None for Kafka's default message.
_Error = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """`share.coordinator.snapshot.update.records.per.snapshot`, `share.coordinator.cold.partition.snapshot.interval.ms`."""

    update_records_per_snapshot: int = 500
    cold_partition_snapshot_interval_ms: int = 300_000


class ShareCoordinatorShard:
    """The states of the share partitions whose key maps to this partition. Implements CoordinatorShard."""

    def __init__(self, timeline: Timeline, config: ShareCoordinatorConfig, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._now_ms = now_ms
        self._image: CoordinatorImage | None = None
        self._states: TimelineDict[SharePartitionKey, ShareGroupOffset] = TimelineDict(timeline)
        self._leader_epochs: TimelineDict[SharePartitionKey, int] = TimelineDict(timeline)
        self._state_epochs: TimelineDict[SharePartitionKey, int] = TimelineDict(timeline)
        self._update_counts: TimelineDict[SharePartitionKey, int] = TimelineDict(timeline)
        self._redundant = RedundantOffsets(timeline)

    def on_loaded(self, image: CoordinatorImage) -> None:
        """See CoordinatorShard."""
        self._image = image

    def on_metadata_update(self, delta: CoordinatorDelta, image: CoordinatorImage) -> None:
        """See CoordinatorShard."""
        self._image = image

    def on_unloaded(self) -> None:
        """See CoordinatorShard."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply a record: a snapshot replaces the state, an update changes it, a tombstone removes it."""
        if isinstance(record.key, ShareSnapshotKey):
            assert record.value is None or isinstance(record.value, ShareSnapshotValue)
            self._replay_snapshot(_key(record.key), record.value, offset)
        elif isinstance(record.key, ShareUpdateKey):
            assert isinstance(record.value, ShareUpdateValue), "an update has no tombstone"
            self._replay_update(_key(record.key), record.value)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Ignore markers: this topic has no transactional records."""

    def write_state(self, request: WriteShareGroupStateRequest) -> CoordinatorResult[WriteShareGroupStateResponse]:
        """Handle WriteShareGroupState: batches and a start offset."""
        topic = request.topics[0]
        data = topic.partitions[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
        found = self._write_error(key, data)
        if found is not None:
            return CoordinatorResult(response=WRITE.error(key.topic_id, key.partition, *found))
        record = self._state_record(key, data, None)
        return CoordinatorResult([record], WRITE.success(key.topic_id, key.partition))

    def read_state(self, request: ReadShareGroupStateRequest) -> CoordinatorResult[ReadShareGroupStateResponse]:
        """Handle ReadShareGroupState of the share partition's leader. A new leader epoch is written as a record."""
        topic = request.topics[0]
        data = topic.partitions[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
        found = self._read_error(key, data.leader_epoch)
        if found is not None:
            return CoordinatorResult(response=READ.error(key.topic_id, key.partition, *found))
        state = self._states[key]
        batches = [ReadBatch(each.first_offset, each.last_offset, *reversed(each.delivery)) for each in state.state_batches]
        response = READ.success(
            key.topic_id, key.partition, start_offset=state.start_offset, state_epoch=state.state_epoch, state_batches=batches
        )
        if data.leader_epoch == -1 or self._leader_epochs.get(key) == data.leader_epoch:
            return CoordinatorResult(response=response)
        rewritten = WritePartition(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=data.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        return CoordinatorResult([self._state_record(key, rewritten, data.leader_epoch)], response)

    def read_state_summary(self, request: ReadShareGroupStateSummaryRequest) -> CoordinatorResult[ReadShareGroupStateSummaryResponse]:
        """Handle ReadShareGroupStateSummary: the start offset and the number of later records that are done."""
        topic = request.topics[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, topic.partitions[0].partition)
        found = _partition_error(key) or self._topic_error(key)
        if found is not None:
            return CoordinatorResult(response=SUMMARY.error(key.topic_id, key.partition, *found))
        state = self._states.get(key)
        if state is None:
            state = ShareGroupOffset(
                0, DEFAULT_STATE_EPOCH, DEFAULT_LEADER_EPOCH, UNINITIALIZED_START_OFFSET, UNINITIALIZED_DELIVERY_COMPLETE_COUNT
            )
        response = SUMMARY.success(
            key.topic_id,
            key.partition,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            leader_epoch=state.leader_epoch,
            state_epoch=state.state_epoch,
        )
        return CoordinatorResult(response=response)

    def delete_state(self, request: DeleteShareGroupStateRequest) -> CoordinatorResult[DeleteShareGroupStateResponse]:
        """Handle DeleteShareGroupState. Deleting a state that does not exist succeeds."""
        topic = request.topics[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, topic.partitions[0].partition)
        found = _partition_error(key) or self._topic_error(key)
        if found is not None:
            return CoordinatorResult(response=DELETE.error(key.topic_id, key.partition, *found))
        response = DELETE.success(key.topic_id, key.partition)
        return CoordinatorResult([tombstone_record(key)] if key in self._states else [], response)

    def initialize_state(self, request: InitializeShareGroupStateRequest) -> CoordinatorResult[InitializeShareGroupStateResponse]:
        """Handle InitializeShareGroupState, which replaces any previous state."""
        topic = request.topics[0]
        data = topic.partitions[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
        found = _partition_error(key) or self._state_epoch_error(key, data.state_epoch) or self._topic_error(key)
        if found is not None:
            return CoordinatorResult(response=INITIALIZE.error(key.topic_id, key.partition, *found))
        state = self._states.get(key)
        initial = ShareGroupOffset.initial(data, 0 if state is None else state.snapshot_epoch + 1, self._now_ms())
        return CoordinatorResult([snapshot_record(key, initial)], INITIALIZE.success(key.topic_id, key.partition))

    def last_redundant_offset(self) -> CoordinatorResult[int | None]:
        """Return the offset below which records can be deleted, or None."""
        return CoordinatorResult(response=self._redundant.last_redundant_offset)

    def snapshot_cold_partitions(self) -> CoordinatorResult[None]:
        """Write new snapshots of states whose last snapshot is old, so that older records can be deleted.

        Write none if all states have had such a snapshot since their last write, because the groups are then idle.
        """
        if all(state.create_timestamp != state.write_timestamp for state in self._states.values()):
            return CoordinatorResult()
        now_ms = self._now_ms()
        interval_ms = self._config.cold_partition_snapshot_interval_ms
        return CoordinatorResult(
            [
                snapshot_record(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms))
                for key, state in self._states.items()
                if now_ms - state.write_timestamp >= interval_ms
            ]
        )

    def clean_up_deleted_topics(self, topic_ids: Collection[bytes]) -> CoordinatorResult[None]:
        """Return tombstones for the states of deleted topics."""
        return CoordinatorResult([tombstone_record(key) for key in self._states if key.topic_id in topic_ids])

    def _replay_snapshot(self, key: SharePartitionKey, value: ShareSnapshotValue | None, offset: int) -> None:
        if value is None:
            for values in (self._states, self._leader_epochs, self._state_epochs, self._update_counts):
                values.pop(key, None)
        else:
            _raise_to(self._leader_epochs, key, value.leader_epoch)
            _raise_to(self._state_epochs, key, value.state_epoch)
            self._states[key] = ShareGroupOffset.from_record(value)
            if self._update_counts.get(key, -1) >= self._config.update_records_per_snapshot:
                self._update_counts[key] = 0
        self._redundant.on_snapshot(key, offset, is_tombstone=value is None)

    def _replay_update(self, key: SharePartitionKey, value: ShareUpdateValue) -> None:
        _raise_to(self._leader_epochs, key, value.leader_epoch)
        update = ShareGroupOffset.from_record(value)
        state = self._states.get(key)
        if state is not None:
            start_offset = state.start_offset if value.start_offset == -1 else value.start_offset
            update = state._replace(
                start_offset=start_offset,
                delivery_complete_count=value.delivery_complete_count,
                leader_epoch=state.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
                state_batches=tuple(combine_batches(state.state_batches, update.state_batches, start_offset)),
            )
        self._states[key] = update
        self._update_counts[key] = self._update_counts.get(key, 0) + 1

    def _state_record(self, key: SharePartitionKey, data: WritePartition, new_leader_epoch: int | None) -> CoordinatorRecord:
        """Return the record of a write. Only a read by a new leader changes the leader epoch."""
        state = self._states[key]
        leader_epoch = state.leader_epoch if new_leader_epoch is None else new_leader_epoch
        new = [StateBatch(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state) for each in data.state_batches]
        written = state._replace(leader_epoch=leader_epoch, delivery_complete_count=data.delivery_complete_count)
        if self._update_counts.get(key, 0) < self._config.update_records_per_snapshot:
            batches = tuple(combine_batches((), new, data.start_offset))
            return update_record(key, written._replace(start_offset=data.start_offset, state_batches=batches))
        start_offset = state.start_offset if data.start_offset == -1 else data.start_offset
        now_ms = self._now_ms()
        snapshot = written._replace(
            snapshot_epoch=state.snapshot_epoch + 1,
            start_offset=start_offset,
            state_batches=tuple(combine_batches(state.state_batches, new, start_offset)),
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return snapshot_record(key, snapshot)

    def _write_error(self, key: SharePartitionKey, data: WritePartition) -> _Error | None:
        if (found := _partition_error(key)) is not None:
            return found
        if key not in self._states:
            return "INVALID_REQUEST", WRITE_UNINITIALIZED
        if data.leader_epoch != -1 and self._leader_epochs.get(key, -1) > data.leader_epoch:
            return "FENCED_LEADER_EPOCH", None
        return self._state_epoch_error(key, data.state_epoch) or self._topic_error(key)

    def _read_error(self, key: SharePartitionKey, leader_epoch: int) -> _Error | None:
        if (found := _partition_error(key)) is not None:
            return found
        if key not in self._states:
            return "INVALID_REQUEST", READ_UNINITIALIZED
        if key in self._leader_epochs and self._leader_epochs[key] > leader_epoch:
            return "FENCED_LEADER_EPOCH", None
        return self._topic_error(key)

    def _state_epoch_error(self, key: SharePartitionKey, state_epoch: int) -> _Error | None:
        is_old = state_epoch != -1 and key in self._state_epochs and self._state_epochs[key] > state_epoch
        return ("FENCED_STATE_EPOCH", None) if is_old else None

    def _topic_error(self, key: SharePartitionKey) -> _Error | None:
        topic = None if self._image is None else self._image.topic_by_id(key.topic_id)
        return ("UNKNOWN_TOPIC_OR_PARTITION", None) if topic is None or topic.partition_count <= key.partition else None


def _partition_error(key: SharePartitionKey) -> _Error | None:
    return ("INVALID_REQUEST", NEGATIVE_PARTITION) if key.partition < 0 else None


def _key(key: ShareSnapshotKey | ShareUpdateKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def _raise_to(epochs: TimelineDict[SharePartitionKey, int], key: SharePartitionKey, epoch: int) -> None:
    if key not in epochs or epochs[key] < epoch:
        epochs[key] = epoch
