"""Transactions of librdkafka on three nodes: committed, aborted, fenced, timed out, and with a coordinator that is killed."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError

from kops.protocol.messages import FindCoordinatorRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records.build import BatchBuilder
from tests.support.kafka.oracle import Oracle
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import values_to_end
from tests.support.nodes.raw_client import RawClient

PATIENCE_S = 60
SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}

QUICK = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200, "transaction.state.log.num.partitions": 1}
"""A killed broker is soon given up, and one partition holds all ids."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide a cluster for the tests of this module."""
    with KopsNodes(tmp_path_factory.mktemp("nodes"), settings=SETTINGS) as nodes:
        yield nodes


@pytest.fixture
def topic(nodes: KopsNodes) -> str:
    """Provide a topic with three partitions on three brokers."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, 3, 3)]).values():
        future.result(PATIENCE_S)
    return name


def producer(nodes: KopsNodes, name: str, **settings: Any) -> Producer:
    """Return a transactional producer that is ready."""
    base = {"bootstrap.servers": nodes.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100}
    made = Producer({**base, "transactional.id": name, **settings})
    made.init_transactions(PATIENCE_S)
    return made


def write(made: Producer, topic: str, *values: str) -> None:
    """Write to the topic's partitions in turn, and wait until the brokers have the records."""
    for number, value in enumerate(values):
        made.produce(topic, value.encode(), partition=number % 3)
    assert made.flush(PATIENCE_S) == 0


def wait_for(nodes: KopsNodes, topic: str, committed: list[str]) -> None:
    """Wait until a reader of committed records gets these and no others."""
    limit = time.monotonic() + PATIENCE_S
    while (found := values_to_end(nodes.bootstrap, topic, range(3), "read_committed")) != committed:
        assert time.monotonic() < limit, found
        time.sleep(0.05)


def test_committed_and_aborted(nodes: KopsNodes, topic: str) -> None:
    made = producer(nodes, f"id-{topic}")
    made.begin_transaction()
    write(made, topic, "a", "b", "c")
    assert values_to_end(nodes.bootstrap, topic, range(3), "read_committed") == []
    made.commit_transaction(PATIENCE_S)
    wait_for(nodes, topic, ["a", "b", "c"])
    made.begin_transaction()
    write(made, topic, "d", "e")
    made.abort_transaction(PATIENCE_S)
    made.begin_transaction()
    write(made, topic, "f")
    made.commit_transaction(PATIENCE_S)
    wait_for(nodes, topic, ["a", "b", "c", "f"])
    assert values_to_end(nodes.bootstrap, topic, range(3), "read_uncommitted") == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.slow
def test_a_second_producer_fences_the_first(nodes: KopsNodes, topic: str) -> None:
    first = producer(nodes, f"id-{topic}")
    first.begin_transaction()
    write(first, topic, "zombie")
    second = producer(nodes, f"id-{topic}")
    second.begin_transaction()
    write(second, topic, "good")
    first.produce(topic, b"late", partition=0)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    second.commit_transaction(PATIENCE_S)
    wait_for(nodes, topic, ["good"])


@pytest.mark.slow
def test_a_transaction_times_out(nodes: KopsNodes, topic: str) -> None:
    made = producer(nodes, f"id-{topic}", **{"transaction.timeout.ms": 5000, "message.timeout.ms": 5000})
    made.begin_transaction()
    write(made, topic, "too late")
    other = producer(nodes, f"other-{topic}")
    other.begin_transaction()
    write(other, topic, "good")
    other.commit_transaction(PATIENCE_S)
    wait_for(nodes, topic, ["good"])
    with pytest.raises(KafkaException):
        made.commit_transaction(PATIENCE_S)


@pytest.mark.slow
def test_offsets_of_a_group_in_a_transaction(nodes: KopsNodes, topic: str) -> None:
    """The offsets are committed with the transaction, and dropped with it."""
    settings = {"bootstrap.servers": nodes.bootstrap, "group.id": f"group-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    first = producer(nodes, f"source-{topic}")
    first.begin_transaction()
    write(first, topic, "a", "b", "c")
    first.commit_transaction(PATIENCE_S)
    limit, seen = time.monotonic() + PATIENCE_S, 0
    while seen < 3:
        assert time.monotonic() < limit
        message = consumer.poll(1)
        seen += message is not None and message.error() is None
    made = producer(nodes, f"id-{topic}")
    made.begin_transaction()
    write(made, topic, "d")
    made.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), PATIENCE_S)
    made.commit_transaction(PATIENCE_S)
    made.begin_transaction()
    made.send_offsets_to_transaction([TopicPartition(topic, 1, 1)], consumer.consumer_group_metadata(), PATIENCE_S)
    made.abort_transaction(PATIENCE_S)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    limit = time.monotonic() + PATIENCE_S
    while [each.offset for each in consumer.committed(partitions, PATIENCE_S)] != [1, OFFSET_INVALID, OFFSET_INVALID]:
        assert time.monotonic() < limit
        time.sleep(0.05)
    consumer.close()


