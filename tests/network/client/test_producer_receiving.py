"""A thread that waits for the only request of a blocking producer gets the answer itself. The rest stays with the other thread."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import kops
from kops.broker.network.channel import RequestContext
from kops.errors import KopsError
from kops.protocol.messages import ProduceRequest, ProduceResponse
from kops.protocol.messages.produce_response import PartitionProduceResponse, TopicProduceResponse
from tests.support.nodes.scripted_cluster import ScriptedCluster

PATIENCE_S = 60.0


class Broker:
    """A broker that answers no Produce request while `is_open` is not set."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self.asked = threading.Semaphore(0)
        self.offset = -1
        self.error_code = 0
        cluster.script(ProduceRequest, self._answer)

    def _answer(self, context: RequestContext, message: ProduceRequest) -> ProduceResponse:
        self.asked.release()
        assert self.is_open.wait(PATIENCE_S)
        self.offset += 1
        code, self.error_code = self.error_code, 0
        row = PartitionProduceResponse(index=0, error_code=code, base_offset=self.offset)
        topic = message.topic_data[0]
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])])


@contextmanager
def one_broker(*, is_settled: bool = True, **settings: Any) -> Iterator[tuple[Broker, kops.Producer]]:
    """Provide a broker, and a producer of which this thread has already received an answer itself."""
    with ScriptedCluster(1) as cluster:
        cluster.topics["t"] = [1]
        broker = Broker(cluster)
        given = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "enable_metrics_push": False, **settings}
        try:
            with kops.Producer(bootstrap_servers=cluster.bootstrap, acks="1", enable_idempotence=False, **given) as producer:
                if is_settled:
                    settled(producer)
                yield broker, producer
        finally:
            broker.is_open.set()


def watch(producer: kops.Producer) -> list[int]:
    """Return a list that gets the thread of each answer that a thread of the program has received."""
    threads: list[int] = []
    settle = producer._receiver._settle

    def watched() -> None:
        threads.append(threading.get_ident())
        settle()

    producer._receiver._settle = watched
    return threads


def settled(producer: kops.Producer) -> None:
    """Send until this thread has received an answer. Before, the other thread is still busy."""
    threads, deadline = watch(producer), time.monotonic() + PATIENCE_S
    while threading.get_ident() not in threads:
        assert time.monotonic() < deadline
        producer.send("t", b"v").result(PATIENCE_S)
        time.sleep(0.01)


def held_back(broker: Broker, producer: kops.Producer, wait: Callable[[kops.RecordFuture], object]) -> kops.RecordFuture:
    """Send a record whose answer does not come, while this thread waits to receive it. Return its future."""
    receive, deadline = producer._receiver._receive, time.monotonic() + PATIENCE_S
    inside: list[int] = []

    def watched(*arguments: Any) -> None:
        try:
            receive(*arguments)
        finally:
            inside.append(0)

    producer._receiver._receive = watched  # type: ignore[method-assign, assignment]
    while True:
        assert time.monotonic() < deadline
        broker.is_open.clear()
        inside.clear()
        while broker.asked.acquire(blocking=False):
            continue
        future = producer.send("t", b"v")
        started = time.monotonic()
        wait(future)
        if inside and time.monotonic() - started > 0.05:
            return future
        broker.is_open.set()
        future.result(PATIENCE_S)
        time.sleep(0.01)


def test_only_one_thread_receives() -> None:
    with one_broker() as (broker, producer):
        threads, before = watch(producer), broker.offset
        for index in range(200):
            assert producer.send("t", b"v").result(PATIENCE_S).offset == before + 1 + index
        assert set(threads) == {threading.get_ident()}
        metrics = {(one.group, one.name): value for one, value in producer.metrics().items() if "node" not in one.group}
        assert metrics["producer-metrics", "response-total"] >= 200
        assert metrics["producer-metrics", "io-time-ns-total"] > 0


