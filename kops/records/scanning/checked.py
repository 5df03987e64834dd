"""Remembers which bytes of a file were found to be intact batches, so that a later scan of the same file does not check them again.

A source with an attribute `checked` of this type takes part (`kops.records.scanning.columns.scan_columns` reads and extends it). Whoever
gives the same `Checked` to two sources promises that their bytes are the same. It may also keep the headers, so that a later scan reads
nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

__all__ = ["Checked", "CheckedRange", "Headers"]


class CheckedRange(NamedTuple):
    """Bytes `start` to `end` (exclusive) are whole batches whose checksums are correct. `is_sound`: their records fit the headers, too."""

    start: int
    end: int
    is_sound: bool


class Headers(Protocol):
    """The headers of consecutive batches of which the first is at `position` and the last one ends at `end`
    (`kops.records.scanning.columns.Columns`)."""

    position: int
    positions: list[int]
    end: int

    def __len__(self) -> int: ...

    def part(self, first: int, last: int, shift: int = 0) -> Self:
        """Some of the batches, `shift` bytes further on."""

    def learn(self, other: Self) -> None:
        """Take over what was found out about the same batches."""


W = TypeVar("W", bound=Headers)


class Checked(Generic[W]):
    """Ranges of one file, sorted and apart from each other.

    `windows` are the headers of some of these batches, by the position of the first one. `may_keep` is asked with a number of headers
    before they are kept; None: no headers are kept.
    """

    __slots__ = ("may_keep", "ranges", "windows")

    def __init__(self, may_keep: Callable[[int], bool] | None = None) -> None:
        self.ranges: list[CheckedRange] = []
        self.windows: dict[int, W] = {}
        self.may_keep = may_keep

    def add(self, start: int, end: int, is_sound: bool) -> None:
        """Add whole batches. Bytes that are known stay as they are known."""
        place = bisect_right(self.ranges, start, key=lambda each: each.start)
        before = self.ranges[place - 1] if place else None
        if (before is not None and before.end > start) or (place < len(self.ranges) and self.ranges[place].start < end):
            return
        if before is not None and before.end == start and before.is_sound == is_sound:
            self.ranges[place - 1] = CheckedRange(before.start, end, is_sound)
        else:
            insort(self.ranges, CheckedRange(start, end, is_sound))

    def keep(self, found: W) -> None:
        """Keep the headers of batches that are known, if there is room."""
        known = self.windows.get(found.position)
        if known is not None:
            known.learn(found)
        elif self.may_keep is not None and self.may_keep(len(found)):
            self.windows[found.position] = found.part(0, len(found))

    def at(self, position: int, followed: bool) -> CheckedRange | None:
        """Return the range in which a batch at `position` needs no check.

        A place in the middle of a range may be one in the middle of a batch. `followed`: the batches of the range were followed to it.
        """
        place = bisect_right(self.ranges, position, key=lambda each: each.start)
        found = self.ranges[place - 1] if place else None
        return found if found is not None and position < found.end and (followed or position == found.start) else None

    def covers(self, size: int) -> bool:
        """Whether all bytes up to `size` are known."""
        end = 0
        for each in self.ranges:
            if each.start != end:
                break
            end = each.end
        return end >= size

    def part(self, start: int, end: int) -> list[CheckedRange]:
        """Return what is known of the bytes `start` to `end`, which are places between batches."""
        return [
            CheckedRange(max(each.start, start), min(each.end, end), each.is_sound)
            for each in self.ranges
            if each.start < end and each.end > start
        ]

    def moved(self, start: int, end: int, to: int) -> list[W]:
        """Return the headers that are kept of the bytes `start` to `end`, as those of a file that has these bytes at `to`."""
        found = []
        for each in self.windows.values():
            first, last = bisect_left(each.positions, start), bisect_left(each.positions, end)
            if last == len(each) and each.end > end:
                last -= 1
            if first < last:
                found.append(each.part(first, last, to - start))
        return found
