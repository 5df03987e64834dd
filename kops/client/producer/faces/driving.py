"""Shared by the faces of the producer: the connections, one turn, callbacks, and the checks of a program's arguments.

Source: Kafka's KafkaProducer (constructor, AppendCallbacks), ProducerInterceptors.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.client.errors import SerializationError
from kops.client.faces.driving import client_metrics, network_settings, shielded
from kops.client.faces.pushing import Pusher
from kops.client.metrics.network import NetworkMetrics
from kops.client.metrics.producer import GROUP, ProducerMetrics
from kops.client.network import NetworkClient
from kops.client.producer.core.producer import ProducerCore
from kops.client.producer.options import ProducerOptions
from kops.client.producer.partitioners import RoundRobinPartitioner
from kops.client.producer.serializers import find_serializer
from kops.client.settings import is_text, parse_addresses
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.client.producer.core._hot_records import Delivery
    from kops.client.producer.core.batches import ProducerBatch, RecordMetadata
    from kops.client.producer.core.links import Outgoing
    from kops.client.producer.core.producer import Partitioner
    from kops.protocol.declaration import Message
    from kops.records.record import Header

logger = logging.getLogger("kops.client")
OnDelivery = Callable[["RecordMetadata | None", "BaseException | None"], object]
Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
_numbers = itertools.count(1)
_ROUND_ROBIN: Final = ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round_robin")


class ProducerRecord(NamedTuple):
    """A record before it is serialized, as interceptors see it."""

    topic: str
    value: Any
    key: Any
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int | None


class Driver:
    """A core with its connections. `lock` guards the core."""

    def __init__(self, given: Mapping[str, object], lock: AbstractContextManager[Any]) -> None:
        self.options = ProducerOptions.of(given)
        values = self.options.values
        self.serialize_key = find_serializer(values["key.serializer"])
        self.serialize_value = find_serializer(values["value.serializer"])
        self.interceptors = [_instance(one) for one in _as_list(values["interceptor.classes"])]
        self.lock = lock
        self.client_id = str(values["client.id"]) if "client.id" in given else f"producer-{next(_numbers)}"
        settings = network_settings(values, self.client_id)
        bootstrap = parse_addresses(settings.bootstrap_servers)
        partitioner = _partitioner(values["partitioner.class"])
        self.all_metrics = client_metrics(values, self.client_id)
        network_metrics = NetworkMetrics(self.all_metrics, "producer")
        self.metrics = ProducerMetrics(self.all_metrics, network_metrics)
        self.network = NetworkClient(settings, warn=logger.warning, metrics=network_metrics)
        self.answers = 0  # how many requests have ended
        self.core = ProducerCore(self.options, bootstrap, self.network, random.random, partitioner, self.metrics)
        self._add_gauges()
        labels = {"transactional_id": self.options.transactional_id, "client_rack": given.get("client.rack")}
        self.pusher = Pusher(values, self.all_metrics, self.network, self._nodes, lambda: labels, self._count_answer)

    def _add_gauges(self) -> None:
        gauge, core, pool = self.all_metrics.gauge, self.core, self.core.accumulator.pool
        gauge(GROUP, "requests-in-flight", lambda now_ms: sum(map(self.network.load, core.metadata.cluster.nodes.values())))
        gauge(GROUP, "metadata-age", lambda now_ms: core.metadata.age_ms(now_ms) / 1000)
        gauge(GROUP, "buffer-total-bytes", lambda now_ms: pool.total)
        gauge(GROUP, "buffer-available-bytes", lambda now_ms: pool.available)
        gauge(GROUP, "waiting-threads", lambda now_ms: len(pool.waiters))

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Record the time that the program spends in a call."""
        started_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.metrics.called(call, time.perf_counter_ns() - started_ns, self.network.now_ms())

    def turn(self) -> float:
        """Send the requests that are due. Returns the maximum time until the next turn in ms."""
        with self.lock:
            requests, wait_ms = self.core.turn(self.network.now_ms())
        for request in requests:
            self._send(request)
        return min(wait_ms, self.pusher.turn())

    def _count_answer(self) -> None:
        self.answers += 1

    def _nodes(self) -> Iterable[Node]:
        return self.core.metadata.cluster.nodes.values()

    def _send(self, request: Outgoing) -> None:
        def done(answer: Message | ApiError) -> None:
            self.answers += 1
            with self.lock:
                request.answered(answer, self.network.now_ms())

        self.network.send(request.node, request.message, done, versions=request.versions, expects_response=request.expects_response)

    def take_finished(self) -> list[ProducerBatch]:
        """Call the callbacks of batches with a new outcome, and return these batches."""
        with self.lock:
            finished = self.core.take_finished()
        for batch in finished:
            for delivery in batch.take_watched():
                call_back(delivery)
        return finished

    def reason(self) -> str:
        """Return why the cluster has not answered yet, or an empty text."""
        if self.network.has_answer:
            return ""
        nodes = self.core.metadata.cluster.nodes.values()
        return "; ".join(f"no answer from {node.address}: {self.network.reason(node)}" for node in nodes)

    # records

    def intercept(self, record: ProducerRecord) -> ProducerRecord:
        """Let interceptors change a record. One that fails is logged and skipped."""
        for one in self.interceptors:
            record = shielded(one.on_send, record, what="an interceptor (on_send)") or record
        return record

    def acknowledged(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """Pass the outcome of a record to the interceptors."""
        for one in self.interceptors:
            shielded(one.on_acknowledgement, metadata, error, what="an interceptor (on_acknowledgement)")

    def observer(self, on_delivery: OnDelivery | None) -> Callable[[Delivery], object] | None:
        """Return the callback of a delivery, which calls the interceptors and then the program's own callback."""
        if not self.interceptors:
            return None if on_delivery is None else lambda delivery: on_delivery(*outcome(delivery))

        def tell(delivery: Delivery) -> None:
            metadata, error = outcome(delivery)
            self.acknowledged(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return tell

    def serialize(self, topic: str, headers: Sequence[Header], key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Return the bytes of a record's key and value. Raises SerializationError with the name of the setting."""
        setting = "key.serializer"
        try:
            data = self.serialize_key(topic, headers, key)
            setting = "value.serializer"
            return data, self.serialize_value(topic, headers, value)
        except SerializationError as error:
            if type(error) is not SerializationError:  # a program's own
                raise
            raise SerializationError(f"{setting}: {error}") from error

    def close_helpers(self) -> None:
        """Close serializers, interceptors and the partitioner that have a method `close`."""
        values = self.options.values
        for one in (*self.interceptors, *(values[name] for name in ("key.serializer", "value.serializer", "partitioner.class"))):
            close = None if one is None or isinstance(one, type | str) else getattr(one, "close", None)
            if callable(close):
                shielded(close, what=f"{self.client_id}: closing a helper")


def outcome(delivery: Delivery) -> tuple[RecordMetadata | None, BaseException | None]:
    """Return the place of a record, or its error."""
    error = delivery.exception()
    return (delivery.metadata(), None) if error is None else (None, error)


def call_back(delivery: Delivery) -> None:
    """Call the callbacks of a delivery, each once. One that fails is logged."""
    for callback in delivery.take_callbacks():
        shielded(callback, delivery, what="a callback")


def freeze_headers(headers: Headers) -> tuple[Header, ...]:
    """Return headers as immutable pairs. Raises UsageError."""
    if not headers:
        return ()
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        is_pair = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], bytes | None)
        if not is_pair or not is_text(pair[0]):
            raise UsageError(f"headers: {pair!r} is not a pair of text and bytes")
    return pairs


def check_place(topic: object, partition: int | None, timestamp: int | None) -> None:
    """Raise UsageError for an invalid topic, partition or timestamp of a record."""
    if not is_text(topic) or not topic:
        raise UsageError(f"{topic!r} is not the name of a topic")
    if partition is not None and not (isinstance(partition, int) and 0 <= partition < 1 << 31):
        raise UsageError(f"partition={partition!r}: not allowed; allowed: 0 to 2^31 - 1")
    if timestamp is not None and not (isinstance(timestamp, int) and 0 <= timestamp < 1 << 63):
        raise UsageError(f"timestamp={timestamp!r}: not allowed; allowed: ms since the epoch, 0 to 2^63 - 1")


def now_ms() -> int:
    """Return the time of a record without a timestamp, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def _as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _instance(one: object) -> Any:
    if isinstance(one, str):
        raise UsageError(f"interceptor.classes={one}: the name of a class; allowed: classes and objects of Python")
    return one() if isinstance(one, type) else one


def _partitioner(given: object) -> Partitioner | None:
    if given is None:
        return None
    if given in _ROUND_ROBIN:
        return RoundRobinPartitioner()
    found: Any = given() if isinstance(given, type) else given
    if isinstance(found, str) or not callable(found):
        raise UsageError(f"partitioner.class={given!r}: allowed: round_robin, or a function of topic, key, value, available and count")
    partitioner: Partitioner = found
    return partitioner
