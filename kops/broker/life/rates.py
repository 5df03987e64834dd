"""Rates of what is counted: the mean since the start, and averages that forget, as Yammer's Meter has them.

Source: com.yammer.metrics.core.Meter and com.yammer.metrics.stats.EWMA (metrics-core 2.2), by which Kafka's `…PerSec` are MBeans.
Yammer marks a meter at each event and has a thread that ticks every five seconds. Here counters grow, and whoever has a request for the
broker, or asks for rates, makes the ticks that are due: what was counted since the last one belongs to the first of them.
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
    """One counter's averages, in events a second, reckoned up to a tick."""

    __slots__ = ("_born_ms", "_rates", "_tick", "count")

    def __init__(self, born_ms: float, tick: int) -> None:
        self.count = 0.0
        self._born_ms = born_ms
        self._tick = tick
        self._rates: tuple[float, ...] | None = None

    def advance(self, last: int, tick: int, count: float) -> None:
        """Reckon up to `tick`. What was counted since came between the tick `last` and the one after it."""
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
        """Nothing came up to a tick."""
        idle = tick - self._tick
        if idle > 0:
            if self._rates is not None:
                self._rates = tuple(rate * (1 - alpha) ** idle for rate, alpha in zip(self._rates, _ALPHAS, strict=True))
            self._tick = tick

    def attributes(self, tick: int, count: float, now_ms: float) -> dict[str, float]:
        """By the names of the MBean's attributes."""
        self._fall(tick)
        lived_s = (now_ms - self._born_ms) / 1000
        found = {"MeanRate": count / lived_s if lived_s > 0 else 0.0}
        return found | dict(zip(_NAMES, self._rates or (0.0,) * len(_NAMES), strict=True))


class Rates:
    """The rates of counters. `counts` is asked for all of them by name, in parts: a tick takes in the first part at once and one more each
    time that `on_time` is called, so that many topics hold nobody up. A counter that appears later counts from the tick before.
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
        """Make the ticks that are due. To be called before anything that happens at `now_ms` is counted."""
        if now_ms >= self._next_ms:
            self._take_the_rest()
            self._last, self._tick = self._tick, int((now_ms - self._start_ms) // TICK_MS)
            self._next_ms = self._start_ms + (self._tick + 1) * TICK_MS
            self._left = self._counts()
        if self._left is not None:
            self._take_one()

    def attributes(self, now_ms: float) -> dict[str, float]:
        """`MBean:attribute`, as Kafka's JmxTool writes it."""
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
            self._meters, self._seen, self._left = self._seen, {}, None  # without those of topics that are gone
            return
        last, tick = self._last, self._tick
        for name, count in part.items():
            meter = self._seen[name] = self._meters.get(name) or self._new_meter(last)
            if meter.count != count or not last:
                meter.advance(last, tick, count)

    def _new_meter(self, tick: int) -> Meter:
        return Meter(self._start_ms + tick * TICK_MS, tick)
