"""Values that records of a log set, by the offset of the record: voter sets and the kraft.version.

Source: Kafka's LogHistory, TreeMapLogHistory, VoterSetHistory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

V = TypeVar("V")


class LogHistory(Generic[V]):
    """Values at ascending offsets (-1: what was set by the snapshot that a log of offset 0 begins with)."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[V] = []

    def add_at(self, offset: int, value: V) -> None:
        """Set the value from `offset` on, which must be above the last one."""
        assert offset >= -1, f"offset {offset}"
        assert not self._offsets or offset > self._offsets[-1], f"offset {offset} is not above {self._offsets[-1]}"
        self._offsets.append(offset)
        self._values.append(value)

    def value_at_or_before(self, offset: int) -> V | None:
        """The value at `offset`; None if nothing was set up to there."""
        index = bisect_right(self._offsets, offset)
        return self._values[index - 1] if index else None

    @property
    def last(self) -> tuple[int, V] | None:
        """The last (offset, value)."""
        return (self._offsets[-1], self._values[-1]) if self._offsets else None

    def truncate_new_entries(self, end_offset: int) -> None:
        """Forget what was set at `end_offset` and above."""
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
