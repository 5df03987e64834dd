"""The bytes of a time index (`.timeindex`): the largest timestamps so far, and their offsets.

Source: Kafka's TimeIndex. `kops.storage.segment_files.index_entries` has the layout of the entries.
`kops.storage.segment_files.mapped_index` is the index that a broker has open.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple

from kops.storage.segment_files.index_bytes import IndexBytes
from kops.storage.segment_files.index_entries import TIMES, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TimeColumns", "TimeIndex", "TimestampOffset", "build_time_index", "read_time_index", "write_time_index"]


class TimeColumns(NamedTuple):
    """All entries at once: timestamps in ms, offsets relative to the base offset."""

    timestamps: array[int]
    relative_offsets: array[int]


class TimeIndex(IndexBytes[TimestampOffset]):
    """A time index file: its segment's base offset and its bytes."""

    entry_kind = TIMES

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or (-1, base offset) in an empty index."""
        return self.find_last()

    def disorder(self) -> str | None:
        """What is wrong with the index: the last timestamp is below the first one, or else whatever is wrong in any index."""
        if self.entries and (last := self.find_last().timestamp) < (first := self.entry(0).timestamp):
            return f"the last timestamp {last} of the time index is less than its first one, {first}"
        return super().disorder()

    def columns(self) -> TimeColumns:
        """All entries as an array of int64 and one of int32, without an object for each entry."""
        words = array("i", self.whole)
        relative = words[2::3]
        # The two adjacent words of a timestamp are its eight bytes in file order.
        halves = array("i", bytes(self.entries * 8))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        timestamps = array("q", halves.tobytes())
        if sys.byteorder == "little":
            relative.byteswap()
            timestamps.byteswap()
        return TimeColumns(timestamps, relative)


def read_time_index(data: bytes, base_offset: int) -> TimeIndex:
    """Return the index for a file's bytes. Kafka opens any bytes, and `sanity_check` does the checks that follow."""
    return TimeIndex(base_offset, data)


def write_time_index(index: TimeIndex) -> bytes:
    """Return the file as a broker leaves it on closing: whole entries only."""
    return index.whole


def build_time_index(base_offset: int, entries: Iterable[tuple[int, int]]) -> TimeIndex:
    """Build an index of (timestamp in ms, absolute offset) entries. Raises OverflowError for an offset that no entry can hold."""
    return TimeIndex.build(base_offset, entries)
