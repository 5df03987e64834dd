"""The metrics of a share consumer.

Source: Kafka's ShareFetchMetricsRegistry, ShareFetchMetricsManager, ShareFetchMetricsAggregator, KafkaShareConsumerMetrics,
HeartbeatMetricsManager, ShareRebalanceMetricsManager. kops's share consumer has no queues of events, so it has no metrics of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.metrics.consumer import FetchedParts, PollMetrics, seconds_ago
from kops.client.metrics.sensors import Stat, average, count_meter, meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.client.metrics.sensors import Metrics
    from kops.records.log_offsets import TopicPartition

GROUP: Final = "consumer-share-metrics"
FETCH_GROUP: Final = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-share-coordinator-metrics"
_HEARTBEAT: Final = "ShareGroupHeartbeat"
_FETCHES: Final = ("ShareFetch", "ShareAcknowledge")


class ShareMetrics(PollMetrics):
    """Records what a share consumer does. `now_ms()` is its clock."""

    def __init__(self, metrics: Metrics, now_ms: Callable[[], float]) -> None:
        super().__init__(metrics, GROUP)
        sensor = metrics.sensor
        self._now_ms = now_ms
        self._throttles = sensor(FETCH_GROUP, average("fetch-throttle-time"))
        self._bytes = sensor(FETCH_GROUP, {**average("fetch-size"), **meter("bytes-consumed")})
        self._records = sensor(FETCH_GROUP, {**average("records-per-request"), **meter("records-consumed")})
        self._latencies = sensor(FETCH_GROUP, {**average("fetch-latency"), **count_meter("fetch")})
        self._sent = sensor(FETCH_GROUP, meter("acknowledgements-send"))
        self._failed = sensor(FETCH_GROUP, meter("acknowledgements-error"))
        self._beats = sensor(COORDINATOR_GROUP, {"heartbeat-response-time-max": Stat.MAX, **count_meter("heartbeat")})
        self._rebalances = sensor(COORDINATOR_GROUP, {"rebalance-total": Stat.COUNT, "rebalance-rate-per-hour": Stat.HOURLY})
        self._last_beat_ms: float | None = None
        metrics.gauge(COORDINATOR_GROUP, "last-heartbeat-seconds-ago", lambda now_ms: seconds_ago(self._last_beat_ms, now_ms))

    # fetches and acknowledgements

    def parts(self, keys: Iterable[TopicPartition]) -> FetchedParts:
        """Return the record of a new fetch response."""
        return FetchedParts(self, keys)

    def consumed(self, size: int, records: int, topics: dict[str, list[int]]) -> None:
        """Record a fetch response whose records the program has. There are no metrics of topics."""
        now_ms = self._now_ms()
        self._bytes.record(size, now_ms)
        self._records.record(records, now_ms)

    def acknowledging(self, count: int) -> None:
        """Record acknowledgements that are sent for the first time."""
        self._sent.record(count, self._now_ms())

    def not_acknowledged(self, count: int) -> None:
        """Record acknowledgements that failed."""
        self._failed.record(count, self._now_ms())

    # requests

    def asked(self, name: str, now_ms: float) -> None:
        """Take note of a request, by the name of its API."""
        if name == _HEARTBEAT:
            self._last_beat_ms = now_ms

    def answered(self, name: str, latency_ms: float, throttle_ms: int, now_ms: float, *, is_good: bool) -> bool:
        """Record a response, by the name of its API. Returns whether its latency is one of the node's."""
        self._throttles.record(throttle_ms, now_ms)
        if name == _HEARTBEAT:
            self._beats.record(latency_ms, now_ms)
        is_fetch = name in _FETCHES and is_good
        if is_fetch:
            self._latencies.record(latency_ms, now_ms)
        return is_fetch

    def rebalanced(self) -> None:
        """Record the end of a rebalance."""
        self._rebalances.record(1, self._now_ms())
