"""The `.log` file of a segment, walked batch by batch the way a broker walks it (Kafka FileRecords, FileLogInputStream).

The walk is `kops.records.scanning.scanner.file_batches`, so batches are its `Batch` objects. Here is what a broker's load makes of them:
`LoadError` by the name of Kafka's exception, and `FileBatch` for the few that Kafka fails on only when it comes to read them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java import INT_MAX, LONG_MAX, LONG_MIN, to_int, to_long
from kops.errors import DecodeError
from kops.files.api import FileView
from kops.records.batch import BATCH_OVERHEAD, FIELDS, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, Batch
from kops.records.crc import crc32, crc32c
from kops.records.decode import iterate
from kops.records.scanning.scanner import file_batches
from kops.storage.failures.load_errors import KAFKA_EXCEPTION, CorruptRecordError, LoadError, illegal_argument
from kops.storage.segment_files import legacy_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.files import File, Files
    from kops.records import ByteSource, Record

_WINDOW = 1 << 16
_CHUNK = 1 << 20
_PREFIX = Struct(">qi4xb")


class OffsetSpan(NamedTuple):
    """A batch found by offset: its base offset, first byte and size in bytes (Kafka LogOffsetPosition)."""

    offset: int
    position: int
    size: int


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp (ms): its offset, and the epoch of the leader that wrote it, where one is known."""

    timestamp: int
    offset: int
    leader_epoch: int | None = None


class FileBatch(Batch):
    """A batch that is not all in its `buffer`, or that Kafka can't read: a field's error comes up when the field is asked for.

    Raises LoadError: the file ends within its header (only offset, size and magic are known), the set of v0 or v1 whose first offset is
    wanted can't be read, the magic is negative. Offsets that overflow wrap.
    """

    __slots__ = ("_log", "_was_read")

    def __init__(self, log: LogView, buffer: bytes, index: int, position: int) -> None:
        self._log = log
        self._was_read = False
        try:
            super().__init__(buffer, index, position)
        except DecodeError:
            self._base_offset, length, self.magic = _PREFIX.unpack_from(buffer, index)
            self.size = LOG_OVERHEAD + length
        else:
            self.last_offset = to_long(self.last_offset)
            if self.magic < 0:
                del self.max_timestamp

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            # Reached for the slots that were left empty.
            if name not in FIELDS:
                raise AttributeError(name)
            if name == "max_timestamp" and self.magic < 0:
                if not self._was_read:
                    illegal_argument(f"Invalid magic used in LegacyRecord: {self.magic}")
                return self.base_timestamp
            raise self._unreadable()

    def _find_base_offset(self) -> int:
        return legacy_batch.base_offset(self.last_offset, bytes(self.data()))

    def _unreadable(self) -> LoadError:
        return LoadError(f"Failed to load record batch at position {self.position} from {self._log}", exception=KAFKA_EXCEPTION)

    @property
    def is_held(self) -> bool:
        """Whether all its bytes are in `buffer`; a large batch is only where its checksum holds."""
        return self.index + self.size <= len(self.buffer)

    @property
    def next_offset(self) -> int:
        return to_long(self.last_offset + 1)

    def data(self) -> memoryview:
        """The whole batch, read if it is not held."""
        if not self.is_held:
            try:
                self.buffer, self.index = self._log.read_at(self.position, self.size), 0
            except OSError as error:
                raise self._unreadable() from error
            if not self.is_held:
                raise self._unreadable()
        self._was_read = True
        return super().data()

    def computed_crc(self) -> int:
        """As of any batch; of one that is not held in pieces."""
        self._was_read = True
        if self.is_held:
            return super().computed_crc()
        function, start = (crc32c, 21) if self.magic > 1 else (crc32, 16)
        crc = 0
        for position in range(self.position + start, self.end, _CHUNK):
            crc = function(self._log.read_batches_at(position, min(_CHUNK, self.end - position)), crc)
        return crc


