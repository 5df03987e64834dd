"""The reading half of one partition's log: offsets (start, high watermark, last stable, end), fetches, look-ups (Kafka UnifiedLog).

`kops.storage.unified_log` adds everything that changes the log.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from kops.errors import ApiError
from kops.storage.failures.load_errors import illegal_argument
from kops.storage.formats.names import parse_partition_dir
from kops.storage.log_end import read_from
from kops.storage.log_offsets import FetchedData, Isolation, LogOffsetMetadata, LogOffsetSnapshot
from kops.storage.segments.epoch_cache import UNDEFINED_EPOCH_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.config import TopicConfig
    from kops.storage.local_log import LocalLog
    from kops.storage.segment_files.transaction_index import AbortedTxn
    from kops.storage.segments.segment import LogSegments
    from kops.storage.start.loaded_log import LoadedLog


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadableLog:
    """The reading half of `UnifiedLog`. Offsets are log offsets, sizes bytes, times ms.

    Callers may read `segments`, `producers` and `epochs`. ApiError is an answer for a client, KafkaStorageError means a failed directory.
    """

    def __init__(self, loaded: LoadedLog, local: LocalLog) -> None:
        self.files = loaded.files
        self.now_ms = local.now_ms
        self.warn = local.warn
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.on_high_watermark: Callable[[int], None] | None = None
        """Called with every new high watermark (LogOffsetsListener)."""
        self.on_log_start: Callable[[], object] | None = None
        """Called when the log start offset has increased."""
        self._local = local
        self._high_watermark = LogOffsetMetadata(loaded.high_watermark)
        self._first_unstable: LogOffsetMetadata | None = None
        self._unstable_at: tuple[int, int] | None = None
        self._appended_from = local.log_end_offset
        """Batches from this offset on were appended here. An earlier transaction was rebuilt from files, which may be damaged."""
        self.topic_id = loaded.topic_id
        parsed = parse_partition_dir(posixpath.basename(self.files.absolute(local.directory)))
        self.topic, self.partition = parsed.topic, parsed.partition
        self._update_first_unstable_offset()

    def __str__(self) -> str:
        topic_id = "" if self.topic_id is None else f", topicId={self.topic_id}"
        return (
            f"Log(dir={self.directory}{topic_id}, topic={self.topic}, partition={self.partition}, highWatermark={self.high_watermark}, "
            f"lastStableOffset={self.last_stable_offset}, logStartOffset={self.log_start_offset}, logEndOffset={self.log_end_offset})"
        )

    # properties -------------------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The partition's directory."""
        return self._local.directory

    @property
    def parent_dir(self) -> str:
        """The absolute path of the partition's log directory."""
        return self._local.parent_dir

    @property
    def topic_partition(self) -> str:
        """The partition's name as Kafka writes it, `orders-0`."""
        return self._local.topic_partition

    @property
    def is_future(self) -> bool:
        """Whether this is a copy that is being built in another log directory."""
        return self._local.is_future

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        return self._local.config

    @property
    def segments(self) -> LogSegments:
        """The segments, by base offset."""
        return self._local.segments

    @property
    def size(self) -> int:
        """The size of all segments' logs in bytes."""
        return sum(segment.size for segment in self._local.segments)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._local.log_end_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The log's end with its position."""
        return self._local.next_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk."""
        return self._local.recovery_point

    @property
    def last_flush_ms(self) -> int:
        """When the recovery point last moved (ms)."""
        return self._local.last_flush_ms

    @property
    def is_empty(self) -> bool:
        """Whether the log contains no offset."""
        return self.log_start_offset == self.log_end_offset

    # high watermark and last stable offset ----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is replicated."""
        return self._high_watermark.message_offset

    def update_high_watermark(self, offset: int | LogOffsetMetadata) -> int:
        """Set the high watermark, limited to the log's range, and return the new value."""
        new = offset if isinstance(offset, LogOffsetMetadata) else LogOffsetMetadata(offset)
        end = self._local.next_offset
        if new.message_offset < self.log_start_offset:
            new = LogOffsetMetadata(self.log_start_offset)
        elif new.message_offset >= end.message_offset:
            new = end
        self._set_high_watermark(new)
        return new.message_offset

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Set the high watermark as a follower does with the leader's value. Returns the new value if it changed, else None."""
        old = self.high_watermark
        new = self.update_high_watermark(offset)
        return None if new == old else new

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Increase the high watermark as a leader does, and return the previous value. Returns None if it does not grow.

        The same offset in a newer segment counts as growth.
        """
        if new.message_offset > self.log_end_offset:
            illegal_argument(f"High watermark {new} update exceeds current log end offset {self._local.next_offset}")
        old = self._full_high_watermark()
        if old.message_offset < new.message_offset or (old.message_offset == new.message_offset and old.on_older_segment(new)):
            self._set_high_watermark(new)
            return old
        return None

    def _set_high_watermark(self, new: LogOffsetMetadata) -> None:
        if new.message_offset < 0:
            illegal_argument("High watermark offset should be non-negative")
        if new.message_offset < self._high_watermark.message_offset:
            self.warn(f"{self.topic_partition}: non-monotonic update of high watermark from {self._high_watermark} to {new}")
        self._high_watermark = new
        self.producers.on_high_watermark_updated(new.message_offset)
        if self.on_high_watermark is not None:
            self.on_high_watermark(new.message_offset)
        self._update_first_unstable_offset()

    def _full_high_watermark(self) -> LogOffsetMetadata:
        self._local.check_open()
        if self._high_watermark.message_offset_only:
            self._set_high_watermark(self.offset_metadata(self.high_watermark))
        return self._high_watermark

    def _update_high_watermark_with_log_end_offset(self) -> None:
        """Lower the high watermark to the log's end after a truncation. If both are equal, it adopts the end's position."""
        if self.high_watermark >= self._local.log_end_offset:
            self._set_high_watermark(self._local.next_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or that ended above the high watermark."""
        return None if self._first_unstable is None else self._first_unstable.message_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended, at most the high watermark."""
        unstable = self._first_unstable
        return self.high_watermark if unstable is None else min(unstable.message_offset, self.high_watermark)

    def _update_first_unstable_offset(self) -> None:
        self._local.check_open()
        producers = self.producers
        offset = producers.first_unstable_offset if producers.ongoing_txns or producers.unreplicated_txns else None
        if offset is None:
            self._first_unstable = self._unstable_at = None
        elif self._unstable_at != (offset, self.log_start_offset):
            # Of a transaction that was appended here, Kafka knows the position, and kops looks it up when it is needed. For any other one,
            # and if the log now starts within the transaction, both look up the batch at the offset, which may begin elsewhere.
            start_offset = max(offset, self.log_start_offset)
            is_known = start_offset == offset and offset >= self._appended_from
            self._first_unstable = LogOffsetMetadata(offset) if is_known else self.offset_metadata(start_offset)
            self._unstable_at = (offset, self.log_start_offset)

    def _full_last_stable_offset(self) -> LogOffsetMetadata:
        high_watermark = self._full_high_watermark()
        unstable = self._first_unstable
        if unstable is None or unstable.message_offset >= high_watermark.message_offset:
            return high_watermark
        if unstable.message_offset_only:
            unstable = self._first_unstable = self.offset_metadata(unstable.message_offset)
        return unstable

    def fetch_offset_snapshot(self) -> LogOffsetSnapshot:
        """Return a snapshot of all offsets."""
        stable = self._full_last_stable_offset()
        return LogOffsetSnapshot(self.log_start_offset, self._local.next_offset, self._full_high_watermark(), stable)

    def offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return the position of the batch that contains `offset`, or of the first batch after it. Outside the log, only the offset is
        known."""
        try:
            return self._local.offset_metadata(offset)
        except ApiError:
            return LogOffsetMetadata(offset)

    # reading ----------------------------------------------------------------------------------------------------------------------

    def read(self, start_offset: int, max_size: int, isolation: Isolation, *, min_one_batch: bool = False) -> FetchedData:
        """Read batches beginning with the one that contains `start_offset`, at most `max_size` bytes of one segment.

        With `min_one_batch`, the first batch is complete even if it is larger. Raises ApiError OFFSET_OUT_OF_RANGE, KafkaStorageError.
        """
        self._check_log_start_offset(start_offset)
        if isolation is Isolation.LOG_END:
            limit = self._local.next_offset
        elif isolation is Isolation.HIGH_WATERMARK:
            limit = self._full_high_watermark()
        else:
            limit = self._full_last_stable_offset()
        aborted = isolation is Isolation.TXN_COMMITTED
        if start_offset == limit.message_offset and not aborted and not self._local.failures.offline:
            return FetchedData(limit)
        return read_from(self._local, start_offset, max_size, limit, min_one_batch=min_one_batch, aborted=aborted)

    def _check_log_start_offset(self, offset: int) -> None:
        if offset < self.log_start_offset:
            reason = (
                f"Received request for offset {offset} for partition {self.topic_partition}, "
                f"but we only have log segments starting from offset: {self.log_start_offset}."
            )
            raise ApiError("OFFSET_OUT_OF_RANGE", reason)

    def collect_aborted_transactions(self, start_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """Return the aborted transactions up to `upper_bound`, beginning with the segment that contains `start_offset`."""
        return self._local.collect_aborted_transactions(self.log_start_offset, start_offset, upper_bound)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) of the largest epoch not above `epoch`, or None if it is unknown."""
        found_epoch, offset = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return None if offset == UNDEFINED_EPOCH_OFFSET else (found_epoch, offset)

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the last leader that wrote."""
        return self.epochs.latest_epoch
