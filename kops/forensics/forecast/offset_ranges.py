"""Sets of log offsets as closed ranges: union, difference, part."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]
"""Offsets as closed ranges (first, last), ascending, not touching."""


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union, ascending; ranges that touch become one."""
    merged: Ranges = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            if last > merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def subtract(ranges: Ranges, minus: Ranges) -> Ranges:
    """Return the offsets in `ranges` that are not in `minus`. Both are ascending."""
    rest: Ranges = []
    start_at = 0
    for first, last in ranges:
        while start_at < len(minus) and minus[start_at][1] < first:
            start_at += 1
        at = start_at
        while at < len(minus) and minus[at][0] <= last:
            if minus[at][0] > first:
                rest.append((first, minus[at][0] - 1))
            first = minus[at][1] + 1
            at += 1
        if first <= last:
            rest.append((first, last))
    return rest


def clip(ranges: Ranges, start: int, end: int | None = None) -> Ranges:
    """Return the part at or above `start` and below `end`."""
    stop = None if end is None else end - 1
    return [
        (max(first, start), last if stop is None else min(last, stop))
        for first, last in ranges
        if last >= start and (stop is None or first <= stop)
    ]


def count(ranges: Ranges) -> int:
    """The number of offsets."""
    return sum(last - first + 1 for first, last in ranges)
