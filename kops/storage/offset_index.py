"""The offset index (`.index`): every few KiB of a segment, the last offset of a batch and where the batch begins.

Entries of 8 bytes, big-endian: offset relative to the segment's base offset int32, position in the `.log` int32 (Kafka: OffsetIndex,
AbstractIndex). A broker preallocates the file with zeros and trims it when it closes it; after a kill the zeros are still there, and Kafka
takes each as an entry. Here a value is the file's bytes, decoded on demand.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kops.errors import DecodeError
from kops.storage.index_search import lower_bound, upper_bound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENTRY_SIZE: Final = 8
_ENTRY = Struct(">ii")
_LONG: Final = 1 << 64


class OffsetPosition(NamedTuple):
    """An entry: an absolute offset, and a position in the `.log`."""

    offset: int
    position: int


class OffsetColumns(NamedTuple):
    """All entries at once: offsets relative to the base offset, positions."""

    relative_offsets: array[int]
    positions: array[int]


@dataclass(slots=True)
class OffsetIndex:
    """An offset index file: its segment's base offset and its bytes."""

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
    def last_offset(self) -> int:
        """The last entry's offset, the base offset in an empty index."""
        return self[self.entries - 1].offset if self.entries else self.base_offset

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, slot: int) -> OffsetPosition:
        if not 0 <= slot < self.entries:
            raise IndexError(slot)
        relative, position = _ENTRY.unpack_from(self.data, slot * ENTRY_SIZE)
        return OffsetPosition(wrap_long(self.base_offset + relative), position)

    def __iter__(self) -> Iterator[OffsetPosition]:
        base = self.base_offset
        for relative, position in _ENTRY.iter_unpack(memoryview(self.data)[: self.entries * ENTRY_SIZE]):
            yield OffsetPosition(wrap_long(base + relative), position)

    def columns(self) -> OffsetColumns:
        """All entries as two arrays of int32, without an object an entry."""
        numbers = array("i", self.data[: self.entries * ENTRY_SIZE])
        if sys.byteorder == "little":
            numbers.byteswap()
        return OffsetColumns(numbers[0::2], numbers[1::2])

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset not above `offset`; (base offset, 0) where there is none."""
        slot = lower_bound(self.entries, ENTRY_SIZE, self._offset, offset)
        return OffsetPosition(self.base_offset, 0) if slot == -1 else self[slot]

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """The entry with the smallest position at or behind `position`, None where there is none (OffsetIndex.fetchUpperBoundOffset)."""
        slot = upper_bound(self.entries, ENTRY_SIZE, self._position, position)
        return None if slot == -1 else self[slot]

    def truncated_to(self, offset: int) -> OffsetIndex:
        """This index without the entries at and above `offset`."""
        slot = lower_bound(self.entries, ENTRY_SIZE, self._offset, offset)
        keep = 0 if slot < 0 else slot + (self[slot].offset != offset)
        return OffsetIndex(self.base_offset, self.data[: keep * ENTRY_SIZE])

    def sanity_check(self, file: str | None = None) -> None:
        """Raise DecodeError (`corrupt-offset-index`) where OffsetIndex.sanityCheck throws CorruptIndexException."""
        last = self.last_offset
        if self.entries and last < self.base_offset:
            reason = f"the last offset {last} of the offset index is less than the base offset {self.base_offset}"
            raise DecodeError(reason, code="corrupt-offset-index", position=(self.entries - 1) * ENTRY_SIZE, file=file)
        if len(self.data) % ENTRY_SIZE:
            reason = f"the offset index has {len(self.data)} bytes, which is no multiple of {ENTRY_SIZE}"
            raise DecodeError(reason, code="corrupt-offset-index", position=self.entries * ENTRY_SIZE, file=file)

    def _offset(self, slot: int) -> int:
        return self[slot].offset

    def _position(self, slot: int) -> int:
        return self[slot].position


def read_offset_index(data: bytes, base_offset: int) -> OffsetIndex:
    """The index in a file's bytes. Whatever is in them opens in Kafka; `sanity_check` is what it then looks at."""
    return OffsetIndex(base_offset, data)


def write_offset_index(index: OffsetIndex) -> bytes:
    """The file as a broker leaves it when it closes it: whole entries."""
    return index.data[: index.entries * ENTRY_SIZE]


def build_offset_index(base_offset: int, entries: Iterable[tuple[int, int]]) -> OffsetIndex:
    """An index of (absolute offset, position) entries; OverflowError names an offset that no entry can hold."""
    packed = bytearray()
    for offset, position in entries:
        relative = offset - base_offset
        if not 0 <= relative < 1 << 31:
            raise OverflowError(f"offset {offset} does not fit an index whose base offset is {base_offset}")
        packed += _ENTRY.pack(relative, position)
    return OffsetIndex(base_offset, bytes(packed))


def wrap_long(value: int) -> int:
    """Java's overflow of 64 bits."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % _LONG - (1 << 63)
