"""Share consumers of both libraries with the same calls, and programs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kops
from tests.support.kafka.both.pinned import PinnedJvm, Proxy, name_of
from tests.support.kafka.both.sides import SERDES, JavaSide, OursSide, Side, attempt, deserializer_of, each
from tests.support.patience import until

Acknowledged = Callable[[list[int], str], object]


def share_consumer_of(side: Side, **settings: Any) -> Any:
    """Return a share consumer. `deserializer` is a function of Python."""
    deserializer = settings.pop("deserializer", None)
    given = {"bootstrap.servers": side.servers, "group.id": side.group}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    if isinstance(side, JavaSide):
        return side.keep(JavaShareConsumer(side.java, given, deserializer))
    assert isinstance(side, OursSide)
    if deserializer is not None:
        given["value.deserializer"] = deserializer
    return side.keep(OursShareConsumer(given))


class OursShareConsumer:
    """A kops.ShareConsumer."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.consumer = kops.ShareConsumer(settings)

    def poll(self, timeout: float) -> list[Any]:
        return self.consumer.poll(timeout)

    def commit_sync(self, timeout: float | None = None) -> list[str]:
        return [name_of(error) for error in self.consumer.commit_sync(timeout).values()]

    def acknowledge(self, record: Any, kind: str = "ACCEPT") -> None:
        self.consumer.acknowledge(record, kops.AcknowledgeType[kind])

    def acknowledge_at(self, topic: str, partition: int, offset: int, kind: str) -> None:
        self.consumer.acknowledge_failed(topic, partition, offset, kops.AcknowledgeType[kind])

    def on_acknowledged(self, callback: Acknowledged | None) -> None:
        told = None if callback is None else lambda partition, offsets, error: callback(sorted(offsets), name_of(error))
        self.consumer.set_acknowledgement_commit_callback(told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)


def _callback(callback: Acknowledged) -> Proxy:
    def on_complete(offsets: Any, error: Any) -> None:
        for found in offsets.values():
            callback(sorted(map(int, found)), name_of(error))

    return Proxy("clients.consumer.AcknowledgementCommitCallback", onComplete=on_complete)


class Record:
    """A record of Java."""

    def __init__(self, record: Any) -> None:
        self.record = record
        self.topic, self.partition, self.offset = str(record.topic()), int(record.partition()), int(record.offset())
        self.delivery_count = int(record.deliveryCount().get())


class JavaShareConsumer:
    """A KafkaShareConsumer."""

    def __init__(self, java: PinnedJvm, settings: dict[str, Any], deserializer: Any) -> None:
        self.java = java
        made = java.properties({**{f"{one}.deserializer": f"{SERDES}Deserializer" for one in ("key", "value")}, **settings})
        if deserializer is None:
            self.consumer = java.new("clients.consumer.KafkaShareConsumer", made)
        else:
            proxies = [deserializer_of(java, deserializer) for _ in range(2)]
            self.consumer = java.new("clients.consumer.KafkaShareConsumer", made, *proxies)
        self._types = java.named("org.apache.kafka.clients.consumer.AcknowledgeType")

    def subscribe(self, topics: list[str]) -> None:
        made = self.java.jvm.java.util.ArrayList()
        for one in topics:
            made.add(one)
        self.consumer.subscribe(made)

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def subscription(self) -> set[str]:
        return set(map(str, self.consumer.subscription()))

    def poll(self, timeout: float) -> list[Record]:
        return [Record(one) for one in each(self.consumer.poll(self.java.millis(timeout)))]

    def acknowledge(self, record: Any, kind: str = "ACCEPT") -> None:
        self.consumer.acknowledge(record.record, getattr(self._types, kind))

    def acknowledge_at(self, topic: str, partition: int, offset: int, kind: str) -> None:
        number = self.java.jvm.java.lang.Long.valueOf(str(offset))
        self.consumer.acknowledge(topic, partition, number, getattr(self._types, kind))

    def commit_sync(self, timeout: float | None = None) -> list[str]:
        found = self.consumer.commitSync(*([] if timeout is None else [self.java.millis(timeout)]))
        return [name_of(one.get() if one.isPresent() else None) for one in found.values()]

    def commit_async(self) -> None:
        self.consumer.commitAsync()

    def on_acknowledged(self, callback: Acknowledged | None) -> None:
        self.consumer.setAcknowledgementCommitCallback(None if callback is None else _callback(callback))

    def acquisition_lock_timeout_ms(self) -> int | None:
        found = self.consumer.acquisitionLockTimeoutMs()
        return int(found.get()) if found.isPresent() else None

    def wakeup(self) -> None:
        self.consumer.wakeup()

    def close(self, timeout: float | None = None) -> None:
        self.consumer.close(*([] if timeout is None else [self.java.millis(timeout)]))


