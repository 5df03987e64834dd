"""Reading the replicas of brokers: fetches that wait, are throttled, redirected or rejected; offsets and producers."""

from __future__ import annotations

from typing import Any

import pytest

from kops.broker.replicas.manager import selector_of
from kops.broker.replicas.reads import FetchPartitionData
from kops.errors import ApiError, UsageError
from kops.records.log_offsets import Isolation, TopicPartition
from kops.replication.leading.fetch import ClientMetadata, FetchInfo, FetchParams
from kops.replication.leading.partition_reads import OffsetFound
from kops.replication.quota import UnboundedQuota
from tests.support.logs.twins.open_log import batch as producer_batch
from tests.support.parts.managing import batch
from tests.support.parts.replicas import TOPIC_ID, TP, ReplicaBroker, World

pytestmark = pytest.mark.hot

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ANYWHERE = ClientMetadata("", "client", "PLAINTEXT")


def fetch(
    broker: ReplicaBroker,
    offset: int,
    *,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    max_bytes: int = 1_000_000,
    partition_max_bytes: int = 1_000_000,
    client: ClientMetadata | None = None,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    quota: Any = None,
    **info: Any,
) -> list[FetchPartitionData]:
    """Fetch one partition as a consumer. The list gets the answer as soon as it is there."""
    answers: list[FetchPartitionData] = []
    params = FetchParams(-1, -1, max_wait_ms, min_bytes, max_bytes, isolation, client)
    infos = [(TP, FetchInfo(offset, -1, partition_max_bytes, **info))]
    broker.manager.fetch(params, infos, quota or UnboundedQuota(), lambda found: answers.append(found[0][1]))
    return answers


def test_what_is_there_is_given_at_once() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    data = batch(3)
    broker.produce(data)
    (answer,) = fetch(broker, 0)
    assert (answer.error, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == ("NONE", 3, 3, 0)
    assert answer.records.size == len(data)
    assert answer.records.read_at(0, answer.records.size)[61:] == data[61:]
    assert fetch(broker, 9)[0].error == "OFFSET_OUT_OF_RANGE"
    assert fetch(broker, 0, current_leader_epoch=1)[0].error == "UNKNOWN_LEADER_EPOCH"
    assert fetch(broker, 0, topic_id=bytes([7]) * 16)[0].error == "INCONSISTENT_TOPIC_ID"
    assert fetch(broker, 0, topic_id=TOPIC_ID)[0].error == "NONE"


def test_a_fetch_waits_for_more() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    size = len(batch(1))
    waiting = fetch(broker, 0, min_bytes=2 * size)
    broker.produce(batch(1))
    assert waiting == []
    broker.produce(batch(1))
    assert [answer.records.size for answer in waiting] == [2 * size]
    late = fetch(broker, 2)
    world.loop.advance(499)
    assert late == []
    world.loop.advance(1)
    assert [(answer.error, answer.records, answer.high_watermark) for answer in late] == [("NONE", None, 2)]
    assert fetch(broker, 2, max_wait_ms=0)[0].records is None
    assert broker.manager.purgatories.fetch.delayed_count == 0


def test_a_consumer_waits_for_the_high_watermark() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    world.cut.add((2, 1))
    world.loop.advance(600)
    leader = world.brokers[1]
    waiting = fetch(leader, 0, max_wait_ms=60_000)
    leader.produce(batch(2), acks=1)
    assert waiting == []
    world.cut.clear()
    world.loop.advance(1000)
    assert [answer.high_watermark for answer in waiting] == [2]


def test_a_follower_is_read_from() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    follower = world.brokers[2]
    assert fetch(follower, 0)[0].error == "NOT_LEADER_OR_FOLLOWER"
    waiting = fetch(follower, 0, client=ANYWHERE, max_wait_ms=60_000)
    world.brokers[1].produce(batch(2))
    world.loop.turn()
    assert waiting == []
    world.loop.advance(600)
    assert [answer.high_watermark for answer in waiting] == [2]


def test_a_consumer_is_sent_to_its_rack() -> None:
    world = World(1, 2, replica_selector_class=RACK_AWARE)
    world.create_topic([1, 2])
    world.loop.advance(100)
    leader = world.brokers[1]
    near = fetch(leader, 0, client=ClientMetadata("r2", "client", "PLAINTEXT"))
    assert [(answer.preferred_read_replica, answer.records, answer.error) for answer in near] == [(2, None, "NONE")]
    leader.produce(batch(1))
    world.loop.advance(600)
    assert fetch(leader, 0, client=ClientMetadata("r1", "client", "PLAINTEXT"))[0].preferred_read_replica == -1
    assert fetch(leader, 0, client=ClientMetadata("r2", "client", "OTHER"))[0].preferred_read_replica == -1
    assert fetch(leader, 0)[0].preferred_read_replica == -1
    world.change(isr=[1])
    assert fetch(leader, 0, client=ClientMetadata("r2", "client", "PLAINTEXT"))[0].preferred_read_replica == -1


def test_selectors() -> None:
    assert selector_of(None) is None
    assert selector_of("org.apache.kafka.common.replica.LeaderSelector") is None
    assert selector_of(RACK_AWARE) is not None
    with pytest.raises(UsageError, match=r"replica\.selector\.class=com\.example\.Mine"):
        selector_of("com.example.Mine")


def test_a_parked_fetch_ends_when_the_leader_goes() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.loop.advance(100)
    waiting = fetch(world.brokers[1], 0, max_wait_ms=60_000)
    world.change(leader=2)
    assert [answer.error for answer in waiting] == ["NOT_LEADER_OR_FOLLOWER"]


def test_sizes() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    size = len(batch(1))
    for _ in range(3):
        broker.produce(batch(1))
    assert fetch(broker, 0, partition_max_bytes=2 * size)[0].records.size == 2 * size
    assert fetch(broker, 0, max_bytes=size)[0].records.size == size
    # The first batch is returned whole, whatever the limit. A second partition gets only what is left.
    answers: list[FetchPartitionData] = []
    params = FetchParams(-1, -1, 0, 1, size + 1, Isolation.HIGH_WATERMARK)
    infos = [(TP, FetchInfo(0, -1, 1)), (TP, FetchInfo(0, -1, 1_000_000)), (TopicPartition("none", 0), FetchInfo(0, -1, 10))]
    broker.manager.fetch(params, infos, UnboundedQuota(), lambda found: answers.extend(data for _, data in found))
    assert [0 if answer.records is None else answer.records.size for answer in answers] == [size, 0, 0]
    assert [answer.error for answer in answers] == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]


