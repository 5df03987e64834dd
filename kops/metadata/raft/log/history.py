"""The values that records of a log set, by the offset of the record: voter sets and the kraft.version.

Source: Kafka's LogHistory, TreeMapLogHistory, VoterSetHistory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

V = TypeVar("V")


class LogHistory(Generic[V]):
    """Values at ascending offsets. The value at -1 comes from the snapshot with which a log of offset 0 begins."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[V] = []

    def add_at(self, offset: int, value: V) -> None:
        """Set the value from `offset`, which must be above the last one."""
        assert offset >= -1, f"offset {offset}"
        assert not self._offsets or offset > self._offsets[-1], f"offset {offset} is not above {self._offsets[-1]}"
        self._offsets.append(offset)
        self._values.append(value)

    def value_at_or_before(self, offset: int) -> V | None:
        """Return the value at `offset`, or None if none was set up to there."""
        index = bisect_right(self._offsets, offset)
        return self._values[index - 1] if index else None

    @property
    def last(self) -> tuple[int, V] | None:
        """Return the last (offset, value)."""
        return (self._offsets[-1], self._values[-1]) if self._offsets else None

    def truncate_new_entries(self, end_offset: int) -> None:
        """Forget the values at and above `end_offset`."""
        index = bisect_left(self._offsets, end_offset)
        del self._offsets[index:], self._values[index:]

    def truncate_old_entries(self, start_offset: int) -> None:
        """Forget the values before `start_offset`, except the one that is valid there."""
        index = max(0, bisect_right(self._offsets, start_offset) - 1)
        del self._offsets[:index], self._values[:index]

    def clear(self) -> None:
        """Forget everything."""
        self._offsets.clear()
        self._values.clear()
