"""One partition's files, as every append and every fetch uses them: where the next batch goes, how it is written, and reads (a part of
Kafka's LocalLog).

`kops.storage.local_log` adds rolling, truncation and deletion. This is a hot module (see `kops._compiled`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.errors import ApiError
from kops.storage.failures.load_errors import KafkaStorageError, StorageIOError
from kops.storage.log_offsets import FetchedData, LogOffsetMetadata
from kops.storage.segment_files.transaction_index import collect_aborted_txns
from kops.storage.segments.segment import LogSegment, LogSegments

if TYPE_CHECKING:
    from types import TracebackType

    from kops.config import TopicConfig
    from kops.records import Batch
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.segment_files.transaction_index import AbortedTxn

STORAGE_ERRORS: Final = (OSError, StorageIOError, KafkaStorageError)
"""The errors that a log raises as KafkaStorageError."""


class StorageAction:
    """A `with` block around an operation on a log's files (LocalLog.maybeHandleIOException).

    Raises KafkaStorageError if the log directory is already offline, and for any error of the operating system in the block.
    """

    __slots__ = ("_log", "_what")

    def __init__(self, log: LogEnd, what: str) -> None:
        self._log = log
        self._what = what

    def __enter__(self) -> None:
        if self._log.failures.offline:
            self.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and isinstance(error, STORAGE_ERRORS):
            self.failed(error)

    def begin(self) -> None:
        """Raise KafkaStorageError if the log directory is offline."""
        log = self._log
        if log.failures.offline and log.failures.has_offline(log.parent_dir):
            raise KafkaStorageError(f"The log dir {log.parent_dir} is already offline due to a previous IO exception.")

    def failed(self, error: Exception) -> None:
        """Report one of `STORAGE_ERRORS` to the failure channel, and raise KafkaStorageError unless the error is one already."""
        log = self._log
        if log.is_closed and isinstance(error, KafkaStorageError):
            return  # a late caller's fault, not the disk's, so the directory stays online
        message = f"Error while {self._what} {log.topic_partition} in dir {log.parent_dir}"
        log.failures.maybe_add_offline_log_dir(log.parent_dir, message, error)
        if not isinstance(error, KafkaStorageError):
            raise KafkaStorageError(f"{message}: {error}") from error


@mypyc_attr(allow_interpreted_subclasses=True)
class LogEnd:
    """The part of a log's files that appends and fetches need. `parent_dir` is the log directory.

    `log_end_offset` is the offset of the next record. Everything below `recovery_point` is on disk. `next_offset`, the end with its
    position, is built only on demand, because it is not needed between the appends of one request.
    """

    def __init__(
        self,
        topic_partition: str,
        config: TopicConfig,
        segments: LogSegments,
        failures: LogDirFailureChannel,
        *,
        recovery_point: int,
        log_end_offset: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.segments = segments
        self.failures = failures
        self.parent_dir = ""
        self.recovery_point = recovery_point
        self.log_end_offset = log_end_offset
        self.end_segment, self.end_position = segments.active.base_offset, segments.active.size
        self.known_end: LogOffsetMetadata | None = None
        self.is_closed = False
        self.reading = StorageAction(self, "reading from")

    @property
    def next_offset(self) -> LogOffsetMetadata:
        """The log's end with its position: the end of the active segment."""
        known = self.known_end
        if known is None:
            known = self.known_end = LogOffsetMetadata(self.log_end_offset, self.end_segment, self.end_position)
        return known

    def check_open(self) -> None:
        """Raise KafkaStorageError if the log's files were closed."""
        if self.is_closed:
            raise KafkaStorageError(f"The memory mapped buffer for log of {self.topic_partition} is already closed")

    def update_log_end_offset(self, offset: int) -> None:
        """Set the log's end to `offset`, at the end of the active segment. The recovery point never exceeds it."""
        move_end(self, self.segments.active, offset)

    def read(
        self, start_offset: int, max_size: int, max_offset: LogOffsetMetadata, *, min_one_batch: bool = False, aborted: bool = False
    ) -> FetchedData:
        """Read batches below `max_offset`, beginning with the one that contains `start_offset`. With `aborted`, include the aborted
        transactions that overlap them.

        Raises ApiError OFFSET_OUT_OF_RANGE if the offset is after the log's end or before its first segment.
        """
        return read_from(self, start_offset, max_size, max_offset, min_one_batch=min_one_batch, aborted=aborted)

    def offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return the position of the batch that contains `offset`, or of the first one after it. Raises ApiError OFFSET_OUT_OF_RANGE."""
        return read_from(self, offset, 1, self.next_offset).offset_metadata

    def with_aborted(self, start_offset: int, segment: LogSegment, found: FetchedData) -> FetchedData:
        """Return what was read, with the aborted transactions that overlap it."""
        upper_bound = segment.fetch_upper_bound_offset(found.offset_metadata.relative_position, found.size)
        if upper_bound is None:
            higher = self.segments.higher(segment.base_offset)
            upper_bound = self.log_end_offset if higher is None else higher.base_offset
        aborted = self._collect_aborted(start_offset, upper_bound, segment)
        return FetchedData(found.offset_metadata, found.records, found.first_entry_incomplete, aborted)

    def _collect_aborted(self, start_offset: int, upper_bound: int, segment: LogSegment | None) -> list[AbortedTxn]:
        aborted: list[AbortedTxn] = []
        while segment is not None:
            found, is_complete = collect_aborted_txns(segment.txn_index.entries(), start_offset, upper_bound)
            aborted += found
            if is_complete:
                break
            segment = self.segments.higher(segment.base_offset)
        return aborted

    def collect_aborted_transactions(self, log_start_offset: int, base_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """Return the aborted transactions between the log's start and `upper_bound`, beginning with the segment at `base_offset`."""
        return self._collect_aborted(log_start_offset, upper_bound, self.segments.floor(base_offset))


