"""The metrics of a consumer.

Source: Kafka's FetchMetricsRegistry, FetchMetricsManager, FetchMetricsAggregator, KafkaConsumerMetrics, ConsumerCoordinatorMetrics,
GroupCoordinatorMetrics, HeartbeatMetricsManager, RebalanceCallbackMetricsManager. A topic whose name has a dot is also there with
underscores, as in Kafka until 5.0. kops's consumer has no queues of events, so it has no metrics of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kops.client.metrics.sensors import Stat, average, count_meter, meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.client.metrics.sensors import Metrics, Sensor
    from kops.records.log_offsets import TopicPartition

GROUP: Final = "consumer-metrics"
FETCH_GROUP: Final = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-coordinator-metrics"
_LISTENER: Final = {"on_partitions_revoked": "revoked", "on_partitions_assigned": "assigned", "on_partitions_lost": "lost"}


class Consumed(Protocol):
    """The metrics that record what a program has got of a fetch response."""

    def consumed(self, size: int, records: int, topics: dict[str, list[int]]) -> None:
        """Record a fetch response. `topics` has size and records of each topic."""


class FetchedParts:
    """The partitions of one fetch response that the program has not read yet (FetchMetricsAggregator)."""

    __slots__ = ("_bytes", "_left", "_metrics", "_records", "_topics")

    def __init__(self, metrics: Consumed, keys: Iterable[TopicPartition]) -> None:
        self._metrics = metrics
        self._left = set(keys)
        self._bytes = self._records = 0
        self._topics: dict[str, list[int]] = {}

    def drained(self, key: TopicPartition, size: int, records: int) -> None:
        """Take note of a partition that is read. After the last one, record the response."""
        if key not in self._left:
            return
        self._left.discard(key)
        self._bytes += size
        self._records += records
        one = self._topics.setdefault(key.topic, [0, 0])
        one[0] += size
        one[1] += records
        if not self._left:
            self._metrics.consumed(self._bytes, self._records, self._topics)


class PollMetrics:
    """Records the polls of a program."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        self.metrics = metrics
        self._last_poll_ms: float | None = None
        self._poll_started_ms = self._between_ms = 0.0
        self._between = metrics.sensor(group, average("time-between-poll"))
        self._idle = metrics.sensor(group, {"poll-idle-ratio-avg": Stat.AVG})
        metrics.gauge(group, "last-poll-seconds-ago", lambda now_ms: seconds_ago(self._last_poll_ms, now_ms))

    def poll_begins(self, now_ms: float) -> None:
        """Record the beginning of a poll."""
        self._between_ms = 0.0 if self._last_poll_ms is None else now_ms - self._last_poll_ms
        self._between.record(self._between_ms, now_ms)
        self._last_poll_ms = self._poll_started_ms = now_ms

    def poll_ends(self, now_ms: float) -> None:
        """Record the end of a poll."""
        spent_ms = now_ms - self._poll_started_ms
        whole_ms = spent_ms + self._between_ms
        self._idle.record(spent_ms / whole_ms if whole_ms else float("nan"), now_ms)


