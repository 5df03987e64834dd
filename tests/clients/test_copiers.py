"""Every client reads a topic in a group and copies it in transactions, with the offsets of its group in them.

Every other transaction is aborted, so its records are read again. A second producer with the same transactional id fences the first.
Kafka's own clients are 4.3.0, for which brokers add partitions to transactions (version 2), and 3.9.1, which adds them itself.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka.structs import TopicPartition as AioTopicPartition
from kafka.structs import OffsetAndMetadata
from py4j.protocol import Py4JJavaError

from tests.support.kafka.oracle import Oracle
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import create_topic, values_to_end

pytestmark = pytest.mark.slow

PARTITIONS, COUNT = 3, 60
PATIENCE_S = 60
SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
}
FENCED: Final = ("fenced", "producerepoch", "producer epoch")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide a cluster for the tests of this module."""
    with KopsNodes(tmp_path_factory.mktemp("nodes"), settings=SETTINGS) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def old_oracle() -> Iterator[Oracle]:
    """Provide a JVM with the clients of 3.9.1."""
    with Oracle("3.9.1") as started:
        yield started


class Copier(Protocol):
    """A consumer of a group, and a transactional producer that is ready."""

    def take(self) -> list[str]:
        """Return the next values, or none if there are none yet."""

    def begin(self, values: list[str]) -> None:
        """Begin a transaction with these values, and with the offsets after the records that were taken."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction, and go back to the committed offsets."""

    def close(self) -> None:
        """Close both clients."""


class Librdkafka:
    """A copier of librdkafka."""

    def __init__(self, bootstrap: str, group: str, source: str, target: str, protocol: str) -> None:
        base = {"bootstrap.servers": bootstrap, "log_level": 0}
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "group.protocol": protocol}
        self.consumer = confluent_kafka.Consumer({**base, **settings, "isolation.level": "read_committed"})
        self.consumer.subscribe([source])
        self.producer = confluent_kafka.Producer({**base, "transactional.id": target, "linger.ms": 0})
        self.producer.init_transactions(PATIENCE_S)
        self.target = target

    def take(self) -> list[str]:
        messages = self.consumer.consume(10, 0.2)
        assert [message.error() for message in messages if message.error()] == []
        return [(message.value() or b"").decode() for message in messages]

    def begin(self, values: list[str]) -> None:
        self.producer.begin_transaction()
        for number, value in enumerate(values):
            self.producer.produce(self.target, value.encode(), partition=number % PARTITIONS)
        places = [place for place in self.consumer.position(self.consumer.assignment()) if place.offset >= 0]
        self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), PATIENCE_S)

    def commit(self) -> None:
        self.producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self.producer.abort_transaction(PATIENCE_S)
        for place in self.consumer.committed(self.consumer.assignment(), PATIENCE_S):
            self.consumer.seek(confluent_kafka.TopicPartition(place.topic, place.partition, max(place.offset, 0)))

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    """A copier of kafka-python."""

    def __init__(self, bootstrap: str, group: str, source: str, target: str) -> None:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        self.consumer = kafka.KafkaConsumer(source, bootstrap_servers=bootstrap, group_id=group, max_poll_records=10, **settings)
        self.producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=target, linger_ms=0)
        self.producer.init_transactions()
        self.target = target

    def take(self) -> list[str]:
        return [record.value.decode() for records in self.consumer.poll(200).values() for record in records]

    def begin(self, values: list[str]) -> None:
        self.producer.begin_transaction()
        for number, value in enumerate(values):
            self.producer.send(self.target, value.encode(), partition=number % PARTITIONS)
        places = {place: OffsetAndMetadata(self.consumer.position(place), "", -1) for place in self.consumer.assignment()}
        self.producer.send_offsets_to_transaction(places, self.consumer.group_metadata())

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()
        for place in self.consumer.assignment():
            self.consumer.seek(place, self.consumer.committed(place) or 0)

    def close(self) -> None:
        self.consumer.close()
        self.producer.close(timeout=0)


class Aiokafka:
    """A copier of aiokafka."""

    def __init__(self, bootstrap: str, group: str, source: str, target: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.target = target
        self.made: list[Any] = []
        self.loop.run_until_complete(self._start(bootstrap, group, source))

    async def _start(self, bootstrap: str, group: str, source: str) -> None:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        self.consumer = aiokafka.AIOKafkaConsumer(source, bootstrap_servers=bootstrap, group_id=group, max_poll_records=10, **settings)
        self.producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=self.target, linger_ms=0)
        for each in (self.consumer, self.producer):
            self.made.append(each)
            await each.start()

    def take(self) -> list[str]:
        found = self.loop.run_until_complete(self.consumer.getmany(timeout_ms=200))
        return [record.value.decode() for records in found.values() for record in records]

    def begin(self, values: list[str]) -> None:
        async def run() -> None:
            await self.producer.begin_transaction()
            for number, value in enumerate(values):
                await self.producer.send(self.target, value.encode(), partition=number % PARTITIONS)
            places = {place: await self.consumer.position(place) for place in self.consumer.assignment()}
            await self.producer.send_offsets_to_transaction(places, self.consumer._group_id)

        self.loop.run_until_complete(run())

    def commit(self) -> None:
        self.loop.run_until_complete(self.producer.commit_transaction())

    def abort(self) -> None:
        async def run() -> None:
            await self.producer.abort_transaction()
            for place in self.consumer.assignment():
                self.consumer.seek(AioTopicPartition(place.topic, place.partition), await self.consumer.committed(place) or 0)

        self.loop.run_until_complete(run())

    def close(self) -> None:
        for each in self.made:
            self.loop.run_until_complete(each.stop())
        self.loop.close()


