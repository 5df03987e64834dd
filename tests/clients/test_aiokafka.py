"""aiokafka on three nodes: records in every codec are read back, and its admin client works."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.support.nodes.kops_nodes import KopsNodes

PATIENCE_S = 60
pytestmark = pytest.mark.slow


async def create(nodes: KopsNodes, name: str) -> None:
    """Create a topic with three partitions on three brokers."""
    admin = AIOKafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 3)])
    await admin.close()


async def round_trip(nodes: KopsNodes, codec: str | None, settings: dict[str, Any]) -> None:
    """Send 300 records and read them back."""
    topic = f"orders-{uuid.uuid4().hex}"
    await create(nodes, topic)
    async with AIOKafkaProducer(bootstrap_servers=nodes.bootstrap, compression_type=codec, linger_ms=5, **settings) as producer:
        sent = [
            await producer.send(topic, b"value%d" % number * 20, b"key%d" % number, number % 3, 1_700_000_000_000 + number, [("h", b"1")])
            for number in range(300)
        ]
        places = await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
    consumer = AIOKafkaConsumer(bootstrap_servers=nodes.bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
    await consumer.start()
    found: dict[tuple[int, int], tuple[bytes | None, bytes | None, int, list[tuple[str, bytes]]]] = {}
    while len(found) < 300:
        record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        found[record.partition, record.offset] = (record.key, record.value, record.timestamp, list(record.headers))
    await consumer.stop()
    for number, place in enumerate(places):
        expected = (b"key%d" % number, b"value%d" % number * 20, 1_700_000_000_000 + number, [("h", b"1")])
        assert found[place.partition, place.offset] == expected


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_in_every_codec(nodes: KopsNodes, codec: str | None) -> None:
    asyncio.run(round_trip(nodes, codec, {}))


@pytest.mark.parametrize("settings", [{"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}], ids=str)
def test_acks(nodes: KopsNodes, settings: dict[str, Any]) -> None:
    asyncio.run(round_trip(nodes, None, settings))


async def administer(nodes: KopsNodes) -> None:
    """Administer topics, settings and brokers."""
    name = f"clicks-{uuid.uuid4().hex}"
    await create(nodes, name)
    admin = AIOKafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    await admin.start()
    await admin.create_partitions({name: NewPartitions(4)})
    deadline = time.monotonic() + PATIENCE_S
    while True:  # any broker answers, and one may not have replayed the controller's records yet
        (described,) = await admin.describe_topics([name])
        if len(described["partitions"]) == 4 or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    assert described["error_code"] == 0 and len(described["partitions"]) == 4
    cluster = await admin.describe_cluster()
    assert sorted(broker["node_id"] for broker in cluster["brokers"]) == [1, 2, 3]
    while True:
        (told,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        settings = {entry[0]: entry[1] for entry in told.resources[0][4]}
        if settings or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    assert settings["segment.bytes"] == "1048576"
    await admin.delete_topics([name])
    await admin.close()


def test_administration(nodes: KopsNodes) -> None:
    asyncio.run(administer(nodes))
