"""The time index (`.timeindex`): largest timestamps so far, and the offset of the record that has it.

Entries of 12 bytes, big-endian: timestamp int64 (ms), offset relative to the segment's base offset int32 (Kafka: TimeIndex,
AbstractIndex). Preallocated and trimmed as the offset index is.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kops.errors import DecodeError
from kops.storage.index_search import lower_bound
from kops.storage.offset_index import wrap_long

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENTRY_SIZE: Final = 12
NO_TIMESTAMP: Final = -1
_ENTRY = Struct(">qi")


class TimestampOffset(NamedTuple):
    """An entry: a timestamp in ms, and an absolute offset."""

    timestamp: int
    offset: int


class TimeColumns(NamedTuple):
    """All entries at once: timestamps in ms, offsets relative to the base offset."""

    timestamps: array[int]
    relative_offsets: array[int]


@dataclass(slots=True)
class TimeIndex:
    """A time index file: its segment's base offset and its bytes."""

    base_offset: int
    data: bytes

    entry_size: ClassVar[int] = ENTRY_SIZE

    @property
    def entries(self) -> int:
        """Whole entries in the file, as Kafka counts them when it opens it: preallocated zeros are entries, too."""
        return len(self.data) // ENTRY_SIZE

    @property
    def written(self) -> int:
        """Entries up to the last one that is not all zeros: what there was before the preallocated tail."""
        return (len(self.data.rstrip(b"\0")) + ENTRY_SIZE - 1) // ENTRY_SIZE

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) in an empty index."""
        return self[self.entries - 1] if self.entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, slot: int) -> TimestampOffset:
        if not 0 <= slot < self.entries:
            raise IndexError(slot)
        timestamp, relative = _ENTRY.unpack_from(self.data, slot * ENTRY_SIZE)
        return TimestampOffset(timestamp, wrap_long(self.base_offset + relative))

    def __iter__(self) -> Iterator[TimestampOffset]:
        base = self.base_offset
        for timestamp, relative in _ENTRY.iter_unpack(memoryview(self.data)[: self.entries * ENTRY_SIZE]):
            yield TimestampOffset(timestamp, wrap_long(base + relative))

    def columns(self) -> TimeColumns:
        """All entries as an array of int64 and one of int32, without an object an entry."""
        words = array("i", self.data[: self.entries * ENTRY_SIZE])
        relative = words[2::3]
        # A timestamp's two words, put side by side, are its eight bytes in the file's order.
        halves = array("i", bytes(self.entries * 8))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        timestamps = array("q", halves.tobytes())
        if sys.byteorder == "little":
            relative.byteswap()
            timestamps.byteswap()
        return TimeColumns(timestamps, relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The entry with the largest timestamp not above `timestamp`; (-1, base offset) where there is none."""
        slot = lower_bound(self.entries, ENTRY_SIZE, self._timestamp, timestamp)
        return TimestampOffset(NO_TIMESTAMP, self.base_offset) if slot == -1 else self[slot]

    def truncated_to(self, offset: int) -> TimeIndex:
        """This index without the entries at and above `offset`."""
        slot = lower_bound(self.entries, ENTRY_SIZE, self._offset, offset)
        keep = 0 if slot < 0 else slot + (self[slot].offset != offset)
        return TimeIndex(self.base_offset, self.data[: keep * ENTRY_SIZE])

    def sanity_check(self, file: str | None = None) -> None:
        """Raise DecodeError (`corrupt-time-index`) where TimeIndex.sanityCheck throws CorruptIndexException."""
        last = self.last_entry
        position = max(self.entries - 1, 0) * ENTRY_SIZE
        if self.entries and last.timestamp < self[0].timestamp:
            reason = f"the last timestamp {last.timestamp} of the time index is less than its first one, {self[0].timestamp}"
            raise DecodeError(reason, code="corrupt-time-index", position=position, file=file)
        if self.entries and last.offset < self.base_offset:
            reason = f"the last offset {last.offset} of the time index is less than the base offset {self.base_offset}"
            raise DecodeError(reason, code="corrupt-time-index", position=position, file=file)
        if len(self.data) % ENTRY_SIZE:
            reason = f"the time index has {len(self.data)} bytes, which is no multiple of {ENTRY_SIZE}"
            raise DecodeError(reason, code="corrupt-time-index", position=self.entries * ENTRY_SIZE, file=file)

    def _timestamp(self, slot: int) -> int:
        return self[slot].timestamp

    def _offset(self, slot: int) -> int:
        return self[slot].offset


def read_time_index(data: bytes, base_offset: int) -> TimeIndex:
    """The index in a file's bytes. Whatever is in them opens in Kafka; `sanity_check` is what it then looks at."""
    return TimeIndex(base_offset, data)


def write_time_index(index: TimeIndex) -> bytes:
    """The file as a broker leaves it when it closes it: whole entries."""
    return index.data[: index.entries * ENTRY_SIZE]


def build_time_index(base_offset: int, entries: Iterable[tuple[int, int]]) -> TimeIndex:
    """An index of (timestamp in ms, absolute offset) entries; OverflowError names an offset that no entry can hold."""
    packed = bytearray()
    for timestamp, offset in entries:
        relative = offset - base_offset
        if not 0 <= relative < 1 << 31:
            raise OverflowError(f"offset {offset} does not fit an index whose base offset is {base_offset}")
        packed += _ENTRY.pack(timestamp, relative)
    return TimeIndex(base_offset, bytes(packed))
