"""The two sides of a test: each makes clients of one library. They have the calls of kops's, so the same program runs on both sides."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from py4j.protocol import Py4JJavaError

import kops
from kops.client.admin.operations.topics import NewTopic
from kops.client.consumer.errors import WakeupError
from kops.client.errors import InvalidTopicError
from kops.errors import KopsError
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.both.pinned import Caused, PinnedJvm, Proxy, name_of

CONSUMER: Final = "clients.consumer."
SERDES: Final = "org.apache.kafka.common.serialization.ByteArray"
Offsets = Mapping[tuple[str, int], int]
Attempt = Callable[[], object]
PLAIN, OF_KAFKA, WAKEUP = "plain", "of Kafka", "wakeup"


def attempt(call: Attempt, *, unwraps: bool = False) -> str:
    """Return what a call returns, as text, or the name of its error (see `name_of`)."""
    try:
        found = call()
    except (Py4JJavaError, Caused, KopsError, ValueError) as error:  # compared with that of the other library
        return name_of(error, unwraps=unwraps)
    return str(found)


class Side:
    """A library. `seen` is what the program has seen."""

    def __init__(self, servers: str, protocol: str = "classic") -> None:
        self.servers, self.protocol = servers, protocol
        self.seen: list[object] = []
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self._made: list[Any] = []
        self._admin = kops.Admin(bootstrap_servers=servers)

    def create(self, *names: str, count: int = 2, **configs: str) -> list[str]:
        """Create topics, and return their names. They begin with the name of this side's topic."""
        topics = [self.topic + name for name in names or ("",)]
        configs = {name.replace("_", "."): value for name, value in configs.items()}
        self._admin.create_topics([NewTopic(topic, count, 1, configs=configs) for topic in topics]).all()
        return topics

    def produce(self, values: Iterable[bytes], partition: int = 0, keys: Iterable[bytes | None] = ()) -> None:
        """Write records to the side's topic."""
        found = list(values)
        given = [*keys, *[None] * len(found)]
        with kops.Producer(bootstrap_servers=self.servers) as producer:
            for key, value in zip(given, found, strict=False):
                producer.send(self.topic, value, key=key, partition=partition)

    def members(self) -> int:
        """Return how many members the side's group has."""
        found = self._admin.describe_consumer_groups([self.group])[self.group]
        return len(found.members)

    def committed(self) -> dict[int, int]:
        """Return the committed offsets by partition."""
        found = self._admin.list_consumer_group_offsets({self.group: None})[self.group]
        return {key.partition: one.offset for key, one in sorted(found.items()) if one is not None}

    def see(self, *what: object) -> None:
        """Take note of something."""
        self.seen.append(what[0] if len(what) == 1 else what)

    def settings(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the settings of a consumer in the side's group."""
        base = {"bootstrap.servers": self.servers, "group.id": self.group, "group.protocol": self.protocol, "auto.offset.reset": "earliest"}
        every = {**base, **{name.replace("_", "."): value for name, value in given.items()}}
        return {name: value for name, value in every.items() if value is not None}

    def consumer(self, **settings: Any) -> Any:
        """Return a consumer. `deserializer` and `interceptor` are objects of Python."""
        raise NotImplementedError

    def fail(self, kind: str) -> object:
        """Raise an error out of a callback."""
        raise NotImplementedError

    def keep(self, client: Any) -> Any:
        """Close a client at the end."""
        self._made.append(client)
        return client

    def close(self) -> None:
        """Close all clients."""
        for one in self._made:
            attempt(lambda one=one: one.close(0))  # type: ignore[misc]
        self._admin.close()


class OursSide(Side):
    """The clients of kops."""

    def consumer(self, **settings: Any) -> Any:
        """Return a consumer."""
        deserializer, interceptor = settings.pop("deserializer", None), settings.pop("interceptor", None)
        given = self.settings(settings)
        if deserializer is not None:
            given |= {"key.deserializer": deserializer, "value.deserializer": deserializer}
        if interceptor is not None:
            given["interceptor.classes"] = [interceptor]
        return self.keep(OursConsumer(given))

    def fail(self, kind: str) -> object:
        """Raise an error out of a callback."""
        if kind == WAKEUP:
            raise WakeupError("woken")
        if kind == OF_KAFKA:
            raise InvalidTopicError("bad")
        raise ValueError("bad")


class OursConsumer(kops.Consumer):
    """A consumer whose records are partitions and offsets."""

    def poll(self, timeout: float = 1.0) -> Any:
        """Return the partitions and offsets of records."""
        return [(one.partition, one.offset) for one in super().poll(timeout)]


class JavaSide(Side):
    """The clients of Kafka."""

    def __init__(self, servers: str, protocol: str, java: PinnedJvm) -> None:
        super().__init__(servers, protocol)
        self.java = java

    def consumer(self, **settings: Any) -> Any:
        """Return a consumer."""
        deserializer, interceptor = settings.pop("deserializer", None), settings.pop("interceptor", None)
        return self.keep(JavaConsumer(self.java, self.settings(settings), deserializer, interceptor))

    def fail(self, kind: str) -> object:
        """Raise an error out of a callback."""
        if kind == WAKEUP:
            self.java.raise_java("org.apache.kafka.common.errors.WakeupException")
        if kind == OF_KAFKA:
            self.java.raise_java("org.apache.kafka.common.errors.InvalidTopicException", "bad")
        self.java.raise_java("java.lang.IllegalArgumentException", "bad")


def _listener(listener: Any) -> Proxy:
    return Proxy(
        f"{CONSUMER}ConsumerRebalanceListener",
        onPartitionsAssigned=lambda keys: listener.on_partitions_assigned(_ours(keys)),
        onPartitionsRevoked=lambda keys: listener.on_partitions_revoked(_ours(keys)),
        onPartitionsLost=lambda keys: listener.on_partitions_lost(_ours(keys)),
    )


def _on_commit(callback: Any) -> Proxy:
    return Proxy(f"{CONSUMER}OffsetCommitCallback", onComplete=lambda offsets, error: callback({}, error))


def deserializer_of(java: PinnedJvm, function: Any) -> Proxy:
    """Return a Deserializer that calls a function with bytes or None."""

    def deserialize(topic: Any, headers: Any, data: Any) -> Any:
        if data is not None and not isinstance(data, bytes | bytearray):
            data = java.named("org.apache.kafka.common.utils.Utils").toNullableArray(data)
        return function(None if data is None else bytes(data))

    return Proxy("common.serialization.Deserializer", deserialize=deserialize)


def _interceptor(interceptor: Any) -> Proxy:
    def on_consume(records: Any) -> Any:
        interceptor.on_consume(_records(records))
        return records

    return Proxy(
        f"{CONSUMER}ConsumerInterceptor",
        onConsume=on_consume,
        onCommit=lambda offsets: interceptor.on_commit(dict.fromkeys(_ours(offsets.keySet()))),
        close=interceptor.close,
    )


def _records(found: Any) -> list[tuple[int, int]]:
    return [(int(one.partition()), int(one.offset())) for one in each(found)] if found.count() else []


def each(iterable: Any) -> Iterator[Any]:
    """Yield the elements of an Iterable of Java."""
    elements = iterable.iterator()
    while elements.hasNext():
        yield elements.next()


def _ours(keys: Any) -> list[TopicPartition]:
    return sorted(TopicPartition(str(one.topic()), int(one.partition())) for one in keys)


class JavaConsumer:
    """A KafkaConsumer with the calls of kops's."""

    def __init__(self, java: PinnedJvm, settings: Mapping[str, object], deserializer: Any, interceptor: Any) -> None:
        self.java = java
        names = {f"{one}.deserializer": f"{SERDES}Deserializer" for one in ("key", "value")}
        made = java.properties({**names, **settings})
        if deserializer is None:
            self.consumer = java.new(f"{CONSUMER}KafkaConsumer", made)
        else:
            proxies = [deserializer_of(java, deserializer) for _ in range(2)]
            self.consumer = java.new(f"{CONSUMER}KafkaConsumer", made, *proxies)
        if interceptor is not None:
            self._intercept(_interceptor(interceptor))

    def _intercept(self, proxy: Proxy) -> None:
        """Give it an interceptor, which the settings can name only as a class of Java."""
        delegate = field(self.consumer, "delegate")
        interceptors = field(delegate, "interceptors")
        plugin = self.java.named("org.apache.kafka.common.internals.Plugin").wrapInstance(
            proxy, field(delegate, "metrics"), "interceptor.classes"
        )
        field(interceptors, "interceptorPlugins").add(plugin)

    def subscribe(self, topics: list[str], listener: Any = None) -> None:
        given = self.java.jvm.java.util.ArrayList()
        for topic in topics:
            given.add(topic)
        if listener is None:
            self.consumer.subscribe(given)
        else:
            self.consumer.subscribe(given, _listener(listener))

    def assign(self, keys: Iterable[tuple[str, int]]) -> None:
        self.consumer.assign(self.java.keys(keys))

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def poll(self, timeout: float = 1.0) -> list[tuple[int, int]]:
        return _records(self.consumer.poll(self.java.millis(timeout)))

    def position(self, key: tuple[str, int], timeout: float | None = None) -> int:
        return int(self.consumer.position(self.java.key(key), *self._in(timeout)))

    def _in(self, timeout: float | None) -> list[Any]:
        return [] if timeout is None else [self.java.millis(timeout)]

    def committed(self, keys: Iterable[tuple[str, int]], timeout: float | None = None) -> list[int | None]:
        given = list(keys)
        asked = self.java.jvm.java.util.HashSet()
        for key in given:
            asked.add(self.java.key(key))
        found = self.consumer.committed(asked, *self._in(timeout))
        ends = [found.get(self.java.key(key)) for key in given]
        return [None if one is None else int(one.offset()) for one in ends]

    def _offsets(self, offsets: Offsets) -> Any:
        made = self.java.jvm.java.util.HashMap()
        for key, offset in offsets.items():
            made.put(self.java.key(key), self.java.new(f"{CONSUMER}OffsetAndMetadata", offset))
        return made

    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        self.consumer.commitSync(*([] if offsets is None else [self._offsets(offsets)]), *self._in(timeout))

    def commit_async(self, offsets: Offsets | None = None, on_commit: Any = None) -> None:
        if offsets is None:
            self.consumer.commitAsync(_on_commit(on_commit))
        else:
            self.consumer.commitAsync(self._offsets(offsets), _on_commit(on_commit))

    def seek(self, key: tuple[str, int], offset: int) -> None:
        self.consumer.seek(self.java.key(key), self.java.jvm.java.lang.Long.valueOf(str(offset)))

    def seek_to_beginning(self, keys: Iterable[tuple[str, int]] = ()) -> None:
        self.consumer.seekToBeginning(self.java.keys(keys))

    def seek_to_end(self, keys: Iterable[tuple[str, int]] = ()) -> None:
        self.consumer.seekToEnd(self.java.keys(keys))

    def pause(self, keys: Iterable[tuple[str, int]]) -> None:
        self.consumer.pause(self.java.keys(keys))

    def resume(self, keys: Iterable[tuple[str, int]]) -> None:
        self.consumer.resume(self.java.keys(keys))

    def paused(self) -> set[TopicPartition]:
        return set(_ours(self.consumer.paused()))

    def assignment(self) -> set[TopicPartition]:
        return set(_ours(self.consumer.assignment()))

    def subscription(self) -> set[str]:
        return set(map(str, self.consumer.subscription()))

    def beginning_offsets(self, keys: Iterable[tuple[str, int]]) -> list[int]:
        return sorted(map(int, self.consumer.beginningOffsets(self.java.keys(keys)).values()))

    def end_offsets(self, keys: Iterable[tuple[str, int]]) -> list[int]:
        return sorted(map(int, self.consumer.endOffsets(self.java.keys(keys)).values()))

    def offsets_for_times(self, times: Mapping[tuple[str, int], int]) -> object:
        asked = self.java.jvm.java.util.HashMap()
        for key, at in times.items():
            asked.put(self.java.key(key), at)  # py4j makes a Long of a large number
        return self.consumer.offsetsForTimes(asked)

    def partitions_for(self, topic: str) -> object:
        return self.consumer.partitionsFor(topic)

    def list_topics(self) -> object:
        return self.consumer.listTopics()

    def current_lag(self, key: tuple[str, int]) -> int | None:
        found = self.consumer.currentLag(self.java.key(key))
        return int(found.getAsLong()) if found.isPresent() else None

    def group_metadata(self) -> Any:
        return self.consumer.groupMetadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        self.consumer.enforceRebalance(reason)

    def wakeup(self) -> None:
        self.consumer.wakeup()

    def close(self, timeout: float | None = None) -> None:
        self.consumer.close(*self._in(timeout))


def see(side: Side, program: Callable[..., None], *arguments: Any) -> list[object]:
    """Run a program, and return what it has seen."""
    try:
        program(side, *arguments)
    except BaseException as error:
        error.add_note(f"{type(side).__name__}, {side.protocol}: {side.seen}")
        raise
    finally:
        side.close()
    return side.seen


def check_same(theirs: JavaSide, ours: OursSide, program: Callable[..., None], *arguments: Any) -> list[object]:
    """Run a program with the clients of both libraries at the same time, and check that it sees the same. Return that."""
    with ThreadPoolExecutor(2) as pool:
        expected, found = (pool.submit(see, side, program, *arguments) for side in (theirs, ours))
    assert found.result() == expected.result(), f"{found.result()}\nand Java: {expected.result()}"
    return found.result()


def field(target: Any, name: str) -> Any:
    """Return a hidden field of an object of Java."""
    kind = target.getClass()
    while True:
        found = [one for one in kind.getDeclaredFields() if one.getName() == name]
        if found:
            found[0].setAccessible(True)
            return found[0].get(target)
        kind = kind.getSuperclass()
