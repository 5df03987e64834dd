"""The counters of a cleaning round, and the limit on the cleaner's I/O rate (Kafka CleanerStats, PreCleanStats, Throttler)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CHECK_INTERVAL_MS = 300


@dataclass(slots=True)
class CleanerStats:
    """One round over one log: bytes, records, and times in ms (-1: not reached yet). `map_*` belong to the building of the offset map."""

    start_ms: int = 0
    map_complete_ms: int = -1
    end_ms: int = -1
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    buffer_utilization: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """The duration of the whole round."""
        return (self.end_ms - self.start_ms) / 1000


@dataclass(slots=True)
class PreCleanStats:
    """What the choice of a log found: the longest delay of an overdue compaction, and the numbers of overdue and cleanable partitions."""

    max_compaction_delay_ms: int = 0
    delayed_partitions: int = 0
    cleanable_partitions: int = 0

    def update_max_compaction_delay(self, delay_ms: int) -> None:
        """Add a partition's delay."""
        self.max_compaction_delay_ms = max(self.max_compaction_delay_ms, delay_ms)
        if delay_ms > 0:
            self.delayed_partitions += 1


class Throttler:
    """Limits a rate by pausing. It calls `sleep_ms` if more than `rate` units a second were observed in an interval of at least 300 ms.

    `now_ns` is a monotonic clock. `rate` may be changed at any time.
    """

    def __init__(self, rate: float, *, now_ns: Callable[[], int], sleep_ms: Callable[[int], None]) -> None:
        self.rate = rate
        self._now_ns = now_ns
        self._sleep_ms = sleep_ms
        self._begin_ns = now_ns()
        self._observed = 0.0

    def maybe_throttle(self, observed: float) -> None:
        """Add the number of units that were read or written, and pause if necessary."""
        self._observed += observed
        elapsed_ns = self._now_ns() - self._begin_ns
        if elapsed_ns <= CHECK_INTERVAL_MS * 1_000_000 or self._observed <= 0:
            return
        if self._observed * 1e9 / elapsed_ns > self.rate:
            pause_ms = _round(self._observed / (self.rate / 1000) - elapsed_ns // 1_000_000)
            if pause_ms > 0:
                self._sleep_ms(pause_ms)
        self._begin_ns = self._now_ns()
        self._observed = 0.0


def _round(value: float) -> int:
    """Round half up, as Java's Math.round does."""
    return int(value + 0.5) if value >= 0 else -int(-value + 0.5)
