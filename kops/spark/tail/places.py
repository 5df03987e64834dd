"""Finds offsets in the segments of a log that is being written, by its offset indexes. Little is read: a few entries and a batch.

The active segment's index is preallocated (Kafka's `AbstractIndex`): zeros follow its entries. An entry is used only if its batch is found,
as in `kops.spark.source.pushdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kops.records import Batch, scan

if TYPE_CHECKING:
    from kops.files import File, Files
    from kops.forensics.inventory.tree import Segment

_ENTRY: Final = 8
_WINDOW: Final = 1 << 16


def before(files: Files, segment: Segment, offset: int | None = None) -> int:
    """Return the position of an intact batch whose last offset is below `offset` (None: the last one in the index), or 0."""
    relative = None if offset is None else offset - segment.base_offset
    return _entry(files, segment, lambda entry_offset, _: relative is None or entry_offset < relative)


def weigh(files: Files, segments: Sequence[Segment], begin: int, end: int) -> int:
    """Return about how many bytes lie between two offsets; at least 1 if they differ."""
    total = 0
    for place, segment in enumerate(segments):
        following = segments[place + 1].base_offset if place + 1 < len(segments) else None
        if (following is not None and following <= begin) or segment.base_offset >= end:
            continue
        upper = before(files, segment, end) if following is None or following > end else _size(segment)
        lower = before(files, segment, begin) if segment.base_offset < begin else 0
        # After the last entry there is less than an index interval and a batch.
        total += max(upper - lower, 0) or (_size(segment) - lower if following is None else 1)
    return max(total, 1) if end > begin else 0


def cut(files: Files, segments: Sequence[Segment], begin: int, size: int) -> int:
    """Return the offset after about `size` bytes from the offset `begin` on: the end of a batch, at least one batch further."""
    end = begin
    for place, segment in enumerate(segments):
        following = segments[place + 1].base_offset if place + 1 < len(segments) else None
        if segment.log is None or (following is not None and following <= begin):
            continue
        start = _position(files, segment, begin) if segment.base_offset < begin else 0
        if start + size >= _size(segment):
            # All of it, if there is a next one; else up to its end.
            size -= _size(segment) - start
            end = following if following is not None else max(_last(files, segment, start, None), end)
            if size <= 0 or following is None:
                return max(end, begin + 1)
            continue
        near = _entry(files, segment, partial(_is_within, start + size))
        return max(_last(files, segment, max(near, start), start + size), begin + 1)
    return max(end, begin + 1)


def _is_within(limit: int, _: int, position: int) -> bool:
    return position <= limit


def _position(files: Files, segment: Segment, offset: int) -> int:
    """The position of the batch that has an offset, or that follows it."""
    assert segment.log is not None
    position = before(files, segment, offset)
    with files.open(segment.log.path) as file:
        for item in scan(file, position, check_crc=False, window=_WINDOW):
            if isinstance(item, Batch) and item.last_offset >= offset:
                return item.position
            position = item.position
    return position


def _last(files: Files, segment: Segment, start: int, limit: int | None) -> int:
    """The offset after the last batch that ends within `limit`, or after the first batch from `start` on."""
    assert segment.log is not None
    found = -1
    with files.open(segment.log.path) as file:
        for item in scan(file, start, check_crc=False, window=_WINDOW):
            if isinstance(item, Batch):
                if found >= 0 and limit is not None and item.position + item.size > limit:
                    break
                found = item.next_offset
    return found


def _entry(files: Files, segment: Segment, holds: Callable[[int, int], bool]) -> int:
    """The position of the last entry of the offset index for which `holds` (of a relative offset and a position), if its batch is there."""
    index = segment.files.get("index")
    if index is None or segment.log is None:
        return 0
    with suppress(FileNotFoundError), files.open(index.path) as entries:
        low, high = -1, entries.size() // _ENTRY
        while high - low > 1:
            middle = (low + high) // 2
            relative, position = _read(entries, middle)
            if position > 0 and holds(relative, position):
                low = middle
            else:
                high = middle
        if low >= 0:
            relative, position = _read(entries, low)
            return position if _batch_ends_at(files, segment.log.path, position, segment.base_offset + relative) else 0
    return 0


def _read(entries: File, number: int) -> tuple[int, int]:
    data = entries.read(number * _ENTRY, _ENTRY)
    if len(data) < _ENTRY:
        return 0, 0  # It was cut to its entries when the segment was rolled.
    return int.from_bytes(data[:4], "big", signed=True), int.from_bytes(data[4:], "big", signed=True)


def _batch_ends_at(files: Files, path: str, position: int, last_offset: int) -> bool:
    with files.open(path) as source:
        found = next(scan(source, position, resync=False, window=_WINDOW), None) if position < source.size() else None
    return isinstance(found, Batch) and found.position == position and found.last_offset == last_offset


def _size(segment: Segment) -> int:
    return segment.log.size if segment.log is not None else 0