def test_a_flush_receives_as_well() -> None:
    with one_broker() as (broker, producer):
        threads, before = watch(producer), broker.offset
        for index in range(50):
            future = producer.send("t", b"v")
            producer.flush(PATIENCE_S)
            assert future.result(0).offset == before + 1 + index
        assert set(threads) == {threading.get_ident()}
    with one_broker(linger_ms=30_000, is_settled=False) as (broker, producer):
        for _ in range(50):  # now the other thread mostly sends, because the new batch has woken it
            future = producer.send("t", b"v")
            producer.flush(PATIENCE_S)
            assert future.result(0).offset == broker.offset


def test_callbacks_stay_in_the_thread_of_the_producer() -> None:
    with one_broker() as (_, producer):
        seen: list[int] = []

        def note(*_: object) -> None:
            seen.append(threading.get_ident())

        for index in range(50):
            future = producer.send("t", b"v", on_delivery=note if index % 2 else None)
            if index % 3 == 0:
                future.add_done_callback(lambda done: seen.append(producer._thread.ident or 0))  # at once here, or in the other thread
            future.result(PATIENCE_S)
        producer.flush(PATIENCE_S)
        assert len(seen) == 25 + 17
        assert set(seen) == {producer._thread.ident}


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "failed"])
def test_a_future_is_done_after_the_callbacks_of_its_batch(is_written: bool) -> None:
    """As in Java (ProduceRequestResult.done). A callback itself gets the outcome of its batch without waiting."""
    with one_broker(linger_ms=30_000, is_settled=False) as (broker, producer):
        broker.error_code = 0 if is_written else 29  # TOPIC_AUTHORIZATION_FAILED
        begun, may_end, seen = threading.Event(), threading.Event(), list[object]()

        def on_delivery(*_: object) -> None:
            begun.set()
            assert may_end.wait(PATIENCE_S)
            seen.extend((first.done(), type(first.error(0)), second.done(), type(second.error(0))))

        first = producer.send("t", b"v", on_delivery=on_delivery)
        second = producer.send("t", b"v")
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        assert begun.wait(PATIENCE_S)
        for future in (first, second):
            assert not future.done()
            with pytest.raises(TimeoutError):
                future.result(0.01)
        may_end.set()
        kind = type(first.error(PATIENCE_S))
        assert seen == [True, kind, True, kind]
        assert first.done() and second.done()
        assert issubclass(kind, kops.KafkaError) is not is_written
        flushing.join(PATIENCE_S)


@pytest.mark.parametrize("is_flush", [False, True], ids=["result", "flush"])
def test_a_time_out_leaves_the_answer_to_the_other_thread(is_flush: bool) -> None:
    def wait(future: kops.RecordFuture) -> None:
        with pytest.raises(TimeoutError):
            if is_flush:
                producer.flush(0.1)
            else:
                future.result(0.1)

    with one_broker() as (broker, producer):
        future = held_back(broker, producer, wait)
        broker.is_open.set()
        producer.flush(PATIENCE_S)
        assert future.result(0).offset == broker.offset
        assert producer.send("t", b"v").result(PATIENCE_S).offset == broker.offset


@pytest.mark.parametrize("handler", ["python", "own"])
def test_an_interrupt_ends_the_wait(handler: str) -> None:
    """Ctrl-C, and a program's own handler that raises."""

    def stop(*_: object) -> None:
        raise SystemExit

    def wait(future: kops.RecordFuture) -> None:
        timer = threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt if handler == "python" else SystemExit):
            future.result(PATIENCE_S)
            timer.join()  # the answer came too early
            time.sleep(PATIENCE_S)
        timer.join()

    before = signal.signal(signal.SIGINT, signal.default_int_handler if handler == "python" else stop)
    try:
        with one_broker() as (broker, producer):
            future = held_back(broker, producer, wait)
            broker.is_open.set()
            producer.flush(PATIENCE_S)
            assert future.result(0).offset == broker.offset
            settled(producer)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_forced_close_ends_the_wait() -> None:
    def wait(future: kops.RecordFuture) -> None:
        closer = threading.Timer(0.1, producer.close, (0,))
        closer.start()
        assert isinstance(future.error(PATIENCE_S), kops.ProducerClosedError)
        closer.join()

    with one_broker() as (broker, producer):
        held_back(broker, producer, wait)
        assert not producer._thread.is_alive()


