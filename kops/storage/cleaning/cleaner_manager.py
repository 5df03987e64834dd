"""Which log is cleaned next, and what is known of the partitions meanwhile (Kafka LogCleanerManager, LogToClean).

A partition is in no state, or being cleaned (or its old segments deleted), or told to abort that, or paused a number of times. How far each
log is clean stands in the `cleaner-offset-checkpoint` of its directory. One caller, no locks.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java import LONG_MAX
from kops.errors import DecodeError, KopsError
from kops.storage.cleaning.cleaner import CleanRange
from kops.storage.failures.load_errors import ILLEGAL_STATE, KafkaStorageError, LoadError
from kops.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.names import CLEANER_OFFSET_CHECKPOINT
from kops.storage.log_checkpoints import topic_partition_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.files import Files
    from kops.storage.cleaning.cleaner_stats import PreCleanStats
    from kops.storage.formats.checkpoints import TopicPartition
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.segments.segment import LogSegment
    from kops.storage.unified_log import UnifiedLog


class Busy(Enum):
    """What the cleaner does with a partition."""

    IN_PROGRESS = "LogCleaningInProgress"
    ABORTED = "LogCleaningAborted"


class Paused(NamedTuple):
    """No cleaning until as many resumes."""

    times: int


CleaningState = Busy | Paused


class OffsetsToClean(NamedTuple):
    """The dirty range of a log; `forces_checkpoint`: the checkpointed offset was not within the log and is to be written anew."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    forces_checkpoint: bool


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with its dirty range (`span` ends with a segment) and the bytes of both parts; `is_overdue` by `max.compaction.lag.ms`."""

    key: TopicPartition
    log: UnifiedLog
    span: CleanRange
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def total_bytes(self) -> int:
        """Bytes that a round would read."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty part of them; 0 of an empty log."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(slots=True)
