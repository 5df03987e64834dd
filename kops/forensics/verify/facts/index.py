"""Offset and time indexes against their segment: read tolerantly, sampled while the log is scanned, judged afterwards.

Formats: Kafka's OffsetIndex (8 bytes an entry: relative offset int32, position int32) and TimeIndex (12 bytes: timestamp int64, relative
offset int32); when they are written: LogSegment.append, .recover and .onBecomeInactiveSegment. An entry is right when a look-up through it
finds what it should; it need not be the entry that another replica, or another version of Kafka, wrote. Versions before 4.0 name the first
or the last offset of everything appended at once and the position where that begins, so an entry's offset may be in a later batch than
its position.

Nothing is looked up entry by entry: the scanner hands over windows of batches, and each window is intersected with the entries.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import lt
from typing import TypeVar

from kops.forensics.findings.finding import Finding, finding
from kops.storage.segment_files.index_bytes import DEFAULT_INDEX_INTERVAL_BYTES

T = TypeVar("T")
OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
_BEHIND = 3
_FAR = 2
_MANY = 32
_LIMIT = 100_000_000
"""Bytes of an index that are looked at; Kafka's largest is log.index.size.max.bytes (10 MiB by default)."""


@dataclass(slots=True)
class IndexFile:
    """The entries of an index. `relative` are offsets relative to the base offset; `numbers` are positions (offset index) or timestamps in
    ms (time index).

    `size` is the file's, in bytes; `zero_entries` counts the entries of zeroes after the last other one, which are not among the others.
    """

    path: str
    kind: str
    base_offset: int
    size: int
    relative: array[int]
    numbers: array[int]
    zero_entries: int
    _offsets: list[int] | None = None

    @property
    def offsets(self) -> list[int]:
        """The absolute offsets. They are made when they are first asked for: the check of a healthy index needs two of them."""
        if self._offsets is None:
            base = self.base_offset
            self._offsets = [base + number for number in self.relative]
        return self._offsets

    @property
    def entry_size(self) -> int:
        """Bytes of one entry."""
        return OFFSET_ENTRY_SIZE if self.kind == "index" else TIME_ENTRY_SIZE

    @property
    def odd_bytes(self) -> int:
        """The number of bytes after the last whole entry."""
        return self.size % self.entry_size


