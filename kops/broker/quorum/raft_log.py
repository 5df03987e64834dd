"""The metadata log on disk: `__cluster_metadata-0` with its segments and snapshots, as the log of a Raft node.

Source: Kafka's KafkaRaftLog and MetadataLogConfig (KIP-595, KIP-630). A snapshot replaces the part of the log below its offset.
`metadata.max.retention.bytes` and `.ms` decide when old snapshots are deleted, with the segments below the next one; the last snapshot is
never deleted. A log that begins above offset 0 needs a snapshot at its start or later, or it can't be opened. Only the segments show where
a log ends, so the whole log is recovered at every start.
"""

from __future__ import annotations

import itertools
import logging
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.broker.quorum.snapshot_files import SnapshotFileReader, SnapshotFileWriter, parse_snapshot_name, snapshot_path
from kops.config.topic import TopicConfig
from kops.config.values.java import INT_MAX
from kops.errors import ApiError, DecodeError
from kops.metadata.raft.log.control_records import read_snapshot_header
from kops.metadata.raft.log.control_state import snapshot_batches
from kops.metadata.raft.log.log import EndKind, validate_end
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.metadata.raft.voters.settings import MAX_BATCH_SIZE
from kops.records.log_offsets import UNKNOWN_OFFSET, Isolation
from kops.records.validation.validate import AppendOrigin
from kops.storage.failures.load_errors import ILLEGAL_STATE, LoadError, illegal_argument
from kops.storage.formats.names import METADATA_TOPIC, partition_dir_name
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import Files
    from kops.storage.background.flush import Flush
    from kops.storage.log_append import LogAppendInfo
    from kops.storage.scheduler import Scheduler

log = logging.getLogger(__name__)

METADATA_DIR: Final = partition_dir_name(METADATA_TOPIC, 0)
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_DAMAGED: Final = ("CORRUPT_MESSAGE", "INVALID_RECORD")


@dataclass(frozen=True, slots=True)
class MetadataLogSettings:
    """The settings `metadata.log.*`, `metadata.max.retention.*` and `internal.metadata.*`, with Kafka's defaults; ms and bytes.

    A retention below 0 means no limit. `internal_segment_bytes` overrides `segment_bytes` if it is given.
    """

    segment_bytes: int = 1 << 30
    internal_segment_bytes: int | None = None
    segment_ms: int = 7 * 24 * 3_600_000
    max_retention_bytes: int = 100 << 20
    max_retention_ms: int = 7 * 24 * 3_600_000
    max_batch_size: int = MAX_BATCH_SIZE
    delete_delay_ms: int = 60_000

    @property
    def topic_config(self) -> TopicConfig:
        """The settings with which the log is opened. They delete nothing: only snapshots decide what is deleted."""
        return TopicConfig(
            segment_bytes=self.segment_bytes,
            internal_segment_bytes=self.internal_segment_bytes,
            segment_ms=self.segment_ms,
            max_message_bytes=self.max_batch_size,
            retention_ms=-1,
            retention_bytes=-1,
        )


