"""An index file as a value: its bytes, decoded on demand. What the offset and the time index share (Kafka AbstractIndex).

A broker preallocates the file with zeros and trims it when it closes it; after a kill the zeros are still there, and Kafka takes each as
an entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.storage.index_entries import E, IndexEntries, relative_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self


@dataclass(slots=True)
class IndexBytes(IndexEntries[E]):
    """An index file: its segment's base offset and its bytes."""

    base_offset: int
    data: bytes

    @classmethod
    def build(cls, base_offset: int, entries: Iterable[tuple[int, int]]) -> Self:
        """An index of entries with absolute offsets; OverflowError names an offset that no entry can hold."""
        packed = bytearray()
        for entry in entries:
            fields = list(entry)
            offset = fields[cls.offset_field]
            relative = relative_offset(base_offset, offset)
            if relative is None:
                raise OverflowError(f"offset {offset} does not fit an index whose base offset is {base_offset}")
            fields[cls.offset_field] = relative
            packed += cls.layout.pack(*fields)
        return cls(base_offset, bytes(packed))

    @property
    def entries(self) -> int:
        """Whole entries in the file, as Kafka counts them when it opens it: preallocated zeros are entries, too."""
        return len(self.data) // self.entry_size

    @property
    def written(self) -> int:
        """Entries up to the last one that is not all zeros: what there was before the preallocated tail."""
        return (len(self.data.rstrip(b"\0")) + self.entry_size - 1) // self.entry_size

    @property
    def whole(self) -> bytes:
        """The file as a broker leaves it when it closes it: whole entries."""
        return self.data[: self.entries * self.entry_size]

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, slot: int) -> E:
        if not 0 <= slot < self.entries:
            raise IndexError(slot)
        return self.entry(slot)

    def __iter__(self) -> Iterator[E]:
        for first, second in self.layout.iter_unpack(memoryview(self.data)[: self.entries * self.entry_size]):
            yield self._entry(first, second)

    def _fields(self, slot: int) -> tuple[int, int]:
        first, second = self.layout.unpack_from(self.data, slot * self.entry_size)
        return first, second

    def truncated_to(self, offset: int) -> Self:
        """This index without the entries at and above `offset`."""
        return type(self)(self.base_offset, self.data[: self.slots_below(offset) * self.entry_size])

    def sanity_check(self, file: str | None = None) -> None:
        """DecodeError (`corrupt-offset-index`, `corrupt-time-index`) where Kafka's sanityCheck throws CorruptIndexException."""
        reason, position = self.disorder(), (self.entries - 1) * self.entry_size
        if reason is None and len(self.data) % self.entry_size:
            reason = f"the {self.kind} index has {len(self.data)} bytes, which is no multiple of {self.entry_size}"
            position = self.entries * self.entry_size
        if reason is not None:
            raise DecodeError(reason, code=f"corrupt-{self.kind}-index", position=position, file=file)