def read_index(data: bytes, kind: str, base_offset: int, path: str) -> IndexFile:
    """Decode an `index` or `timeindex`, whatever it holds; raises nothing.

    An entry of zeroes can only be real as the first one (a timestamp of 0 at the base offset); alone in its file it is taken for one.
    """
    entry_size = OFFSET_ENTRY_SIZE if kind == "index" else TIME_ENTRY_SIZE
    size = len(data)
    count = min(size, _LIMIT) // entry_size
    used = -(-len(data[: count * entry_size].rstrip(b"\0")) // entry_size)
    if kind == "timeindex" and used == 0 and count == 1:
        used = 1
    whole = data[: used * entry_size]
    if kind == "index":
        relative, numbers = _column(whole, entry_size, 0, "i"), _column(whole, entry_size, 4, "i")
    else:
        relative, numbers = _column(whole, entry_size, 8, "i"), _column(whole, entry_size, 0, "q")
    return IndexFile(path, kind, base_offset, size, relative, numbers, count - used)


def _column(entries: bytes, entry_size: int, place: int, kind: str) -> array[int]:
    """A big-endian field of all entries. Byte by byte is a tenth of the time that a Python object for each entry takes."""
    column: array[int] = array(kind)
    size = column.itemsize
    octets = bytearray(len(entries) // entry_size * size)
    for number in range(size):
        octets[size - 1 - number if sys.byteorder == "little" else number :: size] = entries[place + number :: entry_size]
    column.frombytes(octets)
    return column


@dataclass(slots=True)
class IndexSamples:
    """The batches at the entries of both indexes, sampled by a scan. Samples of two ranges of a segment can be merged.

    `at_position`: position → (base offset, last offset) of the batch that begins there. `last_offsets`: offsets of index entries that are
    the last offset of some batch. `at_offset`: offset of a time index entry → (that batch's maximum timestamp, the largest of the range
    through that batch, that batch's position). `through`: offset of an index entry → the largest timestamp of the range through it.
    `max_timestamp`: of the range, -1 without any.
    """

    at_position: dict[int, tuple[int, int]] = field(default_factory=dict)
    last_offsets: set[int] = field(default_factory=set)
    at_offset: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    through: dict[int, int] = field(default_factory=dict)
    max_timestamp: int = -1

    def extend(self, after: IndexSamples) -> None:
        """Take in the samples of the range that follows."""
        self.at_position.update(after.at_position)
        self.last_offsets |= after.last_offsets
        before = self.max_timestamp
        for offset, (own, running, position) in after.at_offset.items():
            self.at_offset[offset] = (own, max(before, running), position)
        for offset, running in after.through.items():
            self.through[offset] = max(before, running)
        self.max_timestamp = max(before, after.max_timestamp)


class IndexSampler:
    """Takes the windows of a scan, in order, and keeps what the index entries are about."""

    def __init__(self, index: IndexFile | None, time_index: IndexFile | None) -> None:
        self.samples = IndexSamples()
        self._positions = set(index.numbers) if index is not None else set()
        self._index_offsets = set(index.offsets) if index is not None else set()
        self._sorted_index_offsets = sorted(self._index_offsets)
        self._time_offsets = set(time_index.offsets) if time_index is not None else set()
        self._sorted_time_offsets = sorted(self._time_offsets)

    def window(self, positions: Sequence[int], bases: Sequence[int], lasts: Sequence[int], timestamps: Sequence[int]) -> None:
        """The next batches: where they begin, their base and last offsets, their maximum timestamps (ms)."""
        if not positions:
            return
        samples = self.samples
        hits = self._positions.intersection(positions)
        if hits:
            _keep(samples.at_position, hits, positions, list(zip(bases, lasts, strict=True)))
            samples.last_offsets |= self._index_offsets.intersection(lasts)
        running = list(accumulate(timestamps, max, initial=samples.max_timestamp))[1:]
        samples.max_timestamp = running[-1]
        low, high = min(bases[0], lasts[0]), lasts[-1]
        wanted = self._time_offsets.intersection(lasts)
        if wanted:
            _keep(samples.at_offset, wanted, lasts, list(zip(timestamps, running, positions, strict=True)))
        for offset in _others(self._sorted_time_offsets, low, high, wanted):
            number = bisect_left(lasts, offset)
            if number < len(lasts):
                samples.at_offset[offset] = (timestamps[number], running[number], positions[number])
        wanted = self._index_offsets.intersection(lasts)
        if wanted:
            _keep(samples.through, wanted, lasts, running)
        for offset in _others(self._sorted_index_offsets, low, high, wanted):
            number = bisect_left(lasts, offset)
            if number < len(lasts):
                samples.through[offset] = running[number]


def _keep(kept: dict[int, T], wanted: set[int], keys: Sequence[int], values: Sequence[T]) -> None:
    """Keep the values of the keys that are wanted (all of `wanted` are among `keys`)."""
    if len(wanted) == len(keys):
        kept.update(zip(keys, values, strict=True))
        return
    there = dict(zip(keys, values, strict=True))
    for key in wanted:
        kept[key] = there[key]


def _others(ordered: list[int], low: int, high: int, found: set[int]) -> list[int]:
    """The numbers from `low` to `high` that are not found yet."""
    first, end = bisect_left(ordered, low), bisect_right(ordered, high)
    if end - first <= len(found):
        return []
    return [number for number in ordered[first:end] if number not in found]


@dataclass(slots=True)
class SegmentView:
    """The data of a segment that the checks of its indexes need.

    `log_size` in bytes; `last_offset` of the last batch read (None: no batch); `damaged`: the byte ranges `(position, end)` that are no
    batches; `is_active`: the last segment of its partition; `clean_stop`: whether the log directory has the marker (None: not known);
    `has_timestamps`: whether any batch has the format that carries them; `is_dead`: given up or being deleted, so nothing needs to be
    right.
    """

    log_path: str
    base_offset: int
    log_size: int
    last_offset: int | None
    max_timestamp: int
    damaged: list[tuple[int, int]]
    is_active: bool
    clean_stop: bool | None
    has_timestamps: bool
    is_dead: bool = False
    is_disordered: bool = False


def check_sanity(index: IndexFile, view: SegmentView) -> Iterator[Finding]:
    """Check the index alone and against the size of the log: its order, its tail, its end (at every level)."""
    if index.odd_bytes:
        yield finding(
            "index-size-odd",
            index.path,
            f"{index.size} bytes are not a multiple of {index.entry_size}; {index.odd_bytes} bytes are left over",
            position=index.size - index.odd_bytes,
            length=index.odd_bytes,
        )
    if index.zero_entries:
        yield _zero_tail(index, view)
    wrong = _disorder(index)
    for first, last in _runs(wrong):
        yield _entries("index-disorder", index, first, last, "do not increase")
    beyond = _beyond(index, view) - wrong
    for first, last in _runs(beyond):
        where = f"the log ends at offset {view.last_offset}" if view.last_offset is not None else "the log holds no batch"
        yield _entries("index-beyond-log", index, first, last, f"point beyond the log's end ({where}, {view.log_size} bytes)")


def _beyond(index: IndexFile, view: SegmentView) -> set[int]:
    """Report entries beyond the end of the log. If its end is damaged, offsets prove nothing."""
    numbers, relative = index.numbers, index.relative
    if not relative:
        return set()
    beyond: set[int] = set()
    if index.kind == "index" and max(numbers) >= view.log_size:
        beyond.update(number for number, position in enumerate(numbers) if position >= view.log_size)
    ends_in_damage = bool(view.damaged) and view.damaged[-1][1] >= view.log_size
    if not ends_in_damage:
        last = view.last_offset if view.last_offset is not None else view.base_offset - 1
        last -= index.base_offset
        if max(relative) > last:
            beyond.update(number for number, each in enumerate(relative) if each > last)
    return beyond


def _zero_tail(index: IndexFile, view: SegmentView) -> Finding:
    used = len(index.relative) * index.entry_size
    length = index.zero_entries * index.entry_size
    if view.is_dead or (view.is_active and view.clean_stop is not True):
        state = "is being deleted" if view.is_dead else "is the active one and there is no clean-shutdown marker"
        detail = f"{index.zero_entries} entries of zeroes: the segment {state}, so this is preallocation, not damage"
        return finding("index-preallocated", index.path, detail, position=used, length=length)
    detail = f"{index.zero_entries} entries of zeroes follow {len(index.relative)} entries"
    if view.is_active:
        detail += "; the clean-shutdown marker is there, and a clean stop cuts them off"
    return finding("index-zero-tail", index.path, detail, position=used, length=length)


def _disorder(index: IndexFile) -> set[int]:
    """The entries that don't increase: relative offset negative, or not above the entry before (time index: offsets may be equal)."""
    offsets, numbers = index.relative, index.numbers
    if not offsets:
        return set()
    if _increase(numbers) and _increase(offsets) and offsets[0] >= 0 and numbers[0] >= (0 if index.kind == "index" else -1):
        return set()
    same_allowed = index.kind == "timeindex"
    wrong = set()
    last_offset, last_number = -1, -1 if index.kind == "index" else -(1 << 63)
    for number, (offset, value) in enumerate(zip(offsets, numbers, strict=True)):
        follows = offset > last_offset or (same_allowed and offset == last_offset)
        if follows and value > last_number and offset >= 0:
            last_offset, last_number = offset, value
        else:
            wrong.add(number)
    return wrong


def _increase(numbers: array[int]) -> bool:
    values = numbers.tolist()
    return all(map(lt, values, values[1:]))


def check_entries(index: IndexFile, samples: IndexSamples, view: SegmentView) -> Iterator[Finding]:
    """The offset index against the batches (level full)."""
    skip = _disorder(index) | _beyond(index, view)
    wrong: dict[int, str] = {}
    at_position = samples.at_position.get
    for number, (offset, position) in enumerate(zip(index.offsets, index.numbers, strict=True)):
        batch = at_position(position)
        if (batch is not None and batch[0] <= offset <= batch[1]) or number in skip or _inside(view.damaged, position):
            continue
        if batch is None:
            wrong[number] = f"no batch begins at {position}"
        elif offset < batch[0]:
            wrong[number] = f"offset {offset} is before the batch {batch[0]}-{batch[1]} at {position}"
        elif not view.damaged:
            following = at_position(index.numbers[number + 1]) if number + 1 < len(index.numbers) else None
            if offset not in samples.last_offsets or (following is not None and offset >= following[0]):
                wrong[number] = f"offset {offset} does not belong to the batch {batch[0]}-{batch[1]} at {position}"
    for first, last in _runs(wrong):
        yield _entries("index-entry-wrong", index, first, last, "are wrong: " + wrong[first])


def check_time_entries(index: IndexFile, samples: IndexSamples, view: SegmentView) -> Iterator[Finding]:
    """The time index against the batches (level full)."""
    if not view.has_timestamps or view.is_disordered:
        return
    skip = _disorder(index) | _beyond(index, view)
    wrong: dict[int, str] = {}
    at_offset = samples.at_offset.get
    for number, (offset, timestamp) in enumerate(zip(index.offsets, index.numbers, strict=True)):
        seen = at_offset(offset)
        if (seen is not None and seen[1] == timestamp) or number in skip:
            continue
        if seen is None:
            if not view.damaged:
                wrong[number] = f"no batch has the offset {offset}"
        elif not view.damaged:
            wrong[number] = f"timestamp {timestamp} at offset {offset}, but the largest one up to there is {seen[1]}"
        elif seen[0] > timestamp:
            wrong[number] = f"timestamp {timestamp} at offset {offset}, but that batch has {seen[0]}"
    for first, last in _runs(wrong):
        yield _entries("index-entry-wrong", index, first, last, "are wrong: " + wrong[first])


def check_complete(index: IndexFile | None, time_index: IndexFile | None, samples: IndexSamples, view: SegmentView) -> Iterator[Finding]:
    """Find entries of one index that are missing in the other: Kafka writes a time entry with an offset entry whenever there is a larger
    timestamp, and one at the end of a segment (level full)."""
    if view.is_dead or view.damaged or view.is_disordered or view.last_offset is None:
        return
    if time_index is not None and view.has_timestamps:
        yield from _time_index_complete(index, time_index, samples, view)


@dataclass(slots=True)
class IndexSpacing:
    """The distances between entries of a segment's offset index, in bytes of the log: the least (0: no entry), and the positions of the
    time index's batches after the last of them."""

    path: str
    entries: int
    least: int
    last_position: int
    behind: list[int]
    next_offset: int
    last_offset: int


def measure_spacing(index: IndexFile | None, time_index: IndexFile | None, samples: IndexSamples, view: SegmentView) -> IndexSpacing | None:
    """The spacing of a segment's offset index, None if it can't be told."""
    if index is None or time_index is None or view.is_dead or view.damaged or view.last_offset is None:
        return None
    if _disorder(index) or _disorder(time_index) or (index.numbers and index.numbers[-1] >= view.log_size):
        return None
    last = index.base_offset + index.relative[-1] if index.relative else view.base_offset - 1
    behind = time_index.relative[bisect_right(time_index.relative, last - time_index.base_offset) :]
    seen = [samples.at_offset.get(time_index.base_offset + offset) for offset in behind]
    positions = sorted({found[2] for found in seen if found is not None})
    distances = [after - before for before, after in pairwise([0, *index.numbers])]
    least = min(distances, default=0)
    last_position = index.numbers[-1] if index.numbers else 0
    return IndexSpacing(index.path, len(index.relative), least, last_position, positions, last + 1, view.last_offset)


def check_spacing(spacings: list[IndexSpacing]) -> Iterator[Finding]:
    """Offset indexes of a partition that lost entries at their ends (level full).

    Kafka writes an entry as soon as more than index.interval.bytes follow the last one, so the setting is less than every distance between
    entries. If time index entries after the last entry are further apart than that, there was an entry of the offset index between them.
    (A restart and a roll write a time index entry alone, so one or two prove nothing.) If no index has an entry, the default is assumed,
    and many entries are required.
    """
    interval = min((spacing.least for spacing in spacings if spacing.least > 0), default=0)
    asked, behind = (_FAR, _BEHIND) if interval > 0 else (_MANY, _MANY)
    interval = interval or DEFAULT_INDEX_INTERVAL_BYTES
    for spacing in spacings:
        places = [place for place in (spacing.last_position, *spacing.behind) if place >= spacing.last_position]
        far = sum(1 for before, after in pairwise(places) if after - before >= interval)
        if len(spacing.behind) >= behind and far >= asked:
            yield finding(
                "index-incomplete",
                spacing.path,
                f"{spacing.entries} entries, but the time index has {len(spacing.behind)} after the last of them",
                position=spacing.entries * OFFSET_ENTRY_SIZE,
                base_offset=spacing.next_offset,
                last_offset=spacing.last_offset,
            )


def _time_index_complete(index: IndexFile | None, time_index: IndexFile, samples: IndexSamples, view: SegmentView) -> Iterator[Finding]:
    known = set(time_index.numbers)
    last = time_index.numbers[-1] if time_index.numbers else -1
    closed = not view.is_active or (view.clean_stop is True and not time_index.zero_entries)
    missing = 0
    first_missing: int | None = None
    if index is not None and not _disorder(index):
        for offset in index.offsets:
            largest = samples.through.get(offset, -1)
            if largest >= 0 and largest not in known and largest > last:
                missing += 1
                first_missing = offset if first_missing is None else first_missing
    if missing or (closed and 0 <= last < view.max_timestamp) or (closed and not time_index.numbers and view.max_timestamp >= 0):
        detail = f"the last of {len(time_index.numbers)} entries has timestamp {last}, but the segment reaches {view.max_timestamp}"
        if missing:
            detail += f"; {missing} entries of the offset index have none here"
        yield finding(
            "index-incomplete",
            time_index.path,
            detail,
            position=len(time_index.numbers) * TIME_ENTRY_SIZE,
            base_offset=first_missing,
            last_offset=view.last_offset if first_missing is not None else None,
        )


def _inside(ranges: list[tuple[int, int]], position: int) -> bool:
    return any(start <= position < end for start, end in ranges)


def _entries(code: str, index: IndexFile, first: int, last: int, what: str) -> Finding:
    """A finding about the entries `first` to `last` (their numbers)."""
    name = f"entry {first}" if first == last else f"entries {first} to {last}"
    verb = what
    if first == last:
        verb = what.replace("do not", "does not").replace("are wrong", "is wrong").replace("point beyond", "points beyond")
    position = first * index.entry_size
    length = (last - first + 1) * index.entry_size
    return finding(code, index.path, f"{name} of {len(index.relative)} {verb}", position=position, length=length)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as (first, last)."""
    ordered = sorted(numbers)
    if not ordered:
        return
    first = ordered[0]
    for before, number in pairwise(ordered):
        if number != before + 1:
            yield first, before
            first = number
    yield first, ordered[-1]
