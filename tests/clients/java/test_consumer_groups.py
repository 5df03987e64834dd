"""Kafka's own consumer in consumer groups of kops (KIP-848): both protocols, static members, regular expressions, migration up and down."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.nodes.kops_nodes import KopsNodes

pytestmark = pytest.mark.slow
WAIT_S = 120
PARTITIONS = 4


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide one node."""
    path: Path = tmp_path_factory.mktemp("node")
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 1,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 200,
    }
    with KopsNodes(path, 1, settings=settings) as found:
        yield found


class Members:
    """Consumers of one group in the JVM. They are closed at the end."""

    def __init__(self, oracle: Oracle, bootstrap: str) -> None:
        self.oracle = oracle
        self.bootstrap = bootstrap
        self.group = f"g-{uuid.uuid4().hex}"
        self.topic = f"t-{uuid.uuid4().hex}"
        self.live: list[Any] = []
        oracle.create_topic(bootstrap, self.topic, partitions=PARTITIONS)

    def join(self, protocol: str, *, regex: str | None = None, **settings: str) -> Any:
        """Add a new member."""
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        found = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": protocol,
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        consumer = self.oracle.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self.oracle.properties(found))
        if regex is None:
            consumer.subscribe(self.oracle.jvm.java.util.List.of(self.topic))
        else:
            consumer.subscribe(self.oracle.jvm.org.apache.kafka.clients.consumer.SubscriptionPattern(regex))
        self.live.append(consumer)
        return consumer

    def leave(self, consumer: Any) -> None:
        """Let a member leave."""
        self.live.remove(consumer)
        consumer.close()

    def wait(self, *counts: int) -> int:
        """Poll until the members have these numbers of partitions, and all of them together have all. Return how many records came."""
        deadline = time.monotonic() + WAIT_S
        duration = self.oracle.jvm.java.time.Duration.ofMillis(50)
        records = 0
        while True:
            for consumer in self.live:
                records += consumer.poll(duration).count()
            assigned = [sorted(partition.partition() for partition in consumer.assignment()) for consumer in self.live]
            if sorted(map(len, assigned)) == sorted(counts) and sorted(chain(*assigned)) == list(range(PARTITIONS)):
                return records
            assert time.monotonic() < deadline, assigned

    def kind(self) -> str:
        """Return the group's type as it is listed."""
        admin = self.oracle.jvm.org.apache.kafka.clients.admin.Admin.create(self.oracle.properties({"bootstrap.servers": self.bootstrap}))
        try:
            listed = admin.listGroups().all().get()
            return next(str(one.type().get()) for one in listed if one.groupId() == self.group)
        finally:
            admin.close()

    def close(self) -> None:
        """Let all leave."""
        for consumer in list(self.live):
            self.leave(consumer)


@pytest.fixture
def members(oracle: Oracle, node: KopsNodes) -> Iterator[Members]:
    """Provide a new group."""
    found = Members(oracle, node.bootstrap)
    yield found
    found.close()


def test_members_share_partitions_and_go_on_at_committed_offsets(oracle: Oracle, members: Members) -> None:
    first = members.join("consumer")
    members.wait(4)
    oracle.produce(members.bootstrap, members.topic, 1, [(None, b"a"), (None, b"b")])
    deadline = time.monotonic() + WAIT_S
    while not first.poll(oracle.jvm.java.time.Duration.ofMillis(100)).count():
        assert time.monotonic() < deadline
    first.commitSync()
    members.join("consumer")
    members.wait(2, 2)
    members.join("consumer", regex="t-.*" + members.topic[-8:])
    members.wait(2, 1, 1)
    members.leave(first)
    assert members.wait(2, 2) == 0  # committed records do not come again
    assert members.kind() == "Consumer"


def test_static_member_comes_back(members: Members) -> None:
    first = members.join("consumer", group_instance_id="i1")
    members.join("consumer")
    members.wait(2, 2)
    before = sorted(partition.partition() for partition in first.assignment())
    members.leave(first)
    again = members.join("consumer", group_instance_id="i1")
    members.wait(2, 2)
    assert sorted(partition.partition() for partition in again.assignment()) == before


def test_group_is_migrated_up_and_down(members: Members) -> None:
    old = members.join("classic")
    members.wait(4)
    assert members.kind() == "Classic"
    new = members.join("consumer")
    members.wait(2, 2)
    assert members.kind() == "Consumer"
    members.leave(new)
    members.wait(4)
    assert members.kind() == "Classic"
    new = members.join("consumer")
    members.wait(2, 2)
    members.leave(old)
    members.wait(4)
    assert members.kind() == "Consumer"


def test_group_outlives_a_kill_of_its_coordinator(oracle: Oracle, node: KopsNodes, members: Members) -> None:
    members.join("consumer")
    members.join("consumer")
    members.wait(2, 2)
    before = [consumer.groupMetadata().generationId() for consumer in members.live]
    node.kill(1)
    node.start(1)
    node.wait(1)
    oracle.produce(members.bootstrap, members.topic, 0, [(None, b"a")])
    deadline = time.monotonic() + WAIT_S
    while members.wait(2, 2) == 0:
        assert time.monotonic() < deadline
    for consumer in members.live:
        consumer.commitSync()
    assert [consumer.groupMetadata().generationId() for consumer in members.live] == before
