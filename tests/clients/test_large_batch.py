"""A batch of more than 128 MiB after decompression on two running nodes: produced, replicated, consumed by kops and by librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from kops.client.client import Client
from kops.client.consumer.faces.batches import BatchConsumer
from kops.client.producer.faces.commands import CommandProducer, Outcome
from kops.client.settings import ClientSettings
from kops.records import Batch
from kops.records.log_offsets import TopicPartition
from tests.support.nodes.embedded_nodes import EmbeddedNodes

MIB = 1 << 20
COUNT, SIZE = 36, 4 * MIB
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[EmbeddedNodes]:
    with EmbeddedNodes(tmp_path, 2) as nodes:
        nodes.create_topic(1, "orders", factor=2)
        yield nodes


def client(nodes: EmbeddedNodes, **settings: str) -> Client:
    properties = {"bootstrap.servers": bootstrap(nodes), **{name.replace("_", "."): value for name, value in settings.items()}}
    return Client(ClientSettings.from_properties(properties))


def bootstrap(nodes: EmbeddedNodes) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in nodes.ports.values())


def value_of(number: int) -> bytes:
    return bytes((number + 1,)) * SIZE


def produce(nodes: EmbeddedNodes, codec: str) -> list[Outcome]:
    """Produce all records in one batch."""
    results: list[Outcome] = []
    room = str(2 * COUNT * SIZE)
    limits = {"batch_size": room, "max_request_size": room, "buffer_memory": room, "linger_ms": "60000"}
    with client(nodes, acks="all", compression_type=codec, **limits) as made:
        producer = CommandProducer(made, on_outcome=results.append)
        for number in range(COUNT):
            producer.send("orders", b"%d" % number, value_of(number), partition=0)
        producer.flush()
    return results


def written(root: Path, node_id: int) -> bytes:
    """Return the segment of a node's replica."""
    return (root / f"node-{node_id}/disk1/orders-0/00000000000000000000.log").read_bytes()


def consumed(nodes: EmbeddedNodes, position: int) -> list[int]:
    """Return the offsets that kops's consumer gets. The records are compared here, one at a time."""
    found: list[int] = []
    with client(nodes, auto_offset_reset="earliest") as made:
        consumer = BatchConsumer(made, {ORDERS: position})
        while consumer.positions[ORDERS] < COUNT:
            for fetched in consumer.poll(1000):
                for record in fetched.records:
                    assert (record.key, record.value) == (b"%d" % record.offset, value_of(record.offset))
                    found.append(record.offset)
    return found


def consumed_by_librdkafka(nodes: EmbeddedNodes) -> list[int]:
    """Return the offsets that librdkafka gets. Its `receive.message.max.bytes` also limits the decompressed size of a batch."""
    settings = {"bootstrap.servers": bootstrap(nodes), "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    consumer = LibrdkafkaConsumer({**settings, "receive.message.max.bytes": 3 * COUNT * SIZE})
    found: list[int] = []
    try:
        consumer.assign([LibrdkafkaPartition("orders", 0, 0)])
        while len(found) < COUNT:
            message = consumer.poll(30)
            assert message is not None and message.error() is None, (message and message.error(), len(found))
            offset = message.offset()
            assert offset is not None and message.value() == value_of(offset)
            found.append(offset)
    finally:
        consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_it_is_served_as_any_other(nodes: EmbeddedNodes, tmp_path: Path, codec: str) -> None:
    results = produce(nodes, codec)
    assert results == [Outcome("orders", 0, COUNT, 0, None)]
    first = written(tmp_path, 1)
    assert written(tmp_path, 2) == first, "acks=all: both replicas have it"
    batch = Batch(first)
    assert (batch.size, batch.codec, batch.count) == (len(first), codec, COUNT)
    assert batch.size < MIB
    assert consumed(nodes, 0) == list(range(COUNT))
    assert consumed(nodes, COUNT - 2) == [COUNT - 2, COUNT - 1]
    assert consumed_by_librdkafka(nodes) == list(range(COUNT))
