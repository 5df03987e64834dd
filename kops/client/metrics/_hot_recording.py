"""Where a sensor's measurements go. The same typed source is interpreted, or compiled by mypyc (see `kops._compiled`).

Source: Kafka's Sensor, SampledStat. A client records about thirty measurements for a request.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

_INFINITE: Final = float("inf")


class Window:
    """What was recorded in a part of the time."""

    __slots__ = ("count", "highest", "last_ms", "lowest", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms: float = now_ms
        self.last_ms: float = now_ms
        self.count: int = 0
        self.total: float = 0.0
        self.highest: float = -_INFINITE
        self.lowest: float = _INFINITE

    def reset(self, now_ms: float) -> None:
        """Forget everything."""
        self.start_ms = self.last_ms = now_ms
        self.count = 0
        self.total = 0.0
        self.highest = -_INFINITE
        self.lowest = _INFINITE


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    """The totals and the last windows of what was recorded."""

    __slots__ = ("_at", "_current", "_samples", "_window_ms", "_windows", "count", "last", "total")

    def __init__(self, samples: int, window_ms: int) -> None:
        self.total: float = 0.0
        self.count: int = 0
        self.last: float = 0.0
        self._samples: int = samples
        self._window_ms: int = window_ms
        self._windows: list[Window] = []
        self._current: Window | None = None
        self._at: int = 0

    def record(self, value: float, now_ms: float) -> None:
        """Record a measurement."""
        window = self._current
        if window is None or now_ms - window.start_ms >= self._window_ms:
            window = self._advance(now_ms)
        window.last_ms = now_ms
        window.count += 1
        window.total += value
        if value > window.highest:
            window.highest = value
        if value < window.lowest:
            window.lowest = value
        self.total += value
        self.count += 1
        self.last = value

    def _advance(self, now_ms: float) -> Window:
        if self._current is not None:
            # One more than the samples: the oldest one may have begun before the time that is covered.
            self._at = (self._at + 1) % (self._samples + 1)
        if self._at < len(self._windows):
            self._windows[self._at].reset(now_ms)
        else:
            self._windows.append(Window(now_ms))
        window = self._windows[self._at]
        self._current = window
        return window
