"""Divides the replicas of a large partition into slices, so that several processes can read them, and summarizes each slice.

A slice is what one replica has between two cuts. A cut is an offset at which a batch begins in several replicas. A summary has a digest of
all headers, so `compare` passes over slices whose summaries are equal, and reads the others itself. Only the batches of an undamaged slice
in ascending order have a summary, and only where the batches behind it cannot change how they are judged. So the result is that of an
undivided comparison.
"""

from __future__ import annotations

import operator
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from kops.files import Files
from kops.forensics.replicas import stream
from kops.forensics.replicas.stream import Chunk, Hurt, LogFile, OnBytes, Place, ordered_batches, row_last, row_size, short_rows
from kops.forensics.verify.parts import split_segment
from kops.records import Batch, scan
from kops.records.scanning.columns import Row

__all__ = ["Cut", "Finder", "Slice", "Summary", "after_slice", "plan_slices", "read_slice"]

_MAGIC: Final = 2
LEAST_BLOCKS: Final = 4
"""A slice of fewer blocks than this might have no summary, because the windows around its cuts are not its own."""


class Cut(NamedTuple):
    """The place of a batch: its first offset, the number of the log, and the position there."""

    offset: int
    log: int
    position: int


class Slice(NamedTuple):
    """The batches of a replica from `start` up to `end`. `logs` are the replica's from `start.log` to the one behind `end.log`."""

    replica: int
    logs: tuple[LogFile, ...]
    start: Cut
    end: Cut
    size: int


class Summary(NamedTuple):
    """What a comparison needs to know of a slice. `end` is the offset of the cut behind it; `last` and `last_epoch` are its last batch's.

    `path`, `position` and `settled`: its first window has the batches from `position` to `settled`. `is_dense`: no offset is missing.
    `place`: where the window begins that has the cut behind it.
    """

    end: int
    batches: int
    size: int
    short: int
    last: int
    last_epoch: int
    is_dense: bool
    digest: bytes
    path: str
    position: int
    settled: int
    place: Place


# planning -----------------------------------------------------------------------------------------------------------------------------


def plan_slices(files: Files, replicas: Sequence[Sequence[LogFile]], target: int) -> list[Slice]:
    """Return the slices of all replicas, each of about `target` bytes. Only indexes and the batches at the cuts are read.

    None where files can't be read, or have no common offsets: `compare` tells why.
    """
    try:
        return _planned(files, replicas, max(target, LEAST_BLOCKS * stream.BLOCK))
    except OSError:
        return []


def _planned(files: Files, replicas: Sequence[Sequence[LogFile]], target: int) -> list[Slice]:
    sizes = [[files.stat(log.path).size for log in logs] for logs in replicas]
    lead = max(range(len(replicas)), key=lambda number: sum(sizes[number]))
    finders = [Finder(files, logs) for logs in replicas]
    # Before the last of the replicas begins, they are not compared.
    firsts = [_cut_at(files, logs[number].path, number, 0) for logs, own in zip(replicas, sizes, strict=True) for number in _filled(own)]
    first = max((cut.offset for cut in firsts if cut is not None), default=0)
    at_first = finders[lead].find(first)
    if at_first is None:
        return []
    cuts = [at_first, *_cuts(files, replicas[lead], sizes[lead], at_first, target)]
    found: list[Slice] = []
    for number, logs in enumerate(replicas):
        places = cuts if number == lead else [finders[number].find(cut.offset) for cut in cuts]
        for start, end in pairwise(places):
            if start is not None and end is not None and (start.log, start.position) < (end.log, end.position):
                size = sum(sizes[number][start.log : end.log]) + end.position - start.position
                found.append(Slice(number, tuple(logs[start.log : end.log + 2]), start, end, size))
    return found


def _filled(sizes: Sequence[int]) -> list[int]:
    """The number of the first log that has bytes."""
    return [number for number, size in enumerate(sizes) if size][:1]


def _cut_at(files: Files, path: str, log: int, position: int) -> Cut | None:
    """The cut at a position; None if no intact batch of the present format is there."""
    with files.open(path) as source:
        found = next(scan(source, position, resync=False), None)
    if not isinstance(found, Batch) or found.position != position or found.magic != _MAGIC:
        return None
    return Cut(found.base_offset, log, position)