class KafkaRaftLog:
    """A RaftLog: a UnifiedLog and its snapshots. Methods raise KafkaStorageError if the disk fails, OSError for a snapshot's file."""

    def __init__(self, unified: UnifiedLog, snapshots: set[OffsetAndEpoch], settings: MetadataLogSettings, scheduler: Scheduler) -> None:
        self.unified = unified
        self._files = unified.files
        self.flush_aside: Callable[[Flush], object] | None = None
        """Runs a flush in a side thread and passes the result to `end_flush`. Without it `start_flush` waits for the disk."""
        self._settings = settings
        self._scheduler = scheduler
        self._snapshots: dict[OffsetAndEpoch, SnapshotFileReader | None] = dict.fromkeys(sorted(snapshots))
        self._marked: set[SnapshotFileReader] = set()
        """Readers of snapshots whose files are marked for deletion."""

    @classmethod
    def open(
        cls,
        files: Files,
        log_dir: str,
        settings: MetadataLogSettings,
        *,
        now_ms: Callable[[], int],
        scheduler: Scheduler,
        failures: LogDirFailureChannel | None = None,
    ) -> KafkaRaftLog:
        """Load and recover the metadata log of a log directory; create it if it is missing. Raises LoadError, OSError."""
        directory = posixpath.join(log_dir, METADATA_DIR)
        if not files.exists(directory):
            files.mkdir(directory)
            files.sync_dir(log_dir)
        unified = UnifiedLog.open(
            files,
            directory,
            settings.topic_config,
            now_ms=now_ms,
            scheduler=scheduler,
            failures=LogDirFailureChannel() if failures is None else failures,
            topic_id=METADATA_TOPIC_ID,
            producer_id_expiration_ms=INT_MAX,
            producer_id_expiration_check_interval_ms=INT_MAX,
            max_transaction_timeout_ms=INT_MAX,
            verify_transactions=False,
            warn=log.warning,
        )
        try:
            opened = cls(unified, _recover_snapshots(unified), settings, scheduler)
            # If a follower stopped between storing a fetched snapshot and truncating its log, the snapshot is beyond the log's end.
            opened.truncate_to_latest_snapshot()
        except BaseException:
            unified.close_handlers()
            raise
        return opened

    @property
    def directory(self) -> str:
        """The log's directory, which also holds `quorum-state`."""
        return self.unified.directory

    # offsets ----------------------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset: 0, or a snapshot's."""
        return self.unified.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.unified.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed. Within a batch, the batch's first offset counts, as in a read."""
        return self.unified.fetch_offset_snapshot().high_watermark.message_offset

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record. If the log is empty, that of the snapshot before it, or 0."""
        epoch, latest = self.unified.latest_epoch, self.latest_snapshot_id
        if epoch is not None:
            return epoch
        if latest is None:
            return 0
        # After a kill the log may start below the snapshot again (at its first segment), and when it is cut at the snapshot no epoch is
        # left. The snapshot's epoch is that of the record before its end. Kafka's node ends here if the log does not start there as well.
        if latest.offset != self.end_offset:
            reason = (
                f"Log doesn't have a last fetch epoch and there is a snapshot ({latest}). Expected the snapshot's end offset to match "
                f"the log's end offset ({self.end_offset}) and the log start offset ({self.start_offset})"
            )
            raise LoadError(reason, exception="org.apache.kafka.common.KafkaException")
        return latest.epoch

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch up to `epoch`; the log's end if there is no such epoch. If that is where the log starts, the id of
        the earliest snapshot."""
        found = self.unified.end_offset_for_epoch(epoch)
        if found is None:
            return OffsetAndEpoch(offset=self.end_offset, epoch=self.last_fetched_epoch)
        end = OffsetAndEpoch(epoch=found[0], offset=found[1])
        earliest = self.earliest_snapshot_id
        return earliest if earliest is not None and end.offset == earliest.offset and end.epoch == epoch else end

    def update_high_watermark(self, offset: int) -> None:
        """Record that everything below `offset` is committed."""
        became = self.unified.update_high_watermark(offset)
        if became != offset:
            log.warning("The log's high watermark became %d, the quorum's is %d", became, offset)

    # records ----------------------------------------------------------------------------------------------------------------------

    def append_as_leader(self, data: bytes, epoch: int) -> None:
        """Append batches built by this node, which already have their offsets and epoch."""
        _check_appended(self.unified.append_as_leader(_not_empty(data), epoch, origin=AppendOrigin.RAFT_LEADER))

    def append_as_follower(self, data: bytes, epoch: int) -> None:
        """Append batches from the leader, up to the first batch of a later epoch. Raises DecodeError for damage; nothing is appended
        then."""
        try:
            info = self.unified.append_as_follower(_not_empty(data), epoch)
        except ApiError as error:
            if error.name not in _DAMAGED:
                raise
            raise DecodeError(error.message, code="corrupt") from error
        _check_appended(info)

    def read(self, start_offset: int, max_size: int, *, committed: bool) -> bytes:
        """Read batches of one segment, from the one that holds `start_offset`. The first is complete; the last may be cut."""
        isolation = Isolation.HIGH_WATERMARK if committed else Isolation.LOG_END
        records = self.unified.read(start_offset, max_size, isolation, min_one_batch=True).records
        return b"" if records is None else records.read_at(records.start, records.size)

    def initialize_leader_epoch(self, epoch: int) -> None:
        """Begin a new epoch at the log's end."""
        self.unified.assign_epoch_start_offset(epoch, self.end_offset)

    def flush(self) -> None:
        """Sync the appended records to the disk."""
        self.unified.flush(force_flush_active_segment=False)

    def start_flush(self) -> bool:
        """Start a sync of the appended records, with `flush_aside` if it is set. Returns whether they are already durable."""
        if self.flush_aside is None:
            self.flush()
            return True
        flush = self.unified.begin_flush(self.end_offset)
        if flush is None:
            return True
        self.flush_aside(flush)
        return False

    def end_flush(self, flush: Flush, result: Callable[[], object]) -> None:
        """Finish a flush that `flush_aside` has run. `result` raises the flush's error, which becomes a KafkaStorageError."""
        self.unified.end_flush(flush, result)

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`. Raises LoadError (IllegalArgumentException) below the high watermark."""
        if offset < self.high_watermark:
            illegal_argument(f"Attempt to truncate to offset {offset}, which is below the current high watermark {self.high_watermark}")
        self.unified.truncate_to(offset)

    def truncate_to_latest_snapshot(self) -> bool:
        """If the latest snapshot is beyond the log's end, drop the whole log and start it at the snapshot. Returns whether this was
        done."""
        latest = self.latest_snapshot_id
        if latest is None or latest <= OffsetAndEpoch(epoch=self.unified.latest_epoch or 0, offset=self.end_offset):
            return False
        self.unified.truncate_fully_and_start_at(latest.offset)
        self._remove_before(latest, "the partition was fully truncated")
        return True

    # snapshots --------------------------------------------------------------------------------------------------------------------

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The latest snapshot."""
        return max(self._snapshots, default=None)

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The earliest snapshot."""
        return min(self._snapshots, default=None)

    def check_snapshot_id(self, snapshot_id: OffsetAndEpoch) -> None:
        """Check that a snapshot of this log may have this id.

        Raises LoadError (IllegalArgumentException) if the id is above the high watermark, within a batch (a replica that loads the snapshot
        fetches from there), or if the log has another epoch there.
        """
        if snapshot_id.offset > self.high_watermark:
            illegal_argument(f"Cannot create a snapshot with an id ({snapshot_id}) greater than the high-watermark ({self.high_watermark})")
        valid = validate_end(self, snapshot_id.offset, snapshot_id.epoch)
        if valid.kind is not EndKind.VALID:
            illegal_argument(f"Snapshot id ({snapshot_id}) is not valid according to the log: {valid.kind.value}, {valid.end}")
        base_offset = self._base_offset(snapshot_id.offset)
        if base_offset != snapshot_id.offset:
            illegal_argument(
                f"Cannot create snapshot at offset ({snapshot_id.offset}) because it is not batch aligned. "
                f"The batch containing the requested offset has a base offset of ({base_offset})"
            )

    def create_new_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFileWriter | None:
        """Like `create_snapshot`, for a state of this log (see `check_snapshot_id`). Also None if the log starts after it."""
        if snapshot_id.offset < self.start_offset:
            return None
        self.check_snapshot_id(snapshot_id)
        return self.create_snapshot(snapshot_id)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFileWriter | None:
        """Start to write a snapshot; None if it exists."""
        if snapshot_id in self._snapshots:
            return None
        return SnapshotFileWriter(self._files, self.directory, snapshot_id, self._on_frozen)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFileReader | None:
        """The frozen snapshot with this id, or None. Its file stays open until the snapshot is deleted."""
        if snapshot_id not in self._snapshots:
            return None
        reader = self._snapshots[snapshot_id]
        if reader is None:
            try:
                reader = SnapshotFileReader(self._files, self.directory, snapshot_id)
            except FileNotFoundError:
                log.warning("Snapshot %s is gone from %s", snapshot_id, self.directory)
                del self._snapshots[snapshot_id]
                return None
            self._snapshots[snapshot_id] = reader
        return reader

    def _on_frozen(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots[snapshot_id] = None

    def _base_offset(self, offset: int) -> int:
        return self.unified.read(offset, 1, Isolation.HIGH_WATERMARK, min_one_batch=True).offset_metadata.message_offset

    # retention --------------------------------------------------------------------------------------------------------------------

    def maybe_clean(self, now_ms: int) -> bool:
        """Delete old snapshots and the segments below them, by size first, then by time. Returns whether anything was deleted."""
        by_size = self._clean(self._too_large())
        by_time = self._clean(lambda snapshot_id: self._too_old(snapshot_id, now_ms))
        return by_size or by_time

    def delete_before_snapshot(self, snapshot_id: OffsetAndEpoch, reason: str) -> bool:
        """Move the log's start to a snapshot; delete earlier snapshots and whole segments below it. Returns whether anything was
        deleted."""
        latest = self.latest_snapshot_id
        if latest is None or snapshot_id not in self._snapshots or not self.start_offset < snapshot_id.offset <= latest.offset:
            return False
        if not self.unified.maybe_increment_log_start_offset(snapshot_id.offset, "snapshot generated"):
            return False
        deleted_segments = self.unified.delete_old_segments()
        return self._remove_before(snapshot_id, reason) or deleted_segments > 0

    def _clean(self, reason_for: Callable[[OffsetAndEpoch], str | None]) -> bool:
        """Delete the oldest snapshots while there is a reason to and a later one exists."""
        ids, cleaned = sorted(self._snapshots), False
        for oldest, following in itertools.pairwise(ids):
            reason = reason_for(oldest)
            if reason is None or not self.delete_before_snapshot(following, reason):
                break
            cleaned = True
        return cleaned

    def _too_large(self) -> Callable[[OffsetAndEpoch], str | None]:
        readers = [] if self._settings.max_retention_bytes < 0 else [self.read_snapshot(id) for id in list(self._snapshots)]
        sizes = {reader.snapshot_id: reader.size for reader in readers if reader is not None}
        total = sum(sizes.values())

        def reason_for(snapshot_id: OffsetAndEpoch) -> str | None:
            nonlocal total
            size = self.unified.size + total
            if snapshot_id not in sizes or size <= self._settings.max_retention_bytes:
                return None
            total -= sizes[snapshot_id]
            return f"log and snapshots have {size} bytes, more than {self._settings.max_retention_bytes}"

        return reason_for

    def _too_old(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> str | None:
        limit_ms = self._settings.max_retention_ms
        reader = None if limit_ms < 0 else self.read_snapshot(snapshot_id)
        if reader is None:
            return None
        first = next(snapshot_batches(reader), None)
        if first is None:
            raise DecodeError("a snapshot is empty", file=snapshot_path(self.directory, snapshot_id))
        age_ms = now_ms - read_snapshot_header(first)
        return f"its last record is {age_ms} ms old, more than {limit_ms}" if age_ms > limit_ms else None

    def _remove_before(self, snapshot_id: OffsetAndEpoch, reason: str) -> bool:
        """Drop earlier snapshots: rename their files now and unlink them later. Returns whether there were any."""
        forgotten = {id: self._snapshots.pop(id) for id in sorted(self._snapshots) if id < snapshot_id}
        for id in forgotten:
            log.info("Marking snapshot %s for deletion: %s", id, reason)
            self._files.rename(snapshot_path(self.directory, id), snapshot_path(self.directory, id, ".deleted"))

        readers = {reader for reader in forgotten.values() if reader is not None}
        self._marked |= readers

        def delete() -> None:
            for reader in readers:
                reader.close()
            self._marked -= readers
            for id in forgotten:
                _unlink_if_there(self._files, snapshot_path(self.directory, id, ".deleted"))

        if forgotten:
            self._scheduler.schedule_once("delete-snapshot-files", delete, self._settings.delete_delay_ms)
        return bool(forgotten)

    # the end ----------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close as a clean stop does: everything in memory is written to disk, including an active segment without records."""
        self.unified.flush(force_flush_active_segment=True)
        self.unified.close()
        self.close_snapshots()

    def abandon(self) -> None:
        """Close all files as they are."""
        self.unified.close_handlers()
        self.close_snapshots()

    def close_snapshots(self) -> None:
        """Close the snapshots' files, also of those that are marked for deletion: the scheduler may stop before it deletes them."""
        for reader in (*self._snapshots.values(), *self._marked):
            if reader is not None:
                reader.close()
        self._snapshots.clear()
        self._marked.clear()


def _not_empty(data: bytes) -> bytes:
    if not data:
        illegal_argument("Attempt to append an empty record set")
    return data


def _check_appended(info: LogAppendInfo) -> None:
    if info.first_offset == UNKNOWN_OFFSET:
        raise DecodeError(f"no batch could be appended: {info}")


def _unlink_if_there(files: Files, path: str) -> None:
    if files.exists(path):
        files.unlink(path)


def _recover_snapshots(unified: UnifiedLog) -> set[OffsetAndEpoch]:
    """Return the snapshots from the log's start on. Deletes those that are unfinished, marked for deletion or earlier. Raises LoadError if
    a required snapshot is missing."""
    retained: set[OffsetAndEpoch] = set()
    unneeded = []
    for name in unified.files.list(unified.directory):
        found = parse_snapshot_name(name)
        if found is None:
            continue
        if found[1] or found[0].offset < unified.log_start_offset:
            unneeded.append(posixpath.join(unified.directory, name))
        else:
            retained.add(found[0])
    if unified.log_start_offset > 0 and not retained:
        reason = (
            f"Inconsistent snapshot state: there must be a snapshot at an offset larger then the current log start offset "
            f"{unified.log_start_offset}, but the latest snapshot is none"
        )
        raise LoadError(reason, exception=ILLEGAL_STATE)
    for path in unneeded:
        _unlink_if_there(unified.files, path)
    return retained
