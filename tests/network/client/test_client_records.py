"""Producer and consumer on a scripted cluster: records that are resent, split or given up, and the records that a reader gets."""

from __future__ import annotations

from typing import Any

import pytest

from kops.client.consumer.faces.batches import BatchConsumer
from kops.client.producer.faces.commands import CommandProducer, Outcome
from kops.client.producer.partitioners import partition_for_key
from kops.errors import ApiError, DecodeError, KopsError, NotFoundError, UnreachableError
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.fetch_response import AbortedTransaction, FetchableTopicResponse, PartitionData
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kops.protocol.messages.produce_response import LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse
from kops.records import Batch
from kops.records.build import BatchBuilder, end_txn_marker
from kops.records.log_offsets import TopicPartition
from kops.records.scanning.scanner import read_batches
from tests.support.nodes.scripted_cluster import ScriptedCluster

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, NOT_ENOUGH = 1, 3, 6, 10, 19
OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER, INVALID_RECORD = 45, 46, 59, 87
ID = b"a".ljust(16, b"\1")
A0 = TopicPartition("a", 0)


class Log:
    """A partition that takes all records. `errors` are answered first; `hints` are the (leader, epoch) that come with them."""

    def __init__(self, cluster: ScriptedCluster, *errors: int, max_size: int = 1 << 20) -> None:
        self.cluster = cluster
        self.errors = list(errors)
        self.max_size = max_size
        self.hint: tuple[int, int] | None = None
        self.batches: list[Batch] = []
        self.refused: list[Batch] = []
        self.ids = 0
        cluster.script(ProduceRequest, self.produce)
        cluster.script(InitProducerIdRequest, self.init)

    def init(self, _: object, message: InitProducerIdRequest) -> Message:
        self.ids += 1
        return InitProducerIdResponse(producer_id=1000 + self.ids, producer_epoch=0)

    def produce(self, _: object, message: ProduceRequest) -> Message | None:
        rows = []
        for topic in message.topic_data:
            for one in topic.partition_data:
                assert one.records is not None
                (batch,) = read_batches(bytes(one.records))  # type: ignore[arg-type]
                row = PartitionProduceResponse(index=one.index, base_offset=-1)
                if batch.size > self.max_size:
                    row.error_code = TOO_LARGE
                elif self.errors:
                    row.error_code = self.errors.pop(0)
                if row.error_code:
                    self.refused.append(batch)
                    if self.hint is not None:
                        row.current_leader = LeaderIdAndEpoch(*self.hint)
                else:
                    row.base_offset = 100 + sum(batch.count or 0 for batch in self.batches)
                    self.batches.append(batch)
                rows.append(row)
        endpoints = []
        if self.hint is not None:
            endpoints = [NodeEndpoint(node_id=self.hint[0], host="127.0.0.1", port=self.cluster.servers[self.hint[0]].port())]
        response = ProduceResponse(
            responses=[TopicProduceResponse(name="a", topic_id=ID, partition_responses=rows)], node_endpoints=endpoints
        )
        return response if message.acks else None

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in batch.records()]


def written(cluster: ScriptedCluster, log: Log, values: list[bytes], **settings: str) -> list[int | KopsError]:
    """Return the offset or the error of each record of one partition."""
    results: list[int | KopsError] = []

    def take(outcome: Outcome) -> None:
        for index in range(outcome.records):
            offset = -1 if outcome.base_offset < 0 else outcome.base_offset + index
            results.append(offset if outcome.error is None else outcome.error)

    with cluster.client({name.replace("_", "."): value for name, value in settings.items()}) as client:
        producer = CommandProducer(client, on_outcome=take, wall_ms=lambda: 1_700_000_000_000)
        for value in values:
            producer.send("a", None, value)
        producer.flush()
        assert not producer.is_busy
    return results


@pytest.fixture
def cluster() -> Any:
    with ScriptedCluster(2) as made:
        made.topics["a"] = [1]
        yield made


