"""The `.log` file of a segment, read batch by batch as a broker reads it (Kafka FileRecords, FileLogInputStream).

`kops.records.scanning.scanner.file_batches` reads the batches, so they are its `Batch` objects. This module adds the reactions of a broker
that loads a log. `LoadError` carries the name of Kafka's exception. `FileBatch` represents the few batches that in Kafka fail only when a
field is read.
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
from kops.storage.failures.load_errors import KAFKA_EXCEPTION, CorruptRecordError, LoadError, illegal_argument, words_of
from kops.storage.segment_files import legacy_batch
from kops.storage.segment_files.header_search import search_headers
from kops.storage.segment_files.index_entries import OffsetSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.files import File, Files
    from kops.records import ByteSource, Record

_WINDOW = 1 << 16
_CHUNK = 1 << 20
_PREFIX = Struct(">qi4xb")


class TimestampAndOffset(NamedTuple):
    """A record that was found by its timestamp (ms): its offset, and the epoch of the leader that wrote it, if that is known."""

    timestamp: int
    offset: int
    leader_epoch: int | None = None


class FileBatch(Batch):
    """A batch that is not completely in its `buffer`, or that Kafka can't read. The error of a field is raised when the field is read.

    Reading a field raises LoadError in three cases: the file ends within the batch's header (then only offset, size and magic are known),
    the first offset of a v0 or v1 set is needed but the set can't be read, or the magic is negative. Offsets that overflow wrap around.
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
            # Called for the slots that are empty.
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
        """Whether all bytes of the batch are in `buffer`. A large batch is in it only if its checksum is correct."""
        return self.index + self.size <= len(self.buffer)

    @property
    def next_offset(self) -> int:
        return to_long(self.last_offset + 1)

    def data(self) -> memoryview:
        """The whole batch, read from the file unless it is in memory."""
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
        """The checksum of the batch's bytes. If the batch is not in memory, it is read from the file in pieces."""
        self._was_read = True
        if self.is_held:
            return super().computed_crc()
        function, start = (crc32c, 21) if self.magic > 1 else (crc32, 16)
        crc = 0
        for position in range(self.position + start, self.end, _CHUNK):
            crc = function(self._log.read_batches_at(position, min(_CHUNK, self.end - position)), crc)
        return crc


def ensure_valid(batch: Batch) -> None:
    """Raise CorruptRecordError if the checksum is wrong or the batch is too small for a header (RecordBatch.ensureValid)."""
    if batch.magic > 1 and batch.size < BATCH_OVERHEAD:
        raise CorruptRecordError(
            f"Record batch is corrupt (the size {batch.size} is smaller than the minimum allowed overhead {BATCH_OVERHEAD})"
        )
    if not batch.crc_ok:
        raise CorruptRecordError(f"Record is corrupt (stored crc = {batch.crc}, computed crc = {batch.computed_crc()})")


def first_record(batch: Batch, is_wanted: Callable[[Record], bool]) -> Record | None:
    """Return the first matching record, without its contents if it is large.

    Raises DecodeError if records are damaged. In a compressed batch, this includes records after the matching one, because Kafka
    decompresses the whole batch first.
    """
    found = None
    for record in iterate(batch, holds="nulls"):
        if found is None and is_wanted(record):
            found = record
            if not batch.compressed:
                break
    return found


def leader_epoch(batch: Batch) -> int | None:
    """The epoch of the leader that wrote the batch, or None if it is unknown."""
    return batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None


def _span(batch: Batch) -> OffsetSpan:
    return OffsetSpan(batch.base_offset, batch.position, batch.size)


