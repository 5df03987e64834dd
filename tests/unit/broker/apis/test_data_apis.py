"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch, InitProducerId, DescribeProducers: the answers of each version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kops.broker.controller_link.producer_ids import ProducerIds
from kops.broker.replicas.log_dir_moves import LogDirDescription, ReplicaInDir
from kops.errors import ApiError
from kops.metadata.metadata_version import from_level
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDir, AlterReplicaLogDirTopic
from kops.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsTopic
from kops.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic
from kops.protocol.messages.describe_producers_request import TopicRequest
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse
from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kops.replication.leading.fetch import EpochEndOffset
from kops.replication.leading.partition_reads import NO_OFFSET
from kops.replication.waiting.delayed import AwaitedDeletion
from kops.storage.producers.state import ActiveProducer
from tests.support.parts.answering import C0, O0, O1, Broker, Replicas


def offsets(broker: Broker, version: int, *timestamps: int, name: str = "orders", **fields: int) -> list[ListOffsetsPartitionResponse]:
    asked = [ListOffsetsPartition(number, 5 if version >= 4 else -1, timestamp) for number, timestamp in enumerate(timestamps)]
    request = ListOffsetsRequest(fields.get("replica_id", -1), fields.get("isolation_level", 0), [ListOffsetsTopic(name, asked)])
    return [one for topic in broker.answer(request, version, ListOffsetsResponse).topics for one in topic.partitions]


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_list_offsets(version: int) -> None:
    broker = Broker(Replicas(offsets={O1: NO_OFFSET}))
    found, nothing = offsets(broker, version, 1000, -1)
    assert (found.error_code, found.timestamp, found.offset) == (0, 1000, 4)
    assert found.leader_epoch == (5 if version >= 4 else -1)
    assert (nothing.error_code, nothing.timestamp, nothing.offset, nothing.leader_epoch) == (0, -1, -1, -1)
    options = {"replica_id": -1, "isolation_level": 0, "current_leader_epoch": 5 if version >= 4 else None}
    assert broker.replicas.calls == [(O0, 1000, options), (O1, -1, options)]


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_timestamps_with_a_meaning_came_with_versions(version: int) -> None:
    firsts = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99}
    for timestamp, first in firsts.items():
        (one,) = offsets(Broker(), version, timestamp)
        assert by_code(one.error_code).name == ("NONE" if version >= first else "UNSUPPORTED_VERSION"), timestamp


@pytest.mark.parametrize("version", ListOffsetsRequest.VERSIONS)
def test_offsets_right_after_an_election(version: int) -> None:
    not_yet = Replicas(offsets={O0: ApiError("OFFSET_NOT_AVAILABLE"), O1: ApiError("FENCED_LEADER_EPOCH")})
    first, second = offsets(Broker(not_yet), version, -1, -1)
    assert by_code(first.error_code).name == ("OFFSET_NOT_AVAILABLE" if version >= 5 else "LEADER_NOT_AVAILABLE")
    assert (by_code(second.error_code).name, second.offset) == ("FENCED_LEADER_EPOCH", -1)


def test_a_partition_asked_for_twice_is_answered_once() -> None:
    broker = Broker()
    asked = [ListOffsetsTopic("orders", [ListOffsetsPartition(0, -1, -1)] * 2 + [ListOffsetsPartition(1, -1, -1)])]
    response = broker.answer(ListOffsetsRequest(-1, 0, asked), 6, ListOffsetsResponse)
    codes = {one.partition_index: by_code(one.error_code).name for topic in response.topics for one in topic.partitions}
    assert codes == {0: "INVALID_REQUEST", 1: "NONE"}
    assert [call[0] for call in broker.replicas.calls] == [O1]


def test_list_offsets_with_an_isolation_level_that_there_is_not() -> None:
    (one,) = offsets(Broker(), 6, -1, isolation_level=3)
    assert by_code(one.error_code).name == "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize("version", DeleteRecordsRequest.VERSIONS)
def test_delete_records(version: int) -> None:
    broker = Broker(Replicas(deleted={O1: AwaitedDeletion(9, -1, "OFFSET_OUT_OF_RANGE")}, is_parking=True))
    topics = [
        DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 5), DeleteRecordsPartition(1, 9), DeleteRecordsPartition(7, 1)]),
        DeleteRecordsTopic("absent", [DeleteRecordsPartition(0, 5)]),
    ]
    asked = broker.ask(DeleteRecordsRequest(topics, 700), version)
    assert not asked.is_answered
    broker.replicas.parked[0]()
    assert isinstance(asked.answer, DeleteRecordsResponse)
    found = {
        (topic.name, one.partition_index): (by_code(one.error_code).name, one.low_watermark)
        for topic in asked.answer.topics
        for one in topic.partitions
    }
    assert found == {
        ("orders", 0): ("NONE", 5),
        ("orders", 1): ("OFFSET_OUT_OF_RANGE", -1),
        ("orders", 7): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
        ("absent", 0): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
    }
    assert broker.replicas.calls == [({O0: 5, O1: 9}, 700)]


