"""The share coordinator: how states are written, read and fenced, and how requests about many partitions are split."""

from __future__ import annotations

from typing import Any

import pytest

from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.share.batches import StateBatch, combine_batches
from kops.coordinators.share.key import java_abs
from kops.coordinators.share.requests import failed, is_empty, joined, not_available, single_requests
from kops.coordinators.share.responses import INITIALIZE, READ, WRITE
from kops.coordinators.share.shard import ShareCoordinatorConfig, ShareCoordinatorShard
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.messages import initialize_share_group_state_request as initializing
from kops.protocol.messages import read_share_group_state_request as reading
from kops.protocol.messages import write_share_group_state_request as writing
from kops.protocol.messages.share_snapshot_value import ShareSnapshotValue
from kops.protocol.messages.share_update_value import ShareUpdateValue
from kops.timeline import Timeline
from tests.support.parts.groups.coordinator_images import Image

TOPIC = bytes(range(16))


class Shard:
    """A shard whose records are replayed at once."""

    def __init__(self, records_per_snapshot: int = 2) -> None:
        self.timeline = Timeline()
        self.shard = ShareCoordinatorShard(self.timeline, ShareCoordinatorConfig(records_per_snapshot), lambda: 1000)
        self.shard.on_loaded(Image({"orders": (TOPIC, 2)}))
        self.offset = 0

    def run(self, result: CoordinatorResult[Any]) -> tuple[list[Any], Any]:
        for record in result.records:
            self.timeline.offset = self.offset
            self.shard.replay(self.offset, -1, -1, record)
            self.offset += 1
        assert result.response is not None
        return [record.value for record in result.records], result.response.results[0].partitions[0]

    def initialize(self, state_epoch: int = 1, start_offset: int = 0) -> tuple[list[Any], Any]:
        data = initializing.PartitionData(0, state_epoch, start_offset)
        request = initializing.InitializeShareGroupStateRequest("g", [initializing.InitializeStateData(TOPIC, [data])])
        return self.run(self.shard.initialize_state(request))

    def write(self, *batches: writing.StateBatch, leader_epoch: int = 0, state_epoch: int = 1) -> tuple[list[Any], Any]:
        data = writing.PartitionData(0, state_epoch, leader_epoch, -1, 0, list(batches))
        return self.run(self.shard.write_state(writing.WriteShareGroupStateRequest("g", [writing.WriteStateData(TOPIC, [data])])))

    def read(self, leader_epoch: int) -> tuple[list[Any], Any]:
        data = reading.PartitionData(0, leader_epoch)
        return self.run(self.shard.read_state(reading.ReadShareGroupStateRequest("g", [reading.ReadStateData(TOPIC, [data])])))


def test_updates_and_then_a_snapshot() -> None:
    shard = Shard()
    (first,), _ = shard.initialize(start_offset=3)
    assert isinstance(first, ShareSnapshotValue)
    assert (first.snapshot_epoch, first.state_epoch, first.start_offset, first.delivery_complete_count) == (0, 1, 3, 0)
    (update,), _ = shard.write(writing.StateBatch(3, 5, 0, 1))
    assert isinstance(update, ShareUpdateValue)
    shard.write(writing.StateBatch(5, 5, 2, 1))
    (snapshot,), result = shard.write(writing.StateBatch(6, 6, 2, 1))
    assert isinstance(snapshot, ShareSnapshotValue)
    assert [(each.first_offset, each.last_offset, each.delivery_state) for each in snapshot.state_batches] == [(3, 4, 0), (5, 6, 2)]
    assert (snapshot.snapshot_epoch, result.error_code) == (1, 0)


