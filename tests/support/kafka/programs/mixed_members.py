"""Members of one group that are different clients: Kafka's consumer of several versions, librdkafka, aiokafka, kafka-python and kops.

Each member runs in a thread of its own. It polls, notes what it got, and commits its positions at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import aiokafka
import confluent_kafka
import kafka as kafka_python
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

import kops
from kops.client.admin.operations.group_values import ConsumerGroupDescription, GroupState
from tests.support.kafka.oracle import Oracle
from tests.support.patience import until

POLL_MS: Final = 100
PATIENCE_S: Final = 90
SESSION_MS: Final = 45_000
"""Longer than a test may take: nobody leaves a group unasked."""
_JAVA: Final = "org.apache.kafka.clients.consumer."
JAVA_STRATEGIES: Final = {
    "range": f"{_JAVA}RangeAssignor",
    "roundrobin": f"{_JAVA}RoundRobinAssignor",
    "cooperative-sticky": f"{_JAVA}CooperativeStickyAssignor",
}
Row = tuple[int, int, bytes]
"""Partition, offset and value of a record."""


class Member:
    """A client that reads a topic as a member of a group. `strategy` is None for group.protocol=consumer. `name` is its client.id."""

    kind = ""

    def __init__(self, name: str, servers: str, group: str, topic: str, strategy: str | None) -> None:
        self.name, self.servers, self.group, self.topic, self.strategy = name, servers, group, topic, strategy
        self.rows: list[Row] = []
        self.committed = 0  # the number of rows whose offsets are committed
        self._ends = threading.Event()
        self._pool = ThreadPoolExecutor(1, f"member-{name}")
        self._life = self._pool.submit(self._run)

    def leave(self) -> None:
        """Leave the group, and wait for the end."""
        self.end()
        self._life.result(PATIENCE_S)
        self._pool.shutdown()

    def end(self) -> None:
        """Let the member leave, without waiting."""
        self._ends.set()

    def check(self) -> None:
        """Raise the error that has ended the member."""
        if self._life.done():
            self._life.result()

    def _run(self) -> None:
        self.open()
        try:
            while not self._ends.is_set():
                rows = self.poll()
                self.rows += rows
                if rows:
                    self.commit()
                    self.committed = len(self.rows)
        finally:
            self.close()

    def open(self) -> None:
        """Make the consumer and subscribe."""
        raise NotImplementedError

    def poll(self) -> list[Row]:
        """Return new records."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit the positions, and wait."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave."""
        raise NotImplementedError


class JavaMember(Member):
    """Kafka's KafkaConsumer in the JVM of `oracle`."""

    def __init__(self, oracle: Oracle, *args: Any) -> None:
        self._oracle = oracle
        super().__init__(*args)

    def open(self) -> None:
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings: dict[str, object] = {
            "bootstrap.servers": self.servers, "group.id": self.group, "client.id": self.name, "auto.offset.reset": "earliest",
            "enable.auto.commit": "false", "key.deserializer": deserializer, "value.deserializer": deserializer,
        }  # fmt: skip
        if self.strategy is None:
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"partition.assignment.strategy": JAVA_STRATEGIES[self.strategy], "heartbeat.interval.ms": 200}
        jvm = self._oracle.jvm
        self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._oracle.properties(settings))
        self._wait = jvm.java.time.Duration.ofMillis(POLL_MS)
        self._consumer.subscribe(jvm.java.util.List.of(self.topic))

    def poll(self) -> list[Row]:
        found, each = [], self._consumer.poll(self._wait).iterator()
        while each.hasNext():
            record = each.next()
            found.append((record.partition(), record.offset(), bytes(record.value())))
        return found

    def commit(self) -> None:
        self._consumer.commitSync()

    def close(self) -> None:
        self._consumer.close()


