"""One group whose members are Kafka's consumers 4.3.0 and 3.9.1, librdkafka, aiokafka, kafka-python and kops, and one topic with
transactions of all their producers, on kops and on Apache Kafka 4.3.0 and 3.9.1.

Members join and leave. Every record is got once, by one of them.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest
from confluent_kafka.admin import NewTopic

import kops
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.mixed_members import (
    AiokafkaMember,
    JavaMember,
    KafkaPythonMember,
    KopsMember,
    LibrdkafkaMember,
    Make,
    MixedGroup,
)
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.kops_nodes import KopsNodes

pytestmark = pytest.mark.slow

PATIENCE_S = 60
PARTITIONS = 12
SETTINGS = {"group.consumer.min.heartbeat.interval.ms": 100, "group.consumer.heartbeat.interval.ms": 200}
JAVA, OLD_JAVA, LIBRDKAFKA, AIOKAFKA, KAFKA_PYTHON, KOPS = "java-4.3.0", "java-3.9.1", "librdkafka", "aiokafka", "kafka-python", "kops"
ALL = (JAVA, OLD_JAVA, LIBRDKAFKA, AIOKAFKA, KAFKA_PYTHON, KOPS)
GROUPS: dict[str | None, tuple[str, ...]] = {
    "range": ALL,
    "roundrobin": ALL,
    "cooperative-sticky": (JAVA, OLD_JAVA, LIBRDKAFKA, KOPS),
    None: (JAVA, LIBRDKAFKA, KOPS),
}
"""The assignor, and who has it. None is group.protocol=consumer."""
STRATEGIES: dict[str, tuple[str | None, ...]] = {
    "kops": tuple(GROUPS),
    "4.3.0": ("range", "cooperative-sticky", None),
    "3.9.1": ("range", "cooperative-sticky"),
}


class Node(NamedTuple):
    """A node of kops or of a version of Kafka, and its address."""

    kind: str
    servers: str


@pytest.fixture(scope="module")
def old_oracle() -> Iterator[Oracle]:
    """Provide a JVM with the classes of Kafka 3.9.1."""
    with Oracle("3.9.1") as started:
        yield started


@pytest.fixture(scope="module", params=list(STRATEGIES))
def node(request: pytest.FixtureRequest, oracle: Oracle, old_oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Provide one node."""
    work: Path = tmp_path_factory.mktemp("mixed")
    if request.param == "kops":
        with KopsNodes(work, 1, settings=SETTINGS) as nodes:
            yield Node(request.param, nodes.bootstrap)
    else:
        java = oracle if request.param == "4.3.0" else old_oracle
        with RealBroker(java, work / "run", log_dirs=[work / "disk"], settings=SETTINGS) as broker:
            yield Node(request.param, broker.bootstrap)


def create(servers: str, topic: str, partitions: int) -> None:
    client = kafka.admin(servers)
    for future in client.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(PATIENCE_S)


def test_every_record_is_got_once(node: Node, oracle: Oracle, old_oracle: Oracle) -> None:
    makers: dict[str, Make] = {
        JAVA: partial(JavaMember, oracle),
        OLD_JAVA: partial(JavaMember, old_oracle),
        LIBRDKAFKA: LibrdkafkaMember,
        AIOKAFKA: AiokafkaMember,
        KAFKA_PYTHON: KafkaPythonMember,
        KOPS: KopsMember,
    }
    for strategy in STRATEGIES[node.kind]:
        topic = f"mixed-{strategy or 'consumer'}"
        create(node.servers, topic, PARTITIONS)
        first, *others = GROUPS[strategy]
        with MixedGroup(node.servers, topic, topic, PARTITIONS, strategy, makers) as group:
            group.change(join=[first])
            group.change(join=others)
            group.change(leave=[first, *others[::2]])
            group.change(join=[first, others[0]], leave=[others[1]])
            group.end()


# transactions

VALUES = 3


def with_java(oracle: Oracle, servers: str, topic: str, name: str, end: str) -> None:
    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    settings = {"bootstrap.servers": servers, "transactional.id": name, "key.serializer": serializer, "value.serializer": serializer}
    clients = oracle.jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(oracle.properties(settings))
    try:
        producer.initTransactions()
        producer.beginTransaction()
        for value in values(name, end):
            producer.send(clients.ProducerRecord(topic, None, value))
        producer.flush()
        getattr(producer, f"{end}Transaction")()
    finally:
        producer.close()


def with_librdkafka(servers: str, topic: str, name: str, end: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for value in values(name, end):
        producer.produce(topic, value)
    producer.flush(PATIENCE_S)
    getattr(producer, f"{end}_transaction")(PATIENCE_S)


def with_aiokafka(servers: str, topic: str, name: str, end: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name, client_id=name)
        await producer.start()
        try:
            await producer.begin_transaction()
            for value in values(name, end):
                await producer.send_and_wait(topic, value)
            await getattr(producer, f"{end}_transaction")()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), PATIENCE_S))


def with_kafka_python(servers: str, topic: str, name: str, end: str) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=servers, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values(name, end):
        producer.send(topic, value)
    producer.flush()
    getattr(producer, f"{end}_transaction")()
    producer.close()


def with_kops(servers: str, topic: str, name: str, end: str) -> None:
    with kops.Producer(bootstrap_servers=servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values(name, end):
            producer.send(topic, value)
        producer.flush()
        getattr(producer, f"{end}_transaction")()


def values(name: str, end: str) -> list[bytes]:
    """Return the values of one transaction."""
    return [f"{name}-{end}-{number}".encode() for number in range(VALUES)]


def read_with_librdkafka(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = [consumer.poll(PATIENCE_S) for _ in range(count)]
    consumer.close()
    return [one.value() or b"" for one in found if one is not None]


def read_with_aiokafka(servers: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=servers, **settings) as consumer:
            return [(await consumer.getone()).value for _ in range(count)]

    return asyncio.run(asyncio.wait_for(read(), PATIENCE_S))


def read_with_kops(servers: str, topic: str, count: int) -> list[bytes]:
    with kops.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([kops.TopicPartition(topic, 0)])
        found: list[bytes] = []
        while len(found) < count:
            found += [one.value for one in consumer.poll(PATIENCE_S)]
    return found


def test_transactions_of_all_clients(node: Node, oracle: Oracle, old_oracle: Oracle) -> None:
    """Each producer aborts a transaction and commits one. Each client's consumer reads the records of the second ones."""
    topic = "ledger"
    create(node.servers, topic, 1)
    writers: dict[str, Callable[..., None]] = {
        JAVA: partial(with_java, oracle),
        OLD_JAVA: partial(with_java, old_oracle),
        LIBRDKAFKA: with_librdkafka,
        AIOKAFKA: with_aiokafka,
        KAFKA_PYTHON: with_kafka_python,
        KOPS: with_kops,
    }
    for name, write in writers.items():
        write(node.servers, topic, name, "abort")
        write(node.servers, topic, name, "commit")
    expected = [value for name in writers for value in values(name, "commit")]
    for read in (read_with_librdkafka, read_with_aiokafka, read_with_kops):
        assert read(node.servers, topic, len(expected)) == expected, read
    for java in (oracle, old_oracle):
        found = java.read_records(node.servers, topic, 0, isolation="read_committed").records
        assert [one["value"] for one in found] == [text(one) for one in expected]


def text(value: bytes) -> str:
    """Return bytes as the oracle shows them."""
    return base64.b64encode(value).decode()
