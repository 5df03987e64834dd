"""The request metrics: what is kept of short requests, and the errors of answers."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from kops.broker.network.request_metrics import HISTOGRAMS, Histogram, RequestMetrics, request_counts
from kops.protocol.api_keys import BY_NAME
from kops.protocol.connections.connection import Request
from kops.protocol.messages import HeartbeatRequest, HeartbeatResponse, ListGroupsResponse

pytestmark = pytest.mark.hot
PREFIX = "kafka.network:type=RequestMetrics,name="


def request(version: int, size: int) -> Request:
    return Request(BY_NAME["Heartbeat"], version, version, 1, "me", HeartbeatRequest(), size + 10, size)


@pytest.mark.parametrize("count", [1, 100, 127, 128, 129, 3000])
def test_short_requests_count_as_others_do(count: int) -> None:
    """Most requests take less than half a millisecond, and of these only the size is kept. The sums are those of all numbers."""
    rng = random.Random(count)
    metrics = RequestMetrics()
    expected = {name: Histogram() for name in HISTOGRAMS}
    versions: dict[int, int] = {}
    for _ in range(count):
        version, size, now = rng.choice((4, 4, 4, 3)), rng.randrange(20, 40), float(rng.randrange(10**9))
        scale = rng.choice((0.01, 0.01, 0.1, 3.0))
        steps = [rng.random() * scale for _ in range(5)]
        received, started, handled, answered, taken, sent = accumulate((now, *steps))
        throttle_ms = rng.choice((0, 0, 0, 7))
        metrics.note(request(version, size), (received, started, handled, answered, taken, sent), throttle_ms, 0.0, 0)
        versions[version] = versions.get(version, 0) + 1
        elapsed = (started - received, handled - started, answered - handled, throttle_ms, taken - answered, sent - taken, sent - received)
        for name, value in zip(HISTOGRAMS, [int(one + 0.5) for one in elapsed] + [size], strict=True):
            expected[name].update([value])
    told = metrics.histograms()
    exact = ("Count", "Min", "Max", "Mean", "StdDev") if count > 1000 else tuple(expected["TotalTimeMs"].attributes())
    for name, histogram in expected.items():
        attributes = histogram.attributes()
        for attribute in exact:
            key = f"{PREFIX}{name},request=Heartbeat:{attribute}"
            assert told[key] == pytest.approx(attributes[attribute], abs=1e-9), key
    counts = request_counts([metrics])
    assert {version: counts[f"{PREFIX}RequestsPerSec,request=Heartbeat,version={version}"] for version in versions} == versions


def test_the_sample_has_the_last_requests_of_both_kinds() -> None:
    """A tenth of the requests take longer, at any time: so do about a tenth of those of which the percentiles are made."""
    metrics = RequestMetrics()
    for number in range(20_000):
        took_ms = 20.0 if number % 10 == 7 else 0.1
        metrics.note(request(4, 30), (0.0, 0.0, took_ms, took_ms, took_ms, took_ms), 0, 0.0, 0)
        if number > 2000 and number % 37 == 0:
            sample = metrics.by_name["Heartbeat"].histograms["TotalTimeMs"].recent
            assert 0.09 <= sum(1 for one in sample if one) / len(sample) <= 0.11


def test_zeros_after_other_numbers() -> None:
    histogram = Histogram()
    histogram.update([5, 7])
    histogram.update_zeros(2)
    assert (histogram.count, histogram.least, histogram.most, histogram.sum, list(histogram.recent)) == (4, 0, 7, 12, [5, 7, 0, 0])


def test_errors_of_answers_of_different_kinds() -> None:
    metrics = RequestMetrics()
    for message, version in ((HeartbeatResponse(error_code=25), 4), (HeartbeatResponse(), 4), (HeartbeatResponse(), 0)):
        metrics.count_errors("Heartbeat", message, version)
    metrics.count_errors("Heartbeat", ListGroupsResponse(error_code=15), 4)
    metrics.count_errors("Heartbeat", HeartbeatResponse(error_code=25), 4)
    assert metrics.by_name["Heartbeat"].errors == {25: 2, 0: 2, 15: 1}
