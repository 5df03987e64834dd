"""Throttled replication: a rate over a window of samples, and the partitions that it applies to.

Sources: Kafka's ReplicationQuotaManager, ReplicaQuota, SimpleRate, Rate, SampledStat, WindowedSum (KIP-73).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kops.records.log_offsets import TopicPartition

ALL_REPLICAS: Final = (-1,)
UNLIMITED: Final = 2**63 - 1


class ReplicaQuota(Protocol):
    """A limit on the bytes of throttled partitions."""

    def record(self, size: int) -> None: ...
    def is_throttled(self, key: TopicPartition) -> bool: ...
    @property
    def is_quota_exceeded(self) -> bool: ...


class UnboundedQuota:
    """No limit."""

    is_quota_exceeded = False

    def record(self, size: int) -> None:
        """Do nothing."""

    def is_throttled(self, key: TopicPartition) -> bool:
        """Return False."""
        return False


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_event_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


class SampledRate:
    """The rate per second: the sum of the last samples divided by the time since the oldest began, which counts as at least one window.

    The samples are a ring with one more than the count, each for `window_ms`. A sample expires when all windows have passed since its last
    value.
    """

    def __init__(self, sample_count: int, window_ms: int) -> None:
        self._sample_count = sample_count
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count a value."""
        sample = self._first(now_ms) if not self._samples else self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def _first(self, now_ms: int) -> _Sample:
        self._samples.append(_Sample(now_ms, now_ms))
        return self._samples[0]

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._sample_count + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> float:
        """Return the rate per second."""
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= self._sample_count * self._window_ms:
                sample.reset(now_ms)
        total = sum(sample.value for sample in self._samples)
        oldest_ms = min((sample.start_ms for sample in self._samples), default=now_ms)
        return total / (max(now_ms - oldest_ms, self._window_ms) / 1000.0)


class ReplicationQuotaManager:
    """The quota of one direction (leader, follower, move between directories). `sample_count` and `window_ms` are
    `replication.quota.window.num` and `replication.quota.window.size.seconds`."""

    def __init__(self, now_ms: Callable[[], int], *, sample_count: int = 11, window_ms: int = 1_000) -> None:
        self._now_ms = now_ms
        self._rate = SampledRate(sample_count, window_ms)
        self._throttled: dict[str, tuple[int, ...]] = {}
        self.upper_bound = UNLIMITED
        """Bytes per second. A manager without a limit has the largest long."""

    def update_quota(self, bytes_per_second: int | None) -> None:
        """Set another limit, or none."""
        self.upper_bound = UNLIMITED if bytes_per_second is None else bytes_per_second

    def mark_throttled(self, topic: str, partitions: Sequence[int] = ALL_REPLICAS) -> None:
        """Throttle partitions of a topic, or all."""
        self._throttled[topic] = tuple(partitions)

    def throttle_as_set(self, topic: str, replicas: Sequence[str], node_id: int) -> None:
        """Throttle this node's replicas that a topic's setting names (`partition:broker` each, or `*` for all), or none without the
        setting."""
        if not replicas:
            self.remove_throttle(topic)
        elif tuple(replicas) == ("*",):
            self.mark_throttled(topic)
        else:
            pairs = (replica.split(":") for replica in replicas)
            self.mark_throttled(topic, [int(partition) for partition, broker in pairs if int(broker) == node_id])

    def remove_throttle(self, topic: str) -> None:
        """Throttle no partition of a topic."""
        self._throttled.pop(topic, None)

    @property
    def has_throttled(self) -> bool:
        """Whether any partition's bytes count."""
        return bool(self._throttled)

    def is_throttled(self, key: TopicPartition) -> bool:
        """Whether the partition's bytes count."""
        partitions = self._throttled.get(key.topic)
        return partitions is not None and (partitions == ALL_REPLICAS or key.partition in partitions)

    def record(self, size: int) -> None:
        """Count bytes."""
        self._rate.record(size, self._now_ms())

    @property
    def is_quota_exceeded(self) -> bool:
        """Whether the rate is above the limit."""
        return self.upper_bound != UNLIMITED and self._rate.measure(self._now_ms()) > self.upper_bound
