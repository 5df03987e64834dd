"""The `.log` file of a segment, walked batch by batch the way a broker walks it (Kafka FileRecords, FileLogInputStream).

A broker's walk checks little: a length below 14 is an error, a batch that reaches beyond the end is the end, headers are read on
demand, CRCs only by recovery. Loading depends on each of these, so they are kept here; what looks for damage uses `kops.records.scan`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kops.config.java import INT_MAX, to_int, to_long
from kops.records.crc import crc32, crc32c
from kops.storage import legacy_batch
from kops.storage.load_errors import INDEX_OUT_OF_BOUNDS, KAFKA_EXCEPTION, CorruptRecordError, LoadError, illegal_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kops.files import File, Files
    from kops.records import ByteSource

LOG_OVERHEAD = 12
HEADER_SIZE_UP_TO_MAGIC = 17
MIN_RECORD_SIZE = 14
V2_OVERHEAD = 61
_WINDOW = 1 << 16
_PREFIX = Struct(">qi4xb")
_V2 = Struct(">qiibIhiqqqhii")


class OffsetSpan(NamedTuple):
    """A batch found by offset: its base offset, first byte and size in bytes (Kafka LogOffsetPosition)."""

    offset: int
    position: int
    size: int


class V2Header(NamedTuple):
    """The fixed part of a v2 batch."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class FileBatch:
    """One batch in the file: offset and length as its first bytes say, the rest read when it is asked for."""

    __slots__ = ("_full", "_header", "log", "magic", "offset", "position", "size")

    def __init__(self, log: LogView, position: int, size: int, offset: int, magic: int) -> None:
        self.log = log
        self.position = position
        self.size = size
        self.offset = offset
        self.magic = magic
        self._header: V2Header | None = None
        self._full: bytes | None = None

    @property
    def is_legacy(self) -> bool:
        """Message format v0 or v1 (or a negative magic, which Kafka reads the same way)."""
        return self.magic < 2

    def data(self) -> bytes:
        """All of the batch's bytes."""
        if self._full is None:
            self._full = self._load(self.size)
        return self._full

    def header(self) -> V2Header:
        """The header of a v2 batch; an error where the file ends within it."""
        if self._header is None:
            if self._full is not None and len(self._full) < V2_OVERHEAD:
                raise LoadError("", exception=INDEX_OUT_OF_BOUNDS)
            self._header = V2Header._make(_V2.unpack_from(self._full or self._load(V2_OVERHEAD)))
        return self._header

    def use_header(self, header: V2Header) -> None:
        """Take a header that was read already."""
        self._header = header

    def _load(self, size: int) -> bytes:
        data = self.log.read_at(self.position, size)
        if len(data) < size:
            raise LoadError(f"Failed to load record batch at position {self.position} from {self.log}", exception=KAFKA_EXCEPTION)
        return data

    @property
    def base_offset(self) -> int:
        """The first record's offset; for a compressed v0 or v1 set it is inside, the set is decompressed for it."""
        return legacy_batch.base_offset(self.offset, self.data()) if self.magic < 2 else self.offset

    @property
    def last_offset(self) -> int:
        """The last record's offset."""
        return self.offset if self.magic < 2 else to_long(self.offset + self.header().last_offset_delta)

    @property
    def next_offset(self) -> int:
        """The offset behind the last record's."""
        return to_long(self.last_offset + 1)

    @property
    def max_timestamp(self) -> int:
        """Milliseconds, -1 where the format has none."""
        if self.magic >= 2:
            return self.header().max_timestamp
        if self._full is None and self.magic < 0:
            illegal_argument(f"Invalid magic used in LegacyRecord: {self.magic}")
        return -1 if self.magic == 0 else int.from_bytes(self._load(26)[18:26], "big", signed=True)

    def ensure_valid(self) -> None:
        """CorruptRecordError where the checksum does not hold or the batch has no room for a header."""
        data = self.data()
        if self.magic < 2:
            stored, computed = int.from_bytes(data[12:16], "big"), crc32(memoryview(data)[16:])
        elif len(data) < V2_OVERHEAD:
            raise CorruptRecordError(
                f"Record batch is corrupt (the size {len(data)} is smaller than the minimum allowed overhead {V2_OVERHEAD})"
            )
        else:
            stored, computed = int.from_bytes(data[17:21], "big"), crc32c(memoryview(data)[21:])
        if stored != computed:
            raise CorruptRecordError(f"Record is corrupt (stored crc = {stored}, computed crc = {computed})")

    @property
    def span(self) -> OffsetSpan:
        """Where it stands."""
        return OffsetSpan(self.base_offset, self.position, self.size)