def test_records_come_in_order_with_their_offsets(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    values = [b"%d" % number for number in range(1000)]
    results = written(cluster, log, values, batch_size="1000")
    assert log.values == values
    assert results == list(range(100, 1100))
    assert len(log.batches) > 10
    sequence = 0
    for batch in log.batches:
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1001, 0, sequence)
        sequence += batch.count or 0


def test_what_may_succeed_later_is_sent_again_with_its_sequence(cluster: ScriptedCluster) -> None:
    log = Log(cluster, NOT_ENOUGH, NOT_LEADER, NOT_ENOUGH)
    assert all(isinstance(one, int) for one in written(cluster, log, [b"x", b"y"]))
    assert log.values == [b"x", b"y"]
    assert {batch.base_sequence for batch in log.refused} == {0}
    assert log.ids == 1
    assert len(cluster.requests(1, MetadataRequest)) >= 2


def test_a_leader_that_is_told_is_gone_to_at_once(cluster: ScriptedCluster) -> None:
    log = Log(cluster, NOT_LEADER)
    log.hint = (2, 7)
    (result,) = written(cluster, log, [b"x"])
    assert isinstance(result, int)
    assert [len(cluster.requests(node_id, ProduceRequest)) for node_id in (1, 2)] == [1, 1]


def test_batches_that_are_too_large_are_split(cluster: ScriptedCluster) -> None:
    log = Log(cluster, max_size=400)
    values = [bytes([number]) * 50 for number in range(40)]
    results = written(cluster, log, values)
    assert log.values == values
    assert results == list(range(100, 140))
    assert [batch.base_sequence for batch in log.batches] == [
        sum(batch.count or 0 for batch in log.batches[:index]) for index in range(len(log.batches))
    ]


def test_a_duplicate_is_written(cluster: ScriptedCluster) -> None:
    log = Log(cluster, DUPLICATE)
    assert written(cluster, log, [b"x"]) == [-1]


@pytest.mark.parametrize("code", [UNKNOWN_PRODUCER, OUT_OF_ORDER])
def test_a_lost_producer_state_is_no_error(cluster: ScriptedCluster, code: int) -> None:
    log = Log(cluster, code)
    assert written(cluster, log, [b"x"]) == [100]
    assert (log.ids, log.batches[0].producer_id, log.batches[0].base_sequence) == (1, 1001, 0)


def test_what_is_refused_is_told_and_the_rest_goes_on(cluster: ScriptedCluster) -> None:
    log = Log(cluster, INVALID_RECORD)
    results = written(cluster, log, [b"x" * 80, b"y" * 80], batch_size="100")
    assert isinstance(results[0], ApiError) and results[0].name == "INVALID_RECORD"
    assert results[1] == 100
    (batch,) = log.batches
    # The second batch takes the sequence of the first one, unless it was sent before the answer. This broker does not check sequences.
    assert (batch.producer_id, batch.base_sequence) in ((1001, 0), (1001, 1))


def test_what_is_not_delivered_in_time_is_told(cluster: ScriptedCluster) -> None:
    log = Log(cluster, *[NOT_ENOUGH] * 10_000)
    (result,) = written(cluster, log, [b"x"], delivery_timeout_ms="200")
    assert isinstance(result, KopsError)
    assert "too few replicas" in str(result) or "not delivered within 200 ms" in str(result)


