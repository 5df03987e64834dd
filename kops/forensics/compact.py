"""Offline compaction: cleans logs as a broker's cleaner does, into a new directory (Kafka Cleaner).

Each partition directory is copied, opened as a broker opens it, and cleaned (`kops.storage.cleaning.cleaner`) until nothing below its
active segment is dirty. Then it gets its final name. Checkpoints in the new directory tell a broker how far each log is clean. A log with a
damaged batch is left out: Kafka's cleaner does not check checksums, and would write a damaged record under a new, valid checksum.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kops.config.topic import TopicConfig, topic_config
from kops.errors import DecodeError, KopsError, UsageError
from kops.files import Files, OsFiles
from kops.forensics.inventory.tree import Inventory, PartitionDir, open_paths, refuse_foreign
from kops.forensics.recover.output import refuse_overlap
from kops.forensics.recover.write import remove_tree
from kops.records import Batch, scan
from kops.storage.cleaning._hot_clean import OffsetMap
from kops.storage.cleaning.cleaner import DEFAULT_DEDUPE_BUFFER_BYTES, Cleaner, CleaningAbortedError
from kops.storage.cleaning.cleaner_manager import OffsetsToClean, cleanable_offsets, log_to_clean
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.names import CLEANER_OFFSET_CHECKPOINT
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.segment_files.paths import DELETED, LOG
from kops.storage.start.log_dirs import CLEAN_SHUTDOWN, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kops.storage.unified_log import UnifiedLog

__all__ = ["CompactOptions", "CompactReport", "CompactedPartition", "compact"]

SCHEMA: Final = "kops.compact/v1"
PARTIAL: Final = ".kops-partial"
_BEFORE: Final = "before"
METADATA_TOPIC: Final = "__cluster_metadata"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """The options. `now_ms` decides which tombstones and markers have expired. `overrides` are topic settings; `cleanup.policy` is always
    compact.

    `dirty_from` replaces the offset of the cleaner's checkpoint; `roll` closes the active segment first, so that it is cleaned, too;
    `force` writes into a directory that is not empty.
    """

    now_ms: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    dirty_from: int | None = None
    roll: bool = False
    force: bool = False
    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES


@dataclass(slots=True)
class CompactedPartition:
    """The result of one partition; `error` says why it was left out.

    `first_dirty_offset` is where the dirty part began, and `clean_up_to` how far the log is clean now. Bytes are those of the `.log` files,
    records are those that the cleaner read.
    """

    name: str
    source: str
    output: str = ""
    first_dirty_offset: int | None = None
    clean_up_to: int | None = None
    log_end_offset: int | None = None
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As in `kops.compact/v1`."""
        return {
            "partition": self.name,
            "source": self.source,
            "output": self.output,
            "first_dirty_offset": self.first_dirty_offset,
            "clean_up_to": self.clean_up_to,
            "log_end_offset": self.log_end_offset,
            "segments_before": self.segments_before,
            "segments_after": self.segments_after,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "records_read": self.records_read,
            "records_kept": self.records_kept,
            "records_without_key": self.records_without_key,
            "error": self.error,
        }


