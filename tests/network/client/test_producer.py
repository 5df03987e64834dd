"""Both faces of the producer on a node of kops: outcomes, callbacks, many threads, memory, the end, and resources after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

import kops
import kops.aio
from kops.client.errors import BufferExhaustedError, RecordTooLargeError, SerializationError
from kops.errors import UsageError
from tests.network.client.conftest import held
from tests.support.nodes import librdkafka as kafka


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, topics=["many:4", "memory"]) as cluster:
        yield cluster.bootstrap_servers


def values(servers: str, topic: str) -> list[bytes | None]:
    """Return all values of a topic. A partition without records may have no leader yet, so it is tried again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return [row[-1] for row in kafka.read_all(servers, topic)]
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def sent_here(producer: kops.Producer, topic: str, turns: list[int]) -> None:
    """Send records one at a time until this thread has written one to its connection. `turns` are the threads of all turns."""
    deadline = time.monotonic() + 60
    while threading.get_ident() not in turns:
        assert time.monotonic() < deadline
        producer.send(topic, b"v").result(60)
        time.sleep(0.01)  # the other thread has to come to rest


def watch_turns(producer: kops.Producer, monkeypatch: pytest.MonkeyPatch, after: Callable[[], object] = lambda: None) -> list[int]:
    """Return a list that gets the thread of each turn. After each, call a function in that thread."""
    turns: list[int] = []
    turn = producer._driver.turn

    def watched() -> float:
        wait_ms = turn()
        turns.append(threading.get_ident())
        after()
        return wait_ms

    monkeypatch.setattr(producer._driver, "turn", watched)
    return turns


