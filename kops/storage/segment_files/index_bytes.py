"""The bytes of an index file, decoded on demand: the common part of offset and time index (Kafka AbstractIndex).

A broker preallocates the file with zeros and trims it when it closes the file. After a kill the zeros are still there, and Kafka counts
each of them as an entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kops.errors import DecodeError
from kops.storage.segment_files.index_entries import E, EntryKind, IndexEntries, relative_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

DEFAULT_INDEX_INTERVAL_BYTES: Final = 4096
_ZEROS: Final = bytes(65_536)


class IndexBytes(IndexEntries[E]):
    """An index file: its segment's base offset and its bytes.

    `entries` is the number of whole entries in the file, as Kafka counts them when it opens the file. Preallocated zeros also count as
    entries.
    """

    entry_kind: ClassVar[EntryKind[Any]]

    def __init__(self, base_offset: int, data: bytes) -> None:
        super().__init__(self.entry_kind, base_offset, len(data) // self.entry_kind.size)
        self.data = data

    @classmethod
    def build(cls, base_offset: int, entries: Iterable[tuple[int, int]]) -> Self:
        """Build an index of entries with absolute offsets. Raises OverflowError for an offset that no entry can hold."""
        packed = bytearray()
        for entry in entries:
            fields = list(entry)
            offset = fields[cls.entry_kind.offset_field]
            relative = relative_offset(base_offset, offset)
            if relative is None:
                raise OverflowError(f"offset {offset} does not fit an index whose base offset is {base_offset}")
            fields[cls.entry_kind.offset_field] = relative
            packed += cls.entry_kind.layout.pack(*fields)
        return cls(base_offset, bytes(packed))

    @property
    def written(self) -> int:
        """The number of entries without the preallocated tail: up to the last entry that is not all zeros."""
        return (_length_without_zeros(self.data) + self.kind.size - 1) // self.kind.size

    @property
    def whole(self) -> bytes:
        """The file as a broker leaves it on closing: whole entries only."""
        return self.data[: self.entries * self.kind.size]

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, slot: int) -> E:
        if not 0 <= slot < self.entries:
            raise IndexError(slot)
        return self.entry(slot)

    def __iter__(self) -> Iterator[E]:
        for first, second in self.kind.layout.iter_unpack(memoryview(self.data)[: self.entries * self.kind.size]):
            yield self.kind.entry(self.base_offset, first, second)

    def _fields(self, slot: int) -> tuple[int, int]:
        first, second = self.kind.layout.unpack_from(self.data, slot * self.kind.size)
        return first, second

    def truncated_to(self, offset: int) -> Self:
        """Return this index without the entries at and above `offset`."""
        return type(self)(self.base_offset, self.data[: self.slots_below(offset) * self.kind.size])

    def disorder(self) -> str | None:
        """What Kafka's `sanityCheck` finds wrong with the last entry, or None."""
        last = self.find_last()[self.kind.offset_field]
        if self.entries and last < self.base_offset:
            return f"the last offset {last} of the {self.kind.name} index is less than the base offset {self.base_offset}"
        return None

    def sanity_check(self, file: str | None = None) -> None:
        """Raise DecodeError (`corrupt-offset-index`, `corrupt-time-index`) where Kafka's sanityCheck throws CorruptIndexException."""
        reason, position = self.disorder(), (self.entries - 1) * self.kind.size
        if reason is None and len(self.data) % self.kind.size:
            reason = f"the {self.kind.name} index has {len(self.data)} bytes, which is not a multiple of {self.kind.size}"
            position = self.entries * self.kind.size
        if reason is not None:
            raise DecodeError(reason, code=f"corrupt-{self.kind.name}-index", position=position, file=file)


def _length_without_zeros(data: bytes) -> int:
    """Return the length without the zeros at the end. Whole blocks are compared first, because there can be ten megabytes of zeros."""
    end = len(data)
    while end >= len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    start = max(0, end - len(_ZEROS))
    return start + len(data[start:end].rstrip(b"\0"))
