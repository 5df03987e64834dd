"""A map sorted by offset that finds neighbours of an offset (the part of Java's NavigableMap that share partitions need)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class OffsetMap(Generic[V]):
    """Values by offset."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: dict[int, V] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[V]:
        """Iterate over the values in order. Values may change meanwhile; the map must not."""
        return (self._values[offset] for offset in self._offsets)

    def __setitem__(self, offset: int, value: V) -> None:
        if offset not in self._values:
            insort(self._offsets, offset)
        self._values[offset] = value

    @property
    def first_offset(self) -> int:
        """The smallest offset."""
        return self._offsets[0]

    @property
    def last(self) -> V:
        """The value with the largest offset."""
        return self._values[self._offsets[-1]]

    def floor(self, offset: int) -> tuple[int, V] | None:
        """Return the largest offset that is not above `offset`, and its value."""
        index = bisect_right(self._offsets, offset)
        return self._at(index - 1)

    def lower(self, offset: int) -> int | None:
        """The largest offset below `offset`."""
        index = bisect_left(self._offsets, offset)
        return self._offsets[index - 1] if index else None

    def higher(self, offset: int) -> int | None:
        """The smallest offset above `offset`."""
        index = bisect_right(self._offsets, offset)
        return self._offsets[index] if index < len(self._offsets) else None

    def between(self, first_offset: int, last_offset: int) -> list[V]:
        """Return the values with offsets from first to last."""
        begin, end = bisect_left(self._offsets, first_offset), bisect_right(self._offsets, last_offset)
        return [self._values[offset] for offset in self._offsets[begin:end]]

    def remove_up_to(self, last_offset: int) -> None:
        """Remove the values up to and including an offset."""
        end = bisect_right(self._offsets, last_offset)
        for offset in self._offsets[:end]:
            del self._values[offset]
        del self._offsets[:end]

    def clear(self) -> None:
        """Remove all values."""
        self._offsets.clear()
        self._values.clear()

    def _at(self, index: int) -> tuple[int, V] | None:
        if index < 0:
            return None
        offset = self._offsets[index]
        return offset, self._values[offset]