class LibrdkafkaMember(Member):
    """The consumer of confluent-kafka."""

    def open(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers, "group.id": self.group, "client.id": self.name, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "log_level": 0,
        }  # fmt: skip
        if self.strategy is None:
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"partition.assignment.strategy": self.strategy, "heartbeat.interval.ms": 200}
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe([self.topic])

    def poll(self) -> list[Row]:
        messages = self._consumer.consume(100, POLL_MS / 1000)
        errors = [one.error() for one in messages if one.error() is not None]
        assert not errors, errors
        return [(one.partition() or 0, one.offset() or 0, one.value() or b"") for one in messages]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaMember(Member):
    """AIOKafkaConsumer, with an event loop in the member's thread."""

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        assert self.strategy is not None
        strategy = {"range": AioRange, "roundrobin": AioRoundRobin}[self.strategy]

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                self.topic,
                bootstrap_servers=self.servers,
                group_id=self.group,
                client_id=self.name,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                session_timeout_ms=SESSION_MS,
                partition_assignment_strategy=[strategy],
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(start())

    def poll(self) -> list[Row]:
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=POLL_MS))
        return [(one.partition, one.offset, one.value) for records in found.values() for one in records]

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class KafkaPythonMember(Member):
    """KafkaConsumer of kafka-python."""

    def open(self) -> None:
        assert self.strategy is not None
        strategy = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[self.strategy]
        self._consumer = kafka_python.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
            partition_assignment_strategy=[strategy],
        )

    def poll(self) -> list[Row]:
        return [(one.partition, one.offset, one.value) for records in self._consumer.poll(POLL_MS).values() for one in records]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class KopsMember(Member):
    """kops.Consumer."""

    def open(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers, "group.id": self.group, "client.id": self.name, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }  # fmt: skip
        if self.strategy is None:
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"partition.assignment.strategy": [self.strategy], "heartbeat.interval.ms": 200}
        self._consumer = kops.Consumer(settings)
        self._consumer.subscribe([self.topic])

    def poll(self) -> list[Row]:
        return [(one.partition, one.offset, one.value) for one in self._consumer.poll(POLL_MS / 1000)]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


Make = Callable[[str, str, str, str, str | None], Member]


class MixedGroup:
    """A group of such members. Records are written only while nobody joins or leaves, so each must be got exactly once."""

    def __init__(self, servers: str, group: str, topic: str, partitions: int, strategy: str | None, makers: Mapping[str, Make]) -> None:
        self.servers, self.group, self.topic, self.partitions, self.strategy = servers, group, topic, partitions, strategy
        self._makers = makers
        self.members: dict[str, Member] = {}
        self._gone: list[Member] = []
        self._written: list[bytes] = []
        self._admin = kops.Admin(bootstrap_servers=servers)

    def change(self, *, join: Sequence[str] = (), leave: Sequence[str] = ()) -> None:
        """Let members join and leave, wait until the group is stable, and write and read a few records in each partition."""
        for name in join:
            self.members[name] = self._makers[name](name, self.servers, self.group, self.topic, self.strategy)
        for name in leave:
            member = self.members.pop(name)
            member.leave()
            self._gone.append(member)
        until(self._is_stable, told=lambda: f"{self.group}: {self._description()}")
        self._write()
        until(self._has_all, told=lambda: f"{self.group}: {self._missing()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():  # those of a test that has failed
            member.end()
        self._admin.close()

    def end(self) -> None:
        """Let all leave. Each record was got once, and all are committed."""
        for name in list(self.members):
            member = self.members.pop(name)
            member.leave()
            self._gone.append(member)
        assert sorted(self._rows()) == sorted(self._written)
        committed = self._admin.list_consumer_group_offsets({self.group: None})[self.group]
        assert sum(one.offset for one in committed.values() if one is not None) == len(self._written), committed

    def _description(self) -> ConsumerGroupDescription:
        return self._admin.describe_consumer_groups([self.group])[self.group]

    def _is_stable(self) -> bool:
        for member in self.members.values():
            member.check()
        try:
            found = self._description()
        except kops.KafkaError:  # the coordinator is not ready yet, or the group is new
            return False
        owned = {one.client_id: set(one.assignment) for one in found.members}
        every = [key for keys in owned.values() for key in keys]
        return (
            found.group_state is GroupState.STABLE
            and owned.keys() == self.members.keys()
            and all(owned.values())
            and len(every) == len(set(every)) == self.partitions
        )

    def _write(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for partition in range(self.partitions):
            for _ in range(2):
                value = b"%d" % len(self._written)
                self._written.append(value)
                producer.produce(self.topic, value, partition=partition)
        assert producer.flush(60) == 0

    def _rows(self) -> list[bytes]:
        return [row[2] for member in (*self._gone, *self.members.values()) for row in member.rows]

    def _missing(self) -> object:
        got = self._rows()
        return {name: len(member.rows) for name, member in self.members.items()}, sorted(set(self._written) - set(got))

    def _has_all(self) -> bool:
        for member in self.members.values():
            member.check()
        return len(self._rows()) >= len(self._written) and all(one.committed == len(one.rows) for one in self.members.values())
