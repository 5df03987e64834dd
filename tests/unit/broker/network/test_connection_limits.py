"""Limits of connections: counts, the protected listener, rates over Kafka's windows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kops.broker.network.connection_limits import ConnectionLimits, Rate
from kops.broker.network.settings import ListenerSettings, NetworkSettings

CLIENTS, BROKERS = ListenerSettings("CLIENTS"), ListenerSettings("BROKERS")
SETTINGS = NetworkSettings(listeners=(CLIENTS, BROKERS), inter_broker_listener_name="BROKERS")


def limits_of(settings: NetworkSettings, **overrides: int) -> ConnectionLimits:
    return ConnectionLimits(settings, overrides)


def test_an_address_has_its_limit() -> None:
    limits = ConnectionLimits(replace(SETTINGS, max_connections_per_ip=2), {"10.0.0.9": 1, "10.0.0.8": 0})
    for _ in range(2):
        assert not limits.is_full("10.0.0.1")
        limits.add("CLIENTS", "10.0.0.1")
    assert limits.is_full("10.0.0.1")
    assert not limits.is_full("10.0.0.9")
    limits.add("BROKERS", "10.0.0.9")
    assert limits.is_full("10.0.0.9")
    assert limits.is_full("10.0.0.8")
    limits.remove("CLIENTS", "10.0.0.1")
    assert not limits.is_full("10.0.0.1")
    limits.remove("CLIENTS", "10.0.0.1")
    assert (limits.count("10.0.0.1"), limits.total, limits.listener_count("CLIENTS")) == (0, 1, 0)


def test_a_listener_and_the_node_have_their_limits() -> None:
    settings = replace(SETTINGS, listeners=(replace(CLIENTS, max_connections=1), ListenerSettings("OTHERS"), BROKERS), max_connections=2)
    limits = limits_of(settings)
    limits.add("CLIENTS", "a")
    assert not limits.has_slot("CLIENTS")
    assert limits.has_slot("OTHERS")
    limits.add("OTHERS", "a")
    assert not limits.has_slot("OTHERS")
    assert limits.has_slot("BROKERS")
    assert not limits.is_exceeded()
    limits.add("BROKERS", "b")
    assert limits.is_exceeded()
    limits.update(replace(settings, max_connections=3), {})
    assert not limits.is_exceeded()
    limits.add_listener(replace(BROKERS, max_connections=1))
    assert not limits.has_slot("BROKERS")


def test_the_only_listener_is_not_protected() -> None:
    limits = limits_of(replace(SETTINGS, listeners=(BROKERS,), max_connections=1))
    limits.add("BROKERS", "a")
    assert not limits.has_slot("BROKERS")


def test_a_rate_within_its_bound_delays_nothing() -> None:
    rate = Rate(10, window_count=11, window_ms=1000)
    # Over 11 windows of 1 s, with missing windows counted as empty, a rate of 10 per second allows 100 at once.
    assert [rate.record(0) for _ in range(100)] == [0] * 100
    assert rate.record(0) == 100  # (10.1 - 10) / 10 * 10 s
    assert rate.record(0) == 200


def test_a_rate_forgets() -> None:
    rate = Rate(1, window_count=3, window_ms=1000)
    assert [rate.record(0) for _ in range(4)] == [0, 0, 1000, 2000]
    assert rate.record(2999) == round((5 / 2.999 - 1) * 2999)
    assert rate.record(5999) == 0


def test_taking_back() -> None:
    rate = Rate(1, window_count=2, window_ms=1000)
    assert rate.record(0) == 0
    assert rate.record(0) == 1000
    rate.take_back(0)
    rate.take_back(0)
    assert rate.record(0) == 0


def test_the_node_and_its_listeners_have_rates() -> None:
    settings = replace(
        SETTINGS,
        listeners=(replace(CLIENTS, max_connection_creation_rate=3), replace(BROKERS, max_connection_creation_rate=1)),
        max_connection_creation_rate=2,
        quota_window_num=2,
    )
    limits = limits_of(settings)
    assert [limits.delay_ms("CLIENTS", 0) for _ in range(4)] == [0, 0, 500, 1000]
    # Only its own rate counts on the brokers' own listener.
    assert [limits.delay_ms("BROKERS", 0) for _ in range(2)] == [0, 1000]
    # No wait is longer than a window.
    assert [limits.delay_ms("CLIENTS", 0) for _ in range(3)] == [1000] * 3


def test_a_rate_of_none() -> None:
    limits = limits_of(replace(SETTINGS, max_connection_creation_rate=0))
    assert limits.delay_ms("CLIENTS", 0) == 1000


@pytest.mark.parametrize("address", [None, "10.0.0.1"])
def test_an_address_has_a_rate_of_its_own(address: str | None) -> None:
    settings = replace(SETTINGS, max_connection_creation_rate=2, quota_window_num=2)
    limits = limits_of(settings)
    limits.set_address_rate(address, 1)
    assert limits.delay_ms("CLIENTS", 0) == 0
    assert limits.address_delay_ms("CLIENTS", "10.0.0.1", 0) == 0
    for _ in range(5):
        assert limits.delay_ms("CLIENTS", 0) == 0
        assert limits.address_delay_ms("CLIENTS", "10.0.0.1", 0) == 1000
    # Rejected connections do not count.
    assert limits.delay_ms("CLIENTS", 0) == 0
    assert (limits.address_delay_ms("CLIENTS", "10.0.0.2", 0) == 0) and limits.delay_ms("CLIENTS", 0) == 500
    limits.set_address_rate(address, None)
    assert limits.address_delay_ms("CLIENTS", "10.0.0.1", 0) == 0
