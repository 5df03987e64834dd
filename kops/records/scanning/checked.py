"""Remembers which bytes of a file were found to be intact batches, so that a later scan of the same file does not check them again.

A source with an attribute `checked` of this type takes part (`kops.records.scanning.columns.scan_columns` reads and extends it). Whoever
gives the same `Checked` to two sources promises that their bytes are the same.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import NamedTuple

__all__ = ["Checked", "CheckedRange"]


class CheckedRange(NamedTuple):
    """Bytes `start` to `end` (exclusive) are whole batches whose checksums are correct. `is_sound`: their records fit the headers, too."""

    start: int
    end: int
    is_sound: bool


class Checked:
    """Ranges of one file, sorted and apart from each other."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[CheckedRange] = []

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