def test_a_patient_close_waits_for_the_answer() -> None:
    def wait(future: kops.RecordFuture) -> None:
        closing, opening = threading.Timer(0.1, producer.close), threading.Timer(0.2, broker.is_open.set)
        closing.start()
        opening.start()
        assert future.result(PATIENCE_S).offset == broker.offset
        closing.join()
        opening.join()

    with one_broker() as (broker, producer):
        held_back(broker, producer, wait)
        assert not producer._thread.is_alive()


def test_a_connection_that_ends_is_replaced() -> None:
    """The request is too late, and the record is sent again over another connection."""

    def wait(future: kops.RecordFuture) -> None:
        threading.Timer(0.8, broker.is_open.set).start()
        assert future.result(PATIENCE_S).offset >= 0

    with one_broker(request_timeout_ms=400, delivery_timeout_ms=60_000) as (broker, producer):
        held_back(broker, producer, wait)
        settled(producer)


def test_an_error_is_handled_by_the_other_thread() -> None:
    """NOT_LEADER_OR_FOLLOWER: new metadata, and the record is sent again."""
    with one_broker() as (broker, producer):
        for _ in range(20):
            broker.error_code = 6
            assert producer.send("t", b"v").result(PATIENCE_S).offset == broker.offset
        broker.error_code = 10
        assert isinstance(producer.send("t", b"v").error(PATIENCE_S), kops.KafkaError)


def test_a_fork_does_not_wait() -> None:
    with one_broker() as (broker, producer):
        broker.is_open.clear()
        future = producer.send("t", b"v")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # nothing of pytest may run here
            answer = b"no error"
            try:
                future.result(PATIENCE_S)
            except KopsError as error:
                answer = str(error).encode()
            os.write(writing, answer)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as end:
            assert "forked after the client was made" in end.read()
        os.waitpid(child, 0)
        broker.is_open.set()
        assert future.result(PATIENCE_S).offset == broker.offset


def test_many_threads_with_everything_at_once() -> None:
    """Waits with and without a time-out, callbacks and flushes: every record has one outcome, and nobody waits forever."""
    with kops.Cluster(1, topics=["t:2"]) as cluster, kops.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        places: list[tuple[int, int]] = []
        called: list[tuple[int, int]] = []
        expected: list[tuple[int, int]] = []
        failures: list[BaseException] = []
        threads_of_callbacks: set[int] = set()

        def called_back(place: kops.RecordMetadata | None, error: BaseException | None) -> None:
            assert place is not None
            called.append((place.partition, place.offset))
            threads_of_callbacks.add(threading.get_ident())

        def work(seed: int) -> None:
            draw = random.Random(seed)
            try:
                for _ in range(60):
                    kind = draw.randrange(6)
                    future = producer.send("t", b"v", key=draw.choice((None, b"k")), on_delivery=called_back if kind == 1 else None)
                    if kind == 2:
                        with suppress(TimeoutError):
                            future.result(draw.choice((0, 0.0002)))
                    elif kind == 3:
                        producer.flush(PATIENCE_S)
                        assert future.done()
                    elif kind == 4:
                        producer.send("t", b"nobody waits")
                    if kind != 3:
                        time.sleep(draw.choice((0, 0, 0.001)))
                    place = future.result(PATIENCE_S)
                    places.append((place.partition, place.offset))
                    if kind == 1:
                        expected.append((place.partition, place.offset))
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert not failures
        assert len(set(places)) == len(places) == 360
        producer.flush(PATIENCE_S)
        assert sorted(called) == sorted(expected)
        assert threads_of_callbacks == {producer._thread.ident}