def test_old_leaders_and_old_states_are_fenced() -> None:
    shard = Shard()
    _, result = shard.write()
    assert result.error_message == "Write operation on uninitialized share partition not allowed."
    shard.initialize(state_epoch=4)
    records, result = shard.read(7)
    assert (len(records), result.error_code, result.state_epoch) == (1, 0, 4)
    assert shard.read(7)[0] == []
    assert errors.by_code(shard.write(leader_epoch=6, state_epoch=4)[1].error_code).name == "FENCED_LEADER_EPOCH"
    assert errors.by_code(shard.write(leader_epoch=7, state_epoch=3)[1].error_code).name == "FENCED_STATE_EPOCH"
    assert errors.by_code(shard.initialize(state_epoch=3)[1].error_code).name == "FENCED_STATE_EPOCH"
    assert errors.by_code(shard.read(6)[1].error_code).name == "FENCED_LEADER_EPOCH"


def test_a_write_that_was_lost_is_undone() -> None:
    shard = Shard()
    shard.initialize()
    shard.write(writing.StateBatch(0, 4, 2, 1))
    shard.timeline.revert_to(0)
    _, result = shard.read(-1)
    assert result.error_code == errors.by_name("FENCED_LEADER_EPOCH").code  # a read without an epoch has epoch -1
    _, result = shard.read(0)
    assert result.state_batches == []


def test_the_last_delivery_wins() -> None:
    lists = [StateBatch(0, 9, 1, 0)], [StateBatch(3, 5, 2, 2), StateBatch(10, 12, 1, 0)]
    expected = [StateBatch(0, 2, 1, 0), StateBatch(3, 5, 2, 2), StateBatch(6, 12, 1, 0)]
    assert combine_batches(*lists, -1) == expected
    assert combine_batches(*lists, 4) == [StateBatch(4, 5, 2, 2), StateBatch(6, 12, 1, 0)]


def test_batches_that_end_before_they_begin() -> None:
    """Merged with a larger one, such a batch splits it into two that are merged again. In Kafka, too (PersisterStateBatchCombiner), and so
    the thread of its share coordinator never ends."""
    backwards = StateBatch(5, 3, 2, 0)
    assert combine_batches([], [backwards], 0) == [backwards]
    assert combine_batches([StateBatch(0, 2, 1, 0)], [backwards], 0) == [StateBatch(0, 2, 1, 0), backwards]
    with pytest.raises(ApiError, match="end before they begin"):
        combine_batches([StateBatch(0, 9, 1, 0)], [backwards], 0)
    shard = Shard()
    shard.initialize()
    with pytest.raises(ApiError, match="end before they begin"):
        shard.write(writing.StateBatch(0, 9, 0, 1), writing.StateBatch(5, 3, 0, 2))
    _, result = shard.read(0)
    assert result.state_batches == []


def test_a_request_about_many_partitions() -> None:
    other = bytes(range(1, 17))
    parts = [initializing.PartitionData(number) for number in (17, 2)]
    topics = [initializing.InitializeStateData(TOPIC, parts), initializing.InitializeStateData(other)]
    request = initializing.InitializeShareGroupStateRequest("g", topics)
    assert is_empty(request, check_partitions=True)
    assert not is_empty(request, check_partitions=False)
    singles = dict(single_requests(request))
    assert [(key.partition, single.topics[0].partitions[0].partition) for key, single in singles.items()] == [(17, 17), (2, 2)]
    assert len(request.topics) == 2
    first, second = singles
    error = failed(INITIALIZE, first, ApiError("NOT_COORDINATOR", "moved"))
    response = joined(INITIALIZE, {first: error, second: INITIALIZE.success(TOPIC, 2)})
    shown = [(each.partition, each.error_code, each.error_message) for each in response.results[0].partitions]
    assert shown == [(17, 16, "Unable to initialize share group state: moved"), (2, 0, None)]
    assert [len(topic.partitions) for topic in not_available(INITIALIZE, request).results] == [2, 0]
    assert WRITE.error(TOPIC, 0, "UNKNOWN_TOPIC_OR_PARTITION").results[0].partitions[0].error_code == 3
    assert READ.success(TOPIC, 1).results[0].topic_id == TOPIC


def test_the_smallest_hash_has_no_absolute_value() -> None:
    assert [java_abs(bits) for bits in (5, 0xFFFF_FFFF, 0x8000_0000)] == [5, 1, 0]
