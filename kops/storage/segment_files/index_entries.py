"""The entries of an offset or time index, independent of where their bytes are: layout, look-up, truncation, sanity check (Kafka
AbstractIndex).

An entry of an OffsetIndex has 8 bytes: offset relative to the segment's base offset int32, position in the `.log` int32. An entry of a
TimeIndex has 12 bytes: timestamp int64 (ms), relative offset int32. All are big-endian. `offset_index` and `time_index` apply this module
to a file's bytes, `mapped_index` to an open file.

Any bisection of a sorted index finds the same slot. If there are preallocated zeros after the entries, or damaged entries, the result
depends on which slots are compared. The search therefore keeps Kafka's order (AbstractIndex.indexSlotRangeFor): first the last 8 KiB of
entries, then all entries before them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

from mypy_extensions import mypyc_attr

from kops.config.values.java import INT_MAX, to_long

if TYPE_CHECKING:
    from collections.abc import Callable

NO_TIMESTAMP: Final = -1
_WARM_BYTES: Final = 8192


class OffsetPosition(NamedTuple):
    """An entry of an offset index: the last offset of a batch, and the batch's position in the `.log`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """An entry of a time index: the largest timestamp so far in ms, and the last offset of the batch that has it."""

    timestamp: int
    offset: int


@mypyc_attr(acyclic=True)
class OffsetSpan:
    """A batch that was found by offset: its base offset, position and size in bytes (Kafka LogOffsetPosition). It is not changed."""

    __slots__ = ("offset", "position", "size")

    def __init__(self, offset: int, position: int, size: int) -> None:
        self.offset = offset
        self.position = position
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSpan) and self.offset == other.offset and self.position == other.position and self.size == other.size

    def __hash__(self) -> int:
        return hash((self.offset, self.position, self.size))

    def __repr__(self) -> str:
        return f"OffsetSpan({self.offset}, {self.position}, {self.size})"


E = TypeVar("E", bound=Sequence[int])
"""`OffsetPosition` or `TimestampOffset`. With a tuple as its bound, compiled code would see a plain tuple without names."""


def relative_offset(base_offset: int, offset: int) -> int | None:
    """Return an offset as an entry stores it, or None if it does not fit."""
    relative = to_long(offset - base_offset)
    return relative if 0 <= relative <= INT_MAX else None


class EntryKind(Generic[E]):
    """The differences between an offset index and a time index: the name, the layout, which field is the offset, and the entry class."""

    def __init__(self, name: str, layout: str, offset_field: int, make: Callable[[int, int], E], without: int) -> None:
        self.name = name
        self.layout = Struct(layout)
        self.size = self.layout.size
        self.offset_field = offset_field
        self._make: Callable[[int, int], E] = make
        self._without = without

    def entry(self, base_offset: int, first: int, second: int) -> E:
        """Return an entry with an absolute offset for its two stored fields."""
        if self.offset_field == 0:
            return self._make(to_long(base_offset + first), second)
        return self._make(first, to_long(base_offset + second))

    def none(self, base_offset: int) -> E:
        """Return the placeholder for a missing entry: the base offset with position 0 or timestamp -1."""
        return self._make(base_offset, self._without) if self.offset_field == 0 else self._make(self._without, base_offset)


_OFFSET_POSITION: Final = cast("Callable[[tuple[int, int]], OffsetPosition]", partial(tuple.__new__, OffsetPosition))
_TIMESTAMP_OFFSET: Final = cast("Callable[[tuple[int, int]], TimestampOffset]", partial(tuple.__new__, TimestampOffset))


def offset_position(offset: int, position: int) -> OffsetPosition:
    """Return `OffsetPosition(offset, position)` without a call of a function of Python, which the class makes. Every read needs one."""
    return _OFFSET_POSITION((offset, position))


def timestamp_offset(timestamp: int, offset: int) -> TimestampOffset:
    """Return `TimestampOffset(timestamp, offset)`, in the same way. Every append needs one."""
    return _TIMESTAMP_OFFSET((timestamp, offset))


OFFSETS: Final = EntryKind("offset", ">ii", 0, offset_position, 0)
TIMES: Final = EntryKind("time", ">qi", 1, timestamp_offset, NO_TIMESTAMP)


@mypyc_attr(allow_interpreted_subclasses=True)
class IndexEntries(ABC, Generic[E]):
    """A sequence of entries: their kind, their number, and the base offset of their segment. Subclasses implement `_fields`."""

    def __init__(self, kind: EntryKind[E], base_offset: int, entries: int) -> None:
        self.kind: EntryKind[E] = kind
        self.base_offset = base_offset
        self.entries = entries

    @abstractmethod
    def _fields(self, slot: int) -> tuple[int, int]:
        """The two stored numbers of an entry."""

    def entry(self, slot: int) -> E:
        """Entry number `slot`, with an absolute offset."""
        first, second = self._fields(slot)
        return self.kind.entry(self.base_offset, first, second)

    def find_last(self) -> E:
        """The last entry, or the placeholder in an empty index."""
        return self.entry(self.entries - 1) if self.entries else self.kind.none(self.base_offset)

    def lookup(self, target: int) -> E:
        """Return the entry with the largest offset (offset index) or timestamp (time index) that is not above `target`, or the
        placeholder.
        """
        slot = self._lower_bound(0, target)
        return self.kind.none(self.base_offset) if slot < 0 else self.entry(slot)

    def slots_below(self, offset: int) -> int:
        """The number of entries that remain when the log is cut at `offset`."""
        field = self.kind.offset_field
        slot = self._lower_bound(field, offset)
        return 0 if slot < 0 else slot + (self.entry(slot)[field] != offset)

    def _lower_bound(self, field: int, target: int) -> int:
        return lower_bound(self.entries, self.kind.size, lambda slot: self.entry(slot)[field], target)

    def upper_bound(self, position: int) -> E | None:
        """Return the entry of an offset index with the smallest position at or after `position`, or None.

        See OffsetIndex.fetchUpperBoundOffset.
        """
        slot = upper_bound(self.entries, self.kind.size, lambda slot: self._fields(slot)[1], position)
        return None if slot == -1 else self.entry(slot)


def lower_bound(entries: int, entry_size: int, key: Callable[[int], int], target: int) -> int:
    """Return the slot of the largest entry whose `key(slot)` is at most `target`, or -1."""
    if entries == 0:
        return -1
    first_warm = max(0, entries - 1 - _WARM_BYTES // entry_size)
    if key(first_warm) < target:
        return _bisect(key, target, first_warm, entries - 1)[0]
    if key(0) > target:
        return -1
    return _bisect(key, target, 0, first_warm)[0]


def upper_bound(entries: int, entry_size: int, key: Callable[[int], int], target: int) -> int:
    """Return the slot of the smallest entry whose `key(slot)` is at least `target`, or -1.

    As in Kafka, a first entry that equals `target` is skipped: the search ends on it without comparing it.
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
    """Return where the search ends, and whether it met the target itself."""
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
