"""Programs for a producer of either library: the end, the limits, code of the program that fails, and transactions in each wrong state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.support.kafka.both.producers import producer_of
from tests.support.kafka.both.sides import Side
from tests.support.kafka.both.sides import attempt as plain_attempt
from tests.support.patience import until

REFUSED = ("misuse", "Kafka")
"""How a call is refused, or a record fails, at the end of a producer: Kafka has no class of its own for this."""


def attempt(call: Callable[[], object]) -> str:
    """Return the outcome of a call. Java wraps the error that has ended a transaction; kops raises it."""
    return plain_attempt(call, unwraps=True)


def refused(outcome: str) -> str:
    """Return an outcome without the difference between the classes of REFUSED."""
    return "refused" if outcome in REFUSED else outcome


class Told:
    """Callbacks that take note of what they are told."""

    def __init__(self, doing: Callable[[], object] | None = None) -> None:
        self.seen: list[tuple[str, str]] = []
        self.doing = doing
        self.did: list[str] = []
        self.has_been_told = threading.Event()

    def __call__(self, place: str, error: str) -> None:
        self.seen.append((place, refused(error)))
        if self.doing is not None:
            self.did.append(refused(attempt(self.doing)))
        self.has_been_told.set()

    def wait(self) -> list[tuple[str, str]]:
        """Return what was told, after the first call."""
        assert self.has_been_told.wait(60)
        return self.seen


def ended(side: Side) -> None:
    """Call everything after the end, and end with records that were not sent."""
    (topic,) = side.create(count=1)
    producer = producer_of(side)
    side.see("send", producer.send(topic, b"1").outcome())
    side.see("close", attempt(producer.close), attempt(producer.close), attempt(lambda: producer.close(0)))
    told = Told()
    for name, call in {
        "send": lambda: producer.send(topic, b"2", on_delivery=told),
        "send to an unknown topic": lambda: producer.send(topic + "-unknown", b"2"),
        "flush": producer.flush,
        "partitions_for": lambda: producer.partitions_for(topic),
        "partitions_for unknown": lambda: producer.partitions_for(topic + "-unknown"),
        "begin_transaction": producer.begin_transaction,
        "init_transactions": producer.init_transactions,
    }.items():
        side.see("closed", name, refused(attempt(call)))
    side.see("told", told.seen)
    waiting = producer_of(side, linger_ms=60_000)
    told = Told()
    waiting.partitions_for(topic)
    futures = [waiting.send(topic, b"3", on_delivery=told) for _ in range(3)]
    side.see("close(0)", attempt(lambda: waiting.close(0)), [refused(one.outcome()) for one in futures], told.seen)
    quick = producer_of(side, linger_ms=60_000)
    futures = [quick.send(topic, b"4") for _ in range(3)]
    side.see("close", attempt(lambda: quick.close(30)), [one.outcome() for one in futures])
    side.see("negative", refused(attempt(lambda: quick.close(-1))), attempt(quick.close))


def limits(side: Side) -> None:
    """Send what is too large, to topics and partitions that do not exist."""
    (topic,), (small,) = side.create(count=1), side.create("-small", count=1, max_message_bytes="1000")
    producer = producer_of(side, max_request_size=5000, buffer_memory=100_000, max_block_ms=800, enable_metrics_push="false")
    sends: dict[str, Callable[[Told], object]] = {
        "max.request.size": lambda told: producer.send(topic, b"x" * 6000, on_delivery=told),
        "max.message.bytes": lambda told: producer.send(small, b"x" * 2000, on_delivery=told),
        "unknown topic": lambda told: producer.send(topic + "-unknown", b"x", on_delivery=told),
        "unknown partition": lambda told: producer.send(topic, b"x", partition=7, on_delivery=told),
        "invalid topic": lambda told: producer.send("a b", b"x", on_delivery=told),
    }
    for name, call in sends.items():
        told = Told()
        found: list[Any] = []
        raised = attempt(lambda: found.append(call(told)))  # noqa: B023
        side.see(name, raised, found[0].outcome() if found else "", told.wait() if found else told.seen)
    side.see("negative partition", attempt(lambda: producer.send(topic, b"x", partition=-1)))
    side.see("partitions_for", attempt(lambda: producer.partitions_for(topic + "-unknown")))
    side.see("partitions_for invalid", attempt(lambda: producer.partitions_for("a b")))
    little = producer_of(side, max_request_size=500_000, buffer_memory=100_000, batch_size=1000, max_block_ms=500, linger_ms=60_000)
    told = Told()
    side.see("buffer.memory", little.send(topic, b"x" * 200_000, on_delivery=told).outcome(), told.wait())
    little.close(0)


class Interceptor:
    """An interceptor that fails in each call."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.seen: list[str] = []

    def on_send(self) -> None:
        self.seen.append("on_send")
        self.side.fail("plain")

    def on_acknowledgement(self, error: str) -> None:
        self.seen.append(f"on_acknowledgement {error}")
        self.side.fail("plain")

    def close(self) -> None:
        self.seen.append("close")
        self.side.fail("plain")


