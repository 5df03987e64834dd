"""The bytes of an offset index (`.index`): for every few KiB of a segment, the last offset of a batch and the batch's position.

Source: Kafka's OffsetIndex. `kops.storage.segment_files.index_entries` has the layout of the entries.
`kops.storage.segment_files.mapped_index` is the index that a broker has open.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple

from kops.storage.segment_files.index_bytes import IndexBytes
from kops.storage.segment_files.index_entries import OFFSETS, OffsetPosition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OffsetColumns", "OffsetIndex", "OffsetPosition", "build_offset_index", "read_offset_index", "write_offset_index"]


class OffsetColumns(NamedTuple):
    """All entries at once: positions, and offsets relative to the base offset."""

    relative_offsets: array[int]
    positions: array[int]


class OffsetIndex(IndexBytes[OffsetPosition]):
    """An offset index file: its segment's base offset and its bytes."""

    entry_kind = OFFSETS

    @property
    def last_offset(self) -> int:
        """The last entry's offset, or the base offset in an empty index."""
        return self.find_last().offset

    def columns(self) -> OffsetColumns:
        """All entries as two arrays of int32, without an object for each entry."""
        numbers = array("i", self.whole)
        if sys.byteorder == "little":
            numbers.byteswap()
        return OffsetColumns(numbers[0::2], numbers[1::2])


def read_offset_index(data: bytes, base_offset: int) -> OffsetIndex:
    """Return the index for a file's bytes. Kafka opens any bytes, and `sanity_check` does the checks that follow."""
    return OffsetIndex(base_offset, data)


def write_offset_index(index: OffsetIndex) -> bytes:
    """Return the file as a broker leaves it on closing: whole entries only."""
    return index.whole


def build_offset_index(base_offset: int, entries: Iterable[tuple[int, int]]) -> OffsetIndex:
    """Build an index of (absolute offset, position) entries. Raises OverflowError for an offset that no entry can hold."""
    return OffsetIndex.build(base_offset, entries)
