"""Appends records from lines of JSON to a partition as its leader would, offline, for `kops log append`.

The caller holds the lock of the log directory. The log is opened as by a starting broker, with the checkpoints and the clean-shutdown
marker of its log directory. If that start would lose something, nothing is done. The marker is removed while the log is open, so that after
a crash here a broker recovers the log as after a crash of its own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from kops.config import TopicConfig
from kops.errors import ApiError, DecodeError, KopsError, NotFoundError
from kops.files import Files, OverlayFiles
from kops.forensics.dump.documents import RECORD
from kops.forensics.lines.exporting import BATCH, MALFORMED, Document, content
from kops.forensics.lines.importing import in_plain_words, open_log, read_checkpoint
from kops.records.batch import CONTROL_MASK
from kops.records.build import BatchBuilder
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.formats.names import CLEAN_SHUTDOWN, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, parse_partition_dir
from kops.storage.start.loader import load_partition
from kops.storage.unified_log import UnifiedLog

_GIVES_UP: Final = ("segment-truncated", "segment-emptied", "segment-removed")


@dataclass(slots=True)
class AppendOptions:
    """How records become batches. `leader_epoch` None means the last epoch in the log, or 0. Sizes are bytes of records."""

    leader_epoch: int | None = None
    compression: str = "none"
    batch_size: int = 16384
    key_encoding: str = "base64"
    value_encoding: str = "base64"


@dataclass(slots=True)
class AppendReport:
    """The result of an append. Offsets are None if nothing was appended."""

    directory: str
    records: int = 0
    batches: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    log_end_offset: int | None = None
    leader_epoch: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The document `kops.append/v1` without its schema."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A log directory's data about a partition: the offsets in its checkpoints, and the clean-shutdown marker, or None."""

    topic_partition: TopicPartition
    recovery_point: int
    log_start_offset: int
    marker: bytes | None


def partition_state(files: Files, directory: str) -> PartitionState:
    """Read the files of the log directory. Raises NotFoundError if there is no such directory, DecodeError for a damaged checkpoint."""
    if not files.exists(directory) or not files.stat(directory).is_dir:
        raise NotFoundError(f"{directory}: no such directory")
    parsed = parse_partition_dir(posixpath.basename(directory))
    name = TopicPartition(parsed.topic, parsed.partition)
    parent = posixpath.dirname(directory)
    marker = posixpath.join(parent, CLEAN_SHUTDOWN)
    return PartitionState(
        name,
        read_checkpoint(files, parent, RECOVERY_POINT_CHECKPOINT).get(name, 0),
        read_checkpoint(files, parent, LOG_START_OFFSET_CHECKPOINT).get(name, 0),
        files.read_all(marker) if files.exists(marker) else None,
    )


def append_lines(
    files: Files,
    documents: Iterable[tuple[int, Document]],
    directory: str,
    config: TopicConfig,
    options: AppendOptions,
    *,
    file: str,
    now_ms: Callable[[], int],
    report: AppendReport,
) -> None:
    """Append the records of these lines, in order, at the next offsets of the log. Times are kept; a line without a time gets the current
    time.

    Other lines of an export, and control records, are skipped. `report` is filled in during the work. Whatever ends the work, the records
    appended so far stay, and the log is closed cleanly. Raises ApiError if a leader would reject the records, DecodeError for an invalid
    line, KopsError if the log must be repaired first.
    """
    directory = files.absolute(directory)
    state = partition_state(files, directory)
    _check_nothing_is_given_up(files, directory, state, config, now_ms())
    marker = posixpath.join(posixpath.dirname(directory), CLEAN_SHUTDOWN)
    if state.marker is not None:
        files.unlink(marker)
        files.sync_dir(posixpath.dirname(directory))
    log, scheduler = open_log(
        files,
        directory,
        config,
        now_ms,
        log_start_offset=state.log_start_offset,
        recovery_point=state.recovery_point,
        had_clean_shutdown=state.marker is not None,
    )
    is_whole = False
    try:
        _Appender(log, options, file, now_ms, report).append(documents, scheduler.run_due)
        is_whole = True
    except (ApiError, DecodeError):
        is_whole = True  # Rejected before any of it was written.
        raise
    finally:
        log.flush(force_flush_active_segment=True)
        scheduler.run_due()
        log.close()
        report.log_end_offset = log.log_end_offset
        if is_whole and state.marker is not None:
            files.write_atomic(marker, state.marker)


def _check_nothing_is_given_up(files: Files, directory: str, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
    """Load the log on a copy in memory first. Raises KopsError if a start would lose something."""
    with in_plain_words(directory):
        loaded = load_partition(
            OverlayFiles(files),
            directory,
            config,
            log_start_offset=state.log_start_offset,
            recovery_point=state.recovery_point,
            clean_shutdown=state.marker is not None,
            now_ms=now_ms,
        )
        loaded.close_handlers()
    for action in loaded.actions:
        if action.kind in _GIVES_UP:
            raise KopsError(f"{directory}: opening the log would lose the contents of {action.file} ({action.reason}); repair it first")


class _Appender:
    """Gathers records into batches."""

    def __init__(self, log: UnifiedLog, options: AppendOptions, file: str, now_ms: Callable[[], int], report: AppendReport) -> None:
        self.log = log
        self.options = options
        self.file = file
        self.now_ms = now_ms
        self.report = report
        self.epoch = options.leader_epoch if options.leader_epoch is not None else log.latest_epoch or 0
        self.size = 0
        self.builder = self.new_builder()
        report.leader_epoch = self.epoch

    def new_builder(self) -> BatchBuilder:
        """Return the builder of an empty batch, as a client sends it."""
        self.size = 0
        return BatchBuilder(codec=self.options.compression)

    def append(self, documents: Iterable[tuple[int, Document]], run_due: Callable[[], int]) -> None:
        """Append all lines, up to the first invalid one."""
        control = False
        try:
            for number, document in documents:
                schema = document.get("schema", RECORD)
                if schema == BATCH:
                    control = bool(document.get("attributes", 0) & CONTROL_MASK)
                elif schema == RECORD and not control and "control" not in document:
                    self.add(number, document)
                    if self.size >= self.options.batch_size:
                        self.flush()
                        run_due()
        except DecodeError:
            self.flush()
            raise
        self.flush()

    def add(self, number: int, document: Document) -> None:
        """Add one record."""
        try:
            key, value, headers = content(document, self.options.key_encoding, self.options.value_encoding)
            timestamp = int(document.get("timestamp", -1))
            self.builder.append(self.now_ms() if timestamp < 0 else timestamp, key, value, headers)
        except (AttributeError, TypeError, ValueError) as error:
            raise DecodeError(f"line {number} is not a record: {error}", code=MALFORMED, file=self.file) from error
        self.size += len(key or b"") + len(value or b"") + sum(len(name) + len(content or b"") for name, content in headers)

    def flush(self) -> None:
        """Append the gathered batch."""
        data = self.builder.build()
        count = self.builder.count
        self.builder = self.new_builder()
        if not data:
            return
        info = self.log.append_as_leader(data, self.epoch)
        report = self.report
        report.records += count
        report.batches += 1
        report.bytes += info.valid_bytes
        report.first_offset = info.first_offset if report.first_offset is None else report.first_offset
        report.last_offset = info.last_offset