class CleanerManager:
    """`logs` is the owner's live table of logs; directories are absolute paths. Times are ms."""

    files: Files
    log_dirs: list[str]
    logs: Mapping[TopicPartition, UnifiedLog]
    failures: LogDirFailureChannel
    warn: Callable[[str], None]
    states: dict[TopicPartition, CleaningState] = field(default_factory=dict)
    uncleanable: dict[str, set[TopicPartition]] = field(default_factory=dict)
    dirtiest_ratio: float = 0.0
    last_run_ms: int = 0

    def __post_init__(self) -> None:
        """Kafka makes the files at once, empty."""
        for log_dir in self.log_dirs:
            try:
                self.files.open(_checkpoint_path(log_dir), "create").close()
            except OSError as error:
                self._failed(log_dir, error)

    # choosing ---------------------------------------------------------------------------------------------------------------------

    def grab_filthiest(self, now_ms: int, stats: PreCleanStats) -> LogToClean | None:
        """The log with the largest dirty part that is to be cleaned now, in progress from here on.

        Raises UncleanableError if a log can't be looked at.
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
        return [
            (key, log)
            for key, log in self.logs.items()
            if log.config.compact and key not in self.states and key not in self.uncleanable.get(log.parent_dir, ())
        ]

    def deletable_logs(self) -> dict[TopicPartition, UnifiedLog]:
        """The idle compacted logs, in progress from here on: retention and what lies below the log's start may delete of them."""
        found = dict(self._idle_compacted())
        self.states.update(dict.fromkeys(found, Busy.IN_PROGRESS))
        return found

    def pause_non_compacted(self) -> dict[TopicPartition, UnifiedLog]:
        """The idle logs that are not compacted, paused once."""
        found = {key: log for key, log in self.logs.items() if not log.config.compact and key not in self.states}
        self.states.update(dict.fromkeys(found, Paused(1)))
        return found

    # states -----------------------------------------------------------------------------------------------------------------------

    def abort_and_pause(self, key: TopicPartition) -> bool:
        """Pause a partition, once more where it is paused; True: it is in progress, and paused when `done_cleaning` comes.

        LoadError (an illegal state) where it is being aborted already.
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
        """Undo one pause each. LoadError (an illegal state) if there is none."""
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
        """A round is over; the log is clean up to `end_offset`, which counts unless the round was aborted."""
        if self.states.get(key) is Busy.IN_PROGRESS:
            self.update_checkpoints(log_dir, update={key: end_offset})
        self.done_deleting([key])

    def done_deleting(self, keys: Iterable[TopicPartition]) -> None:
        """What was in progress is not, what was to be aborted is paused. LoadError (an illegal state) for any other."""
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
        """Leave the partition alone from now on."""
        self.uncleanable.setdefault(log_dir, set()).add(key)

    def maintain_uncleanable(self) -> None:
        """Forget partitions that are gone."""
        known = {log_dir: {key for key in keys if key in self.logs} for log_dir, keys in self.uncleanable.items()}
        self.uncleanable = {log_dir: keys for log_dir, keys in known.items() if keys}

    def uncleanable_bytes(self, log_dir: str, now_ms: int) -> int:
        """Bytes of a directory that would be cleaned, were their partitions not marked."""
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
        """How far each log is clean; a checkpoint that can't be read is passed over.

        Where two directories speak of one partition (its folder was moved by hand), that counts which the log is in; Kafka's cleaner
        threads end there.
        """
        found: dict[TopicPartition, int] = {}
        for log_dir in self.log_dirs:
            try:
                for key, offset in self._read(log_dir).items():
                    log = self.logs.get(key)
                    if key not in found or (log is not None and log.parent_dir == log_dir):
                        found[key] = offset
            except KafkaStorageError as error:
                self.warn(f"Failed to access checkpoint file {CLEANER_OFFSET_CHECKPOINT} in dir {log_dir}: {error.reason}")
        return found

    def update_checkpoints(
        self, log_dir: str, *, update: Mapping[TopicPartition, int] | None = None, remove: TopicPartition | None = None
    ) -> None:
        """Write a directory's checkpoint anew, without partitions that are gone; nothing where the directory is offline."""
        if log_dir not in self.log_dirs:
            return
        try:
            offsets = {key: offset for key, offset in self._read(log_dir).items() if key in self.logs}
            copied = _hash_map_order(offsets)
            if remove is not None:
                copied.pop(remove, None)
            self._write(log_dir, _hash_map_order(copied | dict(update or {}), table_for=len(offsets)))
        except KafkaStorageError as error:
            self.warn(f"Failed to access checkpoint file {CLEANER_OFFSET_CHECKPOINT} in dir {log_dir}: {error.reason}")

    def maybe_truncate_checkpoint(self, log_dir: str, key: TopicPartition, offset: int) -> None:
        """Put the partition's checkpoint back to `offset` where it is behind that. Raises KafkaStorageError."""
        if log_dir in self.log_dirs and self.logs[key].config.compact:
            offsets = self._read(log_dir)
            if offsets.get(key, 0) > offset:
                offsets[key] = offset
                self._write(log_dir, _hash_map_order(offsets))

    def alter_checkpoint_dir(self, key: TopicPartition, source: str, target: str) -> None:
        """The partition moved: so do its checkpoint and its mark."""
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
        """Nothing of the directory is read or written any more."""
        self.log_dirs = [other for other in self.log_dirs if other != log_dir]

    def _read(self, log_dir: str) -> dict[TopicPartition, int]:
        path = _checkpoint_path(log_dir)
        try:
            return read_offset_checkpoint(self.files.read_all(path), file=path)
        except (OSError, DecodeError) as error:
            raise self._failed(log_dir, error) from error

    def _write(self, log_dir: str, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self.files.write_atomic(_checkpoint_path(log_dir), write_offset_checkpoint(offsets))
        except OSError as error:
            raise self._failed(log_dir, error) from error

    def _failed(self, log_dir: str, error: Exception) -> KafkaStorageError:
        message = f"Error while accessing checkpoint file {_checkpoint_path(log_dir)}"
        self.failures.maybe_add_offline_log_dir(log_dir, message, error)
        return KafkaStorageError(f"{message}: {error}")


class UncleanableError(LoadError):
    """A log that the cleaner can't deal with; its partition is to be marked."""

    java_class = "org.apache.kafka.storage.internals.log.LogCleaningException"

    def __init__(self, key: TopicPartition, log: UnifiedLog, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.log = log


def cleanable_offsets(log: UnifiedLog, last_clean_offset: int | None, now_ms: int, warn: Callable[[str], None]) -> OffsetsToClean:
    """From where on the log is dirty, and from where on it may not be cleaned.

    That is the first of: the last stable offset, the active segment, a segment with a timestamp younger than `min.compaction.lag.ms`.
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
    """For how long the oldest dirty segment has been older than `max.compaction.lag.ms`; 0 where it is not."""
    stamps = [segment.first_batch_timestamp for segment in non_active_segments_from(log, first_dirty_offset)]
    earliest = min((stamp for stamp in stamps if stamp > 0), default=LONG_MAX)
    return max(now_ms - log.config.max_compaction_lag_ms - earliest, 0)


def log_to_clean(key: TopicPartition, log: UnifiedLog, offsets: OffsetsToClean, *, is_overdue: bool) -> LogToClean:
    """The log with what is to be read of it; the uncleanable part begins with a segment."""
    uncleanable = non_active_segments_from(log, offsets.first_uncleanable_offset)
    end = (uncleanable[0] if uncleanable else log.segments.active).base_offset
    dirty = offsets.first_dirty_offset
    clean_bytes = sum(segment.size for segment in log.segments.values(-1, dirty))
    cleanable_bytes = sum(segment.size for segment in log.segments.values(min(dirty, end), end))
    return LogToClean(key, log, CleanRange(dirty, end), clean_bytes, cleanable_bytes, is_overdue)


def non_active_segments_from(log: UnifiedLog, offset: int) -> list[LogSegment]:
    """The segments from the one with `offset` on, without the active one."""
    active = log.segments.active.base_offset
    return [] if offset > active else log.segments.values(offset, active)


def _hash_map_order(offsets: Mapping[TopicPartition, int], table_for: int | None = None) -> dict[TopicPartition, int]:
    """The entries as a java.util.HashMap iterates them that was made for `table_for` entries (default: for those it has)."""
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