def _begin(side: Side, consumer: Any, count: int) -> list[Any]:
    """Subscribe, write records as soon as the group reads, and return all of them."""
    consumer.subscribe([side.topic])
    return take(consumer, count)


def take(consumer: Any, count: int) -> list[Any]:
    """Return this many records of the next poll that finds some."""
    found: list[Any] = until(lambda: consumer.poll(0.2))
    assert len(found) == count, [one.offset for one in found]
    return found


def _texts(records: list[Any]) -> list[tuple[int, int]]:
    return [(one.offset, one.delivery_count) for one in records]


def implicit(side: Side) -> None:
    """Acknowledge by polling, committing and closing."""
    side.create(count=1)
    side.produce([b"0", b"1", b"2"])
    consumer = share_consumer_of(side)
    told: list[object] = []
    consumer.on_acknowledged(lambda offsets, error: told.append((offsets, error)))
    records = _begin(side, consumer, 3)
    side.see("records", _texts(records))
    side.see("acknowledge", attempt(lambda: consumer.acknowledge(records[0])))
    side.see("commit", attempt(consumer.commit_sync), told)
    side.see("commit again", attempt(consumer.commit_sync))
    side.produce([b"3", b"4"])
    records = take(consumer, 2)
    side.see("told", list(told))
    side.see("poll", _texts(consumer.poll(0.5)))
    until(lambda: (consumer.poll(0.1), len(told) == 2)[1])
    side.see("told", list(told))
    side.produce([b"5", b"6"])
    records = take(consumer, 2)
    side.see("close", attempt(consumer.close), told)
    again = share_consumer_of(side)
    side.see("released", _texts(_begin(side, again, 2)))
    again.close()


def explicit(side: Side) -> None:
    """Acknowledge each record, twice, too late, and not at all."""
    side.create(count=1)
    side.produce([b"%d" % number for number in range(5)])
    consumer = share_consumer_of(side, share_acknowledgement_mode="explicit")
    told: list[object] = []
    consumer.on_acknowledged(lambda offsets, error: told.append((offsets, error)))
    records = _begin(side, consumer, 5)
    side.see("poll", attempt(lambda: consumer.poll(0.1)))
    side.see("first", attempt(lambda: consumer.acknowledge(records[0])))
    side.see("twice", attempt(lambda: consumer.acknowledge(records[0], "REJECT")))
    side.see("by place", attempt(lambda: consumer.acknowledge_at(side.topic, 0, 1, "ACCEPT")))
    side.see("of nothing", attempt(lambda: consumer.acknowledge_at(side.topic, 0, 77, "ACCEPT")))
    side.see("poll", attempt(lambda: consumer.poll(0.1)))
    side.see("commit", attempt(consumer.commit_sync), list(told))
    side.see("after a commit", attempt(lambda: consumer.acknowledge(records[0])))
    for record, kind in zip(records[1:], ("RELEASE", "REJECT", "ACCEPT", "RELEASE"), strict=True):
        side.see(kind, attempt(lambda: consumer.acknowledge(record, kind)))  # noqa: B023
    side.see("commit", attempt(consumer.commit_sync), list(told))
    records = take(consumer, 2)
    side.see("released", _texts(records))
    consumer.acknowledge(records[0])
    side.see("commit_async", attempt(consumer.commit_async), list(told))
    consumer.acknowledge(records[1], "RELEASE")
    records = take(consumer, 1)
    side.see("released", _texts(records))
    until(lambda: (consumer.commit_sync(), len(told) >= 4)[1])
    side.see("told", sorted(map(str, told)))
    side.see("close", attempt(consumer.close))
    again = share_consumer_of(side)
    side.see("released", _texts(_begin(side, again, 1)))
    again.close()


