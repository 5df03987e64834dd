"""Metrics of a client: sensors that record measurements, and their averages, extremes, rates and totals.

Source: Kafka's Metrics, Sensor, SampledStat, Avg, Max, Min, Rate, Meter, CumulativeSum, MetricConfig. Averages, extremes and rates cover
the last `metrics.num.samples` windows of `metrics.sample.window.ms`. Kafka keeps windows for each value; here all values of a sensor share
them. Times are ms of any clock that does not go back.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.metrics._hot_recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.client.metrics._hot_recording import Window

NAN: Final = float("nan")
_HOUR_MS: Final = 3_600_000


class MetricName(NamedTuple):
    """The name of a metric. `tags` are sorted pairs, such as ("client-id", "producer-1")."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...]


class Stat(Enum):
    """A value of a sensor."""

    AVG = auto()
    MAX = auto()
    MIN = auto()
    RATE = auto()  # what was recorded, by second
    COUNT_RATE = auto()  # how often something was recorded, by second
    HOURLY = auto()  # how often something was recorded, by hour, in windows of an hour
    SHARE = auto()  # nanoseconds that were recorded, by nanosecond
    TOTAL = auto()
    COUNT = auto()
    LAST = auto()


SUMS: Final = frozenset((Stat.TOTAL, Stat.COUNT))
Stats = dict[str, Stat]


def average(name: str) -> Stats:
    """Return the average and the maximum."""
    return {f"{name}-avg": Stat.AVG, f"{name}-max": Stat.MAX}


def meter(name: str) -> Stats:
    """Return the rate and the total of what is recorded."""
    return {f"{name}-rate": Stat.RATE, f"{name}-total": Stat.TOTAL}


def count_meter(name: str) -> Stats:
    """Return the rate and the total of how often something is recorded."""
    return {f"{name}-rate": Stat.COUNT_RATE, f"{name}-total": Stat.COUNT}


class Sensor(Recorder):
    """Records measurements, and measures its values."""

    __slots__ = ()

    def measure(self, stat: Stat, now_ms: float) -> float:
        """Return a value. An average or extreme of nothing is not a number."""
        if stat is Stat.TOTAL:
            return self.total
        if stat is Stat.COUNT:
            return self.count
        if stat is Stat.LAST:
            return self.last
        windows = self._live(now_ms)
        count = sum(window.count for window in windows)
        if stat is Stat.RATE:
            return sum(window.total for window in windows) / self._elapsed_ms(now_ms) * 1000
        if stat is Stat.COUNT_RATE:
            return count / self._elapsed_ms(now_ms) * 1000
        if stat is Stat.HOURLY:
            return count / self._elapsed_ms(now_ms) * _HOUR_MS
        if stat is Stat.SHARE:
            return sum(window.total for window in windows) / self._elapsed_ms(now_ms) / 1_000_000
        if not count:
            return NAN
        if stat is Stat.AVG:
            return sum(window.total for window in windows) / count
        return max(window.highest for window in windows) if stat is Stat.MAX else min(window.lowest for window in windows)

    def _live(self, now_ms: float) -> list[Window]:
        """Empty the windows without a measurement in the time that is covered."""
        for window in self._windows:
            if now_ms - window.last_ms >= self._samples * self._window_ms:
                window.reset(now_ms)
        return self._windows

    def _elapsed_ms(self, now_ms: float) -> float:
        """Return the time that the windows cover, with at least all windows but one."""
        if not self._windows:
            self._advance(now_ms)
        elapsed_ms = now_ms - min(window.start_ms for window in self._windows)
        missing = self._samples - 1 - int(elapsed_ms // self._window_ms)
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)


class Metric(NamedTuple):
    """One metric: what measures it, and whether it only grows."""

    measure: Callable[[float], float]
    is_sum: bool = False


class Metrics:
    """The metrics of a client by their names."""

    def __init__(self, client_id: str, samples: int = 2, window_ms: int = 30_000) -> None:
        self._client_id = ("client-id", client_id)
        self._samples = samples
        self._window_ms = max(window_ms, 1)
        self._metrics: dict[MetricName, Metric] = {}
        self.gauge("kafka-metrics-count", "count", lambda now_ms: len(self._metrics))

    def name(self, group: str, name: str, tags: Mapping[str, str] | None = None) -> MetricName:
        """Return the name of a metric of this client."""
        return MetricName(group, name, tuple(sorted((self._client_id, *(tags or {}).items()))))

    def gauge(self, group: str, name: str, measure: Callable[[float], float], tags: Mapping[str, str] | None = None) -> None:
        """Add a metric that is measured when somebody asks."""
        self._metrics[self.name(group, name, tags)] = Metric(measure)

    def sensor(self, group: str, stats: Stats, tags: Mapping[str, str] | None = None) -> Sensor:
        """Return a new sensor, and add its values."""
        hourly = Stat.HOURLY in stats.values()
        sensor = Sensor(self._samples, _HOUR_MS if hourly else self._window_ms)
        self.also(sensor, group, stats, tags)
        return sensor

    def also(self, sensor: Sensor, group: str, stats: Stats, tags: Mapping[str, str] | None = None) -> None:
        """Add values of a sensor."""
        for name, stat in stats.items():
            self._metrics[self.name(group, name, tags)] = Metric(_measure(sensor, stat), stat in SUMS)

    def remove(self, tags: Mapping[str, str]) -> None:
        """Remove all metrics with exactly these tags."""
        gone = self.name("", "", tags).tags
        for name in [name for name in self._metrics if name.tags == gone]:
            del self._metrics[name]

    def __contains__(self, name: object) -> bool:
        return name in self._metrics

    def items(self) -> list[tuple[MetricName, Metric]]:
        """Return all metrics. Another thread may add some meanwhile."""
        return list(self._metrics.items())

    def values(self, now_ms: float) -> dict[MetricName, float]:
        """Return the values of all metrics."""
        return {name: metric.measure(now_ms) for name, metric in self.items()}


def _measure(sensor: Sensor, stat: Stat) -> Callable[[float], float]:
    return lambda now_ms: sensor.measure(stat, now_ms)
