"""When the next heartbeat or the next search for the coordinator may be sent: interval, pause after failures, one request at a time.

Source: Kafka's RequestState, HeartbeatRequestState and Timer. As there, the time of a timer advances only when it is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RequestState:
    """Whether a request of one kind is under way, and how long to wait after a failure. `backoff_ms(failures)` is the pause."""

    __slots__ = ("_attempts", "_backoff_ms", "_pause_ms", "_received_ms", "is_under_way")

    def __init__(self, backoff_ms: Callable[[int], float]) -> None:
        self._backoff_ms = backoff_ms
        self._pause_ms = 0.0
        self._attempts = 0
        self._received_ms = -1.0
        self.is_under_way = False

    def reset(self) -> None:
        """Forget failures, and what is under way."""
        self.is_under_way = False
        self._received_ms = -1.0
        self._attempts = 0
        self._pause_ms = self._backoff_ms(0)

    def may_send(self, now_ms: float) -> bool:
        """Return whether a request may be sent now."""
        return not self.is_under_way and now_ms >= self.ready_ms

    @property
    def ready_ms(self) -> float:
        """The end of the pause."""
        return self._received_ms + self._pause_ms

    def sent(self) -> None:
        """Record that a request was sent."""
        self.is_under_way = True

    def succeeded(self, now_ms: float) -> None:
        """Record a successful answer."""
        self.is_under_way = False
        self._received_ms = now_ms
        self._pause_ms = self._backoff_ms(0)
        self._attempts = 0

    def failed(self, now_ms: float) -> None:
        """Record a failure."""
        self.is_under_way = False
        self._received_ms = now_ms
        self._pause_ms = self._backoff_ms(self._attempts)
        self._attempts += 1


class Timer:
    """A deadline. It expires when the time that it was last shown reaches the deadline."""

    __slots__ = ("_now_ms", "deadline_ms")

    def __init__(self, now_ms: float, span_ms: float) -> None:
        self._now_ms = now_ms
        self.deadline_ms = now_ms + span_ms

    def update(self, now_ms: float) -> bool:
        """Show it the time. Return whether it has expired."""
        self._now_ms = max(self._now_ms, now_ms)
        return self._now_ms >= self.deadline_ms

    def reset(self, span_ms: float) -> None:
        """Start again, from the time that it was last shown."""
        self.deadline_ms = self._now_ms + span_ms


class BeatState(RequestState):
    """When the next heartbeat is due."""

    __slots__ = ("_interval_ms", "_timer")

    def __init__(self, backoff_ms: Callable[[int], float], now_ms: float) -> None:
        super().__init__(backoff_ms)
        self._interval_ms = 0
        self._timer = Timer(now_ms, 0)

    def may_send(self, now_ms: float) -> bool:
        """Return whether a heartbeat is due, and none is under way."""
        return self._timer.update(now_ms) and super().may_send(now_ms)

    @property
    def due_ms(self) -> float:
        """When the next heartbeat is due."""
        return max(self._timer.deadline_ms, self.ready_ms)

    def start_interval(self) -> None:
        """Wait for an interval from now on."""
        self._timer.reset(self._interval_ms)

    def set_interval(self, interval_ms: int, now_ms: float) -> None:
        """Take the coordinator's interval. If it is a new one, it begins now."""
        if interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self._timer.update(now_ms)
            self._timer.reset(interval_ms)

    def failed(self, now_ms: float) -> None:
        """Record a failure: only the pause counts, not the interval."""
        self._timer.reset(0)
        super().failed(now_ms)
