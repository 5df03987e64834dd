"""Producers of both libraries with the same calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

import kops
from kops.client.producer.core.batches import RecordMetadata
from tests.support.kafka.both.pinned import Caused, PinnedJvm, Proxy, name_of
from tests.support.kafka.both.sides import SERDES, JavaSide, OursSide, Side, attempt, field


class Future:
    """The future of a record, of either library."""

    def __init__(self, get: Any) -> None:
        self._get = get

    def outcome(self, timeout: float = 30) -> str:
        """Return the record's partition and offset, or the name of its error."""
        return attempt(lambda: self._get(timeout))


def place_of(metadata: Any) -> str:
    """Return partition and offset."""
    if metadata is None:
        return "-"
    if isinstance(metadata, RecordMetadata):
        return f"{metadata.partition}@{metadata.offset}"
    return f"{metadata.partition()}@{metadata.offset()}"


def producer_of(side: Side, **settings: Any) -> Any:
    """Return a producer. `interceptor`, `partitioner` and `serializer` are objects of Python."""
    given = {"bootstrap.servers": side.servers, **{name.replace("_", "."): value for name, value in settings.items()}}
    if isinstance(side, JavaSide):
        return side.keep(JavaProducer(side.java, given))
    assert isinstance(side, OursSide)
    return side.keep(OursProducer(given))


class OursProducer:
    """A kops.Producer."""

    def __init__(self, settings: dict[str, Any]) -> None:
        interceptor, partitioner = settings.pop("interceptor", None), settings.pop("partitioner", None)
        serializer = settings.pop("serializer", None)
        if interceptor is not None:
            settings["interceptor.classes"] = [_OursInterceptor(interceptor)]
        if partitioner is not None:
            settings["partitioner.class"] = lambda topic, key, value, available, count: partitioner(count)
        if serializer is not None:
            settings["value.serializer"] = serializer
        self.producer = kops.Producer(settings)

    def send(self, topic: str, value: Any, *, partition: int | None = None, on_delivery: Any = None) -> Future:
        """Send a record."""
        told = None if on_delivery is None else lambda metadata, error: on_delivery(place_of(metadata), name_of(error))
        future = self.producer.send(topic, value, partition=partition, on_delivery=told)
        return Future(lambda timeout: place_of(future.result(timeout)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.producer, name)


class _OursInterceptor:
    def __init__(self, interceptor: Any) -> None:
        self.interceptor = interceptor

    def on_send(self, record: Any) -> Any:
        self.interceptor.on_send()
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.interceptor.on_acknowledgement(name_of(error))

    def close(self) -> None:
        self.interceptor.close()


def _interceptor(interceptor: Any) -> Proxy:
    def on_send(record: Any) -> Any:
        interceptor.on_send()
        return record

    return Proxy(
        "clients.producer.ProducerInterceptor",
        onSend=on_send,
        onAcknowledgement=lambda metadata, error, *headers: interceptor.on_acknowledgement(name_of(error)),
        close=interceptor.close,
    )


def _callback(callback: Any) -> Proxy:
    def on_completion(metadata: Any, error: Any) -> None:
        callback("-" if error is not None else place_of(metadata), name_of(error))

    return Proxy("clients.producer.Callback", onCompletion=on_completion)


def _partitioner(partitioner: Any) -> Proxy:
    def partition(topic: Any, key: Any, key_data: Any, value: Any, data: Any, cluster: Any) -> Any:
        return partitioner(int(cluster.partitionCountForTopic(topic)))

    return Proxy("clients.producer.Partitioner", partition=partition)


def _serializer(function: Any) -> Proxy:
    return Proxy("common.serialization.Serializer", serialize=lambda topic, *given: function(bytes(given[-1])))


class JavaProducer:
    """A KafkaProducer."""

    def __init__(self, java: PinnedJvm, settings: dict[str, Any]) -> None:
        self.java = java
        interceptor, partitioner = settings.pop("interceptor", None), settings.pop("partitioner", None)
        serializer = settings.pop("serializer", None)
        names = {f"{one}.serializer": f"{SERDES}Serializer" for one in ("key", "value")}
        made = java.properties({**names, **settings})
        if serializer is None:
            self.producer = java.new("clients.producer.KafkaProducer", made)
        else:
            key = java.new("common.serialization.ByteArraySerializer")
            self.producer = java.new("clients.producer.KafkaProducer", made, key, _serializer(serializer))
        wrap = java.named("org.apache.kafka.common.internals.Plugin").wrapInstance
        if interceptor is not None:
            plugin = wrap(_interceptor(interceptor), None, "interceptor.classes")
            field(field(self.producer, "interceptors"), "interceptorPlugins").add(plugin)
        if partitioner is not None:
            plugin = wrap(_partitioner(partitioner), None, "partitioner.class")
            set_field(self.producer, "partitionerPlugin", plugin)

    def send(self, topic: str, value: Any, *, partition: int | None = None, on_delivery: Any = None) -> Future:
        """Send a record."""
        number = None if partition is None else partition
        record = self.java.new("clients.producer.ProducerRecord", topic, number, None, value)
        sent = self.producer.send(record) if on_delivery is None else self.producer.send(record, _callback(on_delivery))
        seconds = self.java.jvm.java.util.concurrent.TimeUnit.SECONDS

        def get(timeout: float) -> str:
            try:
                return place_of(sent.get(int(timeout), seconds))
            except Py4JJavaError as error:
                cause = error.java_exception.getCause()
                if cause is None:
                    raise
                raise Caused(cause) from error

        return Future(get)

    def flush(self) -> None:
        self.producer.flush()

    def close(self, timeout: float | None = None) -> None:
        self.producer.close(*([] if timeout is None else [self.java.millis(timeout)]))

    def partitions_for(self, topic: str) -> int:
        return int(self.producer.partitionsFor(topic).size())

    def init_transactions(self) -> None:
        self.producer.initTransactions()

    def begin_transaction(self) -> None:
        self.producer.beginTransaction()

    def commit_transaction(self) -> None:
        self.producer.commitTransaction()

    def abort_transaction(self) -> None:
        self.producer.abortTransaction()

    def send_offsets_to_transaction(self, offsets: Mapping[tuple[str, int], int], group: Any) -> None:
        made = self.java.jvm.java.util.HashMap()
        for key, offset in offsets.items():
            made.put(self.java.key(key), self.java.new("clients.consumer.OffsetAndMetadata", offset))
        given = self.java.new("clients.consumer.ConsumerGroupMetadata", group) if isinstance(group, str) else group
        self.producer.sendOffsetsToTransaction(made, given)


def set_field(target: Any, name: str, value: Any) -> None:
    """Set a hidden field of an object of Java."""
    found = target.getClass().getDeclaredField(name)
    found.setAccessible(True)
    found.set(target, value)
