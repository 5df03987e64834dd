"""A segment of a log: the `.log` file and its three indexes (Kafka LogSegment, LogSegments, LazyIndex)."""

from __future__ import annotations

import contextlib
import posixpath
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.config.values.java import INT_MAX, LONG_MAX, to_int, to_long
from kops.files.api import File, FileView
from kops.storage.failures.load_errors import LoadError, NoSuchFileError, illegal_argument, io_error
from kops.storage.segment_files.file_records import FileRecords
from kops.storage.segment_files.index_entries import OffsetSpan, TimestampOffset, timestamp_offset
from kops.storage.segment_files.mapped_index import MappedOffsetIndex, MappedTimeIndex
from kops.storage.segment_files.paths import INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_path
from kops.storage.segment_files.transaction_index import TransactionIndex
from kops.storage.segments.recovery import Indexes, Pass, RebuiltIndexes, rebuild_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.config import TopicConfig
    from kops.files import Files
    from kops.records import Batch
    from kops.storage.background.flush import Flush
    from kops.storage.producers.state import ProducerState
    from kops.storage.segment_files.file_records import LogView, TimestampAndOffset
    from kops.storage.segments.epoch_cache import LeaderEpochFileCache

__all__ = ["LogSegment", "LogSegments", "RebuiltIndexes", "rebuild_indexes"]

_TAIL_LENGTH: Final = 64
_UNKNOWN: Final = TimestampOffset(-1, -1)


class SegmentOverflowError(LoadError):
    """A batch's last offset is too far from its segment's base offset for an index entry (KAFKA-6264). The segment must be split."""

    java_class = "org.apache.kafka.storage.internals.log.LogSegmentOffsetOverflowException"

    def __init__(self, segment: LogSegment, offset: int) -> None:
        super().__init__(f"Detected offset overflow at offset {offset} in segment {segment}")
        self.segment = segment


@mypyc_attr(acyclic=True)
class FetchData:
    """The result of a read: the base offset and position of the first batch, and the batches (None: nothing was read). It is not changed.

    `first_entry_incomplete` is true if the read was limited to fewer bytes than the first batch has.
    """

    __slots__ = ("first_entry_incomplete", "offset", "position", "records")

    def __init__(self, offset: int, position: int, records: LogView | None, first_entry_incomplete: bool = False) -> None:
        self.offset = offset
        self.position = position
        self.records = records
        self.first_entry_incomplete = first_entry_incomplete

    @property
    def next_offset(self) -> int | None:
        """The offset after the last batch, or None if there is no batch."""
        batch = self.records.last_batch() if self.records is not None else None
        return None if batch is None else batch.next_offset


class _Place:
    """The place of a recently appended batch: its base offset, position and size."""

    def __init__(self) -> None:
        self.offset = self.position = self.size = 0