def append_to(log: LogEnd, active: LogSegment, end_offset: int, data: bytes, batches: list[Batch]) -> None:
    """Write batches to the active segment. The log's end grows before anything else may fail, so that no offset is assigned twice.

    This is a function, because compiled code looks up methods by name in a class that has interpreted subclasses.
    """
    try:
        active.append(end_offset - 1, data, batches)
        move_end(log, active, end_offset)
    finally:
        active.write_index_entries()


def move_end(log: LogEnd, active: LogSegment, offset: int) -> None:
    """Set the log's end to `offset`, at the end of the active segment. The recovery point never exceeds it."""
    log.log_end_offset = offset
    log.end_segment = active.base_offset
    log.end_position = active.log_view.size
    log.known_end = None
    if log.recovery_point > offset:
        log.recovery_point = offset


def read_from(
    log: LogEnd, start_offset: int, max_size: int, max_offset: LogOffsetMetadata, *, min_one_batch: bool = False, aborted: bool = False
) -> FetchedData:
    """Do the work of `LogEnd.read`. It is a function for the same reason as `append_to`."""
    if log.failures.offline:
        log.reading.begin()
    # Equivalent to `with log.reading`, but without its calls.
    try:
        segment = log.segments.floor(start_offset)
        end_offset = log.log_end_offset
        if start_offset > end_offset or segment is None:
            reason = (
                f"Received request for offset {start_offset} for partition {log.topic_partition}, "
                f"but we only have log segments upto {end_offset}."
            )
            raise ApiError("OFFSET_OUT_OF_RANGE", reason)
        none: list[AbortedTxn] | None = [] if aborted else None
        if start_offset == max_offset.message_offset:
            return FetchedData(max_offset, aborted_transactions=none)
        if start_offset > max_offset.message_offset:
            return FetchedData(log.offset_metadata(start_offset), aborted_transactions=none)
        while segment is not None:
            fetched = segment.read(start_offset, max_size, _max_position(segment, max_offset), min_one_batch=min_one_batch)
            if fetched is not None:
                place = LogOffsetMetadata(fetched.offset, segment.base_offset, fetched.position)
                found = FetchedData(place, fetched.records, fetched.first_entry_incomplete)
                return log.with_aborted(start_offset, segment, found) if aborted else found
            segment = log.segments.higher(segment.base_offset)
        return FetchedData(log.next_offset)
    except STORAGE_ERRORS as error:
        log.reading.failed(error)
        raise


def _max_position(segment: LogSegment, max_offset: LogOffsetMetadata) -> int | None:
    """Return the position up to which a read of this segment may go, or None if all of the segment is above the limit."""
    if segment.base_offset < max_offset.segment_base_offset:
        return segment.size
    if segment.base_offset == max_offset.segment_base_offset and not max_offset.message_offset_only:
        return max_offset.relative_position
    return None