def _cuts(files: Files, logs: Sequence[LogFile], sizes: Sequence[int], first: Cut, target: int) -> Iterator[Cut]:
    """Yield cuts of a replica behind the first one, each at least `target` bytes behind the one before it."""
    before = sum(sizes[: first.log])
    taken = before + first.position
    for number in range(first.log, len(logs)):
        path = logs[number].path
        for part in split_segment(files, number, path, sizes[number], _index_path(files, path), target // 2):
            if before + part.start - taken >= target and (cut := _cut_at(files, path, number, part.start)) is not None:
                taken = before + part.start
                yield cut
        before += sizes[number]


def _index_path(files: Files, log: str) -> str | None:
    path = f"{log.removesuffix('.log')}.index"
    return path if files.exists(path) else None


class Finder:
    """Finds batches of a replica by their first offsets. It is asked for offsets in ascending order, so it keeps one index."""

    def __init__(self, files: Files, logs: Sequence[LogFile]) -> None:
        self._files = files
        self._logs = logs
        self._number = -1
        self._offsets: Sequence[int] = []
        self._positions: Sequence[int] = []

    def find(self, offset: int) -> Cut | None:
        """Where an intact batch of v2 begins at this offset; None if the index does not lead to one."""
        number = bisect_right([log.base_offset for log in self._logs], offset) - 1
        if number < 0:
            return None
        log = self._logs[number]
        if number != self._number:
            self._load(number)
        # The offset of an entry is the last one of its batch.
        place = bisect_left(self._offsets, offset - log.base_offset)
        start = max(self._positions[place - 1], 0) if place else 0
        with self._files.open(log.path) as source:
            for found in scan(source, start, resync=False):
                if not isinstance(found, Batch) or found.base_offset > offset or found.position > start + LEAST_BLOCKS * stream.BLOCK:
                    break
                if found.base_offset == offset:
                    return Cut(offset, number, found.position) if found.magic == _MAGIC else None
        return None

    def _load(self, number: int) -> None:
        self._number = number
        path = _index_path(self._files, self._logs[number].path)
        data = self._files.read_all(path) if path is not None else b""
        numbers = array("i", data[: len(data) - len(data) % 8])
        if sys.byteorder == "little":
            numbers.byteswap()
        positions = numbers[1::2]
        # A preallocated index ends with zeros.
        used = next((count for count in range(len(positions), 0, -1) if positions[count - 1]), 0)
        self._offsets, self._positions = numbers[: 2 * used : 2], positions[:used]


# reading ------------------------------------------------------------------------------------------------------------------------------


def read_slice(files: Files, work: Slice) -> Summary | None:
    """Read a slice, and beyond its end until nothing can change how its batches are judged. None if `compare` has to read it itself."""
    reader = _Reader(work)
    for found in ordered_batches(files, work.logs, place=Place(0, work.start.position), on_window=reader.window):
        if reader.is_settled:
            break
        if isinstance(found, Hurt) or not reader.add(found):
            return None
    return reader.summary()


class _Reader:
    """Adds up the windows of a slice."""

    def __init__(self, work: Slice) -> None:
        import hashlib  # It loads OpenSSL, and most comparisons have no slices.

        self.is_settled = False
        """Whether the batches of the slice, and the one behind it, have been judged: the last one of a window waits for the next window."""
        self._work = work
        self._end = (work.end.log - work.start.log, work.end.position)
        self._end_path = work.logs[self._end[0]].path
        self._place: Place | None = None
        self._behind = 0
        self._digest = hashlib.blake2b(digest_size=32)
        self._batches = self._bytes = self._short = 0
        self._is_dense = True
        self._last_row: Row | None = None
        self._first: tuple[str, int, int] | None = None
        self._has_end = False

    def window(self, place: Place) -> None:
        """Note where a window begins."""
        if (place.log, place.position) <= self._end:
            self._place = place
            return
        self._behind += 1
        self.is_settled = self._behind > 1 or place.log > self._end[0]

    def add(self, found: Chunk) -> bool:
        """Add batches. False if the slice does not begin or end as planned, or has what a summary cannot tell."""
        rows, positions = found.rows, found.positions
        if any(row[3] != _MAGIC for row in rows):
            return False
        if self._first is None:
            if (rows[0][0], positions[0]) != (self._work.start.offset, self._work.start.position):
                return False
            self._first = (found.path, positions[0], positions[-1])
        if self._has_end:
            return True
        if found.path == self._end_path:
            count = bisect_left(positions, self._work.end.position)
            self._has_end = count < len(rows)
            if self._has_end and (rows[count][0], positions[count]) != (self._work.end.offset, self._work.end.position):
                return False
            rows = rows[:count]
        if rows:
            self._take(rows)
        return True

    def _take(self, rows: list[Row]) -> None:
        following = [row_last(row) + 1 for row in rows]
        before = rows[0][0] if self._last_row is None else row_last(self._last_row) + 1
        self._is_dense &= before == rows[0][0] and all(map(operator.eq, map(operator.itemgetter(0), rows[1:]), following))
        self._digest.update(array("q", chain.from_iterable(rows)).tobytes())
        self._batches += len(rows)
        self._bytes += sum(map(row_size, rows))
        self._short += short_rows(rows)
        self._last_row = rows[-1]

    def summary(self) -> Summary | None:
        """The summary; None without a place where the stream can continue, or without the cut at the end."""
        place, last, end = self._place, self._last_row, self._work.end.offset
        if place is None or last is None or self._first is None or not self._has_end or place.last < self._work.start.offset:
            return None
        return Summary(
            end,
            self._batches,
            self._bytes,
            self._short,
            row_last(last),
            last[2],
            self._is_dense and row_last(last) + 1 == end,
            self._digest.digest(),
            *self._first,
            place._replace(log=place.log + self._work.start.log),
        )


def after_slice(files: Files, logs: Sequence[LogFile], summary: Summary, on_bytes: OnBytes | None) -> Iterator[Chunk | Hurt]:
    """The stream of a replica (`ordered_batches`), continued behind a slice."""
    rest = ordered_batches(files, logs, on_bytes, place=summary.place)
    for found in rest:
        if isinstance(found, Chunk):
            count = bisect_left(found.rows, (summary.end,))
            if count == len(found.rows):
                continue
            rows = found.rows[count:]
            yield Chunk(found.path, rows, found.positions[count:], short_rows(rows), rows[0][0] if count else found.first)
            break
        yield found
    yield from rest
