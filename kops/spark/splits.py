"""Cutting segments into parts of about equal bytes, and packing parts into tasks.

A part begins at the position of a batch that its offset index names and that stands there whole (header, length and checksum looked at), so
scanning the parts gives what scanning the file gives. Without a usable index a segment stays whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import iter_unpack

from kops.files import Files
from kops.records import Batch, scan

TASK_BYTES = 512 << 20
"""A task costs about 40 ms of its own, so it is worth half a GiB (measured, see ARCHITECTURE.md)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `start` to `end` of a `.log`; `number` is the place of the segment in the plan it belongs to."""

    number: int
    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start


def split_segment(files: Files, number: int, path: str, size: int, index_path: str | None, target: int = TASK_BYTES) -> list[Part]:
    """The parts of one segment, each of about `target` bytes; one part where there is nothing to cut at."""
    cuts = [0]
    if size > target and index_path is not None:
        for position in _index_positions(files, index_path):
            if position - cuts[-1] >= target and size - position >= target // 4 and _batch_at(files, path, position):
                cuts.append(position)
    cuts.append(size)
    return [Part(number, path, start, end) for start, end in pairwise(cuts)]


def _index_positions(files: Files, index_path: str) -> list[int]:
    """The positions in an offset index, up to where they stop growing (preallocated zeros, damage)."""
    try:
        data = files.read_all(index_path)
    except OSError:
        return []
    positions: list[int] = []
    for _, position in iter_unpack(">ii", data[: len(data) - len(data) % 8]):
        if positions and position <= positions[-1]:
            break
        positions.append(position)
    return positions


def _batch_at(files: Files, path: str, position: int) -> bool:
    with files.open(path) as source:
        found = next(scan(source, position, resync=False), None)
    return isinstance(found, Batch) and found.position == position


def pack(parts: Iterable[Part], bins: int | None = None, target: int = TASK_BYTES) -> list[list[Part]]:
    """Parts in bins of about equal bytes, largest first: `bins` of them, or as many as there are `target` bytes; no bin is empty."""
    ordered = sorted(parts, key=lambda part: (-part.size, part.path, part.start))
    total = sum(part.size for part in ordered)
    wanted = max(bins or 1, -(-total // target), 1)
    heap: list[tuple[int, int, list[Part]]] = [(0, place, []) for place in range(min(wanted, max(len(ordered), 1)))]
    for part in ordered:
        taken, place, content = heapq.heappop(heap)
        content.append(part)
        heapq.heappush(heap, (taken + part.size, place, content))
    return [
        sorted(content, key=lambda part: (part.path, part.start)) for _, _, content in sorted(heap, key=lambda each: each[1]) if content
    ]


def part_bytes(parallelism: int, sizes: Sequence[int], target: int = TASK_BYTES, smallest: int = 16 << 20) -> int:
    """How large a part should be: `target`, less where that would leave cores without work, never below `smallest`."""
    total = sum(sizes)
    return max(min(target, -(-total // max(parallelism, 1))), smallest)
