"""Consecutive batches as columns, which a scan passes to the collectors of facts."""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kops.records.scanning.columns import Columns

_ONE: Final = {1}
_V2: Final = {2}


class Head(NamedTuple):
    """The data kept about a batch: position and size in bytes, offsets, number of records (-1: the header does not tell), format."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    record_count: int
    magic: int

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.size


class Window:
    """Consecutive batches: the columns that the facts are made of. `base_offsets` may have been mended by `mend_legacy`."""

    __slots__ = ("_last_offsets", "base_offsets", "columns", "counts", "magics", "positions", "rows")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = columns.rows
        self.positions = columns.positions
        self.base_offsets: Sequence[int] = columns.column(0)
        self.magics = columns.column(3)
        self.counts = columns.column(12)
        self._last_offsets: list[int] | None = None

    @property
    def last_offsets(self) -> list[int]:
        """Made on demand: most windows are judged without it."""
        if self._last_offsets is None:
            self._last_offsets = self.columns.last_offsets
        return self._last_offsets

    @property
    def is_plain(self) -> bool:
        """Whether all are v2, each begins right after the one before and has a record for each of its offsets."""
        bases, counts = self.base_offsets, self.counts
        if set(map(sub, counts, self.columns.column(6))) != _ONE or set(self.magics) != _V2:
            return False
        return list(map(sub, bases[1:], bases)) == list(counts[:-1])

    def head(self, number: int) -> Head:
        """Return the data of batch `number` of the window."""
        row = self.rows[number]
        return Head(self.positions[number], row[1] + 12, self.base_offsets[number], row[0] + row[6], row[12], row[3])

    def mend_legacy(self, last: Head | None, *, deep: bool) -> bool:
        """Give compressed sets of v0 and v1 their first offset, which is known only after decompression. They are decompressed if `deep` is
        set, or if nothing is before the set (`last` is the batch before the window). Otherwise the first offset is taken to follow the set
        before. Returns whether there are any such sets."""
        found = False
        bases = list(self.base_offsets)
        before = last.last_offset if last is not None else None
        for number, row in enumerate(self.rows):
            if row[3] < 2 and row[5] & 7:
                found = True
                bases[number] = self.columns.batch(number).base_offset if deep or before is None else min(before + 1, row[0])
            before = self.last_offsets[number]
        self.base_offsets = bases
        return found
