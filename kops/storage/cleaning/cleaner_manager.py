"""The choice of the log to clean next, and the state of the partitions during a cleaning (Kafka LogCleanerManager, LogToClean).

A partition without a state is idle. Otherwise it is being cleaned (or its old segments are being deleted), its cleaning is being aborted,
or it is paused one or more times. The `cleaner-offset-checkpoint` of a directory says how far each log is clean. There is one caller and no
lock.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java import LONG_MAX
from kops.errors import DecodeError, KopsError
from kops.storage.background.replaced_file import ReplacedFile
from kops.storage.cleaning.cleaner import CleanRange
from kops.storage.failures.load_errors import ILLEGAL_STATE, KafkaStorageError, LoadError
from kops.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.names import CLEANER_OFFSET_CHECKPOINT
from kops.storage.log_checkpoints import topic_partition_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from kops.files import Files
    from kops.storage.cleaning.cleaner_stats import PreCleanStats
    from kops.storage.formats.checkpoints import TopicPartition
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.scheduler import Scheduler
    from kops.storage.segments.segment import LogSegment
    from kops.storage.unified_log import UnifiedLog


class Busy(Enum):
    """What the cleaner is doing with a partition."""

    IN_PROGRESS = "LogCleaningInProgress"
    ABORTED = "LogCleaningAborted"


class Paused(NamedTuple):
    """The number of pauses. The partition is not cleaned until it has been resumed as often."""

    times: int


CleaningState = Busy | Paused


class OffsetsToClean(NamedTuple):
    """The dirty range of a log. `forces_checkpoint` is true if the checkpointed offset was outside the log and must be written anew."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    forces_checkpoint: bool


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with its dirty range (`span` ends with a segment) and the bytes of both parts. `is_overdue` refers to
    `max.compaction.lag.ms`.
    """

    key: TopicPartition
    log: UnifiedLog
    span: CleanRange
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def total_bytes(self) -> int:
        """The number of bytes that a round would read."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty part of the total bytes, or 0 for an empty log."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(slots=True)