def test_delete_records_of_nothing() -> None:
    assert Broker().answer(DeleteRecordsRequest(), 2, DeleteRecordsResponse).topics == []


@pytest.mark.parametrize("version", OffsetForLeaderEpochRequest.VERSIONS)
def test_ends_of_epochs(version: int) -> None:
    broker = Broker(Replicas(epochs={O0: EpochEndOffset(4, 17), O1: EpochEndOffset(error="NOT_LEADER_OR_FOLLOWER")}))
    topics = [
        OffsetForLeaderTopic("orders", [OffsetForLeaderPartition(0, 6, 5), OffsetForLeaderPartition(1, -1, 5)]),
        OffsetForLeaderTopic("absent", [OffsetForLeaderPartition(0, -1, 5)]),
    ]
    response = broker.answer(OffsetForLeaderEpochRequest(-1, topics), version, OffsetForLeaderEpochResponse)
    found = [(by_code(one.error_code).name, one.leader_epoch, one.end_offset) for topic in response.topics for one in topic.partitions]
    assert found == [("NONE", 4, 17), ("NOT_LEADER_OR_FOLLOWER", -1, -1), ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)]
    assert broker.replicas.calls[:2] == [(O0, 6, 5), (O1, -1, 5)]


def test_producers() -> None:
    broker = Broker(Replicas(producers={C0: [ActiveProducer(7, 0, 12, 1000, -1, -1)]}))
    topics = [TopicRequest("clicks", [0, 4]), TopicRequest("absent", [0]), TopicRequest("bad name", [0])]
    response = broker.answer(DescribeProducersRequest(topics), 0, DescribeProducersResponse)
    clicks, elsewhere, absent, bad = (one for topic in response.topics for one in topic.partitions)
    assert [(one.producer_id, one.last_sequence, one.last_timestamp) for one in clicks.active_producers] == [(7, 12, 1000)]
    assert (by_code(elsewhere.error_code).name, elsewhere.error_message) == ("NOT_LEADER_OR_FOLLOWER", None)
    assert (by_code(absent.error_code).name, bool(absent.error_message)) == ("UNKNOWN_TOPIC_OR_PARTITION", True)
    assert (by_code(bad.error_code).name, bool(bad.error_message)) == ("INVALID_TOPIC_EXCEPTION", True)


