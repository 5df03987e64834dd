"""confluent-kafka (librdkafka) on three nodes: records in every codec and with all acks are read back, and an admin client works."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, ElectionType, IsolationLevel, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.nodes.kops_nodes import KopsNodes

PATIENCE_S = 60

Asked = TypeVar("Asked")


@pytest.fixture(scope="module")
def admin(nodes: KopsNodes) -> AdminClient:
    """Return an admin client."""
    return AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient) -> Iterator[str]:
    """Provide a topic with three partitions on three brokers, and delete it afterwards."""
    name = f"orders-{uuid.uuid4().hex}"
    done(admin.create_topics([NewTopic(name, 3, 3)]))
    yield name
    done(admin.delete_topics([name]))


def done(futures: dict[Any, Any]) -> dict[Any, Any]:
    """Return the results of a call. Raise the error of a part that failed."""
    return {key: future.result(PATIENCE_S) for key, future in futures.items()}


def until(ask: Callable[[], Asked], seen: Callable[[Asked], bool]) -> Asked:
    """Repeat a call until its answer shows a change.

    Any broker may answer, and one may not have replayed the controller's records yet.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):  # it does not know the topic yet
            found = ask()
            if seen(found):
                return found
        time.sleep(0.05)
    return ask()


def error_of(futures: dict[Any, Any]) -> str:
    """Return the name of the error that is the only result."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as caught:
        future.result(PATIENCE_S)
    name: str = caught.value.args[0].name()
    return name


def produce(nodes: KopsNodes, topic: str, records: list[tuple[bytes | None, bytes | None]], **settings: Any) -> list[tuple[int, int]]:
    """Produce to the topic's partitions in turn. Return partition and offset of each record."""
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0, **settings})
    told: dict[int, tuple[int, int]] = {}

    def delivered(number: int, error: Any, message: Any) -> None:
        assert error is None, error
        told[number] = (message.partition(), message.offset())

    for number, (key, value) in enumerate(records):
        producer.produce(
            topic,
            value,
            key,
            number % 3,
            lambda error, message, number=number: delivered(number, error, message),
            timestamp=1_700_000_000_000 + number,
            headers=[("number", str(number).encode()), ("none", None)],
        )
    assert producer.flush(PATIENCE_S) == 0
    return [told[number] for number in range(len(records))]


def consume(nodes: KopsNodes, topic: str, count: int, **settings: Any) -> list[Any]:
    """Return this many messages from the beginning of all partitions."""
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), PATIENCE_S)
        assert messages, f"{len(found)} of {count} messages"
        for message in messages:
            assert message.error() is None, message.error()
        found += messages
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_in_every_codec(nodes: KopsNodes, topic: str, codec: str) -> None:
    records = [(b"key%d" % number if number % 5 else None, b"value%d" % number * 50 if number % 7 else None) for number in range(900)]
    places = produce(nodes, topic, records, **{"compression.codec": codec, "linger.ms": 20})
    assert sorted(places) == [(partition, offset) for partition in range(3) for offset in range(300)]
    found = {(message.partition(), message.offset()): message for message in consume(nodes, topic, len(records))}
    for number, ((key, value), place) in enumerate(zip(records, places, strict=True)):
        message = found[place]
        assert (message.key(), message.value(), message.timestamp()[1]) == (key, value, 1_700_000_000_000 + number)
        assert message.headers() == [("number", str(number).encode()), ("none", None)]


@pytest.mark.parametrize("settings", [{"acks": 0}, {"acks": 1}, {"acks": -1}, {"enable.idempotence": True}], ids=str)
def test_acks(nodes: KopsNodes, topic: str, settings: dict[str, Any]) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [(None, b"%d" % number) for number in range(600)]
    produce(nodes, topic, records, **settings, **{"batch.num.messages": 7})
    found = consume(nodes, topic, len(records), **{"isolation.level": "read_committed"})
    assert sorted(int(message.value()) for message in found) == list(range(600))