def ensure_valid(batch: Batch) -> None:
    """Raise CorruptRecordError if the checksum does not hold or the batch has no room for a header (RecordBatch.ensureValid)."""
    if batch.magic > 1 and batch.size < BATCH_OVERHEAD:
        raise CorruptRecordError(
            f"Record batch is corrupt (the size {batch.size} is smaller than the minimum allowed overhead {BATCH_OVERHEAD})"
        )
    if not batch.crc_ok:
        raise CorruptRecordError(f"Record is corrupt (stored crc = {batch.crc}, computed crc = {batch.computed_crc()})")


def first_record(batch: Batch, is_wanted: Callable[[Record], bool]) -> Record | None:
    """The first record that is wanted, of a large one not the contents. DecodeError where the records are damaged, of a compressed batch
    also behind that record, as Kafka decompresses all of it first."""
    found = None
    for record in iterate(batch, holds="nulls"):
        if found is None and is_wanted(record):
            found = record
            if not batch.compressed:
                break
    return found


def leader_epoch(batch: Batch) -> int | None:
    """The epoch of the leader that wrote the batch, where one is known."""
    return batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None


def _span(batch: Batch) -> OffsetSpan:
    return OffsetSpan(batch.base_offset, batch.position, batch.size)


class LogView(FileView):
    """The batches of a file, or of a slice of it (`end` is the slice's end, None for the whole file as it grows)."""

    def __init__(self, source: ByteSource, path: str, *, start: int = 0, end: int | None = None, size: int | None = None) -> None:
        super().__init__((end - start) if end is not None else (source.size() if size is None else size))
        self.source = source
        self.path = path
        self.start = start
        self._end = end

    def __str__(self) -> str:
        end = INT_MAX if self._end is None else self._end
        return f"FileRecords(size={self.size}, file={self.path}, start={self.start}, end={end})"

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes of the file, short at its end (which is not the slice's)."""
        return self.source.read(position, size)

    def read_batches_at(self, position: int, size: int) -> bytes:
        """As `read_at`, for a walk over batches: what can't be read is a plain LoadError, as in `batches`."""
        try:
            return self.source.read(position, size)
        except OSError as error:
            raise _walk_failed(error) from error

    def batches(self, position: int | None = None) -> Iterator[Batch]:
        """The batches from a byte position (default: the beginning of the file or slice) to the end or what looks like it.

        Raises CorruptRecordError if a length is below the smallest possible, a plain LoadError if the file can't be read.
        """
        position = self.start if position is None else position
        if position < 0:
            illegal_argument(f"The file channel position cannot be negative, but it is {position}")
        end = self.size if self._end is None else self._end
        at_end = False
        while not at_end:
            try:
                for batch in file_batches(self.source, position, end, window=_WINDOW):
                    position = batch.end
                    yield batch if _is_plain(batch) else FileBatch(self, batch.buffer, batch.index, batch.position)
                at_end = True
            except OSError as error:
                raise _walk_failed(error) from error
            except DecodeError as error:
                prefix = self.read_batches_at(position, BATCH_OVERHEAD)
                if len(prefix) < HEADER_SIZE_UP_TO_MAGIC:
                    raise CorruptRecordError("Unexpected EOF while attempting to read the next batch") from error
                _, length, _ = _PREFIX.unpack_from(prefix)
                if length < MESSAGE_OVERHEAD_V0:
                    raise CorruptRecordError(
                        f"Found record size {length} smaller than minimum record overhead ({MESSAGE_OVERHEAD_V0}) in file {self.path}."
                    ) from error
                # The file ends within the header, but the length fits: Kafka passes over it as long as nothing in it is asked for.
                yield FileBatch(self, prefix, 0, position)
                position += LOG_OVERHEAD + length

    def first_batch(self) -> Batch | None:
        """The first one, None if there is none."""
        return next(self.batches(), None)

    def first_timestamp(self) -> int | None:
        """The first one's largest timestamp (ms), None if there is none."""
        first = self.first_batch()
        return None if first is None else first.max_timestamp

    def last_batch(self) -> Batch | None:
        """The last one before the walk ends."""
        batch = None
        for batch in self.batches():  # noqa: B007 the last one is what is wanted
            pass
        return batch

    def search_for_offset(self, target: int, position: int) -> OffsetSpan | None:
        """The batch with `target`, or the first one behind it, looking from a byte position on."""
        previous: Batch | None = None
        for batch in self.batches(position):
            base_offset = batch.base_offset
            if base_offset == target:
                return _span(batch)
            if base_offset > target:
                return _span(previous) if previous is not None and previous.last_offset >= target else _span(batch)
            previous = batch
        return _span(previous) if previous is not None and previous.last_offset >= target else None

    def largest_timestamp_after(self, position: int) -> tuple[int, int]:
        """The largest timestamp at or behind a byte position and its batch's last offset; (-1, -1) if there is none."""
        largest, offset = -1, -1
        for batch in self.batches(position):
            timestamp = batch.max_timestamp
            if timestamp > largest:
                largest, offset = timestamp, batch.last_offset
        return largest, offset

    def search_for_timestamp(self, timestamp: int, position: int, start_offset: int) -> TimestampAndOffset | None:
        """The first record at or behind a byte position with at least this timestamp and offset. Raises DecodeError if records are
        damaged.
        """
        for batch in self.batches(position):
            if batch.max_timestamp >= timestamp:
                found = first_record(batch, lambda record: record.timestamp >= timestamp and record.offset >= start_offset)
                if found is not None:
                    return TimestampAndOffset(found.timestamp, found.offset, leader_epoch(batch))
        return None

    def slice(self, position: int, size: int) -> LogView:
        """A part of the file, cut at its end; an illegal argument if it begins behind the end or is negative."""
        if position < 0:
            illegal_argument(f"Invalid position: {position} in read from {self}")
        if position > self.size:
            illegal_argument(f"Slice from position {position} exceeds end position of {self}")
        if size < 0:
            illegal_argument(f"Invalid size: {size} in read from {self}")
        end = to_int(self.start + position + size)
        if end < 0 or end > self.start + self.size:
            end = self.start + self.size
        return LogView(self.source, self.path, start=self.start + position, end=end)


def _walk_failed(error: OSError) -> LoadError:
    """A read that failed in a walk over batches: a KafkaException, which no caller of Kafka takes for an I/O error
    (RecordBatchIterator.makeNext), so no load takes it for the end of what is good."""
    return LoadError(f"java.io.IOException: {error}", exception=KAFKA_EXCEPTION)


def _is_plain(batch: Batch) -> bool:
    """Whether Kafka reads it as the scanner does: nothing that can fail later, nothing that wraps."""
    return (
        (batch.magic > 1 or (batch.magic >= 0 and not batch.compressed))
        and LONG_MIN <= batch.last_offset < LONG_MAX
        and batch.index + batch.size <= len(batch.buffer)
    )


class FetchData(NamedTuple):
    """What a read found: the first batch's base offset and position, and the batches (None: an empty answer).

    `first_entry_incomplete`: the bytes asked for were fewer than the first batch has.
    """

    offset: int
    position: int
    records: LogView | None
    first_entry_incomplete: bool = False

    @property
    def next_offset(self) -> int | None:
        """The offset behind the last batch, None if there is none."""
        batch = self.records.last_batch() if self.records is not None else None
        return None if batch is None else batch.next_offset


class FileRecords(LogView):
    """The open `.log` file of a segment."""

    def __init__(self, file: File, path: str, *, size: int) -> None:
        super().__init__(file, path, size=size)
        self.file = file

    @classmethod
    def open(cls, files: Files, path: str, *, already_exists: bool, initial_size: int = 0, preallocate: bool = False) -> FileRecords:
        """Open a segment's file, creating it if it is missing; a preallocated one counts as empty until it is written to."""
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

    def truncate_to(self, size: int) -> int:
        """Cut the file; the number of bytes that are gone."""
        original = self.size
        if size > original or size < 0:
            reason = f"Attempt to truncate log segment {self.path} to {size} bytes failed,  size of this log segment is {original} bytes."
            raise LoadError(reason, exception=KAFKA_EXCEPTION)
        if size < self.file.size():
            self.file.truncate(size)
            self.size = size
        return original - size

    def flush(self) -> None:
        """Force it to the disk."""
        self.file.sync()

    def close(self) -> None:
        """Flush, give back what was preallocated and not used, close."""
        self.flush()
        self.truncate_to(self.size)
        self.file.close()
