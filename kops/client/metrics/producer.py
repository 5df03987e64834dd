"""The metrics of a producer.

Source: Kafka's SenderMetricsRegistry, Sender.SenderMetrics, KafkaProducerMetrics, BufferPool, RecordAccumulator. The size of the largest
record of a batch is its size in the batch plus the overhead of a batch. Kafka takes an upper bound, a few bytes more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.client.metrics.sensors import Stat, average, meter
from kops.records.batch import BATCH_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.client.metrics.network import NetworkMetrics
    from kops.client.metrics.sensors import Metrics, Sensor

GROUP: Final = "producer-metrics"
_TOPIC_GROUP: Final = "producer-topic-metrics"
CALLS: Final = (*("flush", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort", "txn-prepare", "metadata-wait"),)


class _Topic:
    __slots__ = ("bytes", "errors", "ratio", "records", "retries")

    def __init__(self, metrics: Metrics, topic: str) -> None:
        tags = {"topic": topic}
        self.records = metrics.sensor(_TOPIC_GROUP, meter("record-send"), tags)
        self.bytes = metrics.sensor(_TOPIC_GROUP, meter("byte"), tags)
        self.ratio = metrics.sensor(_TOPIC_GROUP, {"compression-rate": Stat.AVG}, tags)
        self.retries = metrics.sensor(_TOPIC_GROUP, meter("record-retry"), tags)
        self.errors = metrics.sensor(_TOPIC_GROUP, meter("record-error"), tags)


class ProducerMetrics:
    """Records what a producer sends, by batch and by request. Nothing is recorded for a single record."""

    def __init__(self, metrics: Metrics, network: NetworkMetrics) -> None:
        sensor = metrics.sensor
        self.metrics = metrics
        self._network = network
        self._topics: dict[str, _Topic] = {}
        self._sizes = sensor(GROUP, average("batch-size"))
        self._ratios = sensor(GROUP, {"compression-rate-avg": Stat.AVG})
        self._waits = sensor(GROUP, average("record-queue-time"))
        self._latencies = sensor(GROUP, average("request-latency"))
        self._records = sensor(GROUP, {**meter("record-send"), "records-per-request-avg": Stat.AVG})
        self._retries = sensor(GROUP, meter("record-retry"))
        self._errors = sensor(GROUP, meter("record-error"))
        self._record_sizes = sensor(GROUP, average("record-size"))
        self._splits = sensor(GROUP, meter("batch-split"))
        self._throttles = sensor(GROUP, average("produce-throttle-time"))
        self._memory_waits = sensor(GROUP, {"bufferpool-wait-ratio": Stat.SHARE, "bufferpool-wait-time-ns-total": Stat.TOTAL})
        self._exhausted = sensor(GROUP, meter("buffer-exhausted"))
        self._calls: dict[str, Sensor] = {name: sensor(GROUP, {f"{name}-time-ns-total": Stat.TOTAL}) for name in CALLS}

    def _topic(self, topic: str) -> _Topic:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic(self.metrics, topic)
        return found

    def sent(self, batches: Sequence[tuple[str, int, int, float, int, float]], now_ms: float) -> None:
        """Record the batches of one request: topic, records, size, compression ratio, the largest record, and the time they waited."""
        total = 0
        for topic, count, size, ratio, largest, waited_ms in batches:
            one = self._topic(topic)
            one.records.record(count, now_ms)
            one.bytes.record(size, now_ms)
            one.ratio.record(ratio, now_ms)
            self._sizes.record(size, now_ms)
            self._waits.record(waited_ms, now_ms)
            self._ratios.record(ratio, now_ms)
            self._record_sizes.record(BATCH_OVERHEAD + largest, now_ms)
            total += count
        self._records.record(total, now_ms)

    def answered(self, node_id: int, latency_ms: float, throttle_ms: int, now_ms: float) -> None:
        """Record the response to a Produce request, and how long the broker throttled it."""
        self._latencies.record(latency_ms, now_ms)
        self._network.node(node_id).latency.record(latency_ms, now_ms)
        self._throttles.record(throttle_ms, now_ms)

    def retried(self, topic: str, count: int, now_ms: float) -> None:
        """Record records that are sent again."""
        self._retries.record(count, now_ms)
        self._topic(topic).retries.record(count, now_ms)

    def failed(self, topic: str, count: int, now_ms: float) -> None:
        """Record records that were not written."""
        self._errors.record(count, now_ms)
        self._topic(topic).errors.record(count, now_ms)

    def split(self, now_ms: float) -> None:
        """Record a batch that was too large."""
        self._splits.record(1, now_ms)

    def waited_for_memory(self, wait_ns: int, now_ms: float, *, was_in_vain: bool) -> None:
        """Record a record that had to wait for memory."""
        self._memory_waits.record(wait_ns, now_ms)
        if was_in_vain:
            self._exhausted.record(1, now_ms)

    def called(self, name: str, spent_ns: int, now_ms: float) -> None:
        """Record the time that the program has spent in a call."""
        self._calls[name].record(spent_ns, now_ms)