class CleanerManager:
    """The cleaner's view of the logs. `logs` is the owner's live table of logs. Directories are absolute paths, times are ms.

    Checkpoints are written in the side threads of `scheduler`. Until a write ends, its contents are read from memory. After a crash before
    that, the cleaning is done again. Only a truncation waits for the disk: its checkpoint must not lie above the log's new end.
    """

    files: Files
    log_dirs: list[str]
    logs: Mapping[TopicPartition, UnifiedLog]
    failures: LogDirFailureChannel
    warn: Callable[[str], None]
    scheduler: Scheduler | None = None
    states: dict[TopicPartition, CleaningState] = field(default_factory=dict)
    uncleanable: dict[str, set[TopicPartition]] = field(default_factory=dict)
    dirtiest_ratio: float = 0.0
    last_run_ms: int = 0
    _replaced: dict[str, ReplacedFile] = field(default_factory=dict)
    _unwritten: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the checkpoint files at once, empty, as Kafka does."""
        for log_dir in self.log_dirs:
            try:
                self.files.open(_checkpoint_path(log_dir), "create").close()
            except OSError as error:
                self._failed(log_dir, error)

    # choosing ---------------------------------------------------------------------------------------------------------------------

    def grab_filthiest(self, now_ms: int, stats: PreCleanStats) -> LogToClean | None:
        """Return the log with the largest dirty part that is due for cleaning, and mark it as in progress.

        Raises UncleanableError if a log can't be examined.
        """
        self.last_run_ms = now_ms
        last_clean = self.all_checkpoints()
        dirty = []
        for key, log in self._idle_compacted():
            try:
                offsets = cleanable_offsets(log, last_clean.get(key), now_ms, self.warn)
                if offsets.forces_checkpoint:
                    self.update_checkpoints(log.parent_dir, update={key: offsets.first_dirty_offset})
                delay_ms = max_compaction_delay(log, offsets.first_dirty_offset, now_ms)
                stats.update_max_compaction_delay(delay_ms)
                found = log_to_clean(key, log, offsets, is_overdue=delay_ms > 0)
            except (KopsError, OSError) as error:
                raise UncleanableError(key, log, f"Failed to calculate log cleaning stats for partition {log.topic_partition}") from error
            if found.total_bytes:
                dirty.append(found)
        self.dirtiest_ratio = max((found.cleanable_ratio for found in dirty), default=0.0)
        cleanable = [
            found
            for found in dirty
            if (found.is_overdue and found.cleanable_bytes) or found.cleanable_ratio > found.log.config.min_cleanable_dirty_ratio
        ]
        if not cleanable:
            return None
        stats.cleanable_partitions = len(cleanable)
        filthiest = max(cleanable, key=lambda found: found.cleanable_ratio)
        self.states[filthiest.key] = Busy.IN_PROGRESS
        return filthiest

    def _idle_compacted(self) -> list[tuple[TopicPartition, UnifiedLog]]:
        # The owner closes the logs of a failed directory a little later. Until then each round would fail at once.
        return [
            (key, log)
            for key, log in self.logs.items()
            if log.config.compact
            and key not in self.states
            and key not in self.uncleanable.get(log.parent_dir, ())
            and not self.failures.has_offline(log.parent_dir)
        ]

    def deletable_logs(self) -> dict[TopicPartition, UnifiedLog]:
        """Return the idle compacted logs, and mark them as in progress. Retention and the log's start offset may delete segments of
        them.
        """
        found = dict(self._idle_compacted())
        self.states.update(dict.fromkeys(found, Busy.IN_PROGRESS))
        return found

    def pause_non_compacted(self) -> dict[TopicPartition, UnifiedLog]:
        """Pause the idle logs that are not compacted, and return them."""
        found = {key: log for key, log in self.logs.items() if not log.config.compact and key not in self.states}
        self.states.update(dict.fromkeys(found, Paused(1)))
        return found

    # states -----------------------------------------------------------------------------------------------------------------------

    def abort_and_pause(self, key: TopicPartition) -> bool:
        """Pause a partition; pauses add up. Returns True if it is being cleaned: `done_cleaning` then pauses it.

        Raises LoadError (an illegal state) if it is already being aborted.
        """
        state = self.states.get(key)
        if isinstance(state, Paused):
            self.states[key] = Paused(state.times + 1)
        elif state is None:
            self.states[key] = Paused(1)
        elif state is Busy.IN_PROGRESS:
            self.states[key] = Busy.ABORTED
            return True
        else:
            raise _illegal_state(
                f"Compaction for partition {_name(key)} cannot be aborted and paused since it is in {_named(state)} state."
            )
        return False

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Undo one pause of each partition. Raises LoadError (an illegal state) if one is not paused."""
        for key in keys:
            state = self.states.get(key)
            if state is None:
                raise _illegal_state(f"Compaction for partition {_name(key)} cannot be resumed since it is not paused.")
            if not isinstance(state, Paused):
                raise _illegal_state(f"Compaction for partition {_name(key)} cannot be resumed since it is in {_named(state)} state.")
            if state.times == 1:
                del self.states[key]
            else:
                self.states[key] = Paused(state.times - 1)

    def done_cleaning(self, key: TopicPartition, log_dir: str, end_offset: int) -> None:
        """End a round. The log is clean up to `end_offset`, which is stored unless the round was aborted."""
        if self.states.get(key) is Busy.IN_PROGRESS:
            self.update_checkpoints(log_dir, update={key: end_offset})
        self.done_deleting([key])

    def done_deleting(self, keys: Iterable[TopicPartition]) -> None:
        """End the deletions: partitions in progress become idle, partitions being aborted become paused. Any other state raises LoadError
        (an illegal state).
        """
        for key in keys:
            state = self.states.get(key)
            if state is Busy.IN_PROGRESS:
                del self.states[key]
            elif state is Busy.ABORTED:
                self.states[key] = Paused(1)
            elif state is None:
                raise _illegal_state(f"State for partition {_name(key)} should exist.")
            else:
                raise _illegal_state(f"In-progress partition {_name(key)} cannot be in {_named(state)} state.")

    # uncleanable partitions -------------------------------------------------------------------------------------------------------

    def mark_uncleanable(self, log_dir: str, key: TopicPartition) -> None:
        """Exclude the partition from cleaning."""
        self.uncleanable.setdefault(log_dir, set()).add(key)

    def maintain_uncleanable(self) -> None:
        """Remove deleted partitions from the uncleanable ones."""
        known = {log_dir: {key for key in keys if key in self.logs} for log_dir, keys in self.uncleanable.items()}
        self.uncleanable = {log_dir: keys for log_dir, keys in known.items() if keys}

    def uncleanable_bytes(self, log_dir: str, now_ms: int) -> int:
        """The number of bytes in a directory that would be cleaned if their partitions were not marked as uncleanable."""
        last_clean = self.all_checkpoints()
        total = 0
        for key in self.uncleanable.get(log_dir, ()):
            log = self.logs.get(key)
            if log is not None:
                offsets = cleanable_offsets(log, last_clean.get(key), now_ms, self.warn)
                total += log_to_clean(key, log, offsets, is_overdue=False).cleanable_bytes
        return total

    # checkpoints ------------------------------------------------------------------------------------------------------------------

    def all_checkpoints(self) -> dict[TopicPartition, int]:
        """Return how far each log is clean. A checkpoint that can't be read is ignored.

        If two directories have an entry for one partition (its folder was moved by hand), the entry of the log's directory counts. Kafka's
        cleaner threads exit in this case.
        """
        found: dict[TopicPartition, int] = {}
        for log_dir in self.log_dirs:
            try:
                for key, offset in self._read(log_dir).items():
                    log = self.logs.get(key)
                    if key not in found or (log is not None and log.parent_dir == log_dir):
                        found[key] = offset
            except KafkaStorageError as error:
                self._not_accessed(log_dir, error)
        return found

    def update_checkpoints(
        self, log_dir: str, *, update: Mapping[TopicPartition, int] | None = None, remove: TopicPartition | None = None
    ) -> None:
        """Rewrite a directory's checkpoint without deleted partitions. Does nothing if the directory is offline."""
        if log_dir not in self.log_dirs:
            return
        try:
            offsets = {key: offset for key, offset in self._read(log_dir).items() if key in self.logs}
            copied = _hash_map_order(offsets)
            if remove is not None:
                copied.pop(remove, None)
            self._write_aside(log_dir, _hash_map_order(copied | dict(update or {}), table_for=len(offsets)))
        except KafkaStorageError as error:
            self._not_accessed(log_dir, error)

    def maybe_truncate_checkpoint(self, log_dir: str, key: TopicPartition, offset: int) -> None:
        """Set the partition's checkpoint back to `offset` if it is larger. Raises KafkaStorageError."""
        if log_dir in self.log_dirs and self.logs[key].config.compact:
            offsets = self._read(log_dir)
            if offsets.get(key, 0) > offset:
                offsets[key] = offset
                self._write(log_dir, _hash_map_order(offsets))

    def alter_checkpoint_dir(self, key: TopicPartition, source: str, target: str) -> None:
        """Move the partition's checkpoint and its mark to another directory."""
        try:
            offset = self._read(source).get(key) if source in self.log_dirs else None
            if offset is not None:
                self.update_checkpoints(source, remove=key)
                self.update_checkpoints(target, update={key: offset})
        except KafkaStorageError as error:
            self.warn(f"Failed to access checkpoint file in dir {source}: {error.reason}")
        if key in self.uncleanable.get(source, ()):
            self.uncleanable[source].remove(key)
            self.mark_uncleanable(target, key)

    def handle_log_dir_failure(self, log_dir: str) -> None:
        """Stop reading and writing the directory."""
        self.log_dirs = [other for other in self.log_dirs if other != log_dir]

    def settle(self) -> None:
        """Write what no side thread has written. Called at a clean stop, when the side threads have ended."""
        for log_dir, offsets in list(self._unwritten.items()):
            if log_dir in self.log_dirs:
                try:
                    self._write(log_dir, offsets)
                except KafkaStorageError as error:
                    self._not_accessed(log_dir, error)

    def _read(self, log_dir: str) -> dict[TopicPartition, int]:
        if (unwritten := self._unwritten.get(log_dir)) is not None:
            return dict(unwritten)
        path = _checkpoint_path(log_dir)
        try:
            return read_offset_checkpoint(self.files.read_all(path), file=path)
        except (OSError, DecodeError) as error:
            raise self._failed(log_dir, error) from error

    def _write(self, log_dir: str, offsets: Mapping[TopicPartition, int]) -> None:
        write = self._begin_write(log_dir, offsets)
        self._unwritten.pop(log_dir, None)
        try:
            write()
        except OSError as error:
            raise self._failed(log_dir, error) from error

    def _write_aside(self, log_dir: str, offsets: dict[TopicPartition, int]) -> None:
        if self.scheduler is None:
            self._write(log_dir, offsets)
            return
        write = self._begin_write(log_dir, offsets)
        self._unwritten[log_dir] = offsets

        def ended(future: Future[None]) -> None:
            # Newer contents may be waiting to be written.
            if self._unwritten.get(log_dir) is offsets:
                del self._unwritten[log_dir]
            try:
                future.result()
            except OSError as error:
                self._not_accessed(log_dir, self._failed(log_dir, error))

        self.scheduler.aside("cleaner-offset-checkpoint", write, ended)

    def _begin_write(self, log_dir: str, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        file = self._replaced.get(log_dir)
        if file is None:
            file = self._replaced[log_dir] = ReplacedFile(self.files, _checkpoint_path(log_dir))
        return file.next(write_offset_checkpoint(offsets))

    def _not_accessed(self, log_dir: str, error: KafkaStorageError) -> None:
        self.warn(f"Failed to access checkpoint file {CLEANER_OFFSET_CHECKPOINT} in dir {log_dir}: {error.reason}")

    def _failed(self, log_dir: str, error: Exception) -> KafkaStorageError:
        message = f"Error while accessing checkpoint file {_checkpoint_path(log_dir)}"
        self.failures.maybe_add_offline_log_dir(log_dir, message, error)
        return KafkaStorageError(f"{message}: {error}")


class UncleanableError(LoadError):
    """The cleaner can't process a log. Its partition must be marked."""

    java_class = "org.apache.kafka.storage.internals.log.LogCleaningException"

    def __init__(self, key: TopicPartition, log: UnifiedLog, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.log = log


def cleanable_offsets(log: UnifiedLog, last_clean_offset: int | None, now_ms: int, warn: Callable[[str], None]) -> OffsetsToClean:
    """Return the offset at which the dirty part begins, and the offset at which the uncleanable part begins.

    The latter is the smallest of the last stable offset, the active segment, and the first segment with a timestamp younger than
    `min.compaction.lag.ms`.
    """
    start = log.log_start_offset
    first_dirty = start if last_clean_offset is None else last_clean_offset
    forces = False
    if first_dirty < start:
        if not (log.config.compact and log.config.delete):
            warn(
                f"Resetting first dirty offset of {log.topic_partition} to log start offset {start} since the checkpointed offset"
                f" {first_dirty} is invalid."
            )
        first_dirty, forces = start, True
    elif first_dirty > log.log_end_offset:
        warn(
            f"The last checkpoint dirty offset for partition {log.topic_partition} is {first_dirty}, which is larger than the log end"
            f" offset {log.log_end_offset}. Resetting to the log start offset {start}."
        )
        first_dirty, forces = start, True
    limits = [log.last_stable_offset, log.segments.active.base_offset]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (segment for segment in non_active_segments_from(log, first_dirty) if segment.largest_timestamp > now_ms - lag_ms)
        limits += [segment.base_offset for segment in young][:1]
    return OffsetsToClean(first_dirty, max(first_dirty, min(limits)), forces)


def max_compaction_delay(log: UnifiedLog, first_dirty_offset: int, now_ms: int) -> int:
    """Return how long the oldest dirty segment has exceeded `max.compaction.lag.ms`, or 0."""
    stamps = [segment.first_batch_timestamp for segment in non_active_segments_from(log, first_dirty_offset)]
    earliest = min((stamp for stamp in stamps if stamp > 0), default=LONG_MAX)
    return max(now_ms - log.config.max_compaction_lag_ms - earliest, 0)


def log_to_clean(key: TopicPartition, log: UnifiedLog, offsets: OffsetsToClean, *, is_overdue: bool) -> LogToClean:
    """Return the log with the number of bytes to read. The uncleanable part begins at a segment boundary."""
    uncleanable = non_active_segments_from(log, offsets.first_uncleanable_offset)
    end = (uncleanable[0] if uncleanable else log.segments.active).base_offset
    dirty = offsets.first_dirty_offset
    clean_bytes = sum(segment.size for segment in log.segments.values(-1, dirty))
    cleanable_bytes = sum(segment.size for segment in log.segments.values(min(dirty, end), end))
    return LogToClean(key, log, CleanRange(dirty, end), clean_bytes, cleanable_bytes, is_overdue)


def non_active_segments_from(log: UnifiedLog, offset: int) -> list[LogSegment]:
    """Return the segments from the one that contains `offset` up to the active one, exclusive."""
    active = log.segments.active.base_offset
    return [] if offset > active else log.segments.values(offset, active)


def _hash_map_order(offsets: Mapping[TopicPartition, int], table_for: int | None = None) -> dict[TopicPartition, int]:
    """Return the entries in the iteration order of a java.util.HashMap that was created for `table_for` entries (default: their number)."""
    room = len(offsets) if table_for is None else table_for
    size = 1 << max(int(room / 0.75 + 1) - 1, 0).bit_length() if room else 16
    while len(offsets) > size * 0.75:
        size *= 2

    def bucket(key: TopicPartition) -> int:
        spread = topic_partition_hash(key) & 0xFFFFFFFF
        return (spread ^ spread >> 16) & (size - 1)

    return {key: offsets[key] for key in sorted(offsets, key=bucket)}


def _checkpoint_path(log_dir: str) -> str:
    return posixpath.join(log_dir, CLEANER_OFFSET_CHECKPOINT)


def _name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"


def _named(state: CleaningState) -> str:
    return f"LogCleaningPaused({state.times})" if isinstance(state, Paused) else state.value


def _illegal_state(reason: str) -> LoadError:
    return LoadError(reason, exception=ILLEGAL_STATE)