def failing_code(side: Side) -> None:
    """Let interceptors, callbacks, the partitioner and the serializer fail, or do what they should not."""
    (topic,) = side.create(count=2)
    interceptor = Interceptor(side)
    producer = producer_of(side, interceptor=interceptor, max_request_size=5000)
    told = Told(lambda: side.fail("plain"))
    side.see("send", producer.send(topic, b"1", partition=0, on_delivery=told).outcome(), told.wait())
    side.see("too large", producer.send(topic, b"1" * 6000, partition=0).outcome())
    side.see("close", attempt(producer.close))
    side.see("interceptor", list(interceptor.seen))

    other = producer_of(side)
    inner: list[Any] = []
    for name, doing in {
        "send": lambda: inner.append(other.send(topic, b"inner", partition=0)),
        "flush": other.flush,
        "partitions_for": lambda: other.partitions_for(topic),
        "close": other.close,
    }.items():
        told = Told(doing)
        outcome = other.send(topic, b"outer", partition=0, on_delivery=told).outcome()
        side.see("in a callback", name, outcome, told.wait(), until(lambda: told.did))  # noqa: B023
    side.see("inner", inner[0].outcome() if inner else "")
    side.see("after close", refused(attempt(lambda: other.send(topic, b"x"))))

    def partitioner(count: int) -> int:
        chosen.append(count)
        if kind != "negative":
            side.fail(kind)
        return -1

    chosen: list[int] = []
    for kind in ("plain", "of Kafka", "negative"):
        one = producer_of(side, partitioner=partitioner)
        found: list[Any] = []
        raised = attempt(lambda: found.append(one.send(topic, b"x")))  # noqa: B023
        side.see("partitioner", kind, raised, found[0].outcome() if found else "")
        side.see("with a partition", one.send(topic, b"x", partition=1).outcome()[:2])

    def serializer(data: bytes) -> bytes:
        side.fail(kind)
        return data

    for kind in ("plain", "of Kafka"):
        one = producer_of(side, serializer=serializer)
        found = []
        raised = attempt(lambda: found.append(one.send(topic, b"x", partition=1)))  # noqa: B023
        side.see("serializer", kind, raised, found[0].outcome() if found else "")


def _state(side: Side, name: str, topic: str, number: int) -> Any:
    """Return a producer in a state of its transactions."""
    settings = {"transactional_id": f"{side.topic}-{name}-{number}", "max_request_size": 5000, "max_block_ms": 20_000}
    if name == "without an id":
        return producer_of(side)
    producer = producer_of(side, **settings)
    if name == "new":
        return producer
    producer.init_transactions()
    if name == "ready":
        return producer
    if name == "closed":
        producer.close()
        return producer
    producer.begin_transaction()
    producer.send(topic, b"x", partition=0).outcome()
    if name == "committed":
        producer.commit_transaction()
    elif name == "aborted":
        producer.abort_transaction()
    elif name == "failed":
        producer.send(topic, b"x" * 6000, partition=0).outcome()
    elif name in ("fenced", "fenced and told"):
        again = producer_of(side, **settings)
        again.init_transactions()
        if name == "fenced and told":
            producer.send(topic, b"x", partition=0).outcome()
    return producer


STATES = ("without an id", "new", "ready", "in a transaction", "committed", "aborted", "failed", "fenced", "fenced and told", "closed")