class LogSegment:
    """One open segment. An index is opened when it is first used. If its file is missing, it is created and preallocated."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        *,
        already_exists: bool = False,
        initial_size: int = 0,
        preallocate: bool = False,
        suffix: str = "",
        created_ms: int = 0,
        roll_jitter_ms: int = 0,
    ) -> None:
        self._files = files
        self.base_offset = base_offset
        self.created_ms = created_ms
        """When the segment was opened or emptied (ms). Its age counts from this time until it has a timestamp."""
        self.roll_jitter_ms = roll_jitter_ms
        self._rolling_timestamp: int | None = None
        self._max_index_size = config.segment_index_bytes
        self._index_interval_bytes = config.index_interval_bytes
        path = segment_path(directory, base_offset, LOG, suffix)
        try:
            self.log = FileRecords.open(files, path, already_exists=already_exists, initial_size=initial_size, preallocate=preallocate)
        except OSError as error:
            raise io_error(error) from error
        # The parts of `log` that an append needs, kept where compiled code reaches them directly.
        self.log_view: FileView = self.log
        self._file: File = self.log.file
        self.offset_index_path = segment_path(directory, base_offset, INDEX, suffix)
        self.time_index_path = segment_path(directory, base_offset, TIME_INDEX, suffix)
        self._offset_index: MappedOffsetIndex | None = None
        self._time_index: MappedTimeIndex | None = None
        self.txn_index = TransactionIndex(files, segment_path(directory, base_offset, TXN_INDEX, suffix), base_offset)
        self._largest = _UNKNOWN
        self._bytes_since_last_index_entry = 0
        self._tail: list[_Place] = []
        """The places of the first batches of the last appends, the newest at `_newest`. Followers and consumers at the end read there."""
        self._newest = -1
        self.damage: LoadError | None = None
        """Why the last recovery ended before the end of the file, or None if that was not an error."""

    def __str__(self) -> str:
        modified = self._files.stat(self.log.path).mtime_ms if self._files.exists(self.log.path) else 0
        return (
            f"LogSegment(baseOffset={self.base_offset}, size={self.size}, lastModifiedTime={modified},"
            f" largestRecordTimestamp={self._largest.timestamp})"
        )

    @property
    def size(self) -> int:
        """The size of the log in bytes."""
        return self.log_view.size

    @property
    def name(self) -> str:
        """The name of the log file."""
        return posixpath.basename(self.log.path)

    @property
    def offset_index(self) -> MappedOffsetIndex:
        """The offset index, open."""
        if self._offset_index is None:
            self._offset_index = MappedOffsetIndex(self._files, self.offset_index_path, self.base_offset, self._max_index_size)
        return self._offset_index

    @property
    def time_index(self) -> MappedTimeIndex:
        """The time index, open."""
        if self._time_index is None:
            self._time_index = MappedTimeIndex(self._files, self.time_index_path, self.base_offset, self._max_index_size)
        return self._time_index

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp in the time index and its batch's last offset, or (-1, base offset) if the index is empty."""
        if self._largest is _UNKNOWN:
            self._largest = self.time_index.last_entry
        return self._largest

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp (ms), or without one the file's modification time."""
        timestamp = self.largest.timestamp
        return timestamp if timestamp >= 0 else self.last_modified_ms

    @property
    def last_modified_ms(self) -> int:
        """The file's modification time (ms)."""
        return self._files.stat(self.log.path).mtime_ms

    # rolling ----------------------------------------------------------------------------------------------------------------------

    def should_roll(
        self, size: int, max_timestamp: int, last_offset: int, segment_size: int, max_segment_ms: int, now_ms: Callable[[], int]
    ) -> bool:
        """Whether a new segment is needed for `size` bytes with this largest timestamp and last offset.

        The segment's age is the time from its first batch's timestamp to `max_timestamp`, or without a timestamp, the time since its
        creation.
        """
        own_size = self.log_view.size
        if own_size > segment_size - size:
            return True
        if own_size:
            first = self._rolling_timestamp
            if first is None:
                first = self._first_timestamp()
            waited_ms = max_timestamp - first if first is not None and first >= 0 else now_ms() - self.created_ms
            if waited_ms > max_segment_ms - self.roll_jitter_ms:
                return True
        offsets, times = self._offset_index or self.offset_index, self._time_index or self.time_index
        return offsets.entries >= offsets.max_entries or times.entries >= times.max_entries - 1 or not self.fits(last_offset)

    @property
    def first_batch_timestamp(self) -> int:
        """The first batch's largest timestamp (ms), or the largest long if there is no batch."""
        first = self._first_timestamp()
        return first if first is not None and first >= 0 else LONG_MAX

    def _first_timestamp(self) -> int | None:
        if self._rolling_timestamp is None and self.log.size:
            self._rolling_timestamp = self.log.first_timestamp()
        return self._rolling_timestamp

    # checking and recovering ------------------------------------------------------------------------------------------------------

    def sanity_check(self, *, time_index_newly_created: bool) -> None:
        """Raise NoSuchFileError without an offset index, and CorruptIndexError if the transaction index does not belong to this segment.

        It checks nothing else, because everything above the recovery point is rebuilt anyway.
        """
        if not self._files.exists(self.offset_index_path):
            raise NoSuchFileError(f"Offset index file {self.offset_index_path} does not exist")
        if time_index_newly_created:
            self.time_index.resize(0)
        self.txn_index.sanity_check()

    def recover(self, producers: ProducerState, epochs: LeaderEpochFileCache) -> int:
        """Rebuild the indexes from the log and cut the log at the first invalid batch. Returns the number of bytes cut off."""
        self._forget_tail()
        indexes = Indexes(self.offset_index, self.time_index, self.txn_index)
        for index in indexes:
            index.reset()
        self._largest = _UNKNOWN

        def overflow(offset: int) -> LoadError:
            return SegmentOverflowError(self, offset)

        run = Pass(self.log, self.base_offset, indexes, self._index_interval_bytes, producers, epochs, overflow)
        try:
            run.run()
        finally:
            self._largest = run.largest
            self.damage = run.damage
        truncated = self.log.size - run.valid_bytes
        self.log.truncate_to(run.valid_bytes)
        self.offset_index.trim_to_valid_size()
        self.time_index.maybe_append(*self.largest, skip_full_check=True)
        self.time_index.trim_to_valid_size()
        return truncated

    def has_overflow(self) -> bool:
        """Whether the last offset is too far from the base offset for an index entry."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and not self.fits(to_long(next_offset - 1))

    def fits(self, offset: int) -> bool:
        """Whether an index entry of this segment can hold the offset."""
        # The first append creates the index, whatever the result.
        offset_index = self._offset_index or self.offset_index
        return 0 <= offset - self.base_offset <= INT_MAX or offset_index.can_append_offset(offset)

    # reading ----------------------------------------------------------------------------------------------------------------------

    def translate_offset(self, offset: int, start_position: int = 0) -> OffsetSpan | None:
        """Return the batch that contains `offset` or the first one after it, or None after the last batch."""
        if not start_position:
            known = self._find_in_tail(offset)
            if known is not None:
                return OffsetSpan(offset, known.position, known.size)
        position = self.offset_index.lookup(offset).position
        return self.log.search_for_offset(offset, max(position, start_position))

    def _find_in_tail(self, offset: int) -> _Place | None:
        tail = self._tail
        place = self._newest
        for _ in range(len(tail)):
            found = tail[place]
            if found.offset <= offset:
                return found if found.offset == offset else None
            place = (place or len(tail)) - 1
        return None

    def read(self, start_offset: int, max_size: int, max_position: int | None, *, min_one_batch: bool = False) -> FetchData | None:
        """Read batches beginning with the one that contains `start_offset`, at most `max_size` bytes and up to `max_position`. Returns None
        after the last batch.
        """
        if max_size < 0:
            illegal_argument(f"Invalid max size {max_size} for log read from segment {self.log}")
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        max_size = max(max_size, found.size) if min_one_batch else max_size
        if max_size == 0 or max_position is None:
            return FetchData(found.offset, found.position, None)
        left = max_position - found.position
        size = min(left if 0 <= left <= INT_MAX else to_int(left), max_size)
        return FetchData(found.offset, found.position, self.log.slice(found.position, size), max_size < found.size)

    def find_offset_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Return the first record at or after `start_offset` whose timestamp is not below `timestamp`."""
        known = self.time_index.lookup(timestamp)
        position = self.offset_index.lookup(max(known.offset, start_offset)).position
        return self.log.search_for_timestamp(timestamp, position, start_offset)

    def fetch_upper_bound_offset(self, position: int, size: int) -> int | None:
        """Return the offset of the first index entry at or after the end of a slice, or None."""
        entry = self.offset_index.upper_bound(position + size)
        return None if entry is None else entry.offset

    def read_next_offset(self) -> int:
        """Return the offset after the last batch, searching from the index's last entry. An empty segment returns its base offset."""
        fetched = self.read(self.offset_index.last_offset, self.log.size, self.log.size)
        next_offset = None if fetched is None else fetched.next_offset
        return self.base_offset if next_offset is None else next_offset

    # writing ----------------------------------------------------------------------------------------------------------------------

    def append(self, largest_offset: int, data: bytes | memoryview, batches: list[Batch]) -> None:
        """Append whole batches (`data`, described by `batches`), and add the index entries that are due."""
        if not data:
            return
        log_view = self.log_view
        position = log_view.size
        if not self.fits(largest_offset):
            raise SegmentOverflowError(self, largest_offset)
        # Kafka's FileRecords.append.
        self._file.write(position, data)
        log_view.size = position + len(data)
        first = batches[0]
        if not position:
            self._rolling_timestamp = first.max_timestamp
        if first.magic > 1:
            self._remember(first, position)
        largest = self._largest
        if largest is _UNKNOWN:
            largest = self.largest
        for batch in batches:
            timestamp, last_offset = batch.max_timestamp, batch.last_offset
            if timestamp > largest[0]:
                largest = self._largest = timestamp_offset(timestamp, last_offset)
            if self._bytes_since_last_index_entry > self._index_interval_bytes:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(largest[0], largest[1])
                self._bytes_since_last_index_entry = 0
            size = batch.size
            position += size
            self._bytes_since_last_index_entry += size

    def _remember(self, batch: Batch, position: int) -> None:
        tail = self._tail
        if len(tail) < _TAIL_LENGTH:
            place = _Place()
            tail.append(place)
            self._newest = len(tail) - 1
        else:
            newest = self._newest + 1
            if newest == _TAIL_LENGTH:
                newest = 0
            self._newest = newest
            place = tail[newest]
        place.offset = batch.base_offset
        place.position = position
        place.size = batch.size

    def truncate_to(self, offset: int) -> int:
        """Remove the batches at and after `offset`, and their index entries. Returns the number of bytes cut off."""
        found = self.translate_offset(offset)
        self._forget_tail()
        offsets, times = self.offset_index, self.time_index
        offsets.truncate_to(offset)
        times.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        offsets.resize(offsets.max_index_size)
        times.resize(times.max_index_size)
        cut = 0 if found is None else self.log.truncate_to(found.position)
        if not self.log.size:
            self._rolling_timestamp = None
        self._bytes_since_last_index_entry = 0
        if self.largest.timestamp >= 0:
            self._largest = self._read_largest()
        return cut

    def _forget_tail(self) -> None:
        self._tail = []
        self._newest = -1

    def _read_largest(self) -> TimestampOffset:
        last = self.time_index.last_entry
        behind = TimestampOffset(*self.log.largest_timestamp_after(self.offset_index.lookup(last.offset).position))
        return behind if behind.timestamp > last.timestamp else last

    def resize_indexes(self, size: int) -> None:
        """Make room in the indexes of the active segment."""
        self.offset_index.resize(size)
        self.time_index.resize(size)

    def on_become_inactive(self) -> None:
        """Finish the segment: add the largest timestamp to the time index, and release the preallocated space."""
        self._forget_tail()
        self.time_index.maybe_append(*self.largest, skip_full_check=True)
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self.offset_index.release()
        self.time_index.release()
        self.log.truncate_to(self.log.size)

    def write_index_entries(self) -> None:
        """Write the appended index entries to their files. In a memory mapping they would be in the file at once and would survive a
        kill."""
        offsets, times = self._offset_index, self._time_index
        if offsets is not None and offsets.is_dirty:
            offsets.flush()
        if times is not None and times.is_dirty:
            times.flush()

    # files ------------------------------------------------------------------------------------------------------------------------

    def change_suffixes(self, old: str, new: str) -> None:
        """Rename all files of the segment."""
        try:
            path = _replace_suffix(self.log.path, old, new)
            self._files.rename(self.log.path, path)
            self.log.path = path
            self.offset_index_path = self._rename_index(self._offset_index, self.offset_index_path, old, new)
            self.time_index_path = self._rename_index(self._time_index, self.time_index_path, old, new)
            self.txn_index.rename_to(_replace_suffix(self.txn_index.path, old, new))
        except OSError as error:
            raise io_error(error) from error

    def _rename_index(self, index: MappedOffsetIndex | MappedTimeIndex | None, path: str, old: str, new: str) -> str:
        target = _replace_suffix(path, old, new)
        if index is not None:
            index.rename_to(target)
        elif self._files.exists(path):
            self._files.rename(path, target)
        return target

    def update_parent_dir(self, directory: str) -> None:
        """Use the directory's new name. The files stay open."""
        self.log.path = posixpath.join(directory, posixpath.basename(self.log.path))
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.path = posixpath.join(directory, posixpath.basename(index.path))
        self.offset_index_path = posixpath.join(directory, posixpath.basename(self.offset_index_path))
        self.time_index_path = posixpath.join(directory, posixpath.basename(self.time_index_path))
        self.txn_index.path = posixpath.join(directory, posixpath.basename(self.txn_index.path))

    def has_suffix(self, suffix: str) -> bool:
        """Whether all files of the segment have this suffix."""
        return all(path.endswith(suffix) for path in self._paths())

    def _paths(self) -> tuple[str, str, str, str]:
        return self.log.path, self.offset_index_path, self.time_index_path, self.txn_index.path

    def flush(self) -> None:
        """Flush the log and its indexes to the disk."""
        self.log.flush()
        self.offset_index.force()
        self.time_index.force()
        self.txn_index.flush()

    def begin_flush(self, flush: Flush) -> None:
        """Prepare the same work as `flush`. `flush` then syncs the files in a thread."""
        flush.add(self.log.file.duplicate())
        flush.add_index(self.offset_index)
        flush.add_index(self.time_index)
        flush.add(self.txn_index.begin_flush())

    def close(self) -> None:
        """Close as a clean stop does: add the largest timestamp to the time index, and trim the indexes."""
        if self._largest is not _UNKNOWN:
            with contextlib.suppress(LoadError):  # Kafka logs a warning and continues
                self.time_index.maybe_append(*self._largest, skip_full_check=True)
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        self.log.close()
        self.txn_index.close()

    def close_handlers(self) -> None:
        """Close the files without trimming them or adding anything.

        Index entries that a failed disk rejects are lost without an error, as those of a memory mapping are.
        """
        for index in (self._offset_index, self._time_index):
            if index is not None:
                with contextlib.suppress(OSError):
                    index.close_handler()
        self.log.file.close()
        self.txn_index.close()

    def delete(self) -> None:
        """Delete all existing files of the segment."""
        self.begin_delete()()

    def begin_delete(self) -> Callable[[], None]:
        """Close the files, and return a function that deletes them. It may run in a thread, because deleting a large file takes time."""
        self.close_handlers()
        files, paths = self._files, self._paths()

        def remove() -> None:
            for path in paths:
                if files.exists(path):
                    # Another thread may remove the whole directory at the same time.
                    with contextlib.suppress(FileNotFoundError):
                        files.unlink(path)

        return remove


