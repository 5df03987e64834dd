"""The offset and time index of a segment as a broker holds them: memory-mapped, preallocated, appended to, cut (Kafka AbstractIndex).

Sources: AbstractIndex, OffsetIndex (entries of 8 bytes: relative offset int32, position int32), TimeIndex (12 bytes: timestamp int64,
relative offset int32). The file's bytes change as Kafka's mapping would change them; `flush` brings what was appended since to
the file, `resize` and `close` do so by themselves, so a load that fails leaves the files as Kafka leaves them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kops.config.java import INT_MAX, to_long
from kops.storage.index_search import lower_bound
from kops.storage.load_errors import ILLEGAL_STATE, InvalidOffsetError, LoadError, illegal_argument

if TYPE_CHECKING:
    from kops.files import File, Files

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ZEROS_COMPARED = 65536


class OffsetPosition(NamedTuple):
    """Where an offset (or a smaller one) stands: the batch's last offset, its first byte in the file."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """The largest timestamp up to an offset: ms, the last offset of the batch that has it."""

    timestamp: int
    offset: int


class MappedIndex:
    """What both indexes share: the file, its length, the number of entries, where the next one goes.

    Bytes behind the mapped prefix `_data` are zeros as far as `length`.
    """

    entry_size: ClassVar[int]

    def __init__(self, files: Files, path: str, base_offset: int, max_index_size: int) -> None:
        self.files = files
        self.path = path
        self.base_offset = base_offset
        self.max_index_size = max_index_size
        self.closed = False
        self._dirty_from = self._dirty_to = 0
        if files.exists(path):
            self._file: File = files.open(path, "rw")
            self.length = self._file.size()
            if self.length > INT_MAX:
                illegal_argument("Size exceeds Integer.MAX_VALUE")
            self._data = bytearray(self._read_prefix())
            self.entries = self.length // self.entry_size
        else:
            self._file = files.open(path, "create")
            if max_index_size < self.entry_size:
                self._file.close()
                illegal_argument(f"Invalid max index size: {max_index_size}")
            self.length = self._round_down(max_index_size)
            files.preallocate(self._file, self.length)
            self._data = bytearray()
            self.entries = 0
        self.max_entries = self.length // self.entry_size

    def _read_prefix(self) -> bytes:
        """The file without its tail of zeros: a preallocated index of a killed broker is nearly all zeros."""
        parts = []
        position = kept = 0
        while position < self.length:
            part = self._file.read(position, _ZEROS_COMPARED)
            if not part:
                break
            parts.append(part)
            position += len(part)
            if part.count(0) != len(part):
                kept = len(parts)
        return b"".join(parts[:kept])

    def _round_down(self, size: int) -> int:
        return self.entry_size * (size // self.entry_size)

    @property
    def size(self) -> int:
        """Bytes of the entries that are there."""
        return self.entry_size * self.entries

    def relative_offset(self, offset: int) -> int | None:
        """The offset as an entry stores it, None where it does not fit."""
        relative = to_long(offset - self.base_offset)
        return relative if 0 <= relative <= INT_MAX else None

    def _relative_or_raise(self, offset: int) -> int:
        relative = self.relative_offset(offset)
        if relative is None:
            reason = f"Integer overflow for offset: {offset} ({self.path})"
            raise LoadError(reason, exception="org.apache.kafka.common.errors.IndexOffsetOverflowException")
        return relative

    def _get(self, struct: Struct, slot: int) -> tuple[int, ...]:
        """The fields of entry `slot`; IndexOutOfBounds as a ByteBuffer raises it."""
        start = slot * self.entry_size
        end = start + self.entry_size
        data = self._data
        if end <= len(data):
            return struct.unpack_from(data, start)
        return struct.unpack(bytes(data[start:end]).ljust(self.entry_size, b"\0"))

    def _put(self, packed: bytes) -> None:
        """Append an entry's bytes at the mapping's position."""
        start = self.entries * self.entry_size
        end = start + self.entry_size
        if end > self.length:
            raise LoadError("", exception="java.nio.BufferOverflowException")
        data = self._data
        if len(data) < start:
            data.extend(bytes(start - len(data)))
        data[start:end] = packed
        if self._dirty_from == self._dirty_to:
            self._dirty_from = start
        self._dirty_from = min(self._dirty_from, start)
        self._dirty_to = max(self._dirty_to, end)
        self.entries += 1

    def flush(self) -> None:
        """Bring what was appended to the file."""
        end = min(self._dirty_to, self.length)
        if self._dirty_from < end and not self.closed:
            self._file.write(self._dirty_from, bytes(self._data[self._dirty_from : end]))
        self._dirty_from = self._dirty_to = 0

    def resize(self, new_size: int) -> bool:
        """Set the file's length to whole entries within `new_size`; False where it has that length already."""
        rounded = self._round_down(new_size)
        if self.length == rounded:
            return False
        self.flush()
        self._file.truncate(rounded)
        self.length = rounded
        del self._data[rounded:]
        self.max_entries = rounded // self.entry_size
        if self.size > rounded:
            illegal_argument(f"newPosition > limit: ({self.size} > {rounded})")
        return True

    def trim_to_valid_size(self) -> None:
        """Cut the file behind the last entry."""
        self.resize(self.size)

    def _truncate_to_entries(self, entries: int) -> None:
        if entries * self.entry_size > self.length:
            illegal_argument(f"newPosition > limit: ({entries * self.entry_size} > {self.length})")
        self.entries = entries

    def reset(self) -> None:
        """Forget all entries and make room for a rebuild; the old bytes stay in the file until they are written over."""
        self._truncate_to_entries(0)
        self.resize(self.max_index_size)

    def rename_to(self, path: str) -> None:
        """Rename the file below the open index."""
        self.flush()
        self.files.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Trim to what is there, as a clean stop does; a second close does nothing."""
        if not self.closed:
            self.trim_to_valid_size()
        self.close_handler()

    def close_handler(self) -> None:
        """Let go of the file without trimming it."""
        if not self.closed:
            self.flush()
            self._file.close()
            self.closed = True

    def _largest_lower_bound(self, struct: Struct, field: int, target: int) -> int:
        """The slot of the last entry whose `field` is not above `target`, -1 where there is none."""
        base = 0 if struct is _TIME_ENTRY and field == 0 else self.base_offset
        return lower_bound(self.entries, self.entry_size, lambda slot: to_long(base + self._get(struct, slot)[field]), target)

    def _slots_below(self, struct: Struct, field: int, offset: int) -> int:
        """How many entries stay when the log is cut at `offset`."""
        slot = self._largest_lower_bound(struct, field, offset)
        if slot < 0:
            return 0
        return slot if self._get(struct, slot)[field] == to_long(offset - self.base_offset) else slot + 1


class OffsetIndex(MappedIndex):
    """Offsets to positions."""

    entry_size = _OFFSET_ENTRY.size

    def __init__(self, files: Files, path: str, base_offset: int, max_index_size: int) -> None:
        super().__init__(files, path, base_offset, max_index_size)
        self.last_offset = self._last_offset()

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry; InvalidOffsetError where the offset does not increase."""
        if self.is_full:
            illegal_argument(f"Attempt to append to a full index (size = {self.entries}).")
        if self.entries and offset <= self.last_offset:
            raise InvalidOffsetError(
                f"Attempt to append an offset {offset} to position {self.entries} no larger than the last offset appended"
                f" ({self.last_offset}) to {self.path}"
            )
        self._put(_OFFSET_ENTRY.pack(self._relative_or_raise(offset), position))
        self.last_offset = offset

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry not above `offset`, or the segment's beginning."""
        slot = self._largest_lower_bound(_OFFSET_ENTRY, 0, offset)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def entry(self, slot: int) -> OffsetPosition:
        """Entry number `slot`."""
        relative, position = self._get(_OFFSET_ENTRY, slot)
        return OffsetPosition(to_long(self.base_offset + relative), position)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        self._truncate_to_entries(self._slots_below(_OFFSET_ENTRY, 0, offset))

    def _truncate_to_entries(self, entries: int) -> None:
        super()._truncate_to_entries(entries)
        self.last_offset = self._last_offset()

    def _last_offset(self) -> int:
        return self.entry(self.entries - 1).offset if self.entries else self.base_offset


class TimeIndex(MappedIndex):
    """Timestamps to offsets; one slot is kept for the entry that closing a segment adds."""

    entry_size = _TIME_ENTRY.size

    def __init__(self, files: Files, path: str, base_offset: int, max_index_size: int) -> None:
        super().__init__(files, path, base_offset, max_index_size)
        self.last_entry = self._last_entry()

    @property
    def is_full(self) -> bool:
        """Whether only the slot of the closing entry is left."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry where the timestamp grows; InvalidOffsetError or an illegal state where offset or timestamp go back."""
        if not skip_full_check and self.is_full:
            illegal_argument(f"Attempt to append to a full time index (size = {self.entries}).")
        last = self.last_entry
        if self.entries and offset < last.offset:
            raise InvalidOffsetError(
                f"Attempt to append an offset ({offset}) to slot {self.entries} no larger than the last offset appended"
                f" ({last.offset}) to {self.path}"
            )
        if self.entries and timestamp < last.timestamp:
            reason = (
                f"Attempt to append a timestamp ({timestamp}) to slot {self.entries} no larger than the last timestamp appended"
                f" ({last.timestamp}) to {self.path}"
            )
            raise LoadError(reason, exception=ILLEGAL_STATE)
        if timestamp > last.timestamp:
            self._put(_TIME_ENTRY.pack(timestamp, self._relative_or_raise(offset)))
            self.last_entry = TimestampOffset(timestamp, offset)

    def entry(self, slot: int) -> TimestampOffset:
        """Entry number `slot`."""
        timestamp, relative = self._get(_TIME_ENTRY, slot)
        return TimestampOffset(timestamp, to_long(self.base_offset + relative))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry not above `timestamp`, or no timestamp at the segment's beginning."""
        slot = self._largest_lower_bound(_TIME_ENTRY, 0, timestamp)
        return TimestampOffset(-1, self.base_offset) if slot < 0 else self.entry(slot)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        self._truncate_to_entries(self._slots_below(_TIME_ENTRY, 1, offset))

    def resize(self, new_size: int) -> bool:
        """As `MappedIndex.resize`; reads the last entry again."""
        resized = super().resize(new_size)
        if resized:
            self.last_entry = self._last_entry()
        return resized

    def _truncate_to_entries(self, entries: int) -> None:
        super()._truncate_to_entries(entries)
        self.last_entry = self._last_entry()

    def _last_entry(self) -> TimestampOffset:
        return self.entry(self.entries - 1) if self.entries else TimestampOffset(-1, self.base_offset)
