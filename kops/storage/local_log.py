"""The segments of one partition and the end of the log: append, roll, read, truncate, delete (Kafka LocalLog).

`LocalLog` knows nothing about producers, epochs or the high watermark, which `kops.storage.unified_log` adds. `LocalLog.storage` turns
every error of the operating system into `KafkaStorageError` and reports it to the log directory's failure channel.
"""

from __future__ import annotations

import errno
import posixpath
from contextlib import suppress
from typing import TYPE_CHECKING

from kops.config.values.java import INT_MIN
from kops.storage.background.flush import Flush
from kops.storage.failures.load_errors import ILLEGAL_STATE, KAFKA_EXCEPTION, LoadError
from kops.storage.log_end import LogEnd, StorageAction
from kops.storage.segment_files.paths import DELETED, INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_path
from kops.storage.segments.segment import LogSegment, LogSegments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from kops.config import TopicConfig
    from kops.files import Files
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.scheduler import Scheduler

FUTURE = "-future"


def draw_nothing() -> int:
    """Return 0 as the random number for a segment's jitter, for owners without a source of random ints."""
    return 0


def warn_nobody(message: str) -> None:
    """Ignore a warning, for owners that do not want warnings."""


class LocalLog(LogEnd):
    """The files of one partition.

    `draw_int` returns the random int for a new segment's jitter (as java.util.Random.nextInt). `warn` is called with messages for the
    operator.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: str,
        config: TopicConfig,
        segments: LogSegments,
        *,
        recovery_point: int,
        log_end_offset: int,
        scheduler: Scheduler,
        now_ms: Callable[[], int],
        failures: LogDirFailureChannel,
        draw_int: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(topic_partition, config, segments, failures, recovery_point=recovery_point, log_end_offset=log_end_offset)
        self.files = files
        self.directory = directory
        self.parent_dir = posixpath.dirname(files.absolute(directory))
        self.scheduler = scheduler
        self.now_ms = now_ms
        self.warn = warn
        self.last_flush_ms = now_ms()
        self._draw_int = draw_int
        self._flushes: list[Flush] = []
        self._marked: list[LogSegment] = []
        for segment in segments:
            segment.created_ms = self.last_flush_ms
            segment.roll_jitter_ms = self._roll_jitter_ms()

    def storage(self, what: str) -> StorageAction:
        """Return the `with` block for an operation on files. `what` completes "Error while … topic-0 in dir …"."""
        return StorageAction(self, what)

    @property
    def is_future(self) -> bool:
        """Whether the log is a copy on its way to another log directory."""
        return self.directory.endswith(FUTURE)

    # writing ----------------------------------------------------------------------------------------------------------------------

    def flush(self, offset: int) -> None:
        """Flush the segments from the recovery point up to `offset` to the disk, and also the directory if one of them is new."""
        recovery_point = self.recovery_point
        if recovery_point > offset:
            return
        flushed = self.segments.values(recovery_point, offset)
        for segment in flushed:
            segment.flush()
        if any(segment.base_offset >= recovery_point for segment in flushed):
            self.files.sync_dir(self.directory)

    def begin_flush(self, offset: int, end_offset: int) -> Flush:
        """Prepare a flush of everything below `end_offset`. The caller runs the result in a thread and passes it to `end_flush`."""
        flush = Flush(self.files, end_offset)
        recovery_point = self.recovery_point
        try:
            flushed = self.segments.values(recovery_point, offset)
            for segment in flushed:
                segment.begin_flush(flush)
        except BaseException:
            flush.close()
            raise
        if any(segment.base_offset >= recovery_point for segment in flushed):
            flush.add_directory(self.directory)
        self._flushes.append(flush)
        return flush

    def end_flush(self, flush: Flush) -> None:
        """End a flush that has run: everything that was not truncated meanwhile counts as flushed. Raises KafkaStorageError if the log is
        closed.
        """
        self._flushes.remove(flush)
        flush.end()
        if not flush.is_void:
            self.mark_flushed(flush.offset)
        elif flush.directory == self.directory:
            raise FileNotFoundError(errno.ENOENT, "the directory is gone", self.directory)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush has begun and not ended."""
        return bool(self._flushes)

    def _cut_flushes(self, offset: int) -> None:
        for flush in self._flushes:
            flush.cut(offset)

    def mark_flushed(self, offset: int) -> None:
        """Record that everything below `offset` is on disk."""
        self.check_open()
        if offset > self.recovery_point:
            self.recovery_point = offset
            self.last_flush_ms = self.now_ms()

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Begin a new segment at the log's end, or at `expected_next_offset` if that is larger. The log of the previous segment is flushed
        first.

        An empty active segment with that offset is replaced. Files with that name that belong to no segment are removed.
        """
        with self.storage("rolling log segment for"):
            self.check_open()
            new_offset = max(expected_next_offset, self.log_end_offset)
            active = self.segments.active
            where = f"{new_offset} =max(provided offset = {expected_next_offset}, LEO = {self.log_end_offset})"
            if new_offset in self.segments:
                if active.base_offset != new_offset or active.size:
                    reason = (
                        f"Trying to roll a new log segment for topic partition {self.topic_partition} with start offset {where} while it "
                        f"already exists. Existing segment is Optional[{self.segments.floor(new_offset)}]."
                    )
                    raise LoadError(reason, exception=KAFKA_EXCEPTION)
                sizes = f"{active.offset_index.entries} entries of the offset index, {active.time_index.entries} of the time index"
                self.warn(f"{self.topic_partition}: rolling a new segment at {where} while it exists and is active with size 0, {sizes}")
                new = self.create_and_delete_segment(new_offset, active)
            else:
                if new_offset < active.base_offset:
                    reason = (
                        f"Trying to roll a new log segment for topic partition {self.topic_partition} with start offset {where} lower than "
                        f"start offset of the active segment {active}"
                    )
                    raise LoadError(reason, exception=KAFKA_EXCEPTION)
                self._remove_leftovers(new_offset)
                active.on_become_inactive()
                # A running flush does not include the entries that this adds to the indexes.
                self._cut_flushes(active.base_offset)
                # Recovery handles segments one by one. If the next segment exists, it can't see that a power loss cut the end of this one.
                # It rebuilds the indexes of segments above the recovery point, so these can wait for the flush that moves this point.
                if self.recovery_point < self.log_end_offset:
                    active.log.flush()
                else:
                    active.flush()
                new = self._open_segment(new_offset)
                self.segments.add(new)
            self.update_log_end_offset(self.log_end_offset)
            return new

    def _remove_leftovers(self, base_offset: int) -> None:
        for kind in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            path = segment_path(self.directory, base_offset, kind)
            if self.files.exists(path):
                self.warn(f"Newly rolled segment file {path} already exists; deleting it first")
                self.files.unlink(path)

    def _open_segment(self, base_offset: int) -> LogSegment:
        config = self.config
        return LogSegment(
            self.files,
            self.directory,
            base_offset,
            config,
            initial_size=config.init_file_size,
            preallocate=config.preallocate,
            created_ms=self.now_ms(),
            roll_jitter_ms=self._roll_jitter_ms(),
        )

    def _roll_jitter_ms(self) -> int:
        config = self.config
        if config.segment_jitter_ms == 0:
            return 0
        drawn = self._draw_int()
        return (0 if drawn == INT_MIN else abs(drawn)) % min(config.segment_jitter_ms, config.segment_ms)

    # removing ---------------------------------------------------------------------------------------------------------------------

    def remove_and_delete_segments(self, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
        """Remove segments. Their files are renamed to `.deleted`, and deleted after `file.delete.delay.ms` or at once."""
        for segment in segments:
            self.segments.remove(segment.base_offset)
        self.delete_segment_files(segments, at_once=at_once)

    def delete_segment_files(self, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
        """Delete the files of segments that were already removed, as `remove_and_delete_segments` does."""
        if not segments:
            return
        for segment in segments:
            if not segment.has_suffix(DELETED):
                segment.change_suffixes("", DELETED)
        marked, directory = list(segments), self.directory

        def delete_aside() -> None:
            self._marked = [segment for segment in self._marked if segment not in marked]
            removals = []
            with self.storage("deleting segments for"):
                for segment in marked:
                    if directory.endswith(FUTURE) and directory != self.directory:
                        # The copy has become the log itself in the meantime, so its files have moved.
                        segment.update_parent_dir(self.directory)
                    removals.append(segment.begin_delete())
            self.scheduler.aside("delete-file", lambda: _call_all(removals), ended)

        def ended(future: Future[None]) -> None:
            with self.storage("deleting segments for"):
                future.result()

        if at_once:
            with self.storage("deleting segments for"):
                for segment in marked:
                    segment.delete()
        else:
            self._marked += marked
            self.scheduler.schedule_once("delete-file", delete_aside, self.config.file_delete_delay_ms)

    def create_and_delete_segment(self, new_offset: int, old: LogSegment) -> LogSegment:
        """Replace the last segment by a new, empty one."""
        # The old one is deleted first, so that a crash in between leaves no gap.
        old.change_suffixes("", DELETED)
        new = self._open_segment(new_offset)
        self.segments.add(new)
        if new_offset != old.base_offset:
            self.segments.remove(old.base_offset)
        self.delete_segment_files([old])
        return new

    def truncate_fully_and_start_at(self, new_offset: int) -> None:
        """Remove all records. The log continues at `new_offset`."""
        with self.storage("truncating the entire log for"):
            self.check_open()
            segments = list(self.segments)
            self.remove_and_delete_segments(segments[:-1])
            self.create_and_delete_segment(new_offset, segments[-1])
            self._cut_flushes(new_offset)
            self.update_log_end_offset(new_offset)

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Remove the records at and above `offset`, and return the removed segments."""
        removed = [segment for segment in self.segments if segment.base_offset > offset]
        # The last segment goes first, so that a crash in between leaves no gap.
        self.remove_and_delete_segments(removed[::-1])
        active = self.segments.active
        active.truncate_to(offset)
        if not active.size:
            active.created_ms = self.now_ms()
        self._cut_flushes(offset)
        self.update_log_end_offset(offset)
        return removed

    def delete_all_segments(self) -> list[LogSegment]:
        """Delete every segment with its files at once. The log is then closed."""
        with self.storage("deleting all segments for"):
            segments = list(self.segments)
            self.remove_and_delete_segments(segments, at_once=True)
            self.is_closed = True
            return segments

    def begin_delete(self) -> Callable[[], None]:
        """Close the log, and return a function that deletes its directory with all files. The function may run in a thread. It raises
        OSError."""
        self.close_handlers()
        files, directory = self.files, self.directory

        def remove() -> None:
            for path in list(files.walk(directory)):
                # Another thread may remove marked files at the same time.
                with suppress(FileNotFoundError):
                    files.unlink(path)
            files.rmdir(directory)

        return remove

    def delete_empty_dir(self) -> None:
        """Delete the directory and any other files in it."""
        with self.storage("deleting dir for"):
            if len(self.segments):
                reason = f"Can not delete directory when {len(self.segments)} segments are still present"
                raise LoadError(reason, exception=ILLEGAL_STATE)
            for path in list(self.files.walk(self.directory)):
                self.files.unlink(path)
            self.files.rmdir(self.directory)

    # the directory ----------------------------------------------------------------------------------------------------------------

    def rename_dir(self, name: str) -> bool:
        """Rename the directory. Returns False if it already has that name."""
        with self.storage("renaming dir for"):
            directory = posixpath.join(posixpath.dirname(self.directory), name)
            if directory == self.directory:
                return False
            self.files.rename(self.directory, directory)
            self.files.sync_dir(posixpath.dirname(directory) or ".")
            self.directory = directory
            for segment in self.segments:
                segment.update_parent_dir(directory)
            return True

    def close(self) -> None:
        """Close the log as a clean stop does."""
        with self.storage("closing"):
            self.check_open()
            self.segments.close()
            self._close_the_rest()

    def close_handlers(self) -> None:
        """Close the files without changing them."""
        for segment in self.segments:
            segment.close_handlers()
        self._close_the_rest()
        self.is_closed = True

    def _close_the_rest(self) -> None:
        for flush in self._flushes:
            flush.close()
        # The scheduler may stop before it deletes them. The next start then finds their files again.
        for segment in self._marked:
            segment.close_handlers()


def _call_all(removals: Sequence[Callable[[], None]]) -> None:
    for remove in removals:
        remove()