class LogView(FileView):
    """The batches of a file, or of a slice of it. `end` is the end of the slice, or None for the whole file, which may grow."""

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
        """Read bytes of the file. The result is shorter at the end of the file (not of the slice)."""
        return self.source.read(position, size)

    def read_batches_at(self, position: int, size: int) -> bytes:
        """Read as `read_at` does, but raise a plain LoadError if the file can't be read, as `batches` does."""
        try:
            return self.source.read(position, size)
        except OSError as error:
            raise _walk_failed(error) from error

    def batches(self, position: int | None = None) -> Iterator[Batch]:
        """Yield the batches from a byte position (default: the beginning of the file or slice) until the walk ends.

        Raises CorruptRecordError if a length is below the smallest possible one, and a plain LoadError if the file can't be read.
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
                # The file ends within the header, but the length fits. Kafka skips this batch unless one of its fields is read.
                yield FileBatch(self, prefix, 0, position)
                position += LOG_OVERHEAD + length

    def first_batch(self) -> Batch | None:
        """The first batch, or None if there is none."""
        return next(self.batches(), None)

    def first_timestamp(self) -> int | None:
        """The largest timestamp (ms) of the first batch, or None if there is no batch."""
        first = self.first_batch()
        return None if first is None else first.max_timestamp

    def last_batch(self) -> Batch | None:
        """The last batch before the walk ends."""
        batch = None
        for batch in self.batches():  # noqa: B007 the last one is what is wanted
            pass
        return batch

    def search_for_offset(self, target: int, position: int) -> OffsetSpan | None:
        """Find the batch that contains `target`, or else the first batch after it. The search begins at a byte position."""
        try:
            found, position = search_headers(self.source, target, position, self.size if self._end is None else self._end)
        except OSError as error:
            raise _walk_failed(error) from error
        if found is not None:
            return found
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
        """Return the largest timestamp at or after a byte position and the last offset of its batch, or (-1, -1) if there is no batch."""
        largest, offset = -1, -1
        for batch in self.batches(position):
            timestamp = batch.max_timestamp
            if timestamp > largest:
                largest, offset = timestamp, batch.last_offset
        return largest, offset

    def search_for_timestamp(self, timestamp: int, position: int, start_offset: int) -> TimestampAndOffset | None:
        """Find the first record at or after a byte position that has at least this timestamp and offset. Raises DecodeError if records are
        damaged.
        """
        for batch in self.batches(position):
            if batch.max_timestamp >= timestamp:
                found = first_record(batch, lambda record: record.timestamp >= timestamp and record.offset >= start_offset)
                if found is not None:
                    return TimestampAndOffset(found.timestamp, found.offset, leader_epoch(batch))
        return None

    def slice(self, position: int, size: int) -> LogView:
        """Return a part of the file, cut at the end of the file. A negative position, or one after the end, is an illegal argument."""
        if position < 0:
            illegal_argument(f"Invalid position: {position} in read from {self}")
        if position > self.size:
            illegal_argument(f"Slice from position {position} exceeds end position of {self}")
        if size < 0:
            illegal_argument(f"Invalid size: {size} in read from {self}")
        start, last = self.start + position, self.start + self.size
        end = start + size
        if end > INT_MAX:
            end = to_int(end)
        if end < 0 or end > last:
            end = last
        return LogView(self.source, self.path, start=start, end=end)


def _walk_failed(error: OSError) -> LoadError:
    """Return the error for a failed read in a walk over batches.

    Kafka throws a KafkaException here (RecordBatchIterator.makeNext). No caller treats it as an I/O error, so no load mistakes it for the
    end of the valid part.
    """
    return LoadError(f"java.io.IOException: {error}", exception=KAFKA_EXCEPTION, words=words_of(error))


def _is_plain(batch: Batch) -> bool:
    """Whether Kafka reads the batch exactly as the scanner does: no field fails later, and no offset wraps around."""
    return (
        (batch.magic > 1 or (batch.magic >= 0 and not batch.compressed))
        and LONG_MIN <= batch.last_offset < LONG_MAX
        and batch.index + batch.size <= len(batch.buffer)
    )


class FileRecords(LogView):
    """The open `.log` file of a segment."""

    def __init__(self, file: File, path: str, *, size: int) -> None:
        super().__init__(file, path, size=size)
        self.file = file

    @classmethod
    def open(cls, files: Files, path: str, *, already_exists: bool, initial_size: int = 0, preallocate: bool = False) -> FileRecords:
        """Open a segment's file, and create it if it is missing. A preallocated file counts as empty until something is written."""
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
        """Cut the file, and return the number of bytes removed."""
        original = self.size
        if size > original or size < 0:
            reason = f"Attempt to truncate log segment {self.path} to {size} bytes failed,  size of this log segment is {original} bytes."
            raise LoadError(reason, exception=KAFKA_EXCEPTION)
        if size < self.file.size():
            self.file.truncate(size)
            self.size = size
        return original - size

    def flush(self) -> None:
        """Sync the file to the disk."""
        self.file.sync()

    def close(self) -> None:
        """Flush the file, release the unused part of a preallocated file, and close it."""
        self.flush()
        self.truncate_to(self.size)
        self.file.close()
