"""One replica of a partition as a stream of batch headers in the order of their offsets, with the damage between them.

The headers are those of `kops.records.scanning.columns.Row`, whose checksums were computed and hold. One window of a segment is in memory
at a time. A batch whose base offset contradicts its neighbours (the offset is outside of the checksum, DefaultRecordBatch) or which is
there twice is not in the stream; it is reported as `Hurt`, like bytes that are not a batch.

A window has the batches that begin in the same `BLOCK` bytes of the file, up to damage. So it does not depend on where reading began: a
stream that continues in the middle of a log from a `Place` has the same windows, and finds the same, as one from the beginning.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kops.files import Files
from kops.forensics.plans.chain import in_order
from kops.records import Batch, Damage
from kops.records.batch import LOG_OVERHEAD
from kops.records.scanning.columns import Columns, Row, scan_columns

__all__ = ["BLOCK", "Chunk", "Hurt", "LogFile", "Place", "ordered_batches", "row_last", "row_size", "short_rows"]

BLOCK: Final = 1 << 20
_INT_MAX = 0x7FFFFFFF

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log of one segment: its path and the offset in its name."""

    path: str
    base_offset: int


@dataclass(slots=True)
class Chunk:
    """Batches of one file whose offsets increase: their headers and positions."""

    path: str
    rows: list[Row]
    positions: list[int]
    short: int = 0
    """How many of them have fewer records than offsets, which only compaction causes."""
    first: int = 0
    """The offset of the first record. The header of a compressed set of v0 or v1 has only that of its last one."""


@dataclass(slots=True)
class Hurt:
    """Bytes of a replica that are not a batch in its place. `code` is the scanner's (`kops.records.Damage`), or `misplaced`, `repeated`,
    `closed` (the empty batch with which a repair closed a hole), `undecodable` or `unreadable`. The offsets are what the header claims."""

    path: str
    position: int
    length: int
    code: str
    reason: str
    base_offset: int | None = None
    last_offset: int | None = None
    is_whole: bool = True
    """Whether the header has as many records as offsets, or is of a format that cannot tell and that the log still has, so that its last
    offset can be believed."""


class Place(NamedTuple):
    """Where a stream can continue: the number of the log, the position of a window's first batch, and the state of the order there.

    `last` is the last offset of the batches that have been yielded. `waiting` is the one that waits for the window, and its position.
    """

    log: int = 0
    position: int = 0
    last: int = -1
    waiting: tuple[Row, int] | None = None


def row_last(row: Row) -> int:
    """The last offset of a batch."""
    return row[0] + row[6]


def row_size(row: Row) -> int:
    """The size of a batch in bytes."""
    return row[1] + LOG_OVERHEAD


def ordered_batches(
    files: Files,
    logs: Sequence[LogFile],
    on_bytes: OnBytes | None = None,
    *,
    place: Place = Place(),  # noqa: B008 - immutable
    on_window: Callable[[Place], None] | None = None,
) -> Iterator[Chunk | Hurt]:
    """Yield the batches of a replica in the order of offsets, and the damage in its place. `logs` are in the order of their base
    offsets.

    `place`: continue there. `on_window` gets the place of each window before what is in it is yielded.
    """
    order = _Order(files, place)

    def passed_on(number: int, windows: Iterator[_Window]) -> Iterator[Chunk | Hurt]:
        for rows, positions in windows:
            if on_window is not None:
                on_window(order.place(number, positions[0]))
            yield from order.window(rows, positions)

    for number in range(place.log, len(logs)):
        log, start = logs[number], place.position if number == place.log else 0
        order.begin(log, logs[number + 1].base_offset if number + 1 < len(logs) else None)
        windows = _Windows(BLOCK)
        failure = None
        try:
            with files.open(log.path) as file:
                for found in scan_columns(file, start):
                    if on_bytes is not None:
                        on_bytes(found.length if isinstance(found, Damage) else found.end - found.position)
                    yield from passed_on(number, windows.rest() if isinstance(found, Damage) else windows.add(found))
                    order.read_to = found.end
                    if isinstance(found, Damage):
                        yield from order.damage(found)
        except OSError as error:
            failure = error.strerror or str(error)
        yield from passed_on(number, windows.rest())
        yield from order.flush()
        if failure is not None:
            yield Hurt(log.path, order.read_to, 0, "unreadable", failure)


