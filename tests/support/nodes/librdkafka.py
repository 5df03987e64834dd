"""A cluster through librdkafka: its contents as values to compare, acknowledged records, topics and settings."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

WAIT_S = 120
OFFSET_BEGINNING = -2
Row = tuple[int, int, bytes | None, bytes | None]
_open: weakref.WeakSet[Acknowledged] = weakref.WeakSet()


def admin(bootstrap: str) -> AdminClient:
    """Return an admin client that is patient."""
    return AdminClient({"bootstrap.servers": bootstrap, "request.timeout.ms": 60_000})


def create_topic(bootstrap: str, name: str, partitions: int, replicas: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait for it."""
    topic = NewTopic(name, partitions, replicas, config=dict(config or {}))
    client = admin(bootstrap)  # its futures end when it is deleted
    client.create_topics([topic], operation_timeout=60, request_timeout=90)[name].result(WAIT_S)


def set_config(bootstrap: str, kind: str, name: str, **settings: str) -> None:
    """Set some settings of a topic or broker (`_` for `.`)."""
    entries = [ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ConfigResource.Type[kind], name, incremental_configs=entries)
    client = admin(bootstrap)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def own_configs(bootstrap: str, kind: str, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings that were set for topics or brokers themselves."""
    found = {}
    client = admin(bootstrap)
    for resource, future in client.describe_configs([ConfigResource(ConfigResource.Type[kind], name) for name in names]).items():
        entries = future.result(WAIT_S).values()
        # Source 1 is set for the topic, source 2 for one broker.
        found[resource.name] = {one.name: one.value for one in entries if one.source in (1, 2)}
    return found


def topics(bootstrap: str) -> dict[str, list[tuple[int, list[int]]]]:
    """Return topic → its partitions with their replicas, without internal topics."""
    found = admin(bootstrap).list_topics(timeout=WAIT_S).topics
    return {
        name: [(number, sorted(one.replicas)) for number, one in sorted(topic.partitions.items())]
        for name, topic in found.items()
        if not name.startswith("__")
    }


class Acknowledged:
    """An idempotent producer with acks=all that keeps the rows that were acknowledged, by topic."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.errors: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 120_000, **settings})
        _open.add(self)

    def close(self) -> None:
        """Close the producer and drop what it still has."""
        _open.discard(self)
        self._producer.purge()
        self._producer.close()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        partition, offset, topic = message.partition(), message.offset(), message.topic()
        assert partition is not None and offset is not None and topic is not None
        self.rows.setdefault(topic, []).append((partition, offset, message.key(), message.value()))

    def send(self, topic: str, count: int, *, size: int = 200, mark: str = "") -> None:
        """Send records. `flush` waits for their answers."""
        for number in range(count):
            value = f"{mark}{topic}-{number}-".encode().ljust(size, b"x")
            self._producer.produce(topic, value, key=f"key-{number % 50}", on_delivery=self._delivered)
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises AssertionError if something was not."""
        left = self._producer.flush(WAIT_S)
        assert (left, self.errors) == (0, []), self.errors[:3]


def close_all() -> None:
    """Close the producers that a test has left open.

    One of them would still look for its cluster, and create its topics in the next cluster on these ports.
    """
    for one in list(_open):
        one.close()


def _ends(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return where a partition starts and ends. A new leader reports this only after its followers have caught up."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            start, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
            return start, end
        except KafkaException as error:
            if error.args[0].name() != "OFFSET_NOT_AVAILABLE" or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def read_rows(bootstrap: str, topic: str) -> Iterator[Row]:
    """Yield all records of a topic. Those of one partition are in the order of their offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        ends = {one: _ends(consumer, TopicPartition(topic, one)) for one in partitions}
        wanted = {one: end for one, (start, end) in ends.items() if end > start}
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in wanted])
        while wanted:
            first = consumer.poll(WAIT_S)
            assert first is not None, f"{topic}: nothing came, still wanted: {wanted}"
            for message in (first, *consumer.consume(1000, 0)):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                yield partition, offset, message.key(), message.value()
                if partition in wanted and offset + 1 >= wanted[partition]:
                    del wanted[partition]
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str) -> list[Row]:
    """Return all records of a topic, in the order of partitions and offsets."""
    return sorted(read_rows(bootstrap, topic))


def read_to_end(bootstrap: str, topic: str, partitions: Iterable[int], isolation: str = "read_committed") -> list[Message]:
    """Return all records up to the ends of these partitions, as a reader at this isolation level gets them.

    The last ones may be control records.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": isolation, "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 10})
    try:
        left = set(partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        found: list[Message] = []
        deadline = time.monotonic() + WAIT_S
        while left:
            assert time.monotonic() < deadline, f"partitions {left} of {topic} are not read to their ends"
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    assert error.retriable(), error
        return found
    finally:
        consumer.close()


def values_to_end(bootstrap: str, topic: str, partitions: Iterable[int], isolation: str = "read_committed") -> list[str]:
    """Return their values, sorted."""
    return sorted((message.value() or b"").decode() for message in read_to_end(bootstrap, topic, partitions, isolation))


class CommittedCount:
    """A counter of the committed records of partition 0 of a topic as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._count = 0

    def so_far(self) -> int:
        """Return how many have come."""
        for message in self._consumer.consume(1000, 0.05):
            assert message.error() is None, message.error()
            self._count += 1
        return self._count

    def close(self) -> None:
        """Close the reader."""
        self._consumer.close()
