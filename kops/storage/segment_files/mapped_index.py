"""The open offset and time index of a segment, as a broker holds them: memory-mapped, preallocated, appended to, truncated.

Sources: Kafka's AbstractIndex, OffsetIndex, TimeIndex. `kops.storage.segment_files.index_entries` has the layout of the entries. The bytes
of the file change as Kafka's mapping changes them. `flush` writes appended entries to the file, and so do `resize` and `close`. So a failed
load leaves the files as Kafka leaves them. Only an index that is appended to has its bytes in memory. Look-ups in any other index read
single entries from the file, so the memory of a log does not grow with its number of segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.config.values.java import INT_MAX
from kops.storage.failures.load_errors import ILLEGAL_STATE, InvalidOffsetError, LoadError, illegal_argument
from kops.storage.segment_files.index_entries import (
    OFFSETS,
    TIMES,
    E,
    EntryKind,
    IndexEntries,
    OffsetPosition,
    TimestampOffset,
    relative_offset,
    timestamp_offset,
)

if TYPE_CHECKING:
    from kops.files import File, Files


class MappedIndex(IndexEntries[E]):
    """The common part of both indexes: the file, its length, the number of entries, and the position of the next one.

    `_data` is the beginning of the mapped file. Bytes after it are zeros up to `length`. If `_data` is None, the bytes are those of the
    file.
    """

    def __init__(self, kind: EntryKind[E], files: Files, path: str, base_offset: int, max_index_size: int) -> None:
        super().__init__(kind, base_offset, 0)
        self.entry_size = kind.size
        self.files = files
        self.path = path
        self.max_index_size = max_index_size
        self.closed = False
        self._dirty_from = self._dirty_to = 0
        self._dirty_entry: bytes | None = None
        self.is_dirty = False
        """Whether the file lacks appended bytes. These begin at `_dirty_from`; a single entry is in `_dirty_entry`."""
        self._change_count = 1
        self._synced_count = 0
        if files.exists(path):
            self._file: File = files.open(path, "rw")
            self.length = self._file.size()
            if self.length > INT_MAX:
                illegal_argument("Size exceeds Integer.MAX_VALUE", words=f"{path}: the index file is larger than 2 GiB")
            self._data: bytearray | None = None
            self.entries = self.length // self.entry_size
        else:
            self._file = files.open(path, "create")
            if max_index_size < self.entry_size:
                self._file.close()
                illegal_argument(f"Invalid max index size: {max_index_size}")
            self.length = self._round_down(max_index_size)
            files.preallocate(self._file, self.length)
            self._data = bytearray()
        self.max_entries = self.length // self.entry_size

    def _round_down(self, size: int) -> int:
        return self.entry_size * (size // self.entry_size)

    @property
    def size(self) -> int:
        """The size of all entries in bytes."""
        return self.entry_size * self.entries

    @property
    def held_bytes(self) -> int:
        """The number of bytes that the index has in memory."""
        return 0 if self._data is None else len(self._data)

    def can_append_offset(self, offset: int) -> bool:
        """Whether an entry can hold the offset."""
        return relative_offset(self.base_offset, offset) is not None

    def _relative_or_raise(self, offset: int) -> int:
        relative = offset - self.base_offset
        if 0 <= relative <= INT_MAX:
            return relative
        # The difference may wrap around.
        wrapped = relative_offset(self.base_offset, offset)
        if wrapped is None:
            reason = f"Integer overflow for offset: {offset} ({self.path})"
            raise LoadError(reason, exception="org.apache.kafka.common.errors.IndexOffsetOverflowException")
        return wrapped

    def _fields(self, slot: int) -> tuple[int, int]:
        size = self.entry_size
        start = slot * size
        data = self._data
        packed = self._file.read(start, size) if data is None else bytes(data[start : start + size])
        first, second = self.kind.layout.unpack(packed.ljust(size, b"\0"))
        return first, second

    def _put(self, packed: bytes) -> None:
        """Append the bytes of an entry after the last entry."""
        data, size = self._data, len(packed)
        if data is None:
            # The bytes after the entries will be overwritten, so rebuilding an index does not read the old one's zeros.
            data = self._data = bytearray(self._file.read(0, self.entries * size))
        start = self.entries * size
        end = start + size
        if end > self.length:
            raise LoadError("", exception="java.nio.BufferOverflowException", words=f"{self.path}: the index is full")
        if len(data) == start:
            data += packed
        else:
            if len(data) < start:
                data.extend(bytes(start - len(data)))
            data[start:end] = packed
        if not self.is_dirty:
            self._dirty_from = start
            self._dirty_to = end
            self._dirty_entry = packed
            self.is_dirty = True
        else:
            self._dirty_from, self._dirty_to = min(start, self._dirty_from), max(end, self._dirty_to)
            self._dirty_entry = None
        self.entries += 1

    def flush(self) -> None:
        """Write appended entries to the file."""
        start = self._dirty_from
        end = min(self._dirty_to, self.length)
        if self._data is not None and start < end and not self.closed:
            self._change_count += 1
            entry = self._dirty_entry
            self._file.write(start, entry if entry is not None and len(entry) == end - start else bytes(self._data[start:end]))
        self._dirty_from = self._dirty_to = 0
        self._dirty_entry = None
        self.is_dirty = False

    def release(self) -> None:
        """Write appended entries to the file, and keep nothing in memory until the next append."""
        self.flush()
        if not self.closed:
            self._data = None

    def force(self) -> None:
        """Write appended entries to the file, and sync it if it has changed since the last sync."""
        if not self.closed:
            self.flush()
            if self._synced_count != self._change_count:
                self._file.sync()
                self._synced_count = self._change_count

    def begin_force(self) -> File | None:
        """Write appended entries, and return a handle with which the caller syncs the file before it calls `end_force`.

        Returns None if nothing has changed since the last sync.
        """
        if self.closed:
            return None
        self.flush()
        return None if self._synced_count == self._change_count else self._file.duplicate()

    @property
    def change_count(self) -> int:
        """A number that grows with each change of the file."""
        return self._change_count

    def end_force(self, change_count: int) -> None:
        """Record that the disk has the file as it was at this `change_count`."""
        self._synced_count = max(self._synced_count, change_count)

    def resize(self, new_size: int) -> bool:
        """Set the file's length to the whole entries that fit into `new_size`. Returns False if the file already has that length."""
        rounded = self._round_down(new_size)
        if self.length == rounded:
            return False
        self.flush()
        self._change_count += 1
        self._file.truncate(rounded)
        self.length = rounded
        if self._data is not None:
            del self._data[rounded:]
        self.max_entries = rounded // self.entry_size
        if self.size > rounded:
            words = f"{self.path}: the index has {self.size} bytes of entries, which do not fit into {rounded}"
            illegal_argument(f"newPosition > limit: ({self.size} > {rounded})", words=words)
        return True

    def trim_to_valid_size(self) -> None:
        """Cut the file after the last entry, and write appended entries even if the length is already right."""
        self.resize(self.size)
        self.flush()

    def _truncate_to_entries(self, entries: int) -> None:
        if entries * self.entry_size > self.length:
            words = f"{self.path}: the index file has {self.length} bytes, too few for {entries} entries"
            illegal_argument(f"newPosition > limit: ({entries * self.entry_size} > {self.length})", words=words)
        self.entries = entries

    def reset(self) -> None:
        """Remove all entries and make room for a rebuild. The old bytes stay in the file until they are overwritten."""
        self._truncate_to_entries(0)
        self.resize(self.max_index_size)

    def rename_to(self, path: str) -> None:
        """Rename the file while the index is open."""
        self.flush()
        self.files.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Trim the file to its entries, as a clean stop does. A second call does nothing."""
        if not self.closed:
            self.trim_to_valid_size()
        self.close_handler()

    def close_handler(self) -> None:
        """Close the file without trimming it."""
        if not self.closed:
            try:
                self.flush()
            finally:
                self._file.close()
                self.closed = True

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        self._truncate_to_entries(self.slots_below(offset))


class MappedOffsetIndex(MappedIndex[OffsetPosition]):
    """The offset index: offsets and their positions."""

    def __init__(self, files: Files, path: str, base_offset: int, max_index_size: int) -> None:
        super().__init__(OFFSETS, files, path, base_offset, max_index_size)
        self.last_offset = self.find_last().offset

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises InvalidOffsetError if the offset does not increase."""
        if self.entries >= self.max_entries:
            illegal_argument(f"Attempt to append to a full index (size = {self.entries}).")
        if offset <= self.last_offset and self.entries:
            raise InvalidOffsetError(
                f"Attempt to append an offset {offset} to position {self.entries} no larger than the last offset appended"
                f" ({self.last_offset}) to {self.path}"
            )
        relative = offset - self.base_offset
        if 0 <= relative <= INT_MAX and 0 <= position <= INT_MAX:
            # The same bytes as `pack` of the layout produces.
            self._put((relative << 32 | position).to_bytes(8, "big"))
        else:
            self._put(self.kind.layout.pack(self._relative_or_raise(offset), position))
        self.last_offset = offset

    def _truncate_to_entries(self, entries: int) -> None:
        super()._truncate_to_entries(entries)
        self.last_offset = self.find_last().offset


