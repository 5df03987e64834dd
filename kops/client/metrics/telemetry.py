"""The push of metrics to brokers that ask for them (KIP-714): when to ask for a subscription, what to push, and the last push.

    SUBSCRIPTION_NEEDED -> GetTelemetrySubscriptions -> PUSH_NEEDED -> PushTelemetry -> PUSH_NEEDED ... -> (close) TERMINATING -> TERMINATED

Source: Kafka's ClientTelemetryReporter, ClientTelemetryState, ClientTelemetryUtils, KafkaMetricsCollector. A program's own metrics are
pushed with those of the client (KIP-1076).
A metric that is new since the last push began at that push. Kafka knows the time at which it was added. All values are doubles here.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.metrics.otlp import Point, telemetry_name, telemetry_tags, write_metrics
from kops.errors import ApiError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kops.records.compression import NONE, ZSTD, Compressor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kops.client.metrics.sensors import Metric, MetricName, Metrics
    from kops.protocol.declaration import Message

logger = logging.getLogger("kops.client")
FOREVER: Final = float("inf")
_DEFAULT_INTERVAL_MS: Final = 300_000
_NO_RETRY: Final = ("INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION")
_AT_ONCE: Final = ("UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE")
_NEXT_TIME: Final = ("TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED")
_ALL: Final = ["*"]
_Key = tuple[str, tuple[tuple[str, str], ...]]


class State(Enum):
    """What the client does next."""

    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_NEEDED = auto()
    TERMINATED = auto()


class Subscription(NamedTuple):
    """What a broker has asked for."""

    instance_id: bytes
    subscription_id: int
    interval_ms: int
    codecs: Sequence[int]
    is_delta: bool
    prefixes: Sequence[str]

    def includes(self, name: str) -> bool:
        """Whether the broker wants a metric."""
        return self.prefixes == _ALL or any(name.startswith(prefix) for prefix in self.prefixes)


class Telemetry:
    """The state of the push. `attributes()` describes the client, and `draw()` returns random numbers from 0 up to 1."""

    def __init__(self, metrics: Metrics, attributes: Callable[[], Mapping[str, str]], draw: Callable[[], float], wall_ms: int) -> None:
        self.state = State.SUBSCRIPTION_NEEDED
        self.subscription: Subscription | None = None
        self.is_enabled = True
        self._metrics = metrics
        self._attributes = attributes
        self._draw = draw
        self._due_ms = -FOREVER
        self._was_asked = False
        self._added: dict[MetricName, int] = {}
        self._last: dict[MetricName, tuple[int, float]] = {}
        self._looked_ms = wall_ms
        self._program: dict[_Key, tuple[MetricName, Metric]] = {}
        self._removed: set[_Key] = set()

    def register(self, name: MetricName, metric: Metric, wall_ms: int) -> None:
        """Push a metric of the program, too. One with the same name and tags in OpenTelemetry's format is replaced."""
        self._last.pop(name, None)
        self._added[name] = wall_ms
        self._removed.discard(_key(name))
        self._program[_key(name)] = name, metric

    def unregister(self, name: MetricName) -> None:
        """Push a metric no longer."""
        self._program.pop(_key(name), None)
        self._removed.add(_key(name))
        self._last.pop(name, None)
        self._added.pop(name, None)

    def _wanted(self, subscription: Subscription, now_ms: float) -> Iterator[tuple[MetricName, Metric, float]]:
        program = dict(self._program)
        for name, metric in self._metrics.items():
            if subscription.includes(telemetry_name(name)):
                key = _key(name) if program or self._removed else None
                if key is None or (key not in program and key not in self._removed):
                    yield name, metric, float(metric.measure(now_ms))
        for name, metric in program.values():
            if subscription.includes(telemetry_name(name)):
                value = _measure(name, metric, now_ms)
                if value is not None:
                    yield name, metric, value

    def due_ms(self) -> float:
        """Return the time of the next request. Infinite while one is in flight, and when there will be none."""
        if not self.is_enabled:
            return FOREVER
        if self.state is State.TERMINATING_PUSH_NEEDED:
            return -FOREVER
        return self._due_ms if self.state in (State.SUBSCRIPTION_NEEDED, State.PUSH_NEEDED) else FOREVER

    def request(self, now_ms: float, wall_ms: int) -> Message | None:
        """Return the request that is due, or None. `wall_ms` is the time since the epoch."""
        subscription = self.subscription
        if self.state is State.SUBSCRIPTION_NEEDED:
            self.state = State.SUBSCRIPTION_IN_PROGRESS
            return GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID if subscription is None else subscription.instance_id)
        is_last = self.state is State.TERMINATING_PUSH_NEEDED
        if subscription is None or (self.state is not State.PUSH_NEEDED and not is_last):
            self.is_enabled = False  # it closes before there was a subscription
            return None
        self.state = State.TERMINATED if is_last else State.PUSH_IN_PROGRESS
        data = write_metrics(self._points(subscription, now_ms, wall_ms), self._attributes())
        codec = next(iter(subscription.codecs), NONE)
        if codec != NONE:
            compressor = Compressor(codec)
            compressor.write(data)
            data = compressor.finish()
        return PushTelemetryRequest(subscription.instance_id, subscription.subscription_id, is_last, codec, data)

    def _points(self, subscription: Subscription, now_ms: float, wall_ms: int) -> list[Point]:
        points = []
        for name, metric, measured in self._wanted(subscription, now_ms):
            value, since_ms = measured, None
            if metric.is_sum:
                since_ms = self._added.setdefault(name, self._looked_ms)
                if subscription.is_delta:
                    total = value
                    if name in self._last:
                        since_ms, before = self._last[name]
                        value -= before
                    self._last[name] = wall_ms, total
            points.append(Point(telemetry_name(name), telemetry_tags(name), value, wall_ms, since_ms, subscription.is_delta))
        self._looked_ms = wall_ms
        return points

    def answered(self, answer: Message | ApiError, now_ms: float) -> None:
        """Handle the answer to a request, or its error."""
        self._was_asked = True
        if self.state not in (State.SUBSCRIPTION_IN_PROGRESS, State.PUSH_IN_PROGRESS):
            return  # the client closes
        if isinstance(answer, ApiError):
            self._wait(_DEFAULT_INTERVAL_MS if by_name(answer.name).retriable else None, now_ms)
            return
        assert isinstance(answer, GetTelemetrySubscriptionsResponse | PushTelemetryResponse)
        name = by_code(answer.error_code).name
        interval_ms = -1 if self.subscription is None else self.subscription.interval_ms
        if name in _AT_ONCE:
            self._wait(0, now_ms)
        elif name in _NEXT_TIME:
            self._wait(interval_ms if interval_ms > 0 else _DEFAULT_INTERVAL_MS, now_ms)
        elif name != "NONE":
            if name not in _NO_RETRY:
                logger.error("metrics are not pushed any more, because the broker answers with %s", name)
            self._wait(None, now_ms)
        elif isinstance(answer, GetTelemetrySubscriptionsResponse):
            self._subscribed(answer, now_ms)
        else:
            self.state = State.PUSH_NEEDED
            self._due_ms = now_ms + interval_ms

    def _wait(self, interval_ms: int | None, now_ms: float) -> None:
        """Ask for a subscription again after an error, or never."""
        self.state = State.SUBSCRIPTION_NEEDED
        self.is_enabled = interval_ms is not None
        self._due_ms = now_ms + (interval_ms or 0)

    def _subscribed(self, answer: GetTelemetrySubscriptionsResponse, now_ms: float) -> None:
        if answer.client_instance_id == ZERO_UUID:
            logger.error("metrics are not pushed, because the broker gives the client no instance id")
            self._wait(None, now_ms)
            return
        if self.subscription is not None and self.subscription.is_delta != answer.delta_temporality:
            self._added.clear()
            self._last.clear()
        interval_ms = answer.push_interval_ms if answer.push_interval_ms > 0 else _DEFAULT_INTERVAL_MS
        self.subscription = Subscription(
            answer.client_instance_id,
            answer.subscription_id,
            interval_ms,
            [codec for codec in answer.accepted_compression_types if NONE <= codec <= ZSTD],
            answer.delta_temporality,
            list(answer.requested_metrics),
        )
        if not answer.requested_metrics:
            self.state = State.SUBSCRIPTION_NEEDED
            self._due_ms = now_ms + interval_ms
            return
        self.state = State.PUSH_NEEDED
        self._due_ms = now_ms + round((0.5 + self._draw()) * interval_ms)  # so that clients do not push all at once

    def has_last_push(self) -> bool:
        """Whether a client that closes now pushes once more."""
        has_begun = self.state not in (State.SUBSCRIPTION_NEEDED, State.TERMINATED)
        return self.is_enabled and self._was_asked and has_begun and self.subscription is not None

    def close(self) -> None:
        """The client closes: the next request is the last push, if there is a subscription."""
        self.state = State.TERMINATING_PUSH_NEEDED if self.has_last_push() else State.TERMINATED


def _key(name: MetricName) -> _Key:
    """Return what tells metrics apart in a push (Kafka's MetricKey)."""
    return telemetry_name(name), tuple(sorted((key.lower().replace("-", "_"), value) for key, value in name.tags))


def _measure(name: MetricName, metric: Metric, now_ms: float) -> float | None:
    """Return the value of a program's metric, None if its code fails, or if it is no number."""
    try:
        value: object = metric.measure(now_ms)
    except Exception:
        logger.exception("the metric %s of %s can't be measured", name.name, name.group)
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
