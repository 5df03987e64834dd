"""The entries of an offset and a time index, wherever their bytes are: layout, look-up, cutting, sanity (Kafka AbstractIndex).

OffsetIndex: 8 bytes, offset relative to the segment's base offset int32, position in the `.log` int32. TimeIndex: 12 bytes, timestamp
int64 (ms), relative offset int32. Big-endian. `offset_index` and `time_index` read a file's bytes with it, `mapped_index` an open file.

On a sorted index any bisection finds the same slot. On one with preallocated zeros behind its entries, or with damaged entries, what is
found depends on which slots are compared, so Kafka's order is kept (AbstractIndex.indexSlotRangeFor): the last 8 KiB of entries first, then
all before them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

from kops.config.java import INT_MAX, to_long

if TYPE_CHECKING:
    from collections.abc import Callable

NO_TIMESTAMP: Final = -1
_WARM_BYTES: Final = 8192


class OffsetPosition(NamedTuple):
    """An entry of an offset index: the last offset of a batch, and where in the `.log` the batch begins."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """An entry of a time index: the largest timestamp so far in ms, and the last offset of the batch that has it."""

    timestamp: int
    offset: int


E = TypeVar("E", OffsetPosition, TimestampOffset)


def relative_offset(base_offset: int, offset: int) -> int | None:
    """An offset as an entry stores it, None where it does not fit."""
    relative = to_long(offset - base_offset)
    return relative if 0 <= relative <= INT_MAX else None


class IndexEntries(Generic[E]):
    """Some entries. Who has them gives `base_offset`, `entries` (their number) and `_fields`; which kind they are, the class below says."""

    __slots__ = ()

    layout: ClassVar[Struct]
    entry_size: ClassVar[int]
    kind: ClassVar[str]
    offset_field: ClassVar[int]

    if TYPE_CHECKING:
        base_offset: int

        @property
        def entries(self) -> int: ...

        def _fields(self, slot: int) -> tuple[int, int]: ...

        def _entry(self, first: int, second: int) -> E: ...

        @property
        def _none(self) -> E: ...

    def entry(self, slot: int) -> E:
        """Entry number `slot`, its offset absolute."""
        return self._entry(*self._fields(slot))

    def find_last(self) -> E:
        """The last entry; what stands for none in an empty index."""
        return self.entry(self.entries - 1) if self.entries else self._none

    def lookup(self, target: int) -> E:
        """The entry with the largest offset (offset index) or timestamp (time index) not above `target`; what stands for none."""
        slot = self._lower_bound(0, target)
        return self._none if slot < 0 else self.entry(slot)

    def slots_below(self, offset: int) -> int:
        """How many entries stay when the log is cut at `offset`."""
        slot = self._lower_bound(self.offset_field, offset)
        return 0 if slot < 0 else slot + (self.entry(slot)[self.offset_field] != offset)

    def _lower_bound(self, field: int, target: int) -> int:
        return lower_bound(self.entries, self.entry_size, lambda slot: self.entry(slot)[field], target)

    def disorder(self) -> str | None:
        """What is wrong with the last entry to `sanityCheck`, None where nothing is."""
        last = self.find_last()[self.offset_field]
        if self.entries and last < self.base_offset:
            return f"the last offset {last} of the {self.kind} index is less than the base offset {self.base_offset}"
        return None


class OffsetEntries(IndexEntries[OffsetPosition]):
    """Offsets to positions; the base offset at position 0 stands for none."""

    __slots__ = ()

    layout = Struct(">ii")
    entry_size = layout.size
    kind = "offset"
    offset_field = 0

    def _entry(self, first: int, second: int) -> OffsetPosition:
        return OffsetPosition(to_long(self.base_offset + first), second)

    @property
    def _none(self) -> OffsetPosition:
        return OffsetPosition(self.base_offset, 0)

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """The entry with the smallest position at or behind `position`, None where there is none (OffsetIndex.fetchUpperBoundOffset)."""
        slot = upper_bound(self.entries, self.entry_size, lambda slot: self._fields(slot)[1], position)
        return None if slot == -1 else self.entry(slot)


class TimeEntries(IndexEntries[TimestampOffset]):
    """Timestamps to offsets; -1 at the base offset stands for none."""

    __slots__ = ()

    layout = Struct(">qi")
    entry_size = layout.size
    kind = "time"
    offset_field = 1

    def _entry(self, first: int, second: int) -> TimestampOffset:
        return TimestampOffset(first, to_long(self.base_offset + second))

    @property
    def _none(self) -> TimestampOffset:
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def disorder(self) -> str | None:
        """As of any index; before that, a last timestamp below the first one."""
        if self.entries and (last := self.find_last().timestamp) < (first := self.entry(0).timestamp):
            return f"the last timestamp {last} of the time index is less than its first one, {first}"
        return super().disorder()


def lower_bound(entries: int, entry_size: int, key: Callable[[int], int], target: int) -> int:
    """The slot of the largest entry whose `key(slot)` is at most `target`, -1 if there is none."""
    if entries == 0:
        return -1
    first_warm = max(0, entries - 1 - _WARM_BYTES // entry_size)
    if key(first_warm) < target:
        return _bisect(key, target, first_warm, entries - 1)[0]
    if key(0) > target:
        return -1
    return _bisect(key, target, 0, first_warm)[0]


def upper_bound(entries: int, entry_size: int, key: Callable[[int], int], target: int) -> int:
    """The slot of the smallest entry whose `key(slot)` is at least `target`, -1 if there is none.

    As in Kafka a first entry that equals `target` is passed over: the search ends on it without comparing it.
    """
    if entries == 0:
        return -1
    first_warm = max(0, entries - 1 - _WARM_BYTES // entry_size)
    if key(first_warm) < target:
        slot, equal = _bisect(key, target, first_warm, entries - 1)
    elif key(0) > target:
        return 0
    else:
        slot, equal = _bisect(key, target, 0, first_warm)
    if equal:
        return slot
    return -1 if slot == entries - 1 else slot + 1


def _bisect(key: Callable[[int], int], target: int, low: int, high: int) -> tuple[int, bool]:
    """Where the search ends, and whether it met the target itself."""
    while low < high:
        middle = (low + high + 1) >> 1
        value = key(middle)
        if value > target:
            high = middle - 1
        elif value < target:
            low = middle
        else:
            return middle, True
    return low, False
