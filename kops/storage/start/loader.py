"""Loading one partition's directory, as a broker of Kafka 4.3 does when it starts (LogLoader, UnifiedLog.create).

The loader takes four steps. The first removes the remains of an interrupted cleaning or deletion. The second finishes an interrupted swap.
The third opens the segments, and recovers a segment whose offset index is missing or whose transaction index belongs to another segment.
Without a clean stop, the fourth recovers every segment from the recovery point on. After that, the epoch cache is truncated to the log, and
the producers are built from the newest snapshot and the batches after it.

`load_partition` does all of this. It writes through the given `Files`: an overlay for a forecast, the real file system for a broker.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, TypeVar

from kops.config.values.java import INT_MAX, LONG_MAX, LONG_MIN
from kops.errors import DecodeError
from kops.storage.failures.load_errors import (
    ILLEGAL_STATE,
    KAFKA_EXCEPTION,
    CorruptIndexError,
    InvalidOffsetError,
    LoadError,
    NoSuchFileError,
    StorageIOError,
    io_error,
)
from kops.storage.formats.names import is_index_file, parse_partition_dir
from kops.storage.producers.state import DEFAULT_EXPIRATION_MS, ProducerStateManager
from kops.storage.segment_files.paths import CLEANED, DELETED, LOG, SWAP, TIME_INDEX, is_file, offset_from_file, segment_path
from kops.storage.segments.epoch_cache import LeaderEpochFileCache
from kops.storage.segments.segment import LogSegment, LogSegments, SegmentOverflowError
from kops.storage.segments.split import split_overflowed_segment
from kops.storage.start.loaded_log import ActionKind, LoadAction, LoadedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.config import TopicConfig
    from kops.files import Files

__all__ = ["LoadAction", "LoadedLog", "LogLoader", "load_partition", "rebuild_producer_state"]

_DELETE_DIR = "-delete"
_SNAPSHOT_DELETED = ".checkpoint.deleted"

T = TypeVar("T")


def load_partition(
    files: Files,
    path: str,
    config: TopicConfig,
    *,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    clean_shutdown: bool,
    now_ms: int,
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    write_epochs: bool = True,
    progress: Callable[[int], None] | None = None,
) -> LoadedLog:
    """Load, and if necessary recover, the partition directory `path`.

    The offsets come from the checkpoints of the log directory. `clean_shutdown` says whether the directory had its marker. `now_ms` decides
    which producers have expired. A broker's scheduler writes the truncated leader epochs; without `write_epochs`, the caller has to.
    `progress` is called with the number of segments that remain to be recovered. Raises `LoadError` if a broker can't load the log. Changes
    made before the error remain.
    """
    try:
        return LogLoader(
            files,
            path,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
            write_epochs=write_epochs,
            progress=progress,
        ).load()
    except OSError as error:
        raise io_error(error) from error


class LogLoader:
    """The state of one load."""

    def __init__(
        self,
        files: Files,
        path: str,
        config: TopicConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean_shutdown: bool,
        now_ms: int,
        producer_id_expiration_ms: int,
        write_epochs: bool,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._files = files
        self._path = path
        self._config = config
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._clean_shutdown = clean_shutdown
        self._now_ms = now_ms
        self._expiration_ms = producer_id_expiration_ms
        self._write_epochs = write_epochs
        self._progress = progress
        self._segments = LogSegments()
        self._opened: list[LogSegment] = []
        self._actions: list[LoadAction] = []
        self._marked_segments: list[LogSegment] = []
        self._marked_snapshots: list[str] = []
        self._check_name()
        if not files.exists(path):
            files.mkdir(path)
        self._epochs = LeaderEpochFileCache(files, path)
        self._producers = ProducerStateManager(files, path, producer_id_expiration_ms)

    def _check_name(self) -> None:
        name = posixpath.basename(self._files.absolute(self._path))
        try:
            parse_partition_dir(name)
        except DecodeError as error:
            raise LoadError(error.reason, exception=KAFKA_EXCEPTION) from error

    def load(self) -> LoadedLog:
        """Load the log. After an error, the files are as Kafka leaves them, including preallocated indexes."""
        try:
            log = self._load()
            log.open()
        except BaseException:
            for segment in self._opened:
                segment.close_handlers()
            raise
        return log

    def _load(self) -> LoadedLog:
        self._complete_swaps(self._remove_temporary_files())
        self._retry_on_overflow(self._load_segment_files_anew)
        if self._path.endswith(_DELETE_DIR):
            if not self._segments:
                self._segments.add(self._open(0, initial_size=self._config.init_file_size))
            recovery_point = next_offset = 0
        else:
            recovery_point, next_offset = self._retry_on_overflow(self._recover_log)
            self._segments.active.resize_indexes(self._config.segment_index_bytes)
        self._epochs.truncate_from_end(next_offset)
        log_start_offset = max(self._log_start_offset, self._segments.base_offsets[0])
        self._epochs.truncate_from_start(self._log_start_offset)
        if self._write_epochs:
            self._epochs.flush()
        if not self._producers.is_empty:
            raise LoadError("Producer state must be empty during log initialization", exception=ILLEGAL_STATE)
        self._producers.remove_stray_snapshots(self._segments.base_offsets)
        rebuild_producer_state(
            self._producers, self._segments, log_start_offset, next_offset, self._now_ms, reload_from_clean_shutdown=self._clean_shutdown
        )
        return LoadedLog(
            files=self._files,
            path=self._path,
            log_start_offset=log_start_offset,
            log_end_offset=next_offset,
            recovery_point=recovery_point,
            segments=self._segments,
            producers=self._producers,
            epochs=self._epochs,
            actions=self._actions,
            marked_segments=self._marked_segments,
            marked_snapshots=self._marked_snapshots,
        )

    def _did(
        self,
        kind: ActionKind,
        file: str,
        reason: str,
        *,
        old_size: int | None = None,
        new_size: int | None = None,
        offset: int | None = None,
    ) -> None:
        self._actions.append(LoadAction(kind, file, reason, old_size, new_size, offset))

    # leftovers --------------------------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """The names of the directory's files."""
        return [name for name in self._files.list(self._path) if self._is_file(name)]

    def _is_file(self, name: str) -> bool:
        return is_file(self._files, self._join(name))

    def _join(self, name: str) -> str:
        return posixpath.join(self._path, name)

    def _unlink(self, name: str, reason: str) -> None:
        size = self._files.stat(self._join(name)).size
        self._files.unlink(self._join(name))
        self._did("file-removed", name, reason, old_size=size)

    def _check_readable(self, name: str) -> None:
        try:
            self._files.open(self._join(name)).close()
        except PermissionError as error:
            raise StorageIOError(f"Could not read file {self._join(name)}") from error

    def _remove_temporary_files(self) -> list[str]:
        """First step: remove `.deleted` and `.cleaned` files and the `.swap` files of an unfinished split. Returns the other `.swap`
        files.
        """
        swaps = []
        cleaned = []
        for name in self._names():
            self._check_readable(name)
            if name.endswith(DELETED) and not name.endswith(_SNAPSHOT_DELETED):
                self._unlink(name, "it was marked for deletion")
            elif name.endswith(CLEANED):
                cleaned.append((offset_from_file(name), name))
            elif name.endswith(SWAP):
                swaps.append(name)
        first_cleaned, there = min(cleaned, default=(LONG_MAX, "no .cleaned file"))
        valid: list[str] = []
        invalid: list[str] = []
        for name in swaps:
            (invalid if offset_from_file(name) >= first_cleaned else valid).append(name)
        for name in invalid:
            self._unlink(name, f"it belongs to an incomplete swap ({there} exists)")
        for _, name in cleaned:
            self._unlink(name, "its cleaning was not finished")
        return valid

    def _complete_swaps(self, swaps: list[str]) -> None:
        """Second step: delete the files that the `.swap` segments replace, then rename the `.swap` segments."""
        low, high = LONG_MAX, LONG_MIN
        for name in swaps:
            if name.removesuffix(SWAP).endswith(LOG):
                segment = self._open(offset_from_file(name), suffix=SWAP)
                low = min(segment.base_offset, low)
                high = max(segment.read_next_offset(), high)
        for name in self._names():
            if not name.endswith(SWAP):
                try:
                    offset = offset_from_file(name)
                except LoadError:
                    continue
                if low <= offset < high:
                    self._unlink(name, "a .swap segment replaces it")
        for name in self._names():
            if name.endswith(SWAP):
                self._files.rename(self._join(name), self._join(name.removesuffix(SWAP)))
                self._did("file-renamed", name, "the interrupted swap is completed")

    # segments ---------------------------------------------------------------------------------------------------------------------

    def _open(
        self, base_offset: int, *, already_exists: bool = False, initial_size: int = 0, preallocate: bool = False, suffix: str = ""
    ) -> LogSegment:
        segment = LogSegment(
            self._files,
            self._path,
            base_offset,
            self._config,
            already_exists=already_exists,
            initial_size=initial_size,
            preallocate=preallocate,
            suffix=suffix,
        )
        self._opened.append(segment)
        return segment

    def _retry_on_overflow(self, action: Callable[[], T]) -> T:
        while True:
            try:
                return action()
            except SegmentOverflowError as error:
                name, size = error.segment.name, error.segment.size
                given_up, created = split_overflowed_segment(
                    self._files, self._path, self._config, error.segment, self._segments, self._opened.append
                )
                self._did("segment-split", name, f"offsets too large for one index; split into {len(created)} segments", old_size=size)
                self._marked_segments.append(error.segment)
                self._mark_snapshots_deleted(given_up)

    def _load_segment_files_anew(self) -> None:
        self._segments.close()
        self._segments.clear()
        for name in self._names():
            if is_index_file(name):
                if not self._files.exists(segment_path(self._path, offset_from_file(name), LOG)):
                    self._unlink(name, "there is no log file with this offset")
            elif name.endswith(LOG):
                self._load_segment(offset_from_file(name))

    def _load_segment(self, base_offset: int) -> None:
        time_index_newly_created = not self._files.exists(segment_path(self._path, base_offset, TIME_INDEX))
        segment = self._open(base_offset, already_exists=True)
        try:
            segment.sanity_check(time_index_newly_created=time_index_newly_created)
        except NoSuchFileError:
            self._recover_segment(segment, "the offset index is missing")
        except CorruptIndexError as error:
            self._recover_segment(segment, f"the transaction index is damaged: {error.reason}")
        self._segments.add(segment)

    def _recover_segment(self, segment: LogSegment, reason: str) -> int:
        """Recover one segment with a producer state of its own, and write that state to a snapshot at the segment's end.

        Returns the number of bytes cut off.
        """
        producers = ProducerStateManager(self._files, self._path, self._expiration_ms)
        rebuild_producer_state(
            producers, self._segments, self._log_start_offset, segment.base_offset, self._now_ms, reload_from_clean_shutdown=False
        )
        old_size = segment.size
        truncated = segment.recover(producers, self._epochs)
        producers.take_snapshot()
        kind: ActionKind = "segment-truncated" if truncated else "segment-recovered"
        if truncated and segment.damage is not None:
            reason = segment.damage.reason
        elif truncated:
            reason = f"the last {truncated} bytes are not a complete batch"
        end = producers.map_end_offset if truncated else None
        self._did(kind, segment.name, reason, old_size=old_size, new_size=segment.size, offset=end)
        return truncated

    def _recover_log(self) -> tuple[int, int]:
        """Recover the segments after the recovery point. Returns (new recovery point, log end offset)."""
        if not self._clean_shutdown:
            self._recover_unflushed()
        log_end_offset = self._check_log_end()
        if not self._segments:
            self._segments.add(
                self._open(self._log_start_offset, initial_size=self._config.init_file_size, preallocate=self._config.preallocate)
            )
        if self._clean_shutdown and log_end_offset is not None:
            return log_end_offset, log_end_offset
        if log_end_offset is None:
            log_end_offset = self._segments.active.read_next_offset()
        return min(self._recovery_point, log_end_offset), log_end_offset

    def _recover_unflushed(self) -> None:
        unflushed = self._segments.values(self._recovery_point, LONG_MAX)
        for number, segment in enumerate(unflushed):
            if self._progress is not None:
                self._progress(len(unflushed) - number)
            old_size = segment.size
            try:
                truncated = self._recover_segment(segment, "it was not flushed before the stop")
            except (InvalidOffsetError, StorageIOError, OSError) as error:
                truncated = segment.truncate_to(segment.base_offset)
                reason = error.reason if isinstance(error, LoadError) else str(error)
                self._did(
                    "segment-emptied", segment.name, reason, old_size=old_size, new_size=segment.size, offset=segment.read_next_offset()
                )
            if truncated > 0:
                segment.read_next_offset()
                self._remove_segments(unflushed[number + 1 :], f"{segment.name} before it was truncated")
                return

    def _check_log_end(self) -> int | None:
        """Return the log end offset. Returns None without segments, or if all were removed because the log would end before it starts."""
        if not self._segments:
            return None
        log_end_offset = self._segments.active.read_next_offset()
        if log_end_offset >= self._log_start_offset:
            return log_end_offset
        self._remove_segments(
            list(self._segments),
            f"the log ends at {log_end_offset}, before its start offset {self._log_start_offset}",
            with_snapshots=False,
        )
        self._epochs.clear_and_flush()
        self._producers.truncate_fully_and_start_at(self._log_start_offset)
        return None

    def _remove_segments(self, segments: list[LogSegment], reason: str, *, with_snapshots: bool = True) -> None:
        for segment in segments:
            self._segments.remove(segment.base_offset)
        for segment in segments:
            self._did("segment-removed", segment.name, reason, old_size=segment.size, offset=segment.base_offset)
            if not segment.has_suffix(DELETED):
                segment.change_suffixes("", DELETED)
        self._marked_segments += segments
        if with_snapshots:
            self._mark_snapshots_deleted(segments)

    def _mark_snapshots_deleted(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            path = self._producers.remove_and_mark_for_deletion(segment.base_offset)
            if path is not None:
                self._marked_snapshots.append(path)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    reload_from_clean_shutdown: bool,
) -> None:
    """Bring the producers to the state at `last_offset`, and write the snapshots for it (UnifiedLog.rebuildProducerState).

    The batches after the newest snapshot are read back, without a check of their checksums. After a clean stop without any snapshot, the
    log is assumed to have no producers (an upgrade from before snapshots).
    """
    offsets_to_snapshot = [last_offset]
    last_segment = segments.last
    if last_segment is not None:
        offsets_to_snapshot.insert(0, last_segment.base_offset)
        lower = segments.lower(last_segment.base_offset)
        if lower is not None:
            offsets_to_snapshot.insert(0, lower.base_offset)
    if producers.latest_snapshot_offset is None and reload_from_clean_shutdown:
        for offset in offsets_to_snapshot:
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.map_end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.map_end_offset and not was_empty:
        segment_of_last_offset = segments.floor(last_offset)
        for segment in segments.values(producers.map_end_offset, last_offset):
            start_offset = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start_offset
            if segment.base_offset in offsets_to_snapshot:
                producers.take_snapshot()
            max_position = segment.size
            if segment is segment_of_last_offset:
                found = segment.translate_offset(last_offset)
                max_position = segment.size if found is None else found.position
            fetched = segment.read(start_offset, INT_MAX, max_position)
            if fetched is not None and fetched.records is not None:
                producers.load_batches(fetched.records.batches())
    producers.map_end_offset = last_offset
    producers.take_snapshot()