class Java:
    """A copier of Apache Kafka's own clients."""

    def __init__(self, oracle: Oracle, bootstrap: str, group: str, source: str, target: str, protocol: str) -> None:
        self.oracle = oracle
        self.target = target
        settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        settings |= {"isolation.level": "read_committed", "max.poll.records": "10"}
        self.consumer = self._made("Consumer", "Deserializer", bootstrap, settings)
        self.consumer.subscribe(oracle.jvm.java.util.List.of(source))
        self.producer = self._made("Producer", "Serializer", bootstrap, {"transactional.id": target, "linger.ms": "0"})
        self.producer.initTransactions()
        self.record = oracle.java_class("org.apache.kafka.clients.producer.ProducerRecord")

    def _made(self, kind: str, codec: str, bootstrap: str, settings: dict[str, str]) -> Any:
        base = {f"{part}.{codec.lower()}": f"org.apache.kafka.common.serialization.String{codec}" for part in ("key", "value")}
        properties = self.oracle.properties({"bootstrap.servers": bootstrap, **base, **settings})
        return self.oracle.java_class(f"org.apache.kafka.clients.{kind.lower()}.Kafka{kind}")(properties)

    def take(self) -> list[str]:
        records = self.consumer.poll(self.oracle.jvm.java.time.Duration.ofMillis(200)).iterator()
        found = []
        while records.hasNext():
            found.append(str(records.next().value()))
        return found

    def begin(self, values: list[str]) -> None:
        self.producer.beginTransaction()
        for number, value in enumerate(values):
            self.producer.send(self.record(self.target, number % PARTITIONS, None, value))
        places = self.oracle.jvm.java.util.HashMap()
        offset = self.oracle.java_class("org.apache.kafka.clients.consumer.OffsetAndMetadata")
        for place in self.consumer.assignment():
            places.put(place, offset(self.consumer.position(place)))
        self.producer.sendOffsetsToTransaction(places, self.consumer.groupMetadata())

    def commit(self) -> None:
        self.producer.commitTransaction()

    def abort(self) -> None:
        self.producer.abortTransaction()
        committed = self.consumer.committed(self.consumer.assignment())
        for place in self.consumer.assignment():
            found = committed.get(place)
            self.consumer.seek(place, 0 if found is None else found.offset())

    def close(self) -> None:
        for each in (self.consumer, self.producer):
            each.close(self.oracle.jvm.java.time.Duration.ofSeconds(5))


def check(nodes: KopsNodes, make: Callable[[str, str, str], Copier]) -> None:
    """Copy, abort every other transaction, and fence the copier."""
    name = uuid.uuid4().hex[:8]
    source, target = f"source-{name}", f"target-{name}"
    for topic in (source, target):
        create_topic(nodes.bootstrap, topic, PARTITIONS, 3)
    values = sorted(f"{number:03}" for number in range(COUNT))
    producer = confluent_kafka.Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(source, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    first = make(f"group-{name}", source, target)
    deadline = time.monotonic() + PATIENCE_S
    copied = transactions = 0
    while copied < COUNT:
        assert time.monotonic() < deadline, copied
        if not (found := first.take()):
            continue
        first.begin(found)
        transactions += 1
        if transactions % 2:
            first.abort()
        else:
            first.commit()
            copied += len(found)
    assert copied == COUNT and transactions >= 4
    first.begin(["zombie"])
    second = make(f"other-{name}", source, target)
    with pytest.raises(Exception) as caught:  # each client has errors of its own
        first.commit()
    assert any(word in words_of(caught.value) for word in FENCED), words_of(caught.value)
    for each in (first, second):
        each.close()
    while values_to_end(nodes.bootstrap, target, range(PARTITIONS), "read_committed") != values:
        assert time.monotonic() < deadline, values_to_end(nodes.bootstrap, target, range(PARTITIONS), "read_committed")
    assert set(values) | {"zombie"} >= set(values_to_end(nodes.bootstrap, target, range(PARTITIONS), "read_uncommitted")) > set()


def words_of(error: BaseException) -> str:
    """Return the text of an error in small letters."""
    return (str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else repr(error)).lower()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka(nodes: KopsNodes, protocol: str) -> None:
    check(nodes, lambda group, source, target: Librdkafka(nodes.bootstrap, group, source, target, protocol))


def test_kafka_python(nodes: KopsNodes) -> None:
    check(nodes, lambda group, source, target: KafkaPython(nodes.bootstrap, group, source, target))


def test_aiokafka(nodes: KopsNodes) -> None:
    check(nodes, lambda group, source, target: Aiokafka(nodes.bootstrap, group, source, target))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java(nodes: KopsNodes, oracle: Oracle, protocol: str) -> None:
    check(nodes, lambda group, source, target: Java(oracle, nodes.bootstrap, group, source, target, protocol))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_391(nodes: KopsNodes, old_oracle: Oracle, protocol: str) -> None:
    check(nodes, lambda group, source, target: Java(old_oracle, nodes.bootstrap, group, source, target, protocol))