@pytest.mark.slow
def test_the_coordinator_is_killed(tmp_path: Path) -> None:
    """The coordinator is killed in the middle of two transactions. Another broker continues with them."""
    with KopsNodes(tmp_path, settings={**SETTINGS, **QUICK}) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("orders", 3, 3)]).values():
            future.result(PATIENCE_S)
        good, bad = producer(nodes, "good"), producer(nodes, "bad")
        for made, word in ((good, "good"), (bad, "bad")):
            made.begin_transaction()
            write(made, "orders", *(f"{word}-{number}" for number in range(3)))
        described = admin.list_topics("__transaction_state", PATIENCE_S).topics["__transaction_state"]
        nodes.kill(described.partitions[0].leader)
        good.commit_transaction(PATIENCE_S)
        bad.abort_transaction(PATIENCE_S)
        nodes.start(described.partitions[0].leader)
        wait_for(nodes, "orders", ["good-0", "good-1", "good-2"])


def java_producer(oracle: Oracle, nodes: KopsNodes, name: str, **settings: Any) -> Any:
    """Return a producer of Kafka that is ready. `settings` have `_` for `.`."""
    kind = "org.apache.kafka.common.serialization.ByteArraySerializer"
    base = {"bootstrap.servers": nodes.bootstrap, "key.serializer": kind, "value.serializer": kind, "linger.ms": 0}
    more = {key.replace("_", "."): value for key, value in settings.items()}
    made = oracle.jvm.org.apache.kafka.clients.producer.KafkaProducer(oracle.properties({**base, "transactional.id": name, **more}))
    made.initTransactions()
    return made


def test_the_second_batch_waits_while_the_first_is_verified(nodes: KopsNodes, topic: str) -> None:
    addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in nodes.ports.items()}
    with RawClient(addresses[1]) as client:
        found = ask_until_good(client, FindCoordinatorRequest(key=topic, key_type=1), 3)
        metadata: Any = client.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 12)
        leader = next(each.leader_id for each in metadata.topics[0].partitions if each.partition_index == 0)
    with RawClient(addresses[found.node_id]) as client:
        given = ask_until_good(client, InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=60_000), 5)
    with RawClient(addresses[leader]) as client:
        for sequence in (0, 1):
            batch = BatchBuilder(
                producer_id=given.producer_id, producer_epoch=given.producer_epoch, base_sequence=sequence, transactional=True
            )
            batch.append(time.time_ns() // 1_000_000, None, b"value")
            client.send(
                ProduceRequest(topic, -1, 10_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch.build())])]), 12
            )
        responses: list[Any] = [client.receive() for _ in range(2)]
    answers = [response.responses[0].partition_responses[0] for response in responses]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1)]


def ask_until_good(client: RawClient, message: Any, version: int) -> Any:
    """Repeat a request until its answer has no error. The first request creates the internal topic."""
    limit = time.monotonic() + PATIENCE_S
    answer: Any = client.ask(message, version)
    while answer.error_code:
        assert time.monotonic() < limit, answer
        time.sleep(0.05)
        answer = client.ask(message, version)
    return answer


@pytest.mark.slow
def test_batches_in_flight_while_a_transaction_is_verified(oracle: Oracle, nodes: KopsNodes, topic: str) -> None:
    """The first batch of a transaction waits for the coordinator, which still ends the previous one. No other batch overtakes it."""
    made = java_producer(oracle, nodes, f"id-{topic}", batch_size=1)
    record = oracle.jvm.org.apache.kafka.clients.producer.ProducerRecord
    for number in range(10):
        made.beginTransaction()
        for each in range(10):
            made.send(record(topic, 0, None, f"{number}-{each}".encode()))
        made.commitTransaction()
    made.close()
    view = oracle.read_records(nodes.bootstrap, topic, 0, isolation="read_committed")
    values = [base64.b64decode(each["value"]).decode() for each in view.records]
    assert values == [f"{number}-{each}" for number in range(10) for each in range(10)]


@pytest.mark.slow
def test_kafkas_own_producer(oracle: Oracle, nodes: KopsNodes, topic: str) -> None:
    """The producer is that of 4.3.0. The brokers add its partitions, and its epoch grows with each transaction (version 2)."""

    def send(made: Any, *values: str) -> None:
        record = oracle.jvm.org.apache.kafka.clients.producer.ProducerRecord
        for number, value in enumerate(values):
            made.send(record(topic, number % 3, None, value.encode())).get()

    first = java_producer(oracle, nodes, f"id-{topic}")
    for number in range(5):
        first.beginTransaction()
        send(first, f"{number}-a", f"{number}-b")
        if number % 2:
            first.abortTransaction()
        else:
            first.commitTransaction()
    first.beginTransaction()
    send(first, "zombie")
    second = java_producer(oracle, nodes, f"id-{topic}")
    second.beginTransaction()
    send(second, "good")
    with pytest.raises(Py4JJavaError) as caught:
        first.commitTransaction()
    assert "Fenced" in str(caught.value.java_exception.toString())
    second.commitTransaction()
    for made in (first, second):
        made.close(oracle.jvm.java.time.Duration.ofSeconds(0))
    wait_for(nodes, topic, sorted([f"{number}-{word}" for number in (0, 2, 4) for word in "ab"] + ["good"]))