class LogSegments:
    """The segments of a log by base offset."""

    def __init__(self) -> None:
        self._segments: dict[int, LogSegment] = {}
        self._offsets: list[int] = []
        self._active: LogSegment | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter([self._segments[offset] for offset in self._offsets])

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._segments

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets in ascending order."""
        return list(self._offsets)

    def add(self, segment: LogSegment) -> None:
        """Add a segment. It replaces one with the same base offset."""
        if segment.base_offset not in self._segments:
            self._offsets.insert(bisect_left(self._offsets, segment.base_offset), segment.base_offset)
        self._segments[segment.base_offset] = segment
        self._active = self.last

    def remove(self, base_offset: int) -> None:
        """Remove a segment."""
        if self._segments.pop(base_offset, None) is not None:
            self._offsets.remove(base_offset)
            self._active = self.last

    def clear(self) -> None:
        """Remove all segments."""
        self._segments.clear()
        self._offsets.clear()
        self._active = None

    @property
    def first(self) -> LogSegment | None:
        """The segment with the lowest base offset, or None."""
        return self._segments[self._offsets[0]] if self._offsets else None

    @property
    def last(self) -> LogSegment | None:
        """The segment with the largest base offset, which is the active one, or None."""
        return self._segments[self._offsets[-1]] if self._offsets else None

    @property
    def active(self) -> LogSegment:
        """The active segment of a loaded log."""
        active = self._active
        return active if active is not None else self._segments[self._offsets[-1]]

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the largest base offset not above `offset`."""
        place = bisect_right(self._offsets, offset)
        return self._segments[self._offsets[place - 1]] if place else None

    def lower(self, offset: int) -> LogSegment | None:
        """The segment with the largest base offset below `offset`."""
        place = bisect_left(self._offsets, offset)
        return self._segments[self._offsets[place - 1]] if place else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the smallest base offset above `offset`."""
        place = bisect_right(self._offsets, offset)
        return self._segments[self._offsets[place]] if place < len(self._offsets) else None

    def values(self, start: int, end: int) -> list[LogSegment]:
        """The segments from the one that contains `start` to the last one that begins below `end`."""
        if start == end:
            return []
        if end < start:
            illegal_argument(f"Invalid log segment range: requested segments from offset {start} which is greater than limit offset {end}")
        first = max(bisect_right(self._offsets, start) - 1, 0)
        return [self._segments[offset] for offset in self._offsets[first : bisect_left(self._offsets, end)]]

    def close(self) -> None:
        """Close all segments."""
        for segment in self:
            segment.close()


def _replace_suffix(path: str, old: str, new: str) -> str:
    if not path.endswith(old):
        illegal_argument(f"Expected string to end with '{old}' but string is {path}")
    return path[: len(path) - len(old)] + new
