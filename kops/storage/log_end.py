"""The end of one partition's files: where the next batch goes, and how it is written (the appending half of Kafka's LocalLog).

`kops.storage.local_log` adds rolling, reading, truncation and deletion. This is a hot module (see `kops._compiled`): every append runs
through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.storage.failures.load_errors import KafkaStorageError, StorageIOError
from kops.storage.log_offsets import LogOffsetMetadata
from kops.storage.segments.segment import LogSegment, LogSegments

if TYPE_CHECKING:
    from kops.config import TopicConfig
    from kops.records import Batch
    from kops.storage.log_dir_failure import LogDirFailureChannel

STORAGE_ERRORS: Final = (OSError, StorageIOError, KafkaStorageError)
"""The errors that a log raises as KafkaStorageError."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LogEnd:
    """The part of a log's files that an append needs.

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
        self.recovery_point = recovery_point
        self.log_end_offset = log_end_offset
        self.end_segment, self.end_position = segments.active.base_offset, segments.active.size
        self.known_end: LogOffsetMetadata | None = None
        self.is_closed = False

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
