"""Reads headers in bulk, for work that needs no object per batch, such as verifying the checksums of a segment or building an index.

The rules are those of `kops.records.scanning.scanner`, which handles everything that is not a good batch.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from kops.records import _hot as hot
from kops.records.batch import BATCH_OVERHEAD, HEADER_V2, LOG_OVERHEAD, Batch
from kops.records.crc import crc32c_function
from kops.records.scanning.checked import Checked
from kops.records.scanning.damage import Damage
from kops.records.scanning.resync import Resync, known_magic
from kops.records.scanning.scanner import WINDOW, scan_on
from kops.records.scanning.source import ByteSource

Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""(base offset, length field, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp, producer id, producer
epoch, base sequence, count): the header, unchanged."""

_TIMESTAMP: Final = struct.Struct(">q")
_LEGACY: Final = struct.Struct(">qiIbb")


class Columns:
    """The headers of consecutive good batches from `position` to `end`, all within `window`.

    `rows` are the headers (see `Row`). Each property is one column, built on access. For v0 and v1, `base_offsets` repeats the offset of
    the outer message, and `counts` is -1. `window` begins at `window_position` in the file. `is_sound`: the records are known to fit the
    headers; who finds that out sets it. Headers that were kept from an earlier scan have no window until it is asked for.
    """

    __slots__ = ("_columns", "_source", "_window", "end", "is_sound", "position", "positions", "rows", "window_position")

    def __init__(self, rows: list[Row], positions: list[int], end: int, window: bytes | None, window_position: int) -> None:
        self.rows = rows
        self.positions = positions
        self.position = positions[0]
        self.end = end
        self.is_sound = False
        self.window_position = window_position
        self._window = window
        self._source: ByteSource | None = None
        self._columns: tuple[tuple[int, ...], ...] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def window(self) -> bytes:
        """The bytes. Those of headers that were kept are read now; raises OSError if they can't be, or are no longer there."""
        if self._window is None:
            assert self._source is not None, "headers that are kept are read through a scan"
            window = self._source.read(self.window_position, self.end - self.window_position)
            if len(window) < self.end - self.window_position:
                raise OSError(errno.ESTALE, f"the file ends before position {self.end}, where it had batches a moment ago")
            self._window = window
        return self._window

    def part(self, first: int, last: int, shift: int = 0, source: ByteSource | None = None) -> Columns:
        """Return the batches `first` to `last` (exclusive), without their bytes, of a file that has them `shift` bytes further on.
        `source`: where to read the bytes if they are asked for."""
        is_whole = last - first == len(self.rows)
        rows, positions = (self.rows, self.positions) if is_whole else (self.rows[first:last], self.positions[first:last])
        end = self.end if last == len(self.rows) else self.positions[last]
        if shift:
            positions = [position + shift for position in positions]
        found = Columns(rows, positions, end + shift, None, positions[0])
        found.is_sound = self.is_sound
        found._source = source
        found._columns = self._columns if is_whole else None
        return found

    def learn(self, other: Columns) -> None:
        """Take over what was found out about the same batches."""
        self.is_sound |= other.is_sound
        self._columns = self._columns or other._columns

    def column(self, number: int) -> tuple[int, ...]:
        """One field of every header, in the order of `Row`."""
        if self._columns is None:
            self._columns = tuple(zip(*self.rows, strict=True))
        return self._columns[number]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the batches in bytes."""
        return [length + LOG_OVERHEAD for length in self.column(1)]

    @property
    def base_offsets(self) -> Sequence[int]:
        return self.column(0)

    @property
    def last_offsets(self) -> list[int]:
        return [base + delta for base, delta in zip(self.column(0), self.column(6), strict=True)]

    @property
    def leader_epochs(self) -> Sequence[int]:
        return self.column(2)

    @property
    def magics(self) -> Sequence[int]:
        return self.column(3)

    @property
    def attributes(self) -> Sequence[int]:
        return self.column(5)

    @property
    def max_timestamps(self) -> Sequence[int]:
        return self.column(8)

    @property
    def producer_ids(self) -> Sequence[int]:
        return self.column(9)

    @property
    def counts(self) -> Sequence[int]:
        return self.column(12)

    def batch(self, number: int) -> Batch:
        """Return the batch of one row as an object."""
        position = self.positions[number]
        return Batch(self.window, position - self.window_position, position)

    def unsound(self) -> list[int]:
        """Return the numbers of the batches that `Batch.check` has to judge. The others are batches of v2 whose records fit the header:
        uncompressed ones, and those that were judged before."""
        if min(self.column(3)) < 2:
            return list(range(len(self.rows)))
        if self.is_sound:
            return []
        return hot.to_check(self.window, [position - self.window_position for position in self.positions])

    def batches(self) -> Iterator[Batch]:
        """Yield every row as an object."""
        for position in self.positions:
            yield Batch(self.window, position - self.window_position, position)


def scan_columns(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    resync: bool = True,
    max_magic: int = 2,
    window: int = WINDOW,
) -> Iterator[Columns | Damage]:
    """Scan as `scan` does, but yield `Columns` of up to a window each in place of batches, and the `Damage` between them.

    A `source` with an attribute `checked` (`kops.records.scanning.checked.Checked`) is not checked where that says that it was, and not
    read where that has the headers. What is checked now is added.
    """
    size = source.size()
    rescue = Resync(source, size if end is None else min(end, size), max_magic)
    memory: Checked[Columns] | None = getattr(source, "checked", None)
    checked = memory if check_crc else None
    position = start
    followed = -1
    last_offset: int | None = None
    while position < rescue.limit:
        kept = memory.windows.get(position) if memory is not None else None
        if kept is not None and kept.end <= rescue.limit:
            found = kept.part(0, len(kept), source=source)
            yield found
            kept.learn(found)
            last_offset = found.rows[-1][0] + found.rows[-1][6]
            position = followed = found.end
            continue
        known = checked.at(position, position == followed) if checked is not None else None
        reach = rescue.limit if known is None else min(known.end, rescue.limit)
        data = source.read(position, min(window, reach - position))
        rows: list[Row] = []
        positions: list[int] = []
        stop = read_headers(data, position, check_crc and known is None, max_magic, rows, positions)
        if rows:
            found = Columns(rows, positions, position + stop, data, position)
            found.is_sound = known is not None and known.is_sound
            yield found
            if checked is not None:
                if known is None:
                    checked.add(position, position + stop, found.is_sound)
                checked.keep(found)
            last_offset = rows[-1][0] + rows[-1][6]
            position += stop
            followed = -1 if known is None else position
            continue
        # There is no good batch at the beginning of the window: either damage or a batch larger than a window. `scan` decides.
        for item in scan_on(rescue, position, last_offset, check_crc=check_crc, resync=resync, window=window):
            if isinstance(item, Batch):
                if item.position == position:
                    known = checked.at(position, position == followed) if checked is not None else None
                    yield (single := _single(item))
                    if checked is not None:
                        if known is None:
                            checked.add(position, item.end, single.is_sound)
                        checked.keep(single)
                    position, last_offset = item.end, item.last_offset
                    followed = -1 if known is None else position
                break
            yield item
            if not resync:
                return
            position = item.end


def read_headers(data: bytes, position: int, check_crc: bool, max_magic: int, rows: list[Row], positions: list[int]) -> int:
    """Append the header of every good batch from the beginning of `data`, which is at `position` in the file, up to the first batch that is
    damaged or cut off. Returns the index after the last good batch."""
    unpack = HEADER_V2.unpack_from
    crc32c = crc32c_function()
    view = memoryview(data)
    size = len(data)
    add = rows.append
    place = positions.append
    index = 0
    last = size - BATCH_OVERHEAD
    while index <= last:
        row: Row = unpack(data, index)
        stop = index + row[1] + LOG_OVERHEAD
        if row[3] > 1:
            if stop > size or row[1] < 49 or row[3] > max_magic or (check_crc and crc32c(view[index + 21 : stop]) != row[4]):
                return index
        else:
            legacy = _legacy_row(data, index, stop, check_crc, max_magic)
            if legacy is None:
                return index
            row = legacy
        place(position + index)
        add(row)
        index = stop
    # A message of v0 or v1 may be smaller than a header of v2.
    while index + 26 <= size:
        stop = index + int.from_bytes(data[index + 8 : index + 12], "big", signed=True) + LOG_OVERHEAD
        legacy = _legacy_row(data, index, stop, check_crc, max_magic)
        if legacy is None:
            break
        place(position + index)
        add(legacy)
        index = stop
    return index


def _legacy_row(data: bytes, index: int, stop: int, check_crc: bool, max_magic: int) -> Row | None:
    """Return the header of a message of v0 or v1 as a v2 header, or None if the message is damaged."""
    offset, length, crc, magic, attributes = _LEGACY.unpack_from(data, index)
    if magic > 1 or not known_magic(magic, max_magic) or length < 14 or stop > len(data):
        return None
    if check_crc and zlib.crc32(memoryview(data)[index + 16 : stop]) != crc:
        return None
    timestamp = _TIMESTAMP.unpack_from(data, index + 18)[0] if magic else -1
    return (offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, -1)


def _single(batch: Batch) -> Columns:
    rows: list[Row] = []
    if batch.magic > 1:
        rows.append(HEADER_V2.unpack_from(batch.buffer, batch.index))
    else:
        legacy = _legacy_row(batch.buffer, batch.index, batch.index + batch.size, False, 127)
        assert legacy is not None
        rows.append(legacy)
    return Columns(rows, [batch.position], batch.end, batch.buffer, batch.position - batch.index)