@dataclass(slots=True)
class CompactReport:
    """The result of a run: partitions in order, what was skipped, directories that can't be listed, and whether it was interrupted."""

    out: str
    partitions: list[CompactedPartition] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def has_problems(self) -> bool:
        """Whether a partition was left out because of its contents."""
        return any(partition.error is not None for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.compact/v1` without its schema."""
        return {
            "out": self.out,
            "interrupted": self.interrupted,
            "partitions": [partition.to_json() for partition in self.partitions],
            "skipped": [*self.unreadable, *self.skipped],
        }


class _Offsets(NamedTuple):
    """The offsets of one partition in the checkpoints."""

    key: TopicPartition
    cleaner: int
    log_start: int
    recovery_point: int
    high_watermark: int


@dataclass(slots=True)
class _Checkpoints:
    """Offsets by partition, of an input directory or of the output directory."""

    cleaner: dict[TopicPartition, int] = field(default_factory=dict)
    log_start: dict[TopicPartition, int] = field(default_factory=dict)
    recovery_point: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermark: dict[TopicPartition, int] = field(default_factory=dict)

    def put(self, offsets: _Offsets) -> None:
        """Set the offsets of a partition."""
        self.cleaner[offsets.key] = offsets.cleaner
        self.log_start[offsets.key] = offsets.log_start
        self.recovery_point[offsets.key] = offsets.recovery_point
        self.high_watermark[offsets.key] = offsets.high_watermark

    def by_name(self) -> dict[str, dict[TopicPartition, int]]:
        """The offsets of each file."""
        return {
            CLEANER_OFFSET_CHECKPOINT: self.cleaner,
            LOG_START_OFFSET_CHECKPOINT: self.log_start,
            RECOVERY_POINT_CHECKPOINT: self.recovery_point,
            HIGH_WATERMARK_CHECKPOINT: self.high_watermark,
        }


def compact(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: CompactOptions,
    *,
    files: Files | None = None,
    out_files: Files | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_total: Callable[[int], None] | None = None,
) -> CompactReport:
    """Compact the partitions of `paths` (log or partition directories) into `out`. The input is not changed.

    `on_total` gets the number of bytes to read, `on_bytes` each step. Raises NotFoundError, UsageError (the output is not empty or
    inside the input, a setting is not allowed, a partition is named twice), OSError. On KeyboardInterrupt the finished partitions stay, and
    `interrupted` is set.
    """
    source = files if files is not None else OsFiles(read_only=True)
    target = out_files if out_files is not None else OsFiles()
    directory = target.absolute(os.fspath(out))
    config = replace(topic_config({"cleanup.policy": "compact", **options.overrides}), file_delete_delay_ms=0)
    inventory = open_paths(paths, source)
    refuse_foreign(paths, inventory, source)
    refuse_overlap(source, paths, directory)
    report = CompactReport(directory)
    folders = _folders(inventory, report)
    _prepare_out(target, directory, force=options.force)
    if on_total is not None:
        on_total(sum(segment.log.size for folder in folders for segment in folder.live_segments if segment.log is not None))
    run = _Run(source, target, directory, config, options, on_bytes if on_bytes is not None else _ignore)
    try:
        for folder in folders:
            run.partition(folder)
        run.clear()
    except KeyboardInterrupt:
        report.interrupted = True
        run.settle()
    finally:
        run.clear()
    report.partitions += run.entries()
    run.write_checkpoints()
    return report


def _folders(inventory: Inventory, report: CompactReport) -> list[PartitionDir]:
    found: dict[str, PartitionDir] = {}
    report.unreadable += [f"{problem.path}: {problem.reason}" for problem in inventory.problems]
    report.skipped += [f"{entry.path}: a single file; name its partition directory" for entry in inventory.loose_files]
    for folder in inventory.partitions():
        if folder.topic is None:
            report.skipped.append(f"{folder.path}: not the name of a partition directory")
        elif folder.state:
            report.skipped.append(f"{folder.path}: a directory in the state {folder.state}")
        elif folder.topic == METADATA_TOPIC:
            report.skipped.append(f"{folder.path}: the metadata log is shortened by snapshots, not by compaction")
        elif folder.name in found:
            raise UsageError(f"{folder.path}: {folder.name} is also {found[folder.name].path}; compact one of them at a time")
        else:
            found[folder.name] = folder
    return sorted(found.values(), key=lambda folder: (folder.topic or "", folder.partition))


def _prepare_out(files: Files, target: str, *, force: bool) -> None:
    if not files.exists(target):
        missing = [target]
        while not files.exists(posixpath.dirname(missing[-1])):
            missing.append(posixpath.dirname(missing[-1]))
        for path in reversed(missing):
            files.mkdir(path)
        return
    if not files.stat(target).is_dir:
        raise UsageError(f"--out {target}: is a file; a directory is needed")
    if files.list(target) and not force:
        raise UsageError(f"--out {target}: is not empty; --force writes into it anyway")


class _Run:
    """One run. It uses one offset map for all partitions, and collects their results and checkpoints.

    Ctrl-C may come between any two steps. So a result is recorded in one step, and a finished partition is moved to its place (`settle`) in
    steps that can be repeated.
    """

    def __init__(
        self, source: Files, target: Files, directory: str, config: TopicConfig, options: CompactOptions, on_bytes: Callable[[int], None]
    ) -> None:
        self._source = source
        self._target = target
        self._directory = directory
        self._config = config
        self._options = options
        self._on_bytes = on_bytes
        self._cleaner = Cleaner(OffsetMap(options.dedupe_buffer_bytes), now_ms=self._now_ms, io_buffer_bytes=2 * _CHUNK)
        self._partial = posixpath.join(directory, PARTIAL)
        self._ready: tuple[CompactedPartition, _Offsets] | None = None
        self._done: dict[str, tuple[CompactedPartition, _Offsets | None]] = {}

    def _now_ms(self) -> int:
        return self._options.now_ms

    def partition(self, folder: PartitionDir) -> None:
        """Compact one partition, completely or not at all."""
        entry = CompactedPartition(folder.name, folder.path)
        entry.bytes_before = sum(segment.log.size for segment in folder.live_segments if segment.log is not None)
        entry.segments_before = len(folder.live_segments)
        self.clear()
        try:
            self._refuse_damage(folder)
            path = self._copy(folder)
            self._ready = entry, self._compact(folder, path, entry)
            self.settle()
        except KopsError as error:
            entry.error = str(error)
            self._done[entry.name] = entry, None

    def settle(self) -> None:
        """Move a finished partition to its place, from wherever an interruption left it."""
        if self._ready is None:
            return
        entry, _ = self._ready
        path = posixpath.join(self._partial, entry.name)
        entry.output = posixpath.join(self._directory, entry.name)
        if self._target.exists(path):
            if self._target.exists(entry.output):
                self._target.rename(entry.output, posixpath.join(self._partial, _BEFORE))
            self._target.rename(path, entry.output)
        self._target.sync_dir(self._directory)
        self._done[entry.name] = self._ready
        self._ready = None

    def clear(self) -> None:
        """Remove incomplete and replaced directories."""
        if self._target.exists(self._partial):
            remove_tree(self._target, self._partial)

    def entries(self) -> list[CompactedPartition]:
        """The results of the partitions, in order."""
        return [entry for entry, _ in self._done.values()]

    def _refuse_damage(self, folder: PartitionDir) -> None:
        for segment in folder.live_segments:
            assert segment.log is not None
            with self._source.open(segment.log.path) as log:
                for item in scan(log, resync=False):
                    if not isinstance(item, Batch):
                        reason = f"{item.reason}; kops log recover saves what is intact; compact its output"
                        raise DecodeError(reason, code=item.code, position=item.position, file=segment.log.path)

    def _copy(self, folder: PartitionDir) -> str:
        path = posixpath.join(self._partial, folder.name)
        self._target.mkdir(self._partial)
        self._target.mkdir(path)
        for name in self._source.list(folder.path):
            origin = posixpath.join(folder.path, name)
            stat = self._source.stat(origin)
            if stat.is_dir or name.endswith(DELETED):
                continue
            copy = posixpath.join(path, name)
            with self._source.open(origin) as reader, self._target.open(copy, "new") as writer:
                position = 0
                while chunk := reader.read(position, _CHUNK):
                    writer.write(position, chunk)
                    position += len(chunk)
                    self._on_bytes(len(chunk) if name.endswith(LOG) else 0)
            self._target.set_mtime(copy, stat.mtime_ms)
        return path

    def _compact(self, folder: PartitionDir, path: str, entry: CompactedPartition) -> _Offsets:
        key = TopicPartition(folder.topic or "", folder.partition)
        parent = posixpath.dirname(folder.path)
        known = _read_checkpoints(self._source, parent)
        scheduler = Scheduler(self._now_ms)
        with self._open(path, key, known, scheduler, clean=self._source.exists(posixpath.join(parent, CLEAN_SHUTDOWN))) as log:
            # Records above it may still be truncated, so they must not supersede others.
            log.update_high_watermark(known.high_watermark.get(key, log.log_end_offset))
            if self._options.roll and log.segments.active.size:
                log.roll()
            self._clean(log, key, known.cleaner.get(key), entry)
            scheduler.run_due()  # This deletes the replaced segments.
            entry.log_end_offset = log.log_end_offset
            entry.segments_after = len(log.segments)
            entry.bytes_after = log.size
            offsets = _Offsets(key, entry.clean_up_to or 0, log.log_start_offset, log.log_end_offset, log.high_watermark)
        self._target.sync_dir(path)
        return offsets

    @contextmanager
    def _open(self, path: str, key: TopicPartition, known: _Checkpoints, scheduler: Scheduler, *, clean: bool) -> Iterator[UnifiedLog]:
        log = UnifiedLog.open(
            self._target,
            path,
            self._config,
            now_ms=self._now_ms,
            scheduler=scheduler,
            failures=LogDirFailureChannel(),
            log_start_offset=known.log_start.get(key, 0),
            recovery_point=known.recovery_point.get(key, 0),
            had_clean_shutdown=clean,
        )
        is_done = False
        try:
            yield log
            log.flush(force_flush_active_segment=True)
            log.close()
            is_done = True
        finally:
            if not is_done:
                log.close_handlers()

    def _clean(self, log: UnifiedLog, key: TopicPartition, checkpoint: int | None, entry: CompactedPartition) -> None:
        """Clean until nothing more can be cleaned. One round is enough, unless there are more keys than the offset map holds."""
        start = checkpoint if self._options.dirty_from is None else self._options.dirty_from
        offsets = cleanable_offsets(log, start, self._options.now_ms, _ignore)
        dirty = entry.first_dirty_offset = entry.clean_up_to = offsets.first_dirty_offset
        end = log_to_clean(key, log, offsets, is_overdue=False).span.first_uncleanable_offset
        while dirty < end:
            span = log_to_clean(key, log, OffsetsToClean(dirty, end, False), is_overdue=False).span
            try:
                dirty, stats = self._cleaner.clean(log, span, self._options.now_ms)
            except CleaningAbortedError:
                continue  # A segment was split, so now it can be cleaned.
            entry.clean_up_to = dirty
            entry.records_read += stats.messages_read
            entry.records_kept += stats.messages_written
            entry.records_without_key += stats.invalid_messages_read

    def write_checkpoints(self) -> None:
        """Write the checkpoints of the output directory. Partitions that were there before keep their offsets."""
        earlier = _read_checkpoints(self._target, self._directory).by_name()
        written = _Checkpoints()
        for _, found in self._done.values():
            if found is not None:
                written.put(found)
        for name, offsets in written.by_name().items():
            if offsets or earlier[name]:
                path = posixpath.join(self._directory, name)
                self._target.write_atomic(path, write_offset_checkpoint({**earlier[name], **offsets}))


def _read_checkpoints(files: Files, log_dir: str) -> _Checkpoints:
    found = _Checkpoints()
    for name, offsets in found.by_name().items():
        path = posixpath.join(log_dir, name)
        if files.exists(path):
            offsets.update(read_offset_checkpoint(files.read_all(path), file=path))
    return found


def _ignore(_: object) -> None:
    pass
