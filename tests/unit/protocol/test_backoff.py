"""Back-off: Kafka's formula with given random numbers, and a node's attempts."""

from __future__ import annotations

import random

import pytest

from kops.protocol.connections.backoff import ConnectionAttempts, ExponentialBackoff


@pytest.mark.parametrize(("draw", "expected"), [(0.0, [40, 80, 160, 320, 640, 800, 800]), (0.5, [50, 100, 200, 400, 800, 1000, 1000])])
def test_it_doubles_up_to_the_most(draw: float, expected: list[int]) -> None:
    backoff = ExponentialBackoff(50, 1000, lambda: draw)
    assert [backoff.delay_ms(attempts) for attempts in range(7)] == expected


def test_the_jitter_never_goes_above_the_most() -> None:
    rng = random.Random(7)
    backoff = ExponentialBackoff(50, 1000, rng.random)
    delays = [backoff.delay_ms(30) for _ in range(1000)]
    assert max(delays) == 1000
    assert 800 <= min(delays) < 850


@pytest.mark.parametrize(("initial_ms", "max_ms", "expected"), [(50, 50, 50), (100, 20, 20), (0, 1000, 0)])
def test_without_growth(initial_ms: int, max_ms: int, expected: int) -> None:
    assert ExponentialBackoff(initial_ms, max_ms, lambda: 0.99).delay_ms(5) == expected


def attempts() -> ConnectionAttempts:
    return ConnectionAttempts(ExponentialBackoff(50, 1000, lambda: 0.5), ExponentialBackoff(10_000, 30_000, lambda: 0.5))


def test_the_first_attempt_is_made_at_once() -> None:
    node = attempts()
    assert node.delay_ms(0) == 0
    assert node.setup_timeout_ms == 10_000


def test_failed_attempts_wait_longer_and_are_given_more_time() -> None:
    node = attempts()
    seen = []
    for now_ms in range(0, 500_000, 100_000):
        node.connecting(now_ms)
        node.disconnected(now_ms + 10, was_connected=False)
        seen.append((node.delay_ms(now_ms + 10), node.setup_timeout_ms))
    assert seen == [(50, 20_000), (100, 30_000), (200, 30_000), (400, 30_000), (800, 30_000)]
    assert node.delay_ms(400_800) == 10
    assert node.delay_ms(400_811) == 0


def test_a_node_that_answers_starts_anew() -> None:
    node = attempts()
    for now_ms in (0, 1000, 2000):
        node.connecting(now_ms)
        node.disconnected(now_ms, was_connected=False)
    node.connecting(3000)
    node.connected()
    assert node.setup_timeout_ms == 10_000
    node.disconnected(3001, was_connected=True)
    assert node.delay_ms(3001) == 400  # it accepted the connection, but did not send its versions
    node.connecting(4000)
    node.connected()
    node.ready()
    node.disconnected(5000, was_connected=True)
    assert node.delay_ms(5000) == 50