def transaction_calls(side: Side, state: str) -> None:
    """Make each call in a state, and then abort, begin, and close. Java's errors are those that they were made of; kops raises these."""
    (topic,) = side.create(count=1)
    calls: dict[str, Callable[[Any], object]] = {
        "init": lambda one: one.init_transactions(),
        "begin": lambda one: one.begin_transaction(),
        "send": lambda one: refused(one.send(topic, b"y", partition=0).outcome()).partition("@")[0],
        "send_offsets": lambda one: one.send_offsets_to_transaction({(topic, 0): 1}, side.group),
        "send no offsets": lambda one: one.send_offsets_to_transaction({}, side.group),
        "commit": lambda one: one.commit_transaction(),
        "abort": lambda one: one.abort_transaction(),
        "flush": lambda one: one.flush(),
        "partitions_for": lambda one: one.partitions_for(topic),
    }
    for number, (name, call) in enumerate(calls.items()):
        one = _state(side, state, topic, number)
        found = [refused(attempt(lambda: call(one)))]  # noqa: B023
        if state not in ("without an id", "closed"):
            found += [attempt(one.abort_transaction), attempt(one.begin_transaction)]
        # Java's producer has a record in a batch before it refuses it, and would wait for it without end.
        side.see(state, name, *found, attempt(lambda: one.close(0)))  # noqa: B023


def old_metadata(side: Side) -> None:
    """Commit offsets in a transaction with the metadata of a group's earlier generation."""
    (topic,) = side.create(count=1)
    consumer = side.consumer(enable_auto_commit="false", **({"heartbeat_interval_ms": 100} if side.protocol == "classic" else {}))
    consumer.subscribe([topic])
    until(lambda: (consumer.poll(0.1), consumer.assignment())[1])
    old = consumer.group_metadata()
    consumer.unsubscribe()
    consumer.subscribe([topic])
    until(lambda: (consumer.poll(0.1), consumer.assignment())[1])
    producer = producer_of(side, transactional_id=side.topic)
    producer.init_transactions()
    for metadata in (old, consumer.group_metadata()):
        producer.begin_transaction()
        side.see("send", producer.send(topic, b"x", partition=0).outcome().partition("@")[0])
        side.see("send_offsets", attempt(lambda: producer.send_offsets_to_transaction({(topic, 0): 1}, metadata)))  # noqa: B023
        side.see("send", refused(attempt(lambda: producer.send(topic, b"x", partition=0).outcome().partition("@")[0])))
        side.see("commit", attempt(producer.commit_transaction))
        side.see("abort", attempt(producer.abort_transaction))
    side.see("committed", side.committed())
    side.see("send no offsets", attempt(lambda: producer.send_offsets_to_transaction({}, "g")))


def flush_in_transactions(side: Side) -> None:
    """Flush, abort and close while records wait."""
    (topic,) = side.create(count=1)
    producer = producer_of(side, transactional_id=side.topic, linger_ms=60_000, batch_size=100_000)
    producer.init_transactions()
    producer.begin_transaction()
    told = Told()
    futures = [producer.send(topic, b"x", partition=0, on_delivery=told) for _ in range(3)]
    side.see("abort", attempt(producer.abort_transaction), [one.outcome() for one in futures], told.seen)
    producer.begin_transaction()
    futures = [producer.send(topic, b"x", partition=0) for _ in range(2)]
    side.see("flush", attempt(producer.flush), [one.outcome() for one in futures])
    more = producer.send(topic, b"x", partition=0)
    side.see("commit", attempt(producer.commit_transaction), more.outcome())
    producer.begin_transaction()
    last = producer.send(topic, b"x", partition=0)
    side.see("close", attempt(lambda: producer.close(30)), refused(last.outcome()))
    other = producer_of(side, transactional_id=side.topic, linger_ms=60_000)
    other.init_transactions()
    other.begin_transaction()
    last = other.send(topic, b"x", partition=0)
    side.see("close(0)", attempt(lambda: other.close(0)), refused(last.outcome()))


def silent_broker(side: Side, address: str) -> None:
    """Initialize transactions with a broker that does not answer, again and again.

    `send` is missing: Java's looks at the topic before it looks at the transaction.
    """
    producer = producer_of(side, bootstrap_servers=address, transactional_id=side.topic, max_block_ms=300, request_timeout_ms=500)
    for name, call in {
        "init": producer.init_transactions,
        "again": producer.init_transactions,
        "begin": producer.begin_transaction,
        "abort": producer.abort_transaction,
        "commit": producer.commit_transaction,
        "offsets": lambda: producer.send_offsets_to_transaction({("t", 0): 1}, "g"),
        "partitions_for": lambda: producer.partitions_for("t"),
        "once more": producer.init_transactions,
        "close": lambda: producer.close(0.5),
    }.items():
        side.see(name, attempt(call))