def test_a_record_that_is_too_large_is_never_sent(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    results = written(cluster, log, [b"x" * 2000, b"y"], max_request_size="1000")
    assert isinstance(results[0], ApiError) and results[0].name == "MESSAGE_TOO_LARGE"
    assert log.values == [b"y"]


def test_without_acks_nobody_waits(cluster: ScriptedCluster) -> None:
    log = Log(cluster)
    assert written(cluster, log, [b"x"], acks="0") == [-1]
    cluster.servers[1].wait_for(lambda: log.values == [b"x"])
    assert log.ids == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(cluster: ScriptedCluster, codec: str) -> None:
    log = Log(cluster)
    written(cluster, log, [b"x" * 500] * 20, compression_type=codec)
    assert {batch.codec for batch in log.batches} == {codec}
    assert log.values == [b"x" * 500] * 20


def test_keys_choose_their_partition(cluster: ScriptedCluster) -> None:
    cluster.topics["a"] = [1, 2, 1]
    cluster.script(InitProducerIdRequest, lambda *_: InitProducerIdResponse(producer_id=1))
    asked: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}

    def answer(_: object, message: ProduceRequest) -> Message:
        rows = []
        for one in message.topic_data[0].partition_data:
            (batch,) = read_batches(bytes(one.records or b""))  # type: ignore[arg-type]
            asked[one.index] += [record.key for record in batch.records()]
            rows.append(PartitionProduceResponse(index=one.index, base_offset=0))
        return ProduceResponse(responses=[TopicProduceResponse(name="a", topic_id=ID, partition_responses=rows)])

    cluster.script(ProduceRequest, answer)
    keys = [b"key-%d" % number for number in range(30)]
    with cluster.client() as client:
        producer = CommandProducer(client)
        for key in keys:
            producer.send("a", key, None)
        producer.send("a", b"elsewhere", None, partition=1)
        with pytest.raises(NotFoundError, match="a has no partition 3, it has 3"):
            producer.send("a", None, None, partition=3)
        producer.flush()
    wanted = {index: [key for key in keys if partition_for_key(key, 3) == index] for index in range(3)}
    wanted[1].append(b"elsewhere")
    assert asked == wanted


def test_a_topic_that_is_not_there_is_told(cluster: ScriptedCluster) -> None:
    with cluster.hurried(default_api_timeout_ms=1000) as client, pytest.raises(NotFoundError, match="no such topic: nowhere"):
        CommandProducer(client).send("nowhere", None, b"x")
    assert any(message.allow_auto_topic_creation for message in cluster.requests(1, MetadataRequest) if message.topics)


def test_older_brokers_are_told_names_instead_of_ids(cluster: ScriptedCluster) -> None:
    cluster.last_versions = {0: 7, 1: 11, 3: 8}
    log = Log(cluster)
    assert written(cluster, log, [b"x"]) == [100]
    Served(cluster, {0: batch(0, b"x")})
    assert read(cluster, 0, 1) == [(0, b"x")]


# reading


def batch(base_offset: int, *values: bytes, **fields: Any) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=0, **fields)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return builder.build()


class Served:
    """The answers to Fetch: `data` from an offset on, after `errors`."""

    def __init__(self, cluster: ScriptedCluster, data: dict[int, bytes], *errors: int) -> None:
        self.data = data
        self.errors = list(errors)
        self.aborted: list[AbortedTransaction] | None = None
        self.preferred: int | None = None
        self.start = 0
        cluster.script(FetchRequest, self.fetch)
        cluster.script(ListOffsetsRequest, self.list)

    def list(self, _: object, message: ListOffsetsRequest) -> Message:
        row = ListOffsetsPartitionResponse(partition_index=0, offset=self.start)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[row])])

    def fetch(self, context: Any, message: FetchRequest) -> Message:
        one = message.topics[0].partitions[0]
        row = PartitionData(partition_index=0, high_watermark=100, aborted_transactions=self.aborted, records=b"")
        if self.errors:
            row.error_code = self.errors.pop(0)
        elif self.preferred is not None:
            row.preferred_read_replica, self.preferred = self.preferred, None
        else:
            row.records = self.data.get(one.fetch_offset, b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic="a", topic_id=ID, partitions=[row])])