@pytest.mark.usefixtures("nothing_is_left")
@contextlib.contextmanager
def pythons_own_interrupt() -> Iterator[None]:
    """Have Python's own handler of SIGINT for a while."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class TestOneAtATime:
    def test_the_thread_of_the_program_sends(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with kops.Producer(bootstrap_servers=servers, linger_ms=0) as producer:
            turns = watch_turns(producer, monkeypatch)
            sent_here(producer, "one", turns)
            assert len(set(turns)) == 2  # the other one is that of the answers

    def test_with_linger_the_other_thread_sends(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with kops.Producer(bootstrap_servers=servers, linger_ms=1) as producer:
            turns = watch_turns(producer, monkeypatch)
            for _ in range(20):
                producer.send("one", b"v").result(60)
            assert len(set(turns)) == 1 and threading.get_ident() not in turns

    def test_an_interrupt_does_not_lose_a_record(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C in the middle of a turn is raised after it. Nothing is lost, and the producer goes on."""
        main = threading.get_ident()
        # Another test of this process may have left a Spark session, whose handler the producer does not replace.
        with pythons_own_interrupt(), kops.Producer(bootstrap_servers=servers, linger_ms=0) as producer:
            sent = [producer.send("interrupts", b"first").result(60).offset]

            def interrupt() -> None:
                if threading.get_ident() == main:
                    signal.raise_signal(signal.SIGINT)

            turns = watch_turns(producer, monkeypatch, interrupt)
            with pytest.raises(KeyboardInterrupt):  # which of the records is interrupted is not known
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    sent.append(-1)
                    producer.send("interrupts", b"v").result(60)
                    time.sleep(0.01)  # the other thread has to come to rest
            assert main in turns
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            monkeypatch.undo()
            assert producer.send("interrupts", b"last").result(60).offset == len(sent)
        assert values(servers, "interrupts") == [b"first", *[b"v"] * (len(sent) - 1), b"last"]

    def test_threads_get_their_own_outcomes(self, servers: str) -> None:
        places: list[tuple[int, int]] = []

        def send(first: int) -> None:
            for index in range(first, first + 20):
                place = producer.send("threads", b"%d" % index).result(60)
                places.append((place.offset, index))

        with kops.Producer(bootstrap_servers=servers, linger_ms=0) as producer:
            threads = [threading.Thread(target=send, args=(1000 * index,)) for index in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert [b"%d" % index for _, index in sorted(places)] == values(servers, "threads")
        assert len(places) == 80

    def test_the_end_of_a_wait(self, servers: str) -> None:
        with kops.Producer(bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=700_000) as producer:
            producer.partitions_for("waits")
            future = producer.send("waits", b"v")
            for timeout in (0, 0.01, -1):
                with pytest.raises(TimeoutError):
                    future.result(timeout)
            producer.flush()
            assert future.result(0).offset == 0

    def test_the_wait_for_a_topic_is_not_counted_as_delivery(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The time of a batch, from which delivery.timeout.ms counts, begins after the wait (KafkaProducer.doSend)."""
        with kops.Producer(bootstrap_servers=servers, linger_ms=1000, value_serializer="string") as producer:
            know, begun_ms = producer._know, producer._now_ms()

            def slow(*place: Any) -> int:
                count = know(*place)
                monkeypatch.setattr(producer, "_now_ms", lambda: begun_ms + 30_000)
                return count

            monkeypatch.setattr(producer, "_know", slow)
            future = producer.send("waited", "v")
            assert future.batch.created_ms >= begun_ms + 30_000
            monkeypatch.undo()

    def test_many_tasks_that_wait_make_few_requests(self, servers: str) -> None:
        async def main() -> float:
            async with kops.aio.Producer(bootstrap_servers=servers, linger_ms=0) as producer:
                await producer.send_and_wait("tasks", b"v")
                places = await asyncio.gather(*(producer.send_and_wait("tasks", b"v") for _ in range(500)))
                assert sorted(place.offset for place in places) == list(range(1, 501))
                name = next(one for one in producer.metrics() if one[1] == "request-total" and one[0] == "producer-metrics")
                return producer.metrics()[name]

        assert asyncio.run(main()) < 20


@pytest.mark.usefixtures("nothing_is_left")
class TestBlocking:
    def test_places_of_records(self, servers: str) -> None:
        with kops.Producer({"bootstrap.servers": servers, "key.serializer": "int"}, value_serializer=str.encode) as producer:
            place = producer.send("places", "eins", key=7, headers={"h": b"1", "n": None}, timestamp=1234).result(60)
            assert place == kops.RecordMetadata("places", 0, 0, 1234, 4, 4)
            assert producer.send("places", "zwei", partition=0).result(60).offset == 1
            assert producer.partitions_for("places") == 1
        assert producer.partitions_for("places") == 1
        with pytest.raises(kops.KafkaError, match="the producer is closed"):
            producer.partitions_for("elsewhere")

    def test_callbacks_come_once_and_in_order(self, servers: str) -> None:
        seen: list[Any] = []
        with kops.Producer(bootstrap_servers=servers) as producer:
            for index in range(500):
                producer.send("callbacks", b"%d" % index, on_delivery=lambda place, error: seen.append((place, error)))
            future = producer.send("callbacks", b"last")
            future.add_done_callback(lambda done: seen.append(done.result(0)))
            producer.flush()
            assert [place.offset for place, error in seen[:-1]] == list(range(500))
            assert [error for _, error in seen[:-1]] == [None] * 500
            assert seen[-1].offset == 500
            future.add_done_callback(lambda done: seen.append("late"))
            assert seen[-1] == "late"

    def test_a_callback_that_fails_harms_nobody(self, servers: str, caplog: pytest.LogCaptureFixture) -> None:
        def fail(*_: object) -> None:
            raise ValueError("mine")

        with kops.Producer(bootstrap_servers=servers) as producer:
            assert producer.send("callbacks", b"x", on_delivery=fail).result(60).offset >= 0
            producer.flush()
        assert "a callback has failed; the client goes on" in caplog.text

    def test_many_threads(self, servers: str) -> None:
        with kops.Producer(bootstrap_servers=servers, linger_ms=1, batch_size=2000, buffer_memory=20_000) as producer:

            def work(name: int) -> None:
                for index in range(300):
                    producer.send("many", b"%d" % index, key=b"k%d" % name)

            threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(values(servers, "many")) == 1200

    def test_interceptors(self, servers: str) -> None:
        told: list[Any] = []

        class Mark:
            def on_send(self, record: Any) -> Any:
                return record._replace(value=b"<" + record.value + b">")

            def on_acknowledgement(self, place: Any, error: Any) -> None:
                told.append((place, error))

            def close(self) -> None:
                told.append("closed")

        with kops.Producer({"bootstrap.servers": servers, "interceptor.classes": [Mark, Mark()]}, max_request_size=200) as producer:
            producer.send("marked", b"x").result(60)
            assert isinstance(producer.send("marked", b"x" * 200).error(60), RecordTooLargeError)
            with pytest.raises(kops.SerializationError):
                producer.send("marked", key=7, value=b"")
        assert values(servers, "marked") == [b"<<x>>"]
        assert [error and type(error).__name__ for _, error in told[:6]] == [
            None,
            None,
            *["RecordTooLargeError"] * 2,
            *["SerializationError"] * 2,
        ]
        assert told[6:] == ["closed", "closed"]

    def test_a_record_that_is_not_allowed_harms_no_other(self, servers: str) -> None:
        """What a batch can't hold is refused before it is in one: the batch would never be sent."""
        with kops.Producer(bootstrap_servers=servers, value_serializer=lambda value: value) as producer:
            for name, wrong in (
                ("timestamp", {"timestamp": 1 << 63}),
                ("timestamp", {"timestamp": 1.5}),
                ("partition", {"partition": 1 << 31}),
                ("partition", {"partition": "0"}),
                ("headers", {"headers": {"\ud800": b""}}),
            ):
                arguments: Any = wrong
                with pytest.raises(UsageError, match=name):
                    producer.send("wrong", b"", **arguments)
            with pytest.raises(UsageError, match="is not the name of a topic"):
                producer.send("\ud800", b"")
            with pytest.raises(SerializationError, match=r"key\.serializer: str is not bytes"):
                producer.send("wrong", b"", key="text")
            with pytest.raises(SerializationError, match=r"value\.serializer: it returned str; allowed: bytes or None"):
                producer.send("wrong", "text")
            assert producer.send("wrong", bytearray(b"right"), timestamp=1).result(60).offset == 0

    def test_close_in_a_callback_and_twice(self, servers: str) -> None:
        producer = kops.Producer(bootstrap_servers=servers, linger_ms=0)
        producer.send("closing", b"1", on_delivery=lambda *_: producer.close()).result(60)
        producer.close()
        producer.close(0)
        with pytest.raises(kops.ProducerClosedError):
            producer.send("closing", b"2")

    def test_a_flush_in_a_callback_is_refused(self, servers: str) -> None:
        caught: list[BaseException] = []

        def flush(*_: object) -> None:
            try:
                producer.flush()
            except UsageError as error:
                caught.append(error)

        with kops.Producer(bootstrap_servers=servers) as producer:
            producer.send("closing", b"3", on_delivery=flush).result(60)
        assert len(caught) == 1

    def test_nobody_answers(self, nowhere: str) -> None:
        deadline = time.monotonic() + 60
        with kops.Producer(bootstrap_servers=nowhere, max_block_ms=150) as producer:
            expected = f"topic a is not in the metadata after 150 ms: no answer from {nowhere}: Connection refused"
            while str(error := producer.send("a", b"x").error(60)) != expected:  # not tried yet, on a busy machine
                assert time.monotonic() < deadline, error
            assert isinstance(error, kops.KafkaTimeoutError)
            assert error.retriable

    def test_a_forced_close_fails_what_waits(self, servers: str) -> None:
        producer = kops.Producer(bootstrap_servers=servers, linger_ms=1_000_000, delivery_timeout_ms=2_000_000)
        future = producer.send("forced", b"x")
        producer.close(0)
        assert isinstance(future.error(0), kops.ProducerClosedError)

    def test_an_error_in_the_with_block_does_not_wait(self, servers: str) -> None:
        with pytest.raises(ValueError, match="mine"), kops.Producer(bootstrap_servers=servers, linger_ms=1000) as producer:
            future = producer.send("forced", b"x")
            raise ValueError("mine")
        assert isinstance(future.error(0), kops.ProducerClosedError)

    def test_no_memory_in_time(self, servers: str) -> None:
        settings = {"linger.ms": 0, "batch.size": 100, "buffer.memory": 200, "max.block.ms": 100, "max.request.size": 10_000}
        with kops.Producer({"bootstrap.servers": servers, **settings}) as producer:
            deadline = time.monotonic() + 60
            while producer.send("memory", b"x").error(60) is not None:  # not connected yet, on a busy machine
                assert time.monotonic() < deadline
            with producer._lock:  # the sender cannot run
                pool = producer._core.accumulator.pool
                waiter = pool.request(200)
            error = producer.send("memory", b"x").error(60)
            assert isinstance(error, BufferExhaustedError)
            with producer._lock:
                pool.cancel(waiter)
            assert producer.send("memory", b"x").result(60).offset == 1

    @pytest.mark.parametrize(
        "given",
        [{"key.serializer": "strings"}, {"partitioner.class": "mine"}, {"interceptor.classes": ["a.B"]}, {"bootstrap.servers": ":x"},
         {"transactional.id": "t", "acks": "1"}, {"batch.size": "a"}],
    )  # fmt: skip
    def test_a_failed_construction_leaves_nothing(self, given: dict[str, object]) -> None:
        with pytest.raises(UsageError):
            kops.Producer({"bootstrap.servers": "127.0.0.1:1", **given})

    def test_a_hundred_come_and_go(self, servers: str) -> None:
        before = held()
        for _ in range(100):
            kops.Producer(bootstrap_servers=servers).close()
        assert held() == before

    def test_a_time_out_of_the_caller_changes_nothing(self, servers: str) -> None:
        with kops.Producer(bootstrap_servers=servers, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
            future = producer.send("slow", b"x")
            with pytest.raises(TimeoutError):
                future.result(0)
            producer.flush(60)
            assert future.result(0).offset == 0


@pytest.mark.usefixtures("nothing_is_left")
class TestAsyncio:
    def test_places_of_records(self, servers: str) -> None:
        async def main() -> None:
            async with kops.aio.Producer({"bootstrap.servers": servers}, key_serializer="uuid") as producer:
                assert (await producer.send_and_wait("aio", b"x", key=uuid.UUID(int=1))).serialized_key_size == 36
                deliveries = [await producer.send("aio", b"%d" % index) for index in range(300)]
                assert [place.offset for place in await asyncio.gather(*map(wait, deliveries))] == list(range(1, 301))
                assert await producer.partitions_for("aio") == 1
                await producer.send("aio", b"last")
                await producer.flush()
            with pytest.raises(kops.ProducerClosedError):
                await producer.send("aio", b"")
            assert await producer.partitions_for("aio") == 1
            with pytest.raises(kops.ProducerClosedError):
                await producer.partitions_for("elsewhere")
            await producer.close()

        async def wait(delivery: Any) -> kops.RecordMetadata:
            place: kops.RecordMetadata = await delivery
            return place

        asyncio.run(main())
        assert len(values(servers, "aio")) == 302

    def test_nobody_answers_and_the_loop_goes_on(self, nowhere: str) -> None:
        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=nowhere, max_block_ms=150) as producer:
                ticks = 0
                waiting = asyncio.ensure_future(producer.send_and_wait("a", b"x"))
                while not waiting.done():
                    ticks += 1
                    await asyncio.sleep(0.001)
                with pytest.raises(kops.KafkaTimeoutError, match="topic a is not in the metadata after 150 ms"):
                    waiting.result()
                assert ticks > 1

        asyncio.run(main())

    def test_a_cancelled_send_leaves_nothing(self, nowhere: str) -> None:
        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=nowhere) as producer:
                waiting = asyncio.ensure_future(producer.send("a", b"x"))
                await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    def test_memory_that_is_short(self, servers: str) -> None:
        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=servers, batch_size=500, buffer_memory=1000, linger_ms=0) as producer:
                await asyncio.gather(*(producer.send("aio-memory", b"x" * 300) for _ in range(30)))
                await producer.flush()
                assert producer._core.accumulator.pool.available == 1000

        asyncio.run(main())
        assert len(values(servers, "aio-memory")) == 30

    def test_the_wait_for_a_topic_is_not_counted_as_delivery(self, servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            async with kops.aio.Producer(bootstrap_servers=servers, linger_ms=1000, value_serializer="string") as producer:
                know = producer._know

                async def slow(*place: Any) -> int:
                    count = await know(*place)
                    begun_ms = producer._now_ms()
                    monkeypatch.setattr(producer, "_now_ms", lambda: begun_ms + 30_000)
                    return count

                monkeypatch.setattr(producer, "_know", slow)
                begun_ms = producer._now_ms()
                delivery = await producer.send("aio-waited", "v")
                assert delivery.batch.created_ms >= begun_ms + 30_000
                monkeypatch.undo()

        asyncio.run(main())

    def test_a_forced_close_fails_what_waits(self, servers: str) -> None:
        async def main() -> None:
            producer = kops.aio.Producer(bootstrap_servers=servers, linger_ms=1_000_000, delivery_timeout_ms=2_000_000)
            delivery = await producer.send("aio-forced", b"x")
            await producer.close(0)
            with pytest.raises(kops.ProducerClosedError):
                await delivery

        asyncio.run(main())


@pytest.mark.slow
def test_records_survive_a_broker_that_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with kops.Cluster(1) as cluster, kops.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        producer.send("back", b"0").result(60)
        cluster.kill_broker(1)
        futures = [producer.send("back", b"%d" % index) for index in range(1, 50)]
        cluster.start_broker(1)
        assert [future.result(60).offset for future in futures] == list(range(1, 50))
        assert values(cluster.bootstrap_servers, "back") == [b"%d" % index for index in range(50)]
