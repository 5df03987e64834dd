"""How long to wait before trying again: growing, with a random part. Draws are passed in.

Source: Kafka's ExponentialBackoff, and ClusterConnectionStates for when a connection is tried again and how long it may take to set up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MULTIPLIER: Final = 2
_JITTER: Final = 0.2


class ExponentialBackoff:
    """`initial_ms` times `multiplier` to the number of attempts, at most `max_ms`, each time by a factor of 1 ± `jitter`.

    `draw()` gives a number from 0 up to 1. Where `max_ms` is not above `initial_ms` it is always `max_ms`, without jitter.
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
        """How long to wait behind `attempts` failures."""
        if not self._max_exponent:
            return self._initial_ms
        delay_ms = self._initial_ms * self._multiplier ** min(attempts, self._max_exponent)
        factor = 1 - self._jitter + 2 * self._jitter * self._draw() if self._jitter else 1
        return min(int(delay_ms * factor), self._max_ms)


class ConnectionAttempts:
    """One node's failures: when it may be tried again, how long the next attempt may take. Times are ms of a clock that never goes back."""

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
        """How long until a connection may be tried."""
        return max(self._attempt_ms + self._reconnect_ms - now_ms, 0) if self._has_tried else 0

    def connecting(self, now_ms: float) -> None:
        """It is tried now."""
        self._has_tried = True
        self._attempt_ms = now_ms

    def connected(self) -> None:
        """There is a connection; whether the node talks on it is not known yet."""
        self._failed_setups = 0
        self.setup_timeout_ms = self._setup.delay_ms(0)

    def ready(self) -> None:
        """The node has told its versions."""
        self._failed = 0
        self._reconnect_ms = self._reconnect.delay_ms(0)

    def disconnected(self, now_ms: float, *, was_connected: bool) -> None:
        """An attempt has failed, or a connection has ended."""
        self._attempt_ms = now_ms
        self._reconnect_ms = self._reconnect.delay_ms(self._failed)
        self._failed += 1
        self._failed_setups = 0 if was_connected else self._failed_setups + 1
        self.setup_timeout_ms = self._setup.delay_ms(self._failed_setups)
