"""Delays before retries, which grow and have a random part. The caller supplies the random numbers.

Source: Kafka's ExponentialBackoff, and ClusterConnectionStates for reconnect delays and the time-outs of connection set-up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MULTIPLIER: Final = 2
_JITTER: Final = 0.2


class ExponentialBackoff:
    """`initial_ms` * `multiplier` ** attempts, at most `max_ms`, times a random factor of 1 ± `jitter`.

    `draw()` returns a number from 0 to below 1. If `max_ms` is not above `initial_ms`, the delay is always `max_ms`, without jitter.
    """

    __slots__ = ("_draw", "_initial_ms", "_jitter", "_max_exponent", "_max_ms", "_multiplier")

    def __init__(
        self, initial_ms: int, max_ms: int, draw: Callable[[], float], *, multiplier: int = _MULTIPLIER, jitter: float = _JITTER
    ) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._jitter = jitter
        self._draw = draw
        self._max_exponent = math.log(max_ms / max(initial_ms, 1)) / math.log(multiplier) if max_ms > initial_ms else 0.0

    def delay_ms(self, attempts: int) -> int:
        """Return the delay after `attempts` failures."""
        if not self._max_exponent:
            return self._initial_ms
        delay_ms = self._initial_ms * self._multiplier ** min(attempts, self._max_exponent)
        factor = 1 - self._jitter + 2 * self._jitter * self._draw() if self._jitter else 1
        return min(int(delay_ms * factor), self._max_ms)


class ConnectionAttempts:
    """The failures of one node: when it may be tried again, and how long the next attempt may take. Times are ms of a monotonic clock."""

    __slots__ = ("_attempt_ms", "_failed", "_failed_setups", "_has_tried", "_reconnect", "_reconnect_ms", "_setup", "setup_timeout_ms")

    def __init__(self, reconnect: ExponentialBackoff, setup: ExponentialBackoff) -> None:
        self._reconnect = reconnect
        self._setup = setup
        self._has_tried = False
        self._attempt_ms = 0.0
        self._failed = self._failed_setups = 0
        self._reconnect_ms = reconnect.delay_ms(0)
        self.setup_timeout_ms = setup.delay_ms(0)

    def delay_ms(self, now_ms: float) -> float:
        """Return the time until a connection may be tried."""
        return max(self._attempt_ms + self._reconnect_ms - now_ms, 0) if self._has_tried else 0

    def connecting(self, now_ms: float) -> None:
        """Record that a connection is being tried."""
        self._has_tried = True
        self._attempt_ms = now_ms

    def connected(self) -> None:
        """Record that the connection is established. Whether the node answers is not known yet."""
        self._failed_setups = 0
        self.setup_timeout_ms = self._setup.delay_ms(0)

    def ready(self) -> None:
        """Record that the node has sent its versions."""
        self._failed = 0
        self._reconnect_ms = self._reconnect.delay_ms(0)

    def disconnected(self, now_ms: float, *, was_connected: bool) -> None:
        """Record that an attempt has failed or a connection has ended."""
        self._attempt_ms = now_ms
        self._reconnect_ms = self._reconnect.delay_ms(self._failed)
        self._failed += 1
        self._failed_setups = 0 if was_connected else self._failed_setups + 1
        self.setup_timeout_ms = self._setup.delay_ms(self._failed_setups)
