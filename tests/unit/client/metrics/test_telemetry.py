"""When a client asks for a subscription and pushes, by the answers of the broker (KIP-714)."""

from __future__ import annotations

from typing import Any

import pytest

from kops.client.metrics.sensors import Metric, MetricName, Metrics, Stat
from kops.client.metrics.telemetry import FOREVER, State, Telemetry
from kops.errors import ApiError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

INSTANCE = b"i" * 16
WALL_MS = 1_700_000_000_000


def made(draw: float = 0.5) -> Telemetry:
    metrics = Metrics("me")
    metrics.sensor("producer-metrics", {"record-send-total": Stat.TOTAL}).record(5, 0)
    return Telemetry(metrics, dict, lambda: draw, WALL_MS)


def subscription(**changes: Any) -> GetTelemetrySubscriptionsResponse:
    given = {"client_instance_id": INSTANCE, "subscription_id": 3, "push_interval_ms": 1000, "requested_metrics": ["*"]}
    return GetTelemetrySubscriptionsResponse(**{**given, **changes})


def subscribed(draw: float = 0.5, **changes: Any) -> Telemetry:
    telemetry = made(draw)
    assert isinstance(telemetry.request(0, WALL_MS), GetTelemetrySubscriptionsRequest)
    telemetry.answered(subscription(**changes), 0)
    return telemetry


def pushed(telemetry: Telemetry) -> PushTelemetryRequest:
    request = telemetry.request(telemetry.due_ms(), WALL_MS + 500)
    assert isinstance(request, PushTelemetryRequest)
    return request


@pytest.mark.parametrize("draw, first_ms", [(0.0, 500), (0.5, 1000), (0.99, 1490)])
def test_the_first_push_has_a_random_delay(draw: float, first_ms: int) -> None:
    telemetry = subscribed(draw)
    assert telemetry.due_ms() == first_ms
    pushed(telemetry)
    assert telemetry.due_ms() == FOREVER  # in flight
    telemetry.answered(PushTelemetryResponse(), 2000)
    assert telemetry.due_ms() == 3000


@pytest.mark.parametrize("name, later_ms", [
    ("UNKNOWN_SUBSCRIPTION_ID", 0), ("UNSUPPORTED_COMPRESSION_TYPE", 0), ("TELEMETRY_TOO_LARGE", 1000),
    ("THROTTLING_QUOTA_EXCEEDED", 1000), ("INVALID_REQUEST", None), ("INVALID_RECORD", None), ("UNKNOWN_SERVER_ERROR", None),
])  # fmt: skip
def test_errors_of_a_push(name: str, later_ms: int | None) -> None:
    telemetry = subscribed()
    pushed(telemetry)
    telemetry.answered(PushTelemetryResponse(error_code=by_name(name).code), 5000)
    assert telemetry.due_ms() == (FOREVER if later_ms is None else 5000 + later_ms)
    if later_ms is not None:
        request = telemetry.request(9000, WALL_MS)
        assert isinstance(request, GetTelemetrySubscriptionsRequest)
        assert request.client_instance_id == INSTANCE  # it stays the same


def test_a_lost_answer_is_asked_for_later_and_an_old_broker_never() -> None:
    telemetry = made()
    telemetry.request(0, WALL_MS)
    telemetry.answered(ApiError("NETWORK_EXCEPTION"), 10)
    assert telemetry.due_ms() == 300_010
    telemetry.request(300_010, WALL_MS)
    telemetry.answered(ApiError("UNSUPPORTED_VERSION"), 300_020)
    assert telemetry.due_ms() == FOREVER


def test_no_metrics_and_no_instance() -> None:
    assert subscribed(requested_metrics=[]).due_ms() == 1000
    assert subscribed(push_interval_ms=0, requested_metrics=[]).due_ms() == 300_000
    assert subscribed(client_instance_id=ZERO_UUID).due_ms() == FOREVER


def test_the_last_push() -> None:
    telemetry = subscribed()
    telemetry.close()
    request = telemetry.request(telemetry.due_ms(), WALL_MS)
    assert isinstance(request, PushTelemetryRequest)
    assert request.terminating
    assert telemetry.due_ms() == FOREVER
    for never in (made(), subscribed(requested_metrics=[])):
        never.close()
        assert never.state is State.TERMINATED
        assert never.due_ms() == FOREVER


def test_closed_while_the_first_answer_is_awaited() -> None:
    telemetry = made()
    telemetry.request(0, WALL_MS)
    telemetry.close()
    telemetry.answered(subscription(), 10)
    assert telemetry.due_ms() == FOREVER


def test_unknown_codecs_are_ignored() -> None:
    assert pushed(subscribed(accepted_compression_types=[9, -1, 1])).compression_type == 1
    assert pushed(subscribed(accepted_compression_types=[9])).compression_type == 0


def test_metrics_of_the_program() -> None:
    """Registered again, a sum begins again. What can't be measured, or is no number, is left out of the push."""
    telemetry = subscribed(delta_temporality=True, requested_metrics=["org.apache.kafka.shop."])
    sales = MetricName("shop-metrics", "Sales-Total", (("Till-Nr", "1"),))
    total = [5.0]
    telemetry.register(sales, Metric(lambda now_ms: total[0], is_sum=True), WALL_MS)
    telemetry.register(MetricName("elsewhere", "x", ()), Metric(lambda now_ms: 1), WALL_MS)
    text: Any = "open"
    telemetry.register(MetricName("shop", "state", ()), Metric(lambda now_ms: text), WALL_MS)
    telemetry.register(MetricName("shop", "broken", ()), Metric(lambda now_ms: 1 / 0), WALL_MS)
    subscription = telemetry.subscription
    assert subscription is not None

    def points(wall_ms: int) -> list[tuple[str, float, int | None]]:
        found = telemetry._points(subscription, 0, wall_ms)
        assert all(one.tags == {"till_nr": "1"} for one in found)
        return [(one.name, one.value, one.since_ms) for one in found]

    name = "org.apache.kafka.shop.sales.total"
    assert points(WALL_MS + 10) == [(name, 5.0, WALL_MS)]
    total[0] = 7.0
    assert points(WALL_MS + 20) == [(name, 2.0, WALL_MS + 10)]
    telemetry.register(sales, Metric(lambda now_ms: total[0], is_sum=True), WALL_MS + 25)
    assert points(WALL_MS + 30) == [(name, 7.0, WALL_MS + 25)]
    telemetry.unregister(sales)
    assert points(WALL_MS + 40) == []
