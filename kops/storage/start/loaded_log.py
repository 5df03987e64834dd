"""The result of loading a log, and the list of the loader's changes (the parts of Kafka's UnifiedLog and LocalLog that load and close a
log)."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kops.errors import DecodeError
from kops.storage.failures.load_errors import (
    ILLEGAL_ARGUMENT,
    NULL_POINTER,
    KafkaStorageError,
    LoadError,
    OffsetOutOfRangeError,
    words_of,
)
from kops.storage.formats.names import PARTITION_METADATA
from kops.storage.formats.partition_metadata import MALFORMED, read_partition_metadata

if TYPE_CHECKING:
    from kops.files import Files
    from kops.storage.producers.state import ProducerStateManager
    from kops.storage.segments.epoch_cache import LeaderEpochFileCache
    from kops.storage.segments.segment import LogSegment, LogSegments

ActionKind = Literal[
    "file-removed",
    "file-renamed",
    "segment-recovered",
    "segment-truncated",
    "segment-emptied",
    "segment-split",
    "segment-removed",
]


@dataclass(frozen=True, slots=True)
class LoadAction:
    """One change that the loader made to the directory. The actions are in order.

    `file` is a name in the directory (for a segment: its `.log`), and sizes are bytes of that file. `offset` is a log offset: the segment's
    new end (`segment-truncated`, `segment-emptied`) or its beginning (`segment-removed`). The files of a removed segment are renamed to
    `.deleted` and stay until `file.delete.delay.ms` has passed.
    """

    kind: ActionKind
    file: str
    reason: str
    old_size: int | None = None
    new_size: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class LoadedLog:
    """The open log of a partition. `actions` are the changes of the load, offsets are log offsets, and everything below `recovery_point` is
    flushed.

    The files of `marked_segments` and `marked_snapshots` (paths) are renamed to `.deleted`. The owner of the log deletes them later.
    """

    files: Files
    path: str
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    segments: LogSegments
    producers: ProducerStateManager
    epochs: LeaderEpochFileCache
    actions: list[LoadAction] = field(default_factory=list)
    topic_id: str | None = None
    high_watermark: int = 0
    marked_segments: list[LogSegment] = field(default_factory=list)
    marked_snapshots: list[str] = field(default_factory=list)

    def open(self) -> None:
        """Finish opening the loaded log: settle the start offset, find the first unstable offset, and read the topic id."""
        first = self.segments.first
        self.log_start_offset = max(self.log_start_offset, first.base_offset if first is not None else 0)
        self.recovery_point = max(self.recovery_point, self.log_start_offset)
        self.high_watermark = self.log_start_offset
        unstable = self.producers.first_unstable_offset
        if unstable is not None:
            self._locate(max(unstable, self.log_start_offset))
        self.topic_id = self._read_topic_id()

    def _locate(self, offset: int) -> None:
        """Find an offset's position, as Kafka does for the first unstable offset. An error here aborts startup."""
        try:
            self.locate(offset)
        except OffsetOutOfRangeError:
            pass
        except OSError as error:
            raise KafkaStorageError(f"Exception while reading from {self.path}", words=words_of(error)) from error

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return the segment's base offset and the byte position of the batch with `offset` or the first batch after it, or None."""
        segment = self.segments.floor(offset)
        if offset > self.log_end_offset or segment is None:
            raise OffsetOutOfRangeError(
                f"Received request for offset {offset} for {self.path}, but we only have log segments upto {self.log_end_offset}."
            )
        if offset == self.log_end_offset:
            return None
        while segment is not None:
            found = segment.read(offset, 1, segment.size)
            if found is not None:
                return segment.base_offset, found.position
            segment = self.segments.higher(segment.base_offset)
        return None

    def _read_topic_id(self) -> str | None:
        path = posixpath.join(self.path, PARTITION_METADATA)
        if not self.files.exists(path):
            return None
        try:
            return read_partition_metadata(self.files.read_all(path), file=path).topic_id
        except OSError as error:
            raise KafkaStorageError(f"Error while reading partition metadata file {path}", words=words_of(error)) from error
        except DecodeError as error:
            if error.code == MALFORMED:
                raise KafkaStorageError(f"Error while reading partition metadata file {path}", words=str(error)) from error
            java = NULL_POINTER if "missing" in error.reason else ILLEGAL_ARGUMENT
            raise LoadError(error.reason, exception=java, words=str(error)) from error

    @property
    def size(self) -> int:
        """The size of all segments' logs in bytes."""
        return sum(segment.size for segment in self.segments)

    def close(self) -> None:
        """Close as a clean stop does: write a producer snapshot at the end, trim the indexes, flush the files."""
        try:
            self.producers.take_snapshot()
            self.segments.close()
        except OSError as error:
            raise KafkaStorageError(f"Error while closing {self.path}: {words_of(error)}") from error

    def close_handlers(self) -> None:
        """Close the files without writing anything, as for an offline log directory."""
        for segment in self.segments:
            segment.close_handlers()