def read(cluster: ScriptedCluster, position: int, count: int, **settings: str) -> list[tuple[int, bytes | None]]:
    """Return the first `count` records from a position on."""
    resets: list[int] = []
    found: list[tuple[int, bytes | None]] = []
    with cluster.client({name.replace("_", "."): value for name, value in settings.items()}) as client:
        consumer = BatchConsumer(client, {A0: position}, on_reset=lambda key, offset: resets.append(offset))
        while len(found) < count:
            for fetched in consumer.poll(50):
                found += [(record.offset, record.value) for record in fetched.records]
        assert all(offset >= position for offset, _ in found) or resets
    return found


def test_batches_that_begin_before_and_are_cut_at_the_end(cluster: ScriptedCluster) -> None:
    whole = batch(0, b"0", b"1", b"2") + batch(5, b"5")
    Served(cluster, {1: whole + batch(6, b"6")[:-1], 6: batch(6, b"6")})
    assert read(cluster, 1, 4) == [(1, b"1"), (2, b"2"), (5, b"5"), (6, b"6")]


def test_undecided_and_aborted_records(cluster: ScriptedCluster) -> None:
    transaction = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = batch(0, b"aborted", **transaction) + batch(1, b"plain")
    data += end_txn_marker(2, 0, commit=False, coordinator_epoch=0, producer_id=9, producer_epoch=0)
    data += batch(3, b"committed", **transaction)
    served = Served(cluster, {0: data})
    assert read(cluster, 0, 3) == [(0, b"aborted"), (1, b"plain"), (3, b"committed")]
    served.aborted = [AbortedTransaction(producer_id=9, first_offset=0)]
    assert read(cluster, 0, 2, isolation_level="read_committed") == [(1, b"plain"), (3, b"committed")]
    assert cluster.requests(1, FetchRequest)[-1].isolation_level == 1


def test_a_leader_that_moves_and_one_that_is_late(cluster: ScriptedCluster) -> None:
    Served(cluster, {0: batch(0, b"x")}, NOT_LEADER, 74, 75, UNKNOWN_TOPIC)
    assert read(cluster, 0, 1) == [(0, b"x")]


def test_what_is_gone_is_gone_over(cluster: ScriptedCluster) -> None:
    served = Served(cluster, {40: batch(40, b"x")}, OFFSET_OUT_OF_RANGE)
    served.start = 40
    assert read(cluster, 3, 1) == [(40, b"x")]


def test_a_nearer_replica_is_read_from(cluster: ScriptedCluster) -> None:
    served = Served(cluster, {0: batch(0, b"x")})
    served.preferred = 2
    assert read(cluster, 0, 1, client_rack="r") == [(0, b"x")]
    assert [len(cluster.requests(node_id, FetchRequest)) >= 1 for node_id in (1, 2)] == [True, True]
    assert cluster.requests(1, FetchRequest)[0].rack_id == "r"


def test_a_topic_that_is_deleted_ends_it(cluster: ScriptedCluster) -> None:
    Served(cluster, {}, *[UNKNOWN_TOPIC] * 1000)
    with pytest.raises(NotFoundError, match="a-0 does not exist any more"):
        read(cluster, 0, 1)


def test_damage_is_told(cluster: ScriptedCluster) -> None:
    data = bytearray(batch(7, b"x"))
    data[-2] ^= 1
    Served(cluster, {7: bytes(data)})
    with pytest.raises(DecodeError, match="a-0, offset 7: the batch's checksum"):
        read(cluster, 7, 1)
    assert read(cluster, 7, 1, check_crcs="false")[0][0] == 7


def test_a_refusal_ends_it(cluster: ScriptedCluster) -> None:
    Served(cluster, {}, 29)
    with pytest.raises(ApiError, match="a-0: not allowed on this topic"):
        read(cluster, 0, 1)


def test_a_leader_that_can_not_be_reached_ends_a_write(cluster: ScriptedCluster) -> None:
    cluster.topics["a"] = [2]
    log = Log(cluster)
    cluster.stop(2)
    cluster.hidden.add(2)
    (result,) = written(cluster, log, [b"x"], delivery_timeout_ms="300")
    assert isinstance(result, UnreachableError)
    assert str(result).startswith("a-0: not delivered within 300 ms")