@pytest.mark.parametrize("version", DescribeLogDirsRequest.VERSIONS)
def test_log_dirs(version: int) -> None:
    replicas = (ReplicaInDir(O0, 700, 0, False), ReplicaInDir(C0, 5, 3, False), ReplicaInDir(O1, 6, -1, True))
    failed = LogDirDescription("/b", "KAFKA_STORAGE_ERROR")
    broker = Broker(Replicas(log_dirs=[LogDirDescription("/a", "NONE", replicas, 2000, 1000, True), failed]))
    level = 30 if version == 5 else 29
    features = replace(broker.cache.image.features, metadata_version=from_level(level))
    broker.cache.image = replace(broker.cache.image, features=features)
    response = broker.answer(DescribeLogDirsRequest([DescribableLogDirTopic("orders", [0, 1])]), version, DescribeLogDirsResponse)
    broker.answer(DescribeLogDirsRequest(None), version, DescribeLogDirsResponse)
    assert broker.replicas.calls == [{O0, O1}, None]
    good, bad = response.results
    found = [
        (topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for topic in good.topics
        for one in topic.partitions
    ]
    assert found == [("orders", 0, 700, 0, False), ("orders", 1, 6, -1, True), ("clicks", 0, 5, 3, False)]
    assert (good.log_dir, good.error_code, good.is_cordoned) == ("/a", 0, version >= 5)
    assert (good.total_bytes, good.usable_bytes) == ((2000, 1000) if version >= 4 else (-1, -1))
    assert (bad.log_dir, by_code(bad.error_code).name, bad.topics) == ("/b", "KAFKA_STORAGE_ERROR", [])


@pytest.mark.parametrize("version", AlterReplicaLogDirsRequest.VERSIONS)
def test_moves_between_log_dirs(version: int) -> None:
    broker = Broker(Replicas(moves={O1: "KAFKA_STORAGE_ERROR"}))
    dirs = [
        AlterReplicaLogDir("/a", [AlterReplicaLogDirTopic("orders", [0, 1])]),
        AlterReplicaLogDir("/b", [AlterReplicaLogDirTopic("orders", [0])]),
    ]
    response = broker.answer(AlterReplicaLogDirsRequest(dirs), version, AlterReplicaLogDirsResponse)
    assert broker.replicas.calls == [{O0: "/b", O1: "/a"}]
    found = [
        (topic.topic_name, one.partition_index, by_code(one.error_code).name) for topic in response.results for one in topic.partitions
    ]
    assert found == [("orders", 0, "NONE"), ("orders", 1, "KAFKA_STORAGE_ERROR")]


class Controller:
    """A controller that gets requests for blocks. The test answers them."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Message | ApiError], object]] = []
        self.now_ms = 1_000

    def send(self, message: Message, done: Callable[[Message | ApiError], object], *, timeout_ms: int | None = None) -> None:
        assert message == AllocateProducerIdsRequest(1, 77)
        self.waiting.append(done)

    def give(self, start: int, size: int, error: str = "NONE") -> None:
        self.waiting.pop(0)(AllocateProducerIdsResponse(0, by_name(error).code, start, size))

    def ids(self) -> ProducerIds:
        return ProducerIds(1, self, broker_epoch=lambda: 77, now_ms=lambda: self.now_ms)


def refused(ids: ProducerIds) -> bool:
    try:
        ids.generate()
    except ApiError as error:
        return error.name == "COORDINATOR_LOAD_IN_PROGRESS"
    return False


def test_producer_ids_come_in_blocks() -> None:
    """Only one request is in flight. The broker asks for the next block with the first id after 90 % of the current one."""
    controller = Controller()
    ids = controller.ids()
    assert refused(ids)
    assert refused(ids)
    assert len(controller.waiting) == 1
    controller.give(5000, 10)
    assert [ids.generate() for _ in range(9)] == list(range(5000, 5009))
    assert not controller.waiting
    assert ids.generate() == 5009
    assert len(controller.waiting) == 1
    assert refused(ids)
    controller.give(7000, 10)
    assert ids.generate() == 7000


def test_producer_ids_are_asked_for_again_after_a_while() -> None:
    controller = Controller()
    ids = controller.ids()
    assert refused(ids)
    controller.give(0, 0, "STALE_BROKER_EPOCH")
    assert refused(ids)
    assert not controller.waiting
    controller.now_ms += 50
    assert refused(ids)
    controller.waiting.pop(0)(ApiError("REQUEST_TIMED_OUT"))
    assert refused(ids)
    assert len(controller.waiting) == 1


@pytest.mark.parametrize(("start", "size"), [(5, 10), (-1, 10), (2**63 - 5, 10), (20, -1)])
def test_blocks_that_make_no_sense(start: int, size: int) -> None:
    """Invalid blocks are one that does not come after the current one, and one that is not a range of ids."""
    controller = Controller()
    ids = controller.ids()
    assert refused(ids)
    controller.give(0, 10)
    assert [ids.generate() for _ in range(10)] == list(range(10))
    controller.give(start, size)
    assert refused(ids)


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(version: int) -> None:
    controller = Controller()
    broker = Broker(producer_ids=controller.ids())
    not_yet = broker.answer(InitProducerIdRequest(None, 60_000), version, InitProducerIdResponse)
    assert (by_code(not_yet.error_code).name, not_yet.producer_id, not_yet.producer_epoch) == ("COORDINATOR_LOAD_IN_PROGRESS", -1, -1)
    controller.give(4000, 1000)
    given = [broker.answer(InitProducerIdRequest(None, 60_000), version, InitProducerIdResponse) for _ in range(2)]
    assert [(one.error_code, one.producer_id, one.producer_epoch) for one in given] == [(0, 4000, 0), (0, 4001, 0)]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest("", 60_000), "INVALID_REQUEST"),
        (InitProducerIdRequest("t", 60_000), "NOT_COORDINATOR"),
        (InitProducerIdRequest("t", 0), "INVALID_TRANSACTION_TIMEOUT"),
        (InitProducerIdRequest("t", 900_001), "INVALID_TRANSACTION_TIMEOUT"),
        (InitProducerIdRequest(None, 60_000, producer_id=3), "INVALID_REQUEST"),
        (InitProducerIdRequest(None, 60_000, producer_epoch=3), "INVALID_REQUEST"),
    ],
)
def test_init_producer_id_refuses(request_: InitProducerIdRequest, error: str) -> None:
    response = Broker().answer(request_, 5, InitProducerIdResponse)
    assert (by_code(response.error_code).name, response.producer_id) == (error, -1)