def failing_callback(side: Side, kind: str) -> None:
    """Let the callback fail, and use the consumer in it."""
    side.create(count=1)
    side.produce([b"0"])
    consumer = share_consumer_of(side)
    told: list[object] = []

    def fails(offsets: list[int], error: str) -> None:
        told.append((offsets, error))
        side.fail(kind)

    consumer.on_acknowledged(fails)
    _begin(side, consumer, 1)
    side.see("commit", attempt(consumer.commit_sync), list(told))
    side.produce([b"1"])
    take(consumer, 1)
    consumer.commit_async()
    outcomes: list[str] = []

    def is_told() -> bool:
        outcomes.append(attempt(lambda: consumer.poll(0.1)))
        return len(told) >= 2

    until(is_told)
    side.see("poll", [one for one in outcomes if one != "[]"], list(told))
    side.produce([b"2"])
    take(consumer, 1)
    inner: list[str] = []
    calls = {
        "poll": lambda: consumer.poll(0),
        "commit_sync": consumer.commit_sync,
        "close": consumer.close,
        "wakeup": consumer.wakeup,
        "subscription": lambda: bool(consumer.subscription()),
    }
    consumer.on_acknowledged(lambda offsets, error: inner.extend(f"{name} {attempt(call)}" for name, call in calls.items()))
    side.see("commit", attempt(consumer.commit_sync), inner)
    side.see("woken", attempt(lambda: consumer.poll(0.1)))
    side.produce([b"3"])
    take(consumer, 1)
    consumer.on_acknowledged(fails)
    consumer.commit_async()
    side.see("close", attempt(consumer.close), len(told))


def wrong_calls(side: Side) -> None:
    """Make calls that are not allowed, and wake the consumer up in each."""
    side.create(count=1)
    consumer = share_consumer_of(side, share_acknowledgement_mode="explicit")
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(0.1),
        "commit_sync": consumer.commit_sync,
        "commit_async": consumer.commit_async,
        "unsubscribe": consumer.unsubscribe,
        "subscription": lambda: len(consumer.subscription()),
        "acknowledge": lambda: consumer.acknowledge_at(side.topic, 0, 0, "ACCEPT"),
        "lock": consumer.acquisition_lock_timeout_ms,
        "subscribe to a blank": lambda: consumer.subscribe([" "]),
        "callback": lambda: consumer.on_acknowledged(None),
    }
    for name, call in calls.items():
        side.see("new", name, attempt(call))
    for name, call in calls.items():
        consumer.subscribe([side.topic])
        consumer.wakeup()
        side.see("woken", name, attempt(call), attempt(lambda: consumer.poll(0)))
        consumer.unsubscribe()
    consumer.subscribe([side.topic])
    side.produce([b"0"])
    records = take(consumer, 1)
    consumer.acknowledge(records[0])
    consumer.wakeup()
    side.see("commit_sync", attempt(consumer.commit_sync), attempt(lambda: consumer.poll(0)))
    consumer.wakeup()
    side.see("close", attempt(consumer.close))
    for name, call in {**calls, "subscribe": lambda: consumer.subscribe([side.topic]), "wakeup": consumer.wakeup}.items():
        side.see("closed", name, attempt(call))
    side.see("closed", "close", attempt(consumer.close))


def failing_deserializer(side: Side) -> None:
    """Let the deserializer fail."""
    side.create(count=1)
    side.produce([b"0", b"bad", b"2"])

    def read(data: bytes | None) -> bytes | None:
        if data == b"bad":
            side.fail("plain")
        return data

    consumer = share_consumer_of(side, share_acknowledgement_mode="explicit", deserializer=read)
    consumer.subscribe([side.topic])
    for _ in range(3):
        found: list[Any] = []
        outcome = until(lambda: attempt(lambda: found.extend(consumer.poll(0.2))) if not found else "records", lambda one: one != "None")  # noqa: B023
        side.see("poll", outcome, _texts(found))
        for one in found:
            side.see("acknowledge", attempt(lambda: consumer.acknowledge(one)))  # noqa: B023
        side.see("failed", attempt(lambda: consumer.acknowledge_at(side.topic, 0, 1, "REJECT")) if outcome != "records" else "")
        if found and found[-1].offset == 2:
            break
    side.see("commit", attempt(consumer.commit_sync))
    consumer.close()
