"""Consumer groups of librdkafka on nodes of kops: they subscribe, rebalance and commit, over a restart and a move of the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.librdkafka import WAIT_S, admin, create_topic

PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[KopsNodes]:
    """Provide one node with a topic."""
    with KopsNodes(tmp_path, 1, settings={**SETTINGS, "offsets.topic.replication.factor": 1}) as found:
        create_topic(found.bootstrap, "t", PARTITIONS, 1)
        yield found


def produce(bootstrap: str, first: int, count: int) -> None:
    """Produce records with their numbers as values."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce("t", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def member(bootstrap: str, **settings: object) -> Consumer:
    """Return a member of the group `g`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            **settings,
        }
    )
    consumer.subscribe(["t"])
    return consumer


def read(consumer: Consumer, count: int) -> list[int]:
    """Read this many records."""
    found: list[int] = []
    wait_for(lambda: len(found) >= count, lambda: found.extend(_values(consumer)))
    return sorted(found)


def _values(consumer: Consumer) -> list[int]:
    messages = consumer.consume(100, 0.1)
    assert all(message.error() is None for message in messages), [message.error() for message in messages]
    return [int(message.value() or b"") for message in messages]


def wait_for(holds: Callable[[], bool], work: Callable[[], object]) -> None:
    """Call `work` until a condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        work()


def commit(consumer: Consumer) -> None:
    """Commit the positions. If the coordinator moves, wait for it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            consumer.commit(asynchronous=False)
            return
        except KafkaException as error:
            assert error.args[0].retriable() or error.args[0].name() in ("NOT_COORDINATOR", "_WAIT_COORD"), error
            assert time.monotonic() < deadline
            consumer.poll(0.2)


def committed(bootstrap: str) -> dict[int, int]:
    """Return the group's offsets by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        found = consumer.committed([TopicPartition("t", number) for number in range(PARTITIONS)], timeout=WAIT_S)
        return {one.partition: one.offset for one in found}
    finally:
        consumer.close()


def groups(client: AdminClient) -> dict[str, tuple[str, int]]:
    """Return state and number of members by group."""
    listed = client.list_consumer_groups().result(WAIT_S)
    assert not listed.errors, listed.errors
    described = client.describe_consumer_groups([one.group_id for one in listed.valid]) if listed.valid else {}
    found = {name: future.result(WAIT_S) for name, future in described.items()}
    return {name: (group.state.name, len(group.members)) for name, group in found.items()}


@pytest.mark.slow
def test_a_group_goes_on_where_it_was(nodes: KopsNodes) -> None:
    bootstrap = nodes.bootstrap
    produce(bootstrap, 0, 40)
    first = member(bootstrap)
    assert read(first, 40) == list(range(40))
    commit(first)
    second = member(bootstrap)
    both = [first, second]
    wait_for(lambda: [len(one.assignment()) for one in both] == [2, 2], lambda: [one.poll(0.1) for one in both])
    produce(bootstrap, 40, 20)
    found: list[int] = []
    wait_for(lambda: len(found) >= 20, lambda: found.extend(number for one in both for number in _values(one)))
    assert sorted(found) == list(range(40, 60))
    for one in both:
        commit(one)
    client = admin(bootstrap)
    assert groups(client) == {"g": ("STABLE", 2)}
    first.close()
    second.close()
    assert groups(client) == {"g": ("EMPTY", 0)}
    assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), 15)

    nodes.kill(1)
    nodes.start(1)
    nodes.wait(1)
    assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), 15)
    produce(bootstrap, 60, 4)
    third = member(bootstrap)
    assert read(third, 4) == list(range(60, 64))
    third.close()
    client = admin(bootstrap)
    assert client.delete_consumer_groups(["g"])["g"].result(WAIT_S) is None
    assert groups(client) == {}
    assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), -1001)


def test_the_consumer_protocol(nodes: KopsNodes) -> None:
    bootstrap = nodes.bootstrap
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    both = [Consumer({**settings, "enable.auto.commit": False}) for _ in range(2)]
    for one in both:
        one.subscribe(["^t.*"] if one is both[0] else ["t"])
    wait_for(lambda: [len(one.assignment()) for one in both] == [2, 2], lambda: [one.poll(0.1) for one in both])
    produce(bootstrap, 0, 40)
    found: list[int] = []
    wait_for(lambda: len(found) >= 40, lambda: found.extend(number for one in both for number in _values(one)))
    for one in both:
        commit(one)
    assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), 10)
    client = admin(bootstrap)
    assert groups(client) == {"g": ("STABLE", 2)}
    for one in both:
        one.close()
    assert groups(client) == {"g": ("EMPTY", 0)}


@pytest.mark.slow
def test_offsets_in_transactions(nodes: KopsNodes) -> None:
    bootstrap = nodes.bootstrap
    produce(bootstrap, 0, 8)
    consumer = member(bootstrap)
    read(consumer, 8)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(WAIT_S)
    everywhere = [TopicPartition("t", number, 1) for number in range(PARTITIONS)]
    for ends, offsets in (
        (producer.abort_transaction, everywhere),
        (producer.commit_transaction, consumer.position(consumer.assignment())),
    ):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
        ends(WAIT_S)
        expected = -1001 if ends == producer.abort_transaction else 2
        assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), expected)
    consumer.close()
    nodes.kill(1)
    nodes.start(1)
    nodes.wait(1)
    assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), 2)


@pytest.mark.slow
def test_a_coordinator_that_is_killed_is_replaced(tmp_path: Path) -> None:
    settings = {**SETTINGS, "offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 3}
    with KopsNodes(tmp_path, 3, settings=settings) as nodes:
        bootstrap = nodes.bootstrap
        create_topic(bootstrap, "t", PARTITIONS, 3, {"min.insync.replicas": "1"})
        produce(bootstrap, 0, 20)
        # The session outlives the election of another coordinator on a busy machine. A new session would read from the last commit.
        consumer = member(bootstrap, **{"session.timeout.ms": 60_000})
        assert read(consumer, 20) == list(range(20))
        commit(consumer)
        leader = coordinator(bootstrap)
        nodes.kill(leader)
        produce(bootstrap, 20, 20)
        assert read(consumer, 20) == list(range(20, 40))
        commit(consumer)
        assert coordinator(bootstrap) != leader
        nodes.start(leader)
        nodes.wait(leader)
        assert committed(bootstrap) == dict.fromkeys(range(PARTITIONS), 10)
        consumer.close()


def coordinator(bootstrap: str) -> int:
    """Return the leader of the only partition of `__consumer_offsets`."""
    return int(admin(bootstrap).list_topics(timeout=WAIT_S).topics["__consumer_offsets"].partitions[0].leader)