class LogView:
    """The batches of a file, or of a slice of it (`end` is the slice's end, None for the whole file as it grows)."""

    def __init__(self, source: ByteSource, path: str, *, start: int = 0, end: int | None = None, size: int | None = None) -> None:
        self.source = source
        self.path = path
        self.start = start
        self._end = end
        self.size = (end - start) if end is not None else (source.size() if size is None else size)
        self._window = b""
        self._window_start = 0
        self._window_end = 0

    def __str__(self) -> str:
        end = INT_MAX if self._end is None else self._end
        return f"FileRecords(size={self.size}, file={self.path}, start={self.start}, end={end})"

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes of the file, short at its end (which is not the slice's); small reads come from a window."""
        if self._window_start <= position and position + size <= self._window_end:
            start = position - self._window_start
            return self._window[start : start + size]
        if position < 0:
            illegal_argument(f"The file channel position cannot be negative, but it is {position}")
        if size >= _WINDOW:
            return self.source.read(position, size)
        self._window = self.source.read(position, _WINDOW)
        self._window_start, self._window_end = position, position + len(self._window)
        return self._window[:size]

    def _forget_window(self) -> None:
        self._window = b""
        self._window_start = self._window_end = 0

    def batches(self, position: int | None = None) -> Iterator[FileBatch]:
        """The batches from a byte position (default: the beginning of the file or slice) to the end or what looks like it.

        CorruptRecordError where a length is below the smallest possible.
        """
        position = self.start if position is None else position
        end = self.size if self._end is None else self._end
        while position < end - HEADER_SIZE_UP_TO_MAGIC:
            prefix = self.read_at(position, HEADER_SIZE_UP_TO_MAGIC)
            if len(prefix) < HEADER_SIZE_UP_TO_MAGIC:
                raise CorruptRecordError("Unexpected EOF while attempting to read the next batch")
            offset, length, magic = _PREFIX.unpack(prefix)
            if length < MIN_RECORD_SIZE:
                raise CorruptRecordError(
                    f"Found record size {length} smaller than minimum record overhead ({MIN_RECORD_SIZE}) in file {self.path}."
                )
            if position > end - LOG_OVERHEAD - length:
                return
            batch = FileBatch(self, position, LOG_OVERHEAD + length, offset, magic)
            position += batch.size
            yield batch

    def first_batch(self) -> FileBatch | None:
        """The first one, None where there is none."""
        return next(self.batches(), None)

    def last_batch(self) -> FileBatch | None:
        """The last one before the walk ends."""
        batch = None
        for batch in self.batches():  # noqa: B007 the last one is what is wanted
            pass
        return batch

    def search_for_offset(self, target: int, position: int) -> OffsetSpan | None:
        """The batch with `target`, or the first one behind it, looking from a byte position on."""
        previous: FileBatch | None = None
        for batch in self.batches(position):
            base_offset = batch.base_offset
            if base_offset == target:
                return batch.span
            if base_offset > target:
                return previous.span if previous is not None and previous.last_offset >= target else batch.span
            previous = batch
        return previous.span if previous is not None and previous.last_offset >= target else None

    def largest_timestamp_after(self, position: int) -> tuple[int, int]:
        """The largest timestamp at or behind a byte position and its batch's last offset; (-1, -1) where there is none."""
        largest, offset = -1, -1
        for batch in self.batches(position):
            timestamp = batch.max_timestamp
            if timestamp > largest:
                largest, offset = timestamp, batch.last_offset
        return largest, offset

    def slice(self, position: int, size: int) -> LogView:
        """A part of the file, cut at its end; an illegal argument where it begins behind the end or is negative."""
        if position < 0:
            illegal_argument(f"Invalid position: {position} in read from {self}")
        if position > self.size:
            illegal_argument(f"Slice from position {position} exceeds end position of {self}")
        if size < 0:
            illegal_argument(f"Invalid size: {size} in read from {self}")
        end = to_int(self.start + position + size)
        if end < 0 or end > self.start + self.size:
            end = self.start + self.size
        part = LogView(self.source, self.path, start=self.start + position, end=end)
        part._window, part._window_start, part._window_end = self._window, self._window_start, self._window_end
        return part


class FileRecords(LogView):
    """The open `.log` file of a segment."""

    def __init__(self, file: File, path: str, *, size: int) -> None:
        super().__init__(file, path, size=size)
        self.file = file

    @classmethod
    def open(cls, files: Files, path: str, *, already_exists: bool, initial_size: int = 0, preallocate: bool = False) -> FileRecords:
        """Open a segment's file, creating it where it is missing; a preallocated one counts as empty until it is written to."""
        file = files.open(path, "create")
        if preallocate and not already_exists:
            file.truncate(initial_size)
            return cls(file, path, size=0)
        size = file.size()
        if size > INT_MAX:
            file.close()
            reason = f"The size of segment {path} ({size}) is larger than the maximum allowed segment size of {INT_MAX}"
            raise LoadError(reason, exception=KAFKA_EXCEPTION)
        return cls(file, path, size=size)

    def append(self, data: bytes) -> None:
        """Write batches behind the last one."""
        self._forget_window()
        self.file.write(self.size, data)
        self.size += len(data)

    def truncate_to(self, size: int) -> int:
        """Cut the file; the number of bytes that are gone."""
        original = self.size
        if size > original or size < 0:
            reason = f"Attempt to truncate log segment {self.path} to {size} bytes failed,  size of this log segment is {original} bytes."
            raise LoadError(reason, exception=KAFKA_EXCEPTION)
        if size < self.file.size():
            self.file.truncate(size)
            self.size = size
            self._forget_window()
        return original - size

    def flush(self) -> None:
        """Force it to the disk."""
        self.file.sync()

    def close(self) -> None:
        """Flush, give back what was preallocated and not used, close."""
        self.flush()
        self.truncate_to(self.size)
        self.file.close()