def test_a_follower_out_of_sync_is_throttled_by_its_leader() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    world.cut.add((2, 1))
    world.loop.advance(100)
    world.change(isr=[1])
    leader, follower = world.brokers[1], world.brokers[2]
    leader.produce(batch(3))
    leader.manager.leader_quota.update_quota(10)
    leader.manager.leader_quota.mark_throttled("orders")
    leader.manager.leader_quota.record(100_000)
    world.cut.clear()
    world.loop.advance(3000)
    assert follower.log.log_end_offset == 0
    leader.manager.leader_quota.remove_throttle("orders")
    world.loop.advance(2000)
    assert follower.log.log_end_offset == 3


def test_a_follower_throttles_itself() -> None:
    world = World(1, 2)
    world.create_topic([1, 2])
    follower = world.brokers[2]
    quota = follower.manager.follower_quota
    quota.update_quota(10)
    quota.mark_throttled("orders")
    quota.record(100_000)
    world.brokers[1].produce(batch(3), acks=1)
    world.loop.advance(3000)
    assert follower.log.log_end_offset == 0
    world.loop.advance(20_000)
    assert follower.log.log_end_offset == 3


def test_offsets() -> None:
    world = World(1, 2)
    world.create_topic([1])
    broker = world.brokers[1]
    broker.produce(batch(3))
    manager = broker.manager
    assert manager.list_offsets(TP, -1) == OffsetFound(-1, 3, 0)
    assert manager.list_offsets(TP, -2) == OffsetFound(-1, 0, 0)
    assert manager.list_offsets(TP, world.loop.now_ms() + 1).offset == 1
    with pytest.raises(ApiError) as raised:
        manager.list_offsets(TP, -1, current_leader_epoch=3)
    assert raised.value.name == "UNKNOWN_LEADER_EPOCH"
    with pytest.raises(ApiError) as raised:
        world.brokers[2].manager.list_offsets(TP, -1)
    assert raised.value.name == "NOT_LEADER_OR_FOLLOWER"
    assert manager.end_offset_for_epoch(TP, -1, 0)[:2] == (0, 3)
    assert manager.end_offset_for_epoch(TP, 4, 0).error == "UNKNOWN_LEADER_EPOCH"
    assert manager.end_offset_for_epoch(TopicPartition("none", 0), -1, 0).error == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_failed_directory_is_told_as_such() -> None:
    world = World(1, log_dirs=["/a", "/b"])
    world.create_topic([1])
    broker = world.brokers[1]
    broker.logs.failures.maybe_add_offline_log_dir("/a", "a test", OSError(5, "Input/output error"))
    with pytest.raises(ApiError) as raised:
        broker.manager.list_offsets(TP, -2)
    assert raised.value.name == "KAFKA_STORAGE_ERROR"
    broker.manager.handle_log_dir_failures()
    assert broker.manager.end_offset_for_epoch(TP, -1, 0).error == "KAFKA_STORAGE_ERROR"
    assert fetch(broker, 0)[0].error == "KAFKA_STORAGE_ERROR"


def test_producers() -> None:
    world = World(1)
    world.create_topic([1])
    broker = world.brokers[1]
    broker.produce(producer_batch(2, producer_id=7, epoch=1, sequence=0, timestamp=world.loop.now_ms()))
    (producer,) = broker.manager.describe_producers(TP)
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 1)
    with pytest.raises(ApiError):
        broker.manager.describe_producers(TopicPartition("none", 0))
