"""Sensors: windows that are left behind, totals, and the names of metrics."""

from __future__ import annotations

import math

from kops.client.metrics.sensors import MetricName, Metrics, Stat, average, count_meter, meter


def test_values_cover_the_last_windows() -> None:
    metrics = Metrics("me", samples=2, window_ms=1000)
    sensor = metrics.sensor("g", {**average("a"), **meter("m"), **count_meter("c"), "low": Stat.MIN})

    def value(name: str, now_ms: float) -> float:
        return metrics.values(now_ms)[metrics.name("g", name)]

    assert math.isnan(value("a-avg", 0))
    assert value("m-rate", 0) == 0
    sensor.record(10, 0)
    sensor.record(20, 500)
    assert (value("a-avg", 500), value("a-max", 500), value("low", 500)) == (15, 20, 10)
    assert value("m-rate", 500) == 30 / 1.5  # one whole window besides the one that has begun
    sensor.record(1, 1500)
    assert value("low", 2400) == 1
    assert value("a-max", 2600) == 1  # the first window is over for two windows
    assert (value("m-total", 9000), value("c-total", 9000)) == (31, 3)
    assert math.isnan(value("a-avg", 9000))


def test_names_and_tags() -> None:
    metrics = Metrics("me")
    metrics.gauge("g", "x", lambda now_ms: now_ms, {"topic": "t", "partition": "1"})
    name = MetricName("g", "x", (("client-id", "me"), ("partition", "1"), ("topic", "t")))
    assert metrics.values(7)[name] == 7
    metrics.remove({"topic": "t", "partition": "2"})
    assert name in metrics.values(7)
    metrics.remove({"topic": "t", "partition": "1"})
    assert metrics.values(7) == {MetricName("kafka-metrics-count", "count", (("client-id", "me"),)): 1}