def test_topics(admin: AdminClient, nodes: KopsNodes) -> None:
    """Topics are created, described, extended and deleted. Impossible requests fail."""
    new = NewTopic("clicks", num_partitions=2, replication_factor=3, config={"retention.ms": "12345"})
    done(admin.create_topics([new]))
    assert error_of(admin.create_topics([new])) == "TOPIC_ALREADY_EXISTS"
    assert error_of(admin.create_topics([NewTopic("wide", 1, 4)])) == "INVALID_REPLICATION_FACTOR"
    assert error_of(admin.create_topics([NewTopic("bad name", 1, 1)])) == "TOPIC_EXCEPTION"
    assert error_of(admin.create_topics([NewTopic("odd", 1, 1, config={"retention.ms": "x"})])) == "INVALID_CONFIG"
    done(admin.create_topics([NewTopic("only-checked", 1, 1)], validate_only=True))
    done(admin.create_partitions([NewPartitions("clicks", 4)]))
    assert error_of(admin.create_partitions([NewPartitions("clicks", 3)])) == "INVALID_PARTITIONS"
    described = until(lambda: done(admin.describe_topics(TopicCollection(["clicks"])))["clicks"], lambda found: len(found.partitions) == 4)
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3]
    for partition in described.partitions:
        assert sorted(node.id for node in partition.replicas) == [1, 2, 3]
    metadata = until(lambda: admin.list_topics(timeout=PATIENCE_S), lambda found: "clicks" in found.topics)
    assert "clicks" in metadata.topics and "only-checked" not in metadata.topics
    assert {broker.id: broker.port for broker in metadata.brokers.values()} == nodes.ports
    done(admin.delete_topics(["clicks"]))
    assert error_of(admin.delete_topics(["clicks"])) == "UNKNOWN_TOPIC_OR_PART"


def test_cluster(admin: AdminClient) -> None:
    described = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert len(described.authorized_operations) == 7


def test_settings_of_topics(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    done(admin.incremental_alter_configs([resource]))
    wrong = ConfigEntry("retention.ms", "never", incremental_operation=AlterConfigOpType.SET)
    refused = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[wrong])
    assert error_of(admin.incremental_alter_configs([refused])) == "INVALID_CONFIG"

    def settings() -> dict[str, ConfigEntry]:
        (found,) = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])).values()
        return dict(found)

    found = until(settings, lambda found: found["cleanup.policy"].value != "delete")
    assert (found["cleanup.policy"].value, found["cleanup.policy"].source) == ("delete,compact", 1)
    assert found["segment.bytes"].value == "1048576" and not found["segment.bytes"].is_read_only


def test_offsets_and_deleted_records(admin: AdminClient, nodes: KopsNodes, topic: str) -> None:
    produce(nodes, topic, [(None, b"%d" % number) for number in range(30)])
    partitions = [TopicPartition(topic, partition) for partition in range(3)]

    def offsets(spec: OffsetSpec) -> list[int]:
        futures = admin.list_offsets(dict.fromkeys(partitions, spec), isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return [result.offset for _, result in sorted(done(futures).items(), key=lambda item: item[0].partition)]

    assert offsets(OffsetSpec.latest()) == [10, 10, 10]
    assert offsets(OffsetSpec.for_timestamp(1_700_000_000_006)) == [2, 2, 2]
    done(admin.delete_records([TopicPartition(topic, 0, 4), TopicPartition(topic, 1, -1)]))
    assert offsets(OffsetSpec.earliest()) == [4, 10, 0]
    assert error_of(admin.delete_records([TopicPartition(topic, 0, 99)])) == "OFFSET_OUT_OF_RANGE"


def test_preferred_leaders(admin: AdminClient, topic: str) -> None:
    wanted = [TopicPartition(topic, 0)]
    result = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(PATIENCE_S)
    assert [error.name() for error in result.values()] == ["ELECTION_NOT_NEEDED"]


def test_topics_are_made_when_they_are_asked_for(nodes: KopsNodes) -> None:
    name = f"made-{uuid.uuid4().hex}"
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    told: list[Any] = []
    producer.produce(name, b"first", on_delivery=lambda error, message: told.append((error, message.offset())))
    assert producer.flush(PATIENCE_S) == 0
    assert told == [(None, 0)]