class ConsumerMetrics(PollMetrics):
    """Records what a consumer does. `now_ms()` is its clock."""

    def __init__(self, metrics: Metrics, now_ms: Callable[[], float], *, is_classic: bool = True) -> None:
        super().__init__(metrics, GROUP)
        sensor = metrics.sensor
        self._now_ms = now_ms
        self._topics: dict[str, list[tuple[Sensor, Sensor]]] = {}
        self._partitions: dict[TopicPartition, list[tuple[Sensor, Sensor]]] = {}
        self._throttles = sensor(FETCH_GROUP, average("fetch-throttle-time"))
        self._bytes = sensor(FETCH_GROUP, {**average("fetch-size"), **meter("bytes-consumed")})
        self._records = sensor(FETCH_GROUP, {"records-per-request-avg": Stat.AVG, **meter("records-consumed")})
        self._latencies = sensor(FETCH_GROUP, {**average("fetch-latency"), **count_meter("fetch")})
        self._lags = sensor(FETCH_GROUP, {"records-lag-max": Stat.MAX})
        self._leads = sensor(FETCH_GROUP, {"records-lead-min": Stat.MIN})
        self._calls = {name: sensor(GROUP, {f"{name}-time-ns-total": Stat.TOTAL}) for name in ("commit-sync", "committed")}
        self._last_beat_ms: float | None = None
        self._rebalance_ms: float | None = None
        self._rebalanced_ms: float | None = None
        self._add_group(metrics, is_classic=is_classic)

    def _add_group(self, metrics: Metrics, *, is_classic: bool) -> None:
        group, sensor = COORDINATOR_GROUP, metrics.sensor
        self._commits = sensor(group, {**average("commit-latency"), **count_meter("commit")})
        self._beats = sensor(group, {"heartbeat-response-time-max": Stat.MAX, **count_meter("heartbeat")})
        self._joins = self._syncs = None
        if is_classic:
            self._joins = sensor(group, {**average("join-time"), **count_meter("join")})
            self._syncs = sensor(group, {**average("sync-time"), **count_meter("sync")})
        counts = {"rebalance-latency-total": Stat.TOTAL, "rebalance-total": Stat.COUNT}
        self._rebalances = sensor(group, {**average("rebalance-latency"), **counts})
        self._hourly = sensor(group, {"rebalance-rate-per-hour": Stat.HOURLY})
        self._failures = sensor(group, {"failed-rebalance-total": Stat.COUNT, "failed-rebalance-rate-per-hour": Stat.HOURLY})
        self._listeners = {method: sensor(group, average(f"partition-{name}-latency")) for method, name in _LISTENER.items()}
        metrics.gauge(group, "last-heartbeat-seconds-ago", lambda now_ms: seconds_ago(self._last_beat_ms, now_ms))
        metrics.gauge(group, "last-rebalance-seconds-ago", lambda now_ms: seconds_ago(self._rebalanced_ms, now_ms))

    # fetches

    def parts(self, keys: Iterable[TopicPartition]) -> FetchedParts:
        """Return the record of a new fetch response."""
        return FetchedParts(self, keys)

    def consumed(self, size: int, records: int, topics: dict[str, list[int]]) -> None:
        """Record a fetch response whose records the program has."""
        now_ms = self._now_ms()
        self._bytes.record(size, now_ms)
        self._records.record(records, now_ms)
        for topic, (topic_size, topic_records) in topics.items():
            for sizes, counts in self._topic(topic):
                sizes.record(topic_size, now_ms)
                counts.record(topic_records, now_ms)

    def _topic(self, topic: str) -> list[tuple[Sensor, Sensor]]:
        found = self._topics.get(topic)
        if found is None:
            sensor = self.metrics.sensor
            found = self._topics[topic] = []
            for name in _names(topic):
                tags = {"topic": name}
                sizes = sensor(FETCH_GROUP, {**average("fetch-size"), **meter("bytes-consumed")}, tags)
                found.append((sizes, sensor(FETCH_GROUP, {"records-per-request-avg": Stat.AVG, **meter("records-consumed")}, tags)))
        return found

    def advanced(self, key: TopicPartition, lag: int | None, lead: int | None) -> None:
        """Record how far a position is from the end and from the beginning of its log."""
        now_ms = self._now_ms()
        sensors = self._partition(key)
        if lag is not None:
            self._lags.record(lag, now_ms)
            for lags, _ in sensors:
                lags.record(lag, now_ms)
        if lead is not None:
            self._leads.record(lead, now_ms)
            for _, leads in sensors:
                leads.record(lead, now_ms)

    def _partition(self, key: TopicPartition) -> list[tuple[Sensor, Sensor]]:
        found = self._partitions.get(key)
        if found is None:
            sensor = self.metrics.sensor
            found = self._partitions[key] = []
            for name in _names(key.topic):
                tags = {"topic": name, "partition": str(key.partition)}
                lags = sensor(FETCH_GROUP, {"records-lag": Stat.LAST, **average("records-lag")}, tags)
                leads = {"records-lead": Stat.LAST, "records-lead-min": Stat.MIN, "records-lead-avg": Stat.AVG}
                found.append((lags, sensor(FETCH_GROUP, leads, tags)))
        return found

    def assigned(self, keys: Iterable[TopicPartition], replica: Callable[[TopicPartition, float], int]) -> None:
        """Keep the metrics of exactly these partitions. `replica` returns the replica that is read instead of the leader, or -1."""
        wanted = set(keys)
        for key in self._partitions.keys() - wanted:
            del self._partitions[key]
            for name in _names(key.topic):
                self.metrics.remove({"topic": name, "partition": str(key.partition)})
        for key in wanted - self._partitions.keys():
            self._partition(key)
            for name in _names(key.topic):
                tags = {"topic": name, "partition": str(key.partition)}
                self.metrics.gauge(FETCH_GROUP, "preferred-read-replica", _replica(replica, key), tags)

    # requests

    def asked(self, name: str, now_ms: float) -> None:
        """Take note of a request, by the name of its API."""
        if name in ("Heartbeat", "ConsumerGroupHeartbeat"):
            self._last_beat_ms = now_ms
        elif name == "JoinGroup" and self._rebalance_ms is None:
            self._rebalance_ms = now_ms

    def answered(self, name: str, latency_ms: float, throttle_ms: int, *, is_good: bool, has_assignment: bool) -> None:
        """Record a response, by the name of its API. `has_assignment` is whether it is the beginning of a reconciliation (KIP-848)."""
        now_ms = self._now_ms()
        if has_assignment:
            self._rebalance_ms = now_ms
        if name == "Fetch":
            self._latencies.record(latency_ms, now_ms)
            self._throttles.record(throttle_ms, now_ms)
        elif name == "OffsetCommit":
            self._commits.record(latency_ms, now_ms)
        elif name in ("Heartbeat", "ConsumerGroupHeartbeat"):
            self._beats.record(latency_ms, now_ms)
        elif name in ("JoinGroup", "SyncGroup") and not is_good:
            self._failures.record(1, now_ms)
        elif name == "JoinGroup" and self._joins is not None:
            self._joins.record(latency_ms, now_ms)
        elif name == "SyncGroup" and self._syncs is not None:
            self._syncs.record(latency_ms, now_ms)
            self.rebalanced()

    def reassigned(self) -> None:
        """Record the end of a reconciliation (KIP-848)."""
        if self._joins is None and self._rebalance_ms is not None:
            self.rebalanced()

    def rebalanced(self) -> None:
        """Record the end of a rebalance."""
        now_ms = self._now_ms()
        started_ms = now_ms if self._rebalance_ms is None else self._rebalance_ms
        self._rebalance_ms = None
        self._rebalanced_ms = now_ms
        self._rebalances.record(now_ms - started_ms, now_ms)
        self._hourly.record(1, now_ms)

    def listened(self, method: str, spent_ms: float) -> None:
        """Record a call of the rebalance listener."""
        self._listeners[method].record(spent_ms, self._now_ms())

    # the program

    def called(self, name: str, spent_ns: int) -> None:
        """Record the time that the program has spent in a call."""
        self._calls[name].record(spent_ns, self._now_ms())


def seconds_ago(then_ms: float | None, now_ms: float) -> float:
    """Return the whole seconds since a time, -1 if it never was."""
    return -1 if then_ms is None else int((now_ms - then_ms) // 1000)


def _names(topic: str) -> list[str]:
    return [topic, topic.replace(".", "_")] if "." in topic else [topic]


def _replica(replica: Callable[[TopicPartition, float], int], key: TopicPartition) -> Callable[[float], float]:
    return lambda now_ms: replica(key, now_ms)
