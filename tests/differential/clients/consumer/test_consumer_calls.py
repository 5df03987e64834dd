"""The calls of a consumer beside Java's KafkaConsumer, with both protocols, on a node of kops: positions, lags, offsets for times, resets,
and a record that can't be deserialized.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

import kops
from kops.client.consumer.errors import RecordDeserializationError
from kops.client.consumer.records import OffsetAndTimestamp
from kops.client.errors import KafkaTimeoutError
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.oracle import Oracle

CONSUMER = "org.apache.kafka.clients.consumer."
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "log.retention.ms": "-1"}
KEYS = [TopicPartition("calls", index) for index in range(3)]
DAY_MS = 86_400_000
OLD_MS = 1_600_000_000_000
BAD = 4  # the offset of a record that is no number


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A node with a topic: partition 0 with old times, 1 of yesterday and now, 2 without records."""
    with kops.Cluster(1, topics=["calls:3"], config=CONFIG) as cluster:
        now_ms = time.time_ns() // 1_000_000
        with kops.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for index in range(8):
                value = b"bad" if index == BAD else index.to_bytes(4, "big")
                producer.send("calls", value, partition=0, timestamp=OLD_MS + 10 * index)
                producer.send("calls", value, partition=1, timestamp=now_ms - (2 * DAY_MS if index < 3 else 0))
        yield cluster.bootstrap_servers


def read_int(data: bytes) -> int:
    """Read a number as Kafka's IntegerDeserializer does."""
    if len(data) != 4:
        raise ValueError("Size of data received by IntegerDeserializer is not 4")
    return int.from_bytes(data, "big")


class Java:
    """A KafkaConsumer in the oracle's JVM. Results are values of Python."""

    def __init__(self, oracle: Oracle, settings: dict[str, str]) -> None:
        self.oracle = oracle
        serialization = "org.apache.kafka.common.serialization."
        names = {"key.deserializer": f"{serialization}BytesDeserializer", "value.deserializer": f"{serialization}IntegerDeserializer"}
        self.consumer = oracle.java_class(f"{CONSUMER}KafkaConsumer")(oracle.properties({**settings, **names}))
        make = oracle.java_class("org.apache.kafka.common.TopicPartition")
        self.keys = [make(*key) for key in KEYS]
        self.listed = oracle.jvm.java.util.ArrayList(self.keys)

    def offsets(self, found: Any) -> dict[TopicPartition, int]:
        """Return a map of offsets."""
        return {KEYS[index]: int(found.get(key)) for index, key in enumerate(self.keys)}

    def times(self, wanted: list[int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offsetsForTimes."""
        asked = self.oracle.jvm.java.util.HashMap()
        for key, one in zip(self.keys, wanted, strict=True):
            asked.put(key, one)  # py4j makes a Long of a large number
        answer = self.consumer.offsetsForTimes(asked)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for key, mine in zip(self.keys, KEYS, strict=True):
            one = answer.get(key)
            epoch = None if one is None or not one.leaderEpoch().isPresent() else int(one.leaderEpoch().get())
            found[mine] = None if one is None else OffsetAndTimestamp(int(one.offset()), int(one.timestamp()), epoch)
        return found

    def millis(self, number: int) -> Any:
        """Return a Duration."""
        return self.oracle.java_class("java.time.Duration").ofMillis(number)

    def lag(self, index: int) -> int | None:
        """Return currentLag."""
        found = self.consumer.currentLag(self.keys[index])
        return int(found.getAsLong()) if found.isPresent() else None

    def poll(self) -> list[tuple[int, int]]:
        """Return the partitions and offsets of the records of a poll that finds some."""
        deadline = time.monotonic() + 60
        while True:
            found = self.consumer.poll(self.millis(500))
            if found.count():
                return sorted((int(one.partition()), int(one.offset())) for key in found.partitions() for one in found.records(key))
            assert time.monotonic() < deadline

    def bad(self) -> tuple[str, TopicPartition, int, int]:
        """Poll, and return what the error says of the record: key or value, partition, offset, time."""
        with pytest.raises(Py4JJavaError) as caught:
            self.poll()
        error = caught.value.java_exception
        assert error.getClass().getSimpleName() == "RecordDeserializationException"
        at = error.topicPartition()
        key = TopicPartition(str(at.topic()), int(at.partition()))
        return str(error.origin().name()).lower(), key, int(error.offset()), int(error.timestamp())


def poll(consumer: kops.Consumer) -> list[tuple[int, int]]:
    """Return the same of the consumer of kops."""
    deadline = time.monotonic() + 60
    while not (found := consumer.poll(0.5)):
        assert time.monotonic() < deadline
    return sorted((one.partition, one.offset) for one in found)


def bad(consumer: kops.Consumer) -> tuple[str, TopicPartition, int, int]:
    """Return the same of the error of kops."""
    with pytest.raises(RecordDeserializationError) as caught:
        poll(consumer)
    error = caught.value
    return error.origin, error.partition, error.offset, error.timestamp


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_same_calls(oracle: Oracle, servers: str, protocol: str) -> None:
    settings = {"bootstrap.servers": servers, "group.protocol": protocol, "auto.offset.reset": "by_duration:PT24H"}
    java = Java(oracle, settings)
    theirs = java.consumer
    try:
        with kops.Consumer(settings, value_deserializer=read_int) as mine:
            theirs.assign(java.listed)
            mine.assign(KEYS)
            zero, one, two = KEYS
            assert mine.beginning_offsets(KEYS) == java.offsets(theirs.beginningOffsets(java.listed))
            assert mine.end_offsets(KEYS) == java.offsets(theirs.endOffsets(java.listed))
            yesterday_ms = time.time_ns() // 1_000_000 - DAY_MS
            for times in ([OLD_MS] * 3, [OLD_MS + 11, 2**31, 2**31], [OLD_MS + 70, 10**15, OLD_MS], [OLD_MS + 71, yesterday_ms, OLD_MS]):
                assert mine.offsets_for_times(dict(zip(KEYS, times, strict=True))) == java.times(times)
            assert [mine.current_lag(key) for key in KEYS] == [java.lag(index) for index in range(3)]
            # The reset looks for the first record of the last day. Without one, Kafka's consumer has no position.
            assert mine.position(one) == int(theirs.position(java.keys[1])) == 3
            for key, other in ((zero, java.keys[0]), (two, java.keys[2])):
                with pytest.raises(KafkaTimeoutError):
                    mine.position(key, 0.5)
                with pytest.raises(Py4JJavaError, match="TimeoutException"):
                    theirs.position(other, java.millis(500))
            theirs.pause(java.oracle.jvm.java.util.List.of(java.keys[1]))
            mine.pause([one])
            theirs.seek(java.keys[0], 2)
            mine.seek(zero, 2)
            assert poll(mine) == java.poll() == [(0, 2), (0, 3)]
            for _ in range(2):
                found = bad(mine)
                assert found == java.bad()
                assert found[:3] == ("value", zero, BAD)
                assert mine.position(zero) == int(theirs.position(java.keys[0])) == BAD
            assert mine.current_lag(zero) == java.lag(0) == 4
            theirs.seek(java.keys[0], BAD + 1)
            mine.seek(zero, BAD + 1)
            assert poll(mine) == java.poll() == [(0, 5), (0, 6), (0, 7)]
            theirs.seekToEnd(java.oracle.jvm.java.util.List.of(java.keys[2]))
            mine.seek_to_end([two])
            assert mine.position(two) == int(theirs.position(java.keys[2])) == 0
            assert mine.current_lag(zero) == java.lag(0) == 0
    finally:
        theirs.close()