class MappedTimeIndex(MappedIndex[TimestampOffset]):
    """The time index: timestamps and their offsets. One slot is reserved for the entry that is added when the segment is closed."""

    def __init__(self, files: Files, path: str, base_offset: int, max_index_size: int) -> None:
        super().__init__(TIMES, files, path, base_offset, max_index_size)
        self.last_entry = self.find_last()

    @property
    def is_full(self) -> bool:
        """Whether only the reserved slot is left."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if the timestamp grows. A smaller offset raises InvalidOffsetError, a smaller timestamp is an illegal state."""
        if self.entries >= self.max_entries - 1 and not skip_full_check:
            illegal_argument(f"Attempt to append to a full time index (size = {self.entries}).")
        last_timestamp, last_offset = self.last_entry
        if offset < last_offset and self.entries:
            raise InvalidOffsetError(
                f"Attempt to append an offset ({offset}) to slot {self.entries} no larger than the last offset appended"
                f" ({last_offset}) to {self.path}"
            )
        if timestamp < last_timestamp and self.entries:
            reason = (
                f"Attempt to append a timestamp ({timestamp}) to slot {self.entries} no larger than the last timestamp appended"
                f" ({last_timestamp}) to {self.path}"
            )
            raise LoadError(reason, exception=ILLEGAL_STATE)
        if timestamp > last_timestamp:
            self._put(self.kind.layout.pack(timestamp, self._relative_or_raise(offset)))
            self.last_entry = timestamp_offset(timestamp, offset)

    def resize(self, new_size: int) -> bool:
        """Resize as `MappedIndex.resize` does, and read the last entry again."""
        resized = super().resize(new_size)
        if resized:
            self.last_entry = self.find_last()
        return resized

    def _truncate_to_entries(self, entries: int) -> None:
        super()._truncate_to_entries(entries)
        self.last_entry = self.find_last()