_Window = tuple[list[Row], list[int]]


class _Windows:
    """Puts the batches that a scan finds into windows."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: list[Row] = []
        self._positions: list[int] = []

    def add(self, found: Columns) -> Iterator[_Window]:
        """Add batches; yields the windows that are complete."""
        rows, positions = found.rows, found.positions
        at = 0
        while at < len(rows):
            first = self._positions[0] if self._positions else positions[at]
            end = bisect_left(positions, (first // self._size + 1) * self._size, at)
            self._rows += rows[at:end]
            self._positions += positions[at:end]
            if end < len(rows):
                yield from self.rest()
            at = end

    def rest(self) -> Iterator[_Window]:
        """Yield the window that has been begun, if there is one."""
        if self._rows:
            rows, positions, self._rows, self._positions = self._rows, self._positions, [], []
            yield rows, positions


class _Order:
    """Tells batches in their place from misplaced ones. The last batch of a window waits for the next window, which may contradict it, also
    across damage."""

    def __init__(self, files: Files, place: Place) -> None:
        self._files = files
        self.last = place.last
        self.read_to = 0
        self._magic = -1
        self._log = LogFile("", 0)
        self._following: int | None = None
        self._waiting = place.waiting
        self._held: list[Hurt] = []

    def place(self, log: int, position: int) -> Place:
        """The present state, in front of a window."""
        return Place(log, position, self.last, self._waiting)

    def begin(self, log: LogFile, following: int | None) -> None:
        """Begin the next segment; `following` is the base offset of the one after it."""
        self._log = log
        self._following = following
        self.read_to = 0

    def damage(self, found: Damage) -> Iterator[Chunk | Hurt]:
        """Pass on damage that the scanner found, after the waiting batch."""
        head = found.batch
        is_whole = found.has_offsets
        if head is not None:
            # A log that has changed to v2 does not change back.
            is_legacy = head.magic < 2 and self._magic < 2
            is_whole &= is_legacy or (head.magic > 1 and head.count == head.last_offset - head.base_offset + 1)
        offsets = (found.base_offset, found.last_offset)
        self._held.append(Hurt(self._log.path, found.position, found.length, found.code, found.reason, *offsets, is_whole))
        if self._waiting is None:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk | Hurt]:
        """Release the waiting batch and the damage behind it: nothing follows them in this file."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            yield from self._settled([waiting[0]], [waiting[1]])
        yield from self._held
        self._held = []

    def window(self, rows: list[Row], positions: list[int]) -> Iterator[Chunk | Hurt]:
        """The batches of one window."""
        held, self._held = self._held, []
        if self._waiting is not None:
            rows, positions = [self._waiting[0], *rows], [self._waiting[1], *positions]
        # The waiting batch is among the candidates, so a wrong offset of it hides no other batch.
        self._waiting = None
        if self._is_ordered(rows):
            self._waiting = (rows[-1], positions[-1])
            yield from self._settled(rows[:-1], positions[:-1], held, is_ordered=True)
            return
        yield from self._settled(rows, positions, held)

    def _is_ordered(self, rows: list[Row]) -> bool:
        bases = list(map(operator.itemgetter(0), rows))
        lasts = list(map(operator.add, bases, map(operator.itemgetter(6), rows)))
        low, high = self._limits()
        ahead = self._following is not None and lasts[-1] >= self._following
        if rows[0][0] <= self.last or rows[0][0] < low or lasts[-1] >= high or ahead:
            return False
        return all(map(operator.lt, lasts, bases[1:])) and all(map(operator.ge, lasts, bases))

    def _limits(self) -> tuple[int, int]:
        """The offsets that this segment may have: an int32 of them, from its name on."""
        base = self._log.base_offset
        return base, base + _INT_MAX + 1

    def _spans(self, rows: list[Row]) -> list[tuple[int, int] | None]:
        """The offsets of each batch, None for impossible ones. Only batches that follow one another without a hole may reach into the
        offsets of the next segment (the two segments then overlap)."""
        low, high = self._limits()
        spans: list[tuple[int, int] | None] = []
        before = self.last
        for row in rows:
            base, last = row[0], row_last(row)
            is_sane = low <= base <= last < high
            if is_sane and self._following is not None and last >= self._following:
                is_sane = base == before + 1
            spans.append((base, last) if is_sane else None)
            before = last if is_sane else before
        return spans

    def _settled(
        self, rows: list[Row], positions: list[int], behind_first: Sequence[Hurt] = (), *, is_ordered: bool = False
    ) -> Iterator[Chunk | Hurt]:
        """Yield these batches in order, and `Hurt` for each that is in the wrong place. `behind_first`: the damage behind the first one.
        `is_ordered`: they are known to be in their places."""
        if not rows:
            return
        chosen: Sequence[int] = range(len(rows))
        if not (is_ordered or self._is_ordered(rows)):
            spans = self._spans(rows)
            if behind_first and rows[0] in rows[1:]:
                spans[0] = None  # It was written over what is lost there.
            chosen = in_order(spans, self.last + 1, empty={i for i, row in enumerate(rows) if row[3] > 1 and not row[12]})
        begin = 0
        members = set(chosen) if len(chosen) < len(rows) else None
        is_plain = members is None and not behind_first and not any(_is_filling(row) for row in rows if not row[12])
        for i, row in enumerate(() if is_plain else rows):
            if i == 1 and behind_first:
                yield from self._chunk(rows[begin:i], positions[begin:i])
                yield from behind_first
                begin = i
            is_member = members is None or i in members
            if is_member and not _is_filling(row):
                continue
            yield from self._chunk(rows[begin:i], positions[begin:i])
            yield self._out_of_place(row, positions[i], is_filling=is_member)
            begin = i + 1
        yield from self._chunk(rows[begin:], positions[begin:])
        if len(rows) == 1:
            yield from behind_first

    def _chunk(self, rows: list[Row], positions: list[int]) -> Iterator[Chunk]:
        if rows:
            self.last, self._magic = row_last(rows[-1]), rows[-1][3]
            yield Chunk(self._log.path, rows, positions, short_rows(rows), self._first(rows[0], positions[0]))

    def _first(self, row: Row, position: int) -> int:
        if row[3] > 1 or not row[5] & 7:
            return row[0]
        with self._files.open(self._log.path) as file:
            batch = Batch(file.read(position, row_size(row)))
        return row[0] if batch.check() else batch.base_offset

    def _out_of_place(self, row: Row, position: int, *, is_filling: bool) -> Hurt:
        base, last = row[0], row_last(row)
        if is_filling:
            code, reason = "closed", f"a repair closed offsets {base} to {last} by an empty batch"
        elif last <= self.last:
            code, reason = "repeated", f"its offsets {base} to {last} are below those of the batch before it"
        else:
            code, reason = "misplaced", f"its offsets {base} to {last} contradict the batches around it"
        return Hurt(self._log.path, position, row_size(row), code, reason, base, last)


def _is_filling(row: Row) -> bool:
    """Whether it is an empty batch with which a repair closed a hole (see `kops.forensics.recover.copies.runs`)."""
    return row[3] > 1 and row[12] == 0 and row[9] < 0 and row[8] < 0


def short_rows(rows: list[Row]) -> int:
    """How many batches have fewer records than offsets."""
    counts, deltas = map(operator.itemgetter(12), rows), map(operator.itemgetter(6), rows)
    if not any(map(operator.le, counts, deltas)):
        return 0
    return sum(1 for row in rows if row[3] > 1 and 0 <= row[12] <= row[6])
