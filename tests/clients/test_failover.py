"""A node is killed under load. Acknowledged records are there once, the next controller creates topics, and the node gets back in sync."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.patience import until

PATIENCE_S = 90
COUNT = 6000
SETTINGS = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500, "min.insync.replicas": 2}


def isr_sizes(admin: AdminClient, topic: str) -> set[int]:
    """Return how many replicas of each partition are in sync."""
    return {len(partition.isrs) for partition in admin.list_topics(topic, PATIENCE_S).topics[topic].partitions.values()}


def read(nodes: KopsNodes, topic: str) -> list[int]:
    """Return the numbers in a topic's three partitions."""
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0})
    places = [TopicPartition(topic, partition) for partition in range(3)]
    left = sum(consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[int] = []
    while len(found) < left:
        messages = consumer.consume(1000, PATIENCE_S)
        assert messages, f"{len(found)} of {left}"
        found += [int(message.value()) for message in messages if message.error() is None]
    consumer.close()
    return found


@pytest.mark.slow
def test_a_killed_node(tmp_path: Path) -> None:
    with KopsNodes(tmp_path, settings=SETTINGS) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0})
        failed: list[Any] = []

        def told(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        victim = admin.describe_cluster().result(PATIENCE_S).controller.id
        for number in range(COUNT):
            producer.produce("orders", b"%d" % number, partition=number % 3, on_delivery=told)
            producer.poll(0)
            if number == COUNT // 3:
                assert producer.flush(PATIENCE_S) == 0
                nodes.kill(victim)
        assert producer.flush(PATIENCE_S) == 0 and failed == []
        assert sorted(read(nodes, "orders")) == list(range(COUNT))

        # librdkafka keeps waiting for the controller that it knows.
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("later", 1, 2)])["later"].result(PATIENCE_S)
        nodes.start(victim)
        nodes.wait(victim)
        until(lambda: isr_sizes(admin, "orders") == {3}, told=lambda: "the node does not come back into the in-sync sets")
        assert sorted(read(nodes, "orders")) == list(range(COUNT))
