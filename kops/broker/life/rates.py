"""Rates of counters: the mean since the start, and exponentially weighted averages, as in Yammer's Meter.

Source: com.yammer.metrics.core.Meter and com.yammer.metrics.stats.EWMA (metrics-core 2.2), which Kafka uses for its `…PerSec` MBeans.
Yammer marks a meter at each event, and a thread ticks every five seconds. Here parts only increase counters. The next request to the
broker, or the next query for rates, catches up on the ticks that are due. Events counted since the last tick belong to the first of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TICK_MS: Final = 5_000
_ALPHAS: Final = tuple(1 - math.exp(-TICK_MS / 1000 / 60 / minutes) for minutes in (1, 5, 15))
_NAMES: Final = ("OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate")


class Meter:
    """The averages of one counter, in events per second, computed up to a tick."""

    __slots__ = ("_born_ms", "_rates", "_tick", "count")

    def __init__(self, born_ms: float, tick: int) -> None:
        self.count = 0.0
        self._born_ms = born_ms
        self._tick = tick
        self._rates: tuple[float, ...] | None = None

    def advance(self, last: int, tick: int, count: float) -> None:
        """Compute up to `tick`. Events counted since the last call came between the tick `last` and the one after it."""
        self._fall(last)
        instant = (count - self.count) * 1000 / TICK_MS
        if self._rates is None:
            self._rates = (instant,) * len(_ALPHAS)
        else:
            self._rates = tuple(rate + alpha * (instant - rate) for rate, alpha in zip(self._rates, _ALPHAS, strict=True))
        self._tick = last + 1
        self.count = count
        self._fall(tick)

    def _fall(self, tick: int) -> None:
        """Let the averages decay up to a tick: nothing was counted."""
        idle = tick - self._tick
        if idle > 0:
            if self._rates is not None:
                self._rates = tuple(rate * (1 - alpha) ** idle for rate, alpha in zip(self._rates, _ALPHAS, strict=True))
            self._tick = tick

    def attributes(self, tick: int, count: float, now_ms: float) -> dict[str, float]:
        """The rates by the names of the MBean's attributes."""
        self._fall(tick)
        lived_s = (now_ms - self._born_ms) / 1000
        found = {"MeanRate": count / lived_s if lived_s > 0 else 0.0}
        return found | dict(zip(_NAMES, self._rates or (0.0,) * len(_NAMES), strict=True))


class Rates:
    """The rates of counters. `counts` returns all counters by name, in parts. A tick reads the first part at once and one more at each call
    of `on_time`, so that many topics don't delay a request. A counter that appears later starts at the tick before.
    """

    def __init__(self, now_ms: float, counts: Callable[[], Iterator[Mapping[str, float]]]) -> None:
        self._start_ms = now_ms
        self._next_ms = now_ms + TICK_MS
        self._last = self._tick = 0
        self._counts = counts
        self._left: Iterator[Mapping[str, float]] | None = None
        self._meters: dict[str, Meter] = {name: Meter(now_ms, 0) for part in counts() for name in part}
        self._seen: dict[str, Meter] = {}

    def on_time(self, now_ms: float) -> None:
        """Perform the ticks that are due. Call it before counting anything that happens at `now_ms`."""
        if now_ms >= self._next_ms:
            self._take_the_rest()
            self._last, self._tick = self._tick, int((now_ms - self._start_ms) // TICK_MS)
            self._next_ms = self._start_ms + (self._tick + 1) * TICK_MS
            self._left = self._counts()
        if self._left is not None:
            self._take_one()

    def attributes(self, now_ms: float) -> dict[str, float]:
        """The rates by `MBean:attribute`, as Kafka's JmxTool writes it."""
        self.on_time(now_ms)
        self._take_the_rest()
        found: dict[str, float] = {}
        for part in self._counts():
            for name, count in part.items():
                meter = self._meters.get(name) or self._new_meter(self._tick)
                found |= {f"{name}:{attribute}": value for attribute, value in meter.attributes(self._tick, count, now_ms).items()}
        return found

    def _take_the_rest(self) -> None:
        while self._left is not None:
            self._take_one()

    def _take_one(self) -> None:
        assert self._left is not None
        part = next(self._left, None)
        if part is None:
            self._meters, self._seen, self._left = self._seen, {}, None  # Without meters of deleted topics.
            return
        last, tick = self._last, self._tick
        for name, count in part.items():
            meter = self._seen[name] = self._meters.get(name) or self._new_meter(last)
            if meter.count != count or not last:
                meter.advance(last, tick, count)

    def _new_meter(self, tick: int) -> Meter:
        return Meter(self._start_ms + tick * TICK_MS, tick)
