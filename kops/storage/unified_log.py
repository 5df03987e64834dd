"""One partition's log: append, read, roll, truncate, retention, with producers, leader epochs and high watermark (Kafka UnifiedLog).

`UnifiedLog.open` loads, and if necessary recovers, the directory with `kops.storage.start.loader`. The log then owns everything in the
directory. It has no locks and no threads: the log's owner calls it from one thread and runs its scheduler. Answers for a client are
`ApiError`. An error of the operating system is raised as `KafkaStorageError` and reported to the failure channel.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.storage import log_lookup, log_retention
from kops.storage.appendable_log import AppendableLog
from kops.storage.background.replaced_file import ReplacedFile
from kops.storage.failures.load_errors import illegal_argument
from kops.storage.formats.names import PARTITION_METADATA, parse_partition_dir
from kops.storage.formats.partition_metadata import PartitionMetadata, write_partition_metadata
from kops.storage.local_log import LocalLog, draw_nothing, warn_nobody
from kops.storage.producers.state import DEFAULT_EXPIRATION_MS, DEFAULT_MAX_TRANSACTION_TIMEOUT_MS
from kops.storage.segments.split import replace_segments, split_overflowed_segment
from kops.storage.start.loader import load_partition, rebuild_producer_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from kops.config import TopicConfig
    from kops.files import File, Files
    from kops.storage.background.flush import Flush
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.producers.verification import VerificationGuard
    from kops.storage.scheduler import Scheduler
    from kops.storage.segment_files.file_records import TimestampAndOffset
    from kops.storage.segments.segment import LogSegment
    from kops.storage.start.loaded_log import LoadedLog

EXPIRATION_CHECK_INTERVAL_MS = 600_000


class UnifiedLog(AppendableLog):
    """The log of one partition. Offsets are log offsets, `end_*` is exclusive, sizes are bytes, times ms.

    Callers may read `segments`, `producers` and `epochs`. Only the methods of this class change them (the cleaner uses `replace_segments`).
    """

    def __init__(
        self,
        loaded: LoadedLog,
        local: LocalLog,
        *,
        topic_id: str | None,
        max_transaction_timeout_ms: int,
        producer_id_expiration_check_interval_ms: int,
    ) -> None:
        super().__init__(loaded, local)
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self._scheduler = local.scheduler
        self._has_partition_metadata = True
        self._flush_wanted = 0
        self._write_metadata: Callable[[], None] | None = None
        self._unsynced_snapshots: list[int] = []
        self._renamed_from = ""
        if self._scheduler.side_work is not None:
            self.epochs.write_aside = self._write_epochs_aside
        self._expire_check = self._scheduler.schedule(
            "PeriodicProducerExpirationCheck",
            self.remove_expired_producers,
            producer_id_expiration_check_interval_ms,
            producer_id_expiration_check_interval_ms,
        )
        if topic_id is not None:
            self.assign_topic_id(topic_id)

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: TopicConfig,
        *,
        now_ms: Callable[[], int],
        scheduler: Scheduler,
        failures: LogDirFailureChannel,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = False,
        topic_id: str | None = None,
        producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        producer_id_expiration_check_interval_ms: int = EXPIRATION_CHECK_INTERVAL_MS,
        max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS,
        verify_transactions: bool = True,
        draw_int: Callable[[], int] = draw_nothing,
        warn: Callable[[str], None] = warn_nobody,
        progress: Callable[[int], None] | None = None,
    ) -> UnifiedLog:
        """Load the partition directory, creating it if it is missing.

        The offsets come from the log directory's checkpoints. `had_clean_shutdown` says whether the directory had its marker. `draw_int`
        returns the random int for a segment's jitter. `warn` is called with messages for the operator, `progress` with the number of
        segments still to be recovered. Raises `LoadError` if a broker can't load the log, and ApiError INCONSISTENT_TOPIC_ID.
        """
        loaded = load_partition(
            files,
            directory,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=had_clean_shutdown,
            now_ms=now_ms(),
            producer_id_expiration_ms=producer_id_expiration_ms,
            write_epochs=False,
            progress=progress,
        )
        parsed = parse_partition_dir(posixpath.basename(files.absolute(directory)))
        loaded.producers.topic_partition = f"{parsed.topic}-{parsed.partition}"
        loaded.producers.verification_enabled = verify_transactions
        local = LocalLog(
            files,
            directory,
            loaded.producers.topic_partition,
            config,
            loaded.segments,
            recovery_point=loaded.recovery_point,
            log_end_offset=loaded.log_end_offset,
            scheduler=scheduler,
            now_ms=now_ms,
            failures=failures,
            draw_int=draw_int,
            warn=warn,
        )
        log = cls(
            loaded,
            local,
            topic_id=topic_id,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
            producer_id_expiration_check_interval_ms=producer_id_expiration_check_interval_ms,
        )
        local.delete_segment_files(loaded.marked_segments)
        log._delete_files_later(loaded.marked_snapshots)
        log._flush_epochs_later()
        return log

    def update_config(self, config: TopicConfig) -> TopicConfig:
        """Switch to other settings, and return the previous ones."""
        former = self._local.config
        self._local.config = config
        self._set_rules(config)
        return former

    # the topic's id ---------------------------------------------------------------------------------------------------------------

    def assign_topic_id(self, topic_id: str) -> None:
        """Set the log's topic id. The scheduler writes it to `partition.metadata`. Raises ApiError INCONSISTENT_TOPIC_ID."""
        if self.topic_id is not None:
            if self.topic_id != topic_id:
                reason = (
                    f"Tried to assign topic ID {topic_id} to log for topic partition {self.topic_partition}, "
                    f"but log already contained topic ID {self.topic_id}"
                )
                raise ApiError("INCONSISTENT_TOPIC_ID", reason)
            return
        self.topic_id = topic_id
        if not self._has_partition_metadata:
            self.warn(f"The topic id {topic_id} will not be persisted to the partition metadata file since the partition is deleted")
        elif not self.files.exists(self._metadata_path):
            self._metadata_due = True
            self._scheduler.schedule_once("flush-metadata-file", self._flush_metadata_aside)

    @property
    def _metadata_path(self) -> str:
        return posixpath.join(self.directory, PARTITION_METADATA)

    def _flush_metadata_file(self) -> None:
        """Write the file; called before the first record and before the directory is renamed. Waits for a side thread that is writing
        it."""
        if self._metadata_due:
            write = self._metadata_write()
            with self._local.storage("writing partition metadata file of"):
                write()
            self._metadata_due = False

    def _flush_metadata_aside(self) -> None:
        if not self._metadata_due:
            return

        def ended(future: Future[None]) -> None:
            # Otherwise a caller that could not wait has written it, and the directory may have been renamed since.
            if self._metadata_due:
                with self._local.storage("writing partition metadata file of"):
                    future.result()
                self._metadata_due = False

        self._scheduler.aside("flush-metadata-file", self._metadata_write(), ended)

    def _metadata_write(self) -> Callable[[], None]:
        """Return the function that writes the file once, in any thread."""
        if self._write_metadata is None:
            assert self.topic_id is not None, "a log without topic id"
            data = write_partition_metadata(PartitionMetadata(self.topic_id))
            self._write_metadata = ReplacedFile(self.files, self._metadata_path).next(data)
        return self._write_metadata

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Record that a new leader begins to write."""
        with self._local.storage("assigning a leader epoch to"):
            self.epochs.assign(epoch, start_offset)

    # rolling and flushing ---------------------------------------------------------------------------------------------------------

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Begin a new segment. The scheduler flushes the previous segments and the producers' snapshot, and moves the recovery point."""
        new = self._local.roll(expected_next_offset or 0)
        with self._local.storage("rolling log segment for"):
            self.producers.map_end_offset = new.base_offset
            # If the recovery point is already there, no flush follows.
            is_flush_due = self._local.recovery_point < new.base_offset
            if self.producers.take_snapshot(sync=not is_flush_due) is not None and is_flush_due:
                self._unsynced_snapshots.append(new.base_offset)
        self._update_high_watermark_with_log_end_offset()
        base_offset = new.base_offset
        self._scheduler.schedule_once("flush-log", lambda: self.flush_aside(base_offset))
        return new

    def flush(self, *, force_flush_active_segment: bool) -> None:
        """Flush everything up to the log's end to the disk. `force_flush_active_segment` includes an empty active segment."""
        self._flush(self.log_end_offset, inclusive=force_flush_active_segment)

    def flush_up_to(self, offset: int) -> None:
        """Flush the segments below `offset` to the disk."""
        # The task of a roll may run after a truncation. Offsets that are not in the log must not count as flushed.
        self._flush(min(offset, self.log_end_offset), inclusive=False)

    def _flush(self, offset: int, *, inclusive: bool) -> None:
        flush_offset = offset + 1 if inclusive else offset
        with self._local.storage("flushing log for"):
            if flush_offset > self._local.recovery_point:
                self.epochs.settle()
                for snapshot in self._open_snapshots():
                    with snapshot:
                        snapshot.sync()
                self._local.flush(flush_offset)
                self._local.mark_flushed(offset)

    def _open_snapshots(self) -> list[File]:
        """Open the producers' snapshots that rolls wrote and that have not been synced yet. Some may have been deleted."""
        paths = [self.producers.snapshot_path(offset) for offset in self._unsynced_snapshots]
        self._unsynced_snapshots.clear()
        return [self.files.open(path, "rw") for path in paths if path is not None and self.files.exists(path)]

    def begin_flush(self, offset: int, *, inclusive: bool = False) -> Flush | None:
        """Prepare the work of `flush_up_to`. The caller runs the result in a thread and passes it to `end_flush`. None if there is nothing
        to flush.
        """
        offset = min(offset, self.log_end_offset)
        flush_offset = offset + 1 if inclusive else offset
        with self._local.storage("flushing log for"):
            if flush_offset <= self._local.recovery_point:
                return None
            flush = self._local.begin_flush(flush_offset, offset)
            flush.add_first(self.epochs.settle)
            for snapshot in self._open_snapshots():
                flush.add(snapshot)
            return flush

    def end_flush(self, flush: Flush, result: Callable[[], object]) -> None:
        """End a flush that has run. `result` raises its error, if any, and this method then raises KafkaStorageError."""
        with self._local.storage("flushing log for"):
            result()
            self._local.end_flush(flush)

    def flush_aside(self, offset: int) -> None:
        """Flush as `flush_up_to` does, but in a side thread, one flush at a time. The recovery point moves when the flush ends."""
        self._flush_wanted = max(self._flush_wanted, offset)
        flush = None if self._local.is_flushing else self.begin_flush(self._flush_wanted)
        if flush is None:
            return

        def ended(future: Future[None]) -> None:
            if not self._local.is_closed:
                self.end_flush(flush, future.result)
                if self._local.recovery_point < self._flush_wanted <= self.log_end_offset:
                    self.flush_aside(0)
            elif not self._local.failures.has_offline(self._local.parent_dir):
                # The log was deleted, but the failed disk has other logs.
                with self._local.storage("flushing log for"):
                    future.result()

        self._scheduler.aside("flush-log", flush.run, ended)

    # truncating -------------------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove the records at and above `offset`. Returns False if there are none."""
        with self._local.storage("truncating log of"):
            if offset < 0:
                illegal_argument(f"Cannot truncate partition {self.topic_partition} to a negative offset ({offset}).")
            if offset < self.high_watermark:
                self.warn(f"Truncating {self.topic_partition} to offset {offset} below high watermark {self.high_watermark}")
            if offset >= self.log_end_offset:
                self._truncate_epochs_from_end(self.log_end_offset)
                return False
            self._local.check_open()
            if self.segments.base_offsets[0] > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            self._flush_wanted = min(self._flush_wanted, offset)
            self._delete_snapshots(self._local.truncate_to(offset))
            self._truncate_epochs_from_end(offset)
            self.log_start_offset = min(offset, self.log_start_offset)
            self._rebuild_producers(offset)
            if self.high_watermark >= self.log_end_offset:
                self.update_high_watermark(self._local.next_offset)
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything. The log continues at `offset`, and starts there unless `log_start_offset` is given."""
        with self._local.storage("truncating the entire log for"):
            self._flush_wanted = min(self._flush_wanted, offset)
            self._local.truncate_fully_and_start_at(offset)
            self.epochs.clear_and_flush()
            self.producers.truncate_fully_and_start_at(offset)
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._rebuild_producers(offset)
            self.update_high_watermark(self._local.next_offset)

    def maybe_increment_log_start_offset(self, offset: int, reason: str = "") -> bool:
        """Move the log's start to `offset` (DeleteRecords, retention). Returns False if the log already starts there or later.

        Raises ApiError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        with self._local.storage("increasing log start offset for"):
            if offset > self.high_watermark:
                text = (
                    f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} "
                    f"since it is larger than the high watermark {self.high_watermark}"
                )
                raise ApiError("OFFSET_OUT_OF_RANGE", text)
            self._local.check_open()
            if offset <= self.log_start_offset:
                return False
            self.log_start_offset = offset
            if offset > self._local.recovery_point:
                self.epochs.settle()
                self._local.recovery_point = offset
            self.epochs.truncate_from_start(offset)
            self._flush_epochs_later()
            self.producers.on_log_start_offset_incremented(offset)
            self._update_first_unstable_offset()
            if self.on_log_start is not None:
                self.on_log_start()
            return True

    def _truncate_epochs_from_end(self, offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        self._flush_epochs_later()

    def _flush_epochs_later(self) -> None:
        if self.epochs.flush_due:
            self._scheduler.schedule_once(f"leader-epoch-cache-flush-{self.topic_partition}", self._flush_epochs)

    def _flush_epochs(self) -> None:
        with self._local.storage("writing the leader epochs of"):
            self.epochs.flush()

    def _write_epochs_aside(self, write: Callable[[], None]) -> None:
        directory = self.directory

        def ended(future: Future[None]) -> None:
            with self._local.storage("writing the leader epochs of"):
                try:
                    future.result()
                except FileNotFoundError:
                    # The directory was deleted or renamed, and the file with it. The epochs were written before that. Another thread may
                    # be about to take note of the new name.
                    if directory == self.directory and directory != self._renamed_from and not self._local.is_closed:
                        raise

        self._scheduler.aside("leader-epoch-cache-write", write, ended)

    def _rebuild_producers(self, offset: int) -> None:
        self._local.check_open()
        rebuild_producer_state(
            self.producers, self.segments, self.log_start_offset, offset, self.now_ms(), reload_from_clean_shutdown=False
        )
        self._unstable_at = None
        self._appended_from = offset

    # look-ups ---------------------------------------------------------------------------------------------------------------------

    def fetch_offset_by_timestamp(self, target: int) -> TimestampAndOffset | None:
        """See `kops.storage.log_lookup`."""
        with self._local.storage("fetching offset by timestamp for"):
            return log_lookup.fetch_offset_by_timestamp(self, target)

    # retention and the cleaner ----------------------------------------------------------------------------------------------------

    def delete_old_segments(self, limit: int | None = None) -> int:
        """Delete the segments that the cleanup policy allows, and return their number. A compacted log loses only segments below its start
        offset.

        Each rule deletes at most `limit` segments. Later calls delete the rest.
        """
        deleted = self.delete_segments(log_retention.below_log_start(self)[:limit])
        if self.config.delete:
            deleted += self.delete_segments(log_retention.over_size(self)[:limit])
            deleted += self.delete_segments(log_retention.over_age(self)[:limit])
        return deleted

    def delete_segments(self, segments: list[LogSegment]) -> int:
        """Delete the oldest segments, which must be below the high watermark. Returns the number of given segments."""
        if not segments:
            return 0
        with self._local.storage("deleting segments for"):
            count = len(segments)
            deleted = list(segments)
            if len(self.segments) == count:
                new = self.roll()
                if deleted[-1].base_offset == new.base_offset:
                    self.warn(f"{self.topic_partition}: empty active segment at {new.base_offset} was deleted and recreated")
                    deleted.pop()
            self._local.check_open()
            if deleted:
                following = self.segments.higher(deleted[-1].base_offset)
                if following is not None:
                    self.maybe_increment_log_start_offset(following.base_offset, "segment deletion")
                self._local.remove_and_delete_segments(deleted)
            self._delete_snapshots(deleted)
            return count

    def replace_segments(self, new: list[LogSegment], old: list[LogSegment]) -> None:
        """Replace old segments with cleaned ones, safe against a crash at every step."""
        with self._local.storage("replacing segments of"):
            self._local.check_open()
            known = [segment for segment in old if segment.base_offset in self.segments]
            given_up = replace_segments(self.files, self.directory, self.segments, new, old)
            for segment in known:
                self._local.delete_segment_files([segment])
            self._delete_snapshots(given_up)

    def split_overflowed_segment(self, segment: LogSegment) -> list[LogSegment]:
        """Replace a segment with as many segments as its offsets need, and return them."""
        with self._local.storage("splitting an overflowed segment of"):
            config, opened = self._local.config, list[LogSegment]()
            given_up, created = split_overflowed_segment(self.files, self.directory, config, segment, self.segments, opened.append)
            self._local.delete_segment_files([segment])
            self._delete_snapshots(given_up)
            return created

    def _delete_snapshots(self, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
        marked = [self.producers.remove_and_mark_for_deletion(segment.base_offset) for segment in segments]
        self._delete_files_later([path for path in marked if path is not None], at_once=at_once)

    def _delete_files_later(self, paths: list[str], *, at_once: bool = False) -> None:
        if not paths:
            return

        def delete() -> None:
            with self._local.storage("deleting producer state snapshots for"):
                for path in paths:
                    if self.files.exists(path):
                        self.files.unlink(path)

        if at_once:
            delete()
        else:
            self._scheduler.schedule_once("delete-producer-snapshot", delete, self.config.file_delete_delay_ms)

    # producers --------------------------------------------------------------------------------------------------------------------

    def remove_expired_producers(self) -> None:
        """Remove the producers that have written nothing within the expiration time."""
        self.producers.remove_expired_producers(self.now_ms())

    def take_producer_snapshot(self) -> None:
        """Write the state of the producers at the log's end to a `.snapshot` file."""
        with self._local.storage("taking a producer state snapshot of"):
            self._local.check_open()
            self.producers.take_snapshot()

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Return the guard for a transaction's first append, or `NO_GUARD` if the transaction is open. Raises ApiError
        INVALID_PRODUCER_EPOCH.
        """
        return self.producers.start_verification(
            producer_id, sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump, now_ms=self.now_ms()
        )

    def has_late_transaction(self) -> bool:
        """Whether a transaction has been open longer than any transaction may be."""
        return self.producers.has_late_transaction(self.now_ms(), self.max_transaction_timeout_ms)

    # the directory ----------------------------------------------------------------------------------------------------------------

    def rename_dir(self, name: str, *, should_reinitialize: bool = True) -> None:
        """Rename the directory. Without `should_reinitialize`, the partition is being deleted and its epochs are cleared."""
        with self._local.storage("renaming dir for"):
            self._renamed_from = self.directory
            self._flush_metadata_file()
            self.epochs.settle()
            if not self._local.rename_dir(name):
                self._renamed_from = ""
                return
            self.producers.update_directory(self.directory)
            if should_reinitialize:
                self.epochs.update_directory(self.directory)
            else:
                self.epochs.clear()
                self._has_partition_metadata = False

    def close(self) -> None:
        """Close as a clean stop does: write a producer snapshot at the end, trim the indexes, flush the files."""
        self.on_high_watermark = self.on_log_start = None
        self._flush_metadata_file()
        self._local.check_open()
        self._expire_check.cancel()
        with self._local.storage("writing the leader epochs of"):
            self.epochs.settle()
        self.take_producer_snapshot()
        self._local.close()

    def close_handlers(self) -> None:
        """Close the files without changing them, as for an offline log directory."""
        self._expire_check.cancel()
        self._local.close_handlers()

    def delete_aside(self, scheduler: Scheduler) -> None:
        """Close the log now, and delete it with its directory in a side thread."""
        deleting = self._local.storage("deleting log for")
        with deleting:
            self._local.check_open()
            self._expire_check.cancel()
            self.epochs.clear()
            remove = self._local.begin_delete()

        def ended(future: Future[None]) -> None:
            with deleting:
                future.result()

        scheduler.aside("delete-log", remove, ended)

    def delete(self) -> None:
        """Delete the log with its directory at once."""
        with self._local.storage("deleting log for"):
            self._local.check_open()
            self._expire_check.cancel()
            self.epochs.clear()
            self._delete_snapshots(self._local.delete_all_segments(), at_once=True)
            self._local.delete_empty_dir()
