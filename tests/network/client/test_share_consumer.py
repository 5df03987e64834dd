"""Both faces of the share consumer on a node of kops: acknowledgements, deliveries, errors of records, waking, the end, leftovers."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import kops
import kops.aio
from kops.client.consumer.errors import ConsumerClosedError, RecordDeserializationError, WakeupError
from kops.client.errors import KafkaError, KafkaTimeoutError
from kops.client.share.core.acknowledgements import AcknowledgeType, TopicIdPartition
from kops.client.share.core.records import ShareRecord
from kops.errors import UsageError
from tests.support.nodes.share_groups import SHARE_SETTINGS, configure_share_group

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, config=SHARE_SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """Create a topic with five records, and a group of the same name that begins at the first one."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    produce(servers, name, 5)
    configure_share_group(servers, name, {"share.auto.offset.reset": "earliest"})
    return name


def produce(servers: str, topic: str, count: int, first: int = 0) -> None:
    with kops.Producer(bootstrap_servers=servers) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number)


def take(consumer: kops.ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until there are this many records."""
    found: list[ShareRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += consumer.poll(1)
    return found


def until(holds: Callable[[], bool], consumer: kops.ShareConsumer) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        assert consumer.poll(0.1) == []


def seen(records: list[ShareRecord]) -> list[tuple[int, bytes, int]]:
    return [(one.offset, one.value, one.delivery_count) for one in records]


@pytest.mark.usefixtures("nothing_is_left")
class TestBlocking:
    def test_the_next_poll_accepts_the_last_one(self, servers: str, topic: str) -> None:
        told: list[tuple[frozenset[int], KafkaError | None]] = []
        with kops.ShareConsumer({"bootstrap.servers": servers, "group.id": topic}, max_poll_records=500) as consumer:
            consumer.set_acknowledgement_commit_callback(lambda _, offsets, error: told.append((offsets, error)))
            consumer.subscribe([topic])
            assert consumer.subscription() == {topic}
            first = take(consumer, 5)
            assert seen(first) == [(number, b"%d" % number, 1) for number in range(5)]
            assert first[0][:2] == (topic, 0)
            assert consumer.acquisition_lock_timeout_ms() == 30_000
            with pytest.raises(UsageError, match="implicit"):
                consumer.acknowledge(first[0])
            produce(servers, topic, 1, first=5)
            assert seen(take(consumer, 1)) == [(5, b"5", 1)]
            until(lambda: bool(told), consumer)
            assert told[0] == (frozenset(range(5)), None)
            until(lambda: len(told) == 2, consumer)
            assert consumer.commit_sync() == {}

    def test_each_record_is_acknowledged(self, servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": topic, "share.acknowledgement.mode": "explicit"}
        with kops.ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            records = take(consumer, 5)
            consumer.acknowledge(records[0])
            with pytest.raises(UsageError, match="must be acknowledged before"):
                consumer.poll(0)
            consumer.acknowledge(records[1], AcknowledgeType.RELEASE)
            consumer.acknowledge(records[2], AcknowledgeType.REJECT)
            consumer.acknowledge(records[3])
            consumer.acknowledge(records[3], AcknowledgeType.RELEASE)  # the last acknowledgement counts
            consumer.acknowledge(records[4])
            ((partition, error),) = consumer.commit_sync().items()
            assert (partition.topic, partition.partition, error) == (topic, 0, None)
            assert len(partition.topic_id) == 16
            with pytest.raises(UsageError, match="not a record of the last poll"):
                consumer.acknowledge(records[0])
            again = take(consumer, 2)
            assert seen(again) == [(1, b"1", 2), (3, b"3", 2)]
            for record in again:
                consumer.acknowledge(record)
            consumer.commit_async()

    def test_a_lock_is_renewed(self, servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": topic, "share.acknowledgement.mode": "explicit"}
        with kops.ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            records = take(consumer, 5)
            for record in records:
                consumer.acknowledge(record, AcknowledgeType.RENEW if record.offset == 2 else AcknowledgeType.ACCEPT)
            (renewed,) = take(consumer, 1)
            assert renewed == records[2]  # the same delivery
            consumer.acknowledge(renewed)
            assert list(consumer.commit_sync().values()) == [None]

    def test_a_limit_of_records(self, servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": topic, "share.acquire.mode": "record_limit", "max.poll.records": 2}
        with kops.ShareConsumer(settings) as consumer, kops.ShareConsumer(settings) as other:
            consumer.subscribe([topic])
            assert seen(take(consumer, 2)) == [(0, b"0", 1), (1, b"1", 1)]
            other.subscribe([topic])
            assert seen(take(other, 2)) == [(2, b"2", 1), (3, b"3", 1)]
            assert seen(take(consumer, 1)) == [(4, b"4", 1)]

    def test_records_that_are_not_acknowledged_are_delivered_to_another_one_after_a_close(self, servers: str, topic: str) -> None:
        for count in (1, 2):
            with kops.ShareConsumer(bootstrap_servers=servers, group_id=topic) as consumer:
                consumer.subscribe([topic])
                assert seen(take(consumer, 5)) == [(number, b"%d" % number, count) for number in range(5)]

    def test_records_that_can_not_be_deserialized(self, servers: str, topic: str) -> None:
        def number(data: bytes) -> int:
            if data == b"2":
                raise ValueError("two")
            return int(data)

        settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": topic, "share.acknowledgement.mode": "explicit"}
        with kops.ShareConsumer({**settings, "value.deserializer": number}) as consumer:
            consumer.subscribe([topic])
            before = take(consumer, 2)
            assert [one.value for one in before] == [0, 1]
            for record in before:
                consumer.acknowledge(record)
            with pytest.raises(RecordDeserializationError, match="two") as caught:
                take(consumer, 1)
            error = caught.value
            assert (error.origin, error.offset, error.value) == ("value", 2, b"2")
            consumer.acknowledge_failed(topic, 0, 2, AcknowledgeType.REJECT)  # otherwise it would be delivered again
            after = take(consumer, 2)
            assert [one.value for one in after] == [3, 4]
            with pytest.raises(UsageError, match="could not deliver"):
                consumer.acknowledge_failed(topic, 0, 3, AcknowledgeType.REJECT)
            with pytest.raises(UsageError, match="'reject' is not a kind of acknowledgement; allowed: AcknowledgeType"):
                consumer.acknowledge(after[0], "reject")  # type: ignore[arg-type]
            for record in after:
                consumer.acknowledge(record)
            assert list(consumer.commit_sync().values()) == [None]
            produce(servers, topic, 1, first=5)
            (last,) = take(consumer, 1)
            assert (last.value, last.delivery_count) == (5, 1)
            consumer.acknowledge(last)

    def test_it_is_woken_up(self, servers: str, topic: str) -> None:
        with kops.ShareConsumer(bootstrap_servers=servers, group_id=f"{topic}-latest") as consumer:
            consumer.subscribe([topic])
            consumer.poll(0)
            timer = threading.Timer(0.1, consumer.wakeup)
            timer.start()
            with pytest.raises(WakeupError):
                consumer.poll(PATIENCE_S)
            timer.join()
            assert consumer.poll(0) == []

    def test_one_thread_uses_it(self, servers: str, topic: str) -> None:
        with kops.ShareConsumer(bootstrap_servers=servers, group_id=f"{topic}-latest") as consumer:
            consumer.subscribe([topic])
            consumer.poll(0)
            errors: list[BaseException] = []

            def other() -> None:
                deadline = time.monotonic() + PATIENCE_S
                while not errors and time.monotonic() < deadline:
                    try:
                        consumer.subscription()  # allowed until the poll has begun
                    except UsageError as error:
                        errors.append(error)
                consumer.wakeup()

            thread = threading.Thread(target=other)
            thread.start()
            with pytest.raises(WakeupError):
                while True:
                    with suppress(UsageError):  # the other thread may be the first
                        consumer.poll(PATIENCE_S)
            thread.join()
            assert "two threads" in str(errors[0])

    def test_the_callback_can_not_use_it(self, servers: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
        called: list[TopicIdPartition] = []
        with kops.ShareConsumer(bootstrap_servers=servers, group_id=topic) as consumer:

            def callback(partition: TopicIdPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
                called.append(partition)
                consumer.poll(0)

            consumer.set_acknowledgement_commit_callback(callback)
            consumer.subscribe([topic])
            take(consumer, 5)
            assert list(consumer.commit_sync().values()) == [None]
        assert len(called) == 1
        assert "can't use its share consumer" in caplog.text

    def test_usage(self, servers: str) -> None:
        with kops.ShareConsumer(bootstrap_servers=servers, group_id="usage") as consumer:
            with pytest.raises(UsageError, match="not subscribed"):
                consumer.poll(0)
            with pytest.raises(UsageError, match="'' is not the name"):
                consumer.subscribe([""])
            with pytest.raises(UsageError, match="timeout=-1"):
                consumer.close(-1)
            consumer.subscribe([])
        consumer.close()
        with pytest.raises(ConsumerClosedError, match="is closed"):
            consumer.poll(0)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({}, "group.id=: missing"),
            ({"group.id": "g", "auto.offset.reset": "earliest", "group.protocol": "consumer"}, "auto.offset.reset, group.protocol: not"),
            ({"group.id": "g", "share.acknowledgement.mode": "maybe"}, "share.acknowledgement.mode=maybe: not allowed"),
            ({"group.id": "g", "value.deserializer": "words"}, "'words' is no deserializer"),
        ],
    )
    def test_settings_that_are_not_allowed(self, given: dict[str, object], words: str) -> None:
        with pytest.raises(UsageError) as error:
            kops.ShareConsumer({"bootstrap.servers": "127.0.0.1:1", **given})
        assert str(error.value).startswith(words)

    def test_a_broker_that_is_not_there(self) -> None:
        consumer = kops.ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
        consumer.subscribe(["t"])
        assert consumer.poll(0.1) == []
        consumer.close()


@pytest.mark.usefixtures("nothing_is_left")
class TestAsyncio:
    def test_for_each_record(self, servers: str, topic: str) -> None:
        async def main() -> list[tuple[int, bytes, int]]:
            settings = {"bootstrap.servers": servers, "group.id": topic, "share.acknowledgement.mode": "explicit"}
            found = []
            async with kops.aio.ShareConsumer(settings) as consumer:
                await consumer.subscribe([topic])
                async for record in consumer:
                    found.append(record)
                    consumer.acknowledge(record, AcknowledgeType.RELEASE if record.delivery_count == 1 else AcknowledgeType.ACCEPT)
                    if len(found) == 10:
                        break
                assert list((await consumer.commit_sync()).values()) == [None]
            return seen(found)

        expected = [(number, b"%d" % number, count) for count in (1, 2) for number in range(5)]
        assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == expected

    def test_a_cancelled_poll_loses_nothing(self, servers: str, topic: str) -> None:
        async def main() -> list[tuple[int, bytes, int]]:
            async with kops.aio.ShareConsumer(bootstrap_servers=servers, group_id=topic) as consumer:
                await consumer.subscribe([topic])
                found: list[ShareRecord] = []
                while not found:
                    with suppress(TimeoutError):
                        found = await asyncio.wait_for(consumer.poll(PATIENCE_S), 0.05)
                polling = asyncio.create_task(consumer.poll(PATIENCE_S))
                await asyncio.sleep(0)
                with pytest.raises(UsageError, match="another task is polling"):
                    await consumer.poll(0)
                polling.cancel()
                with suppress(asyncio.CancelledError):
                    await polling
                await consumer.unsubscribe()
                return seen(found)

        assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == [(number, b"%d" % number, 1) for number in range(5)]

    def test_what_is_too_late(self, servers: str, topic: str) -> None:
        async def main() -> None:
            async with kops.aio.ShareConsumer(bootstrap_servers=servers, group_id=topic) as consumer:
                await consumer.subscribe([topic])
                while not await consumer.poll(1):
                    pass
                with pytest.raises(KafkaTimeoutError):
                    await consumer.commit_sync(0)

        asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
