"""Makes segments from the lines of an export, through the log engine itself, for `kops log import`.

Each batch is appended at its offset, as a replica does. A new segment begins where the export says so. Logs, indexes, producer
snapshots and leader epochs come from `kops.storage.unified_log`, so they are what a broker with these settings would have written.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from kops.config import TopicConfig
from kops.config.topic import topic_config
from kops.config.values.java import INT_MAX, LONG_MAX
from kops.errors import DecodeError, KopsError, UsageError
from kops.files import Files
from kops.forensics.dump.documents import RECORD
from kops.forensics.dump.files import DAMAGE
from kops.forensics.lines.exporting import (
    BATCH,
    COUNTED,
    END,
    EPOCH,
    MALFORMED,
    PARTITION,
    PARTITION_V1,
    SEGMENT,
    Document,
    lack_of_records,
    rebuild_batch,
)
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT, parse_partition_dir
from kops.storage.local_log import warn_nobody
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog

__all__ = [
    "ImportReport",
    "ImportedPartition",
    "import_config",
    "import_lines",
    "in_plain_words",
    "open_log",
    "parse_lines",
    "read_checkpoint",
]

_NEVER_MS: Final = str(LONG_MAX)
_PARTITION_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+")


@dataclass(slots=True)
class ImportedPartition:
    """The result of one partition. Offsets are None while nothing was appended. `log_start_offset` is None while the log is open."""

    name: str
    output: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    log_start_offset: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Its row in `kops.import/v1`."""
        return asdict(self)


@dataclass(slots=True)
class ImportReport:
    """The result of an import. `damaged` counts the lines about data that could not be exported."""

    out: str
    partitions: list[ImportedPartition] = field(default_factory=list)
    damaged: int = 0

    def to_json(self) -> dict[str, Any]:
        """The document `kops.import/v1` without its schema."""
        return {"out": self.out, "partitions": [entry.to_json() for entry in self.partitions], "damaged": self.damaged}


def parse_lines(
    lines: Iterable[bytes], file: str, on_bytes: Callable[[int], object] | None = None, *, first: int = 1
) -> Iterator[tuple[int, Document]]:
    """Number and document of each line that is not empty; `first` is the number of the first line.

    Raises DecodeError (`export-malformed`) if one is not a JSON object.
    """
    for number, line in enumerate(lines, first):
        if on_bytes is not None:
            on_bytes(len(line))
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except json.JSONDecodeError as error:
            reason = f"{error.msg} (column {error.colno})"
            raise DecodeError(f"line {number} is not JSON: {reason}", code=MALFORMED, file=file) from error
        except ValueError as error:
            raise DecodeError(f"line {number} is not JSON: {error}", code=MALFORMED, file=file) from error
        if not isinstance(document, dict):
            raise DecodeError(f"line {number} is not a JSON object", code=MALFORMED, file=file)
        yield number, document


def read_checkpoint(files: Files, log_dir: str, name: str) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint of a log directory; none if there is no file. Raises DecodeError."""
    path = posixpath.join(log_dir, name)
    return read_offset_checkpoint(files.read_all(path), file=path) if files.exists(path) else {}


def import_config(settings: Mapping[str, str]) -> TopicConfig:
    """The topic's settings for an import: segments begin where the export says, unless a setting says otherwise. UsageError."""
    return topic_config({"segment.bytes": str(INT_MAX), "segment.ms": _NEVER_MS, **settings})


def open_log(
    files: Files,
    directory: str,
    config: TopicConfig,
    now_ms: Callable[[], int],
    *,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    had_clean_shutdown: bool = True,
    topic_id: str | None = None,
    warn: Callable[[str], None] = warn_nobody,
) -> tuple[UnifiedLog, Scheduler]:
    """A partition's log for offline work: no producer expires in it, and errors of its tasks are raised.

    Raises KopsError if a broker could not load it, OSError.
    """

    def fail(name: str, error: Exception) -> None:
        raise error

    scheduler = Scheduler(now_ms, on_error=fail)
    with in_plain_words(directory):
        log = UnifiedLog.open(
            files,
            directory,
            config,
            now_ms=now_ms,
            scheduler=scheduler,
            failures=LogDirFailureChannel(),
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=had_clean_shutdown,
            topic_id=topic_id,
            producer_id_expiration_ms=INT_MAX,
            warn=warn,
        )
    return log, scheduler


@contextmanager
def in_plain_words(directory: str) -> Iterator[None]:
    """Raise KopsError instead of LoadError: it names the directory and says what to do."""
    try:
        yield
    except LoadError as error:
        raise KopsError(f"{directory}: a broker can't load this log: {error}; kops log repair may mend it") from error


def import_lines(
    files: Files,
    documents: Iterable[tuple[int, Document]],
    out: str,
    config: TopicConfig,
    *,
    file: str,
    now_ms: Callable[[], int],
    report: ImportReport,
) -> None:
    """Make the partitions of an export in `out`, an existing directory. None of them may exist yet.

    `report` is filled in during the work. Whatever ends the work, the logs made so far are closed as by a clean stop. Raises DecodeError
    (`export-malformed`) for an invalid line, which it names, and for an export that is cut; KopsError and OSError.
    """
    work = _Import(files, out, config, file, now_ms, report)
    try:
        for number, document in documents:
            work.number = number
            try:
                work.take(document)
            except KeyError as error:
                raise DecodeError(
                    f"line {number} has no {error}, so it is not an export; kops log append takes plain records", code=MALFORMED, file=file
                ) from error
            except (TypeError, ValueError, OverflowError) as error:
                raise DecodeError(f"line {number} is wrong: {error}", code=MALFORMED, file=file) from error
        work.end_batch()
        work.check_end()
    finally:
        work.close()


class _Import:
    """The partition that is being written, and the batch whose records are being read."""

    def __init__(self, files: Files, out: str, config: TopicConfig, file: str, now_ms: Callable[[], int], report: ImportReport) -> None:
        self.files = files
        self.out = out
        self.config = config
        self.file = file
        self.now_ms = now_ms
        self.report = report
        self.number = 0
        self.entry: ImportedPartition | None = None
        self.topic_id: str | None = None
        self.log_start: int | None = None
        self.counts = dict.fromkeys(COUNTED, 0)  # the lines since the last export began
        self.needs_end = False
        self.log: UnifiedLog | None = None
        self.scheduler: Scheduler | None = None
        self.head: Document | None = None
        self.head_number = 0
        self.records: list[Document] = []

    def take(self, document: Document) -> None:
        """Process one line."""
        schema = document["schema"]
        if schema == RECORD:
            if self.head is None:
                self.refuse("a record without a batch; kops log append takes records alone")
            self.records.append(document)
            self.counts["records"] += 1
            return
        self.end_batch()
        if schema == BATCH:
            self.head, self.head_number = document, self.number
            self.counts["batches"] += 1
        elif schema == SEGMENT:
            self.begin_segment(int(document["baseOffset"]))
            self.counts["segments"] += 1
        elif schema == EPOCH:
            self.begin_epoch(int(document["leaderEpoch"]), int(document["startOffset"]))
        elif schema in (PARTITION, PARTITION_V1):
            self.begin_partition(document["name"], document.get("topicId"), document.get("logStartOffset"))
            if schema == PARTITION and not self.needs_end:  # What is before it is an export that has no last line.
                self.needs_end, self.counts = True, dict.fromkeys(COUNTED, 0)
            self.counts["partitions"] += 1
        elif schema == DAMAGE:
            self.report.damaged += 1
            self.counts["damaged"] += 1
        elif schema == END:
            self.end_export({name: int(document[name]) for name in COUNTED})
        else:
            self.refuse(f"{schema} is not a line of an export")

    def refuse(self, reason: str) -> None:
        """Reject a line."""
        raise DecodeError(f"line {self.number}: {reason}", code=MALFORMED, file=self.file)

    def end_export(self, told: dict[str, int]) -> None:
        """End an export: compare the lines that it had with those that were read. Another export may follow."""
        found, self.counts = self.counts, dict.fromkeys(COUNTED, 0)
        self.needs_end = False
        wrong = [name for name in COUNTED if told[name] != found[name]]
        if wrong:
            had, here = (", ".join(f"{counts[name]} {name}" for name in wrong) for counts in (told, found))
            self.refuse(f"the export had {had}, but before this line there are {here}; lines of it are missing or repeated")

    def check_end(self) -> None:
        """Reject an export without its last line, and one without any line."""
        if self.needs_end:
            reason = f"the export is cut: its last line ({END}) is missing, and perhaps batches and partitions before it"
            raise DecodeError(reason, code=MALFORMED, file=self.file)
        if not self.number:
            raise DecodeError("is empty, so it is no export of kops log export", code=MALFORMED, file=self.file)

    def begin_partition(self, name: str, topic_id: str | None, log_start: object) -> None:
        """Begin a partition: the lines after this one are of it."""
        self.close()
        if not _PARTITION_NAME.fullmatch(name):
            self.refuse(f"{name!r} is not the name of a partition (topic-number)")
        directory = posixpath.join(self.out, name)
        if self.files.exists(directory):
            raise UsageError(f"{directory} exists; import only makes new partitions")
        self.topic_id = topic_id
        if log_start is not None and (type(log_start) is not int or log_start < 0):
            self.refuse(f"a log can't start at offset {log_start}")
        self.log_start = cast(int | None, log_start)
        self.entry = ImportedPartition(name, directory)
        self.report.partitions.append(self.entry)

    def begin_segment(self, base_offset: int) -> None:
        """Begin a segment: the log starts with the first one; for every other one it is rolled."""
        if self.entry is None:
            self.refuse("a segment without a partition")
        elif self.log is None or self.scheduler is None:
            self.log, self.scheduler = open_log(
                self.files, self.entry.output, self.config, self.now_ms, log_start_offset=base_offset, topic_id=self.topic_id
            )
        elif base_offset != self.log.segments.active.base_offset:
            if base_offset < self.log.log_end_offset:
                self.refuse(f"a segment begins at {base_offset}, but the one before it ends at {self.log.log_end_offset}")
            self.log.roll(base_offset)
            self.scheduler.run_due()
        if self.entry is not None and self.log is not None:
            self.entry.segments = len(self.log.segments)

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Begin a leader epoch that the batches do not tell. One that contradicts them is left out, as by a broker."""
        if self.log is None:
            self.refuse("an epoch without a segment")
        elif epoch < 0 or start_offset < 0:
            self.refuse(f"leader epoch {epoch} can't begin at offset {start_offset}")
        else:
            self.log.epochs.assign(epoch, start_offset)

    def end_batch(self) -> None:
        """Append the batch: all its records were read."""
        if self.head is None:
            return
        head, records = self.head, self.records
        self.head, self.records = None, []
        if self.log is None or self.entry is None or self.scheduler is None:
            self.refuse("a batch without a segment")
            return
        self.check_count(head, len(records))
        try:
            data = rebuild_batch(head, records)
            self.log.append_as_follower(data, INT_MAX)
        except KopsError as error:
            raise KopsError(f"{self.file}: the batch of offset {head['baseOffset']} (before line {self.number}): {error}") from error
        self.scheduler.run_due()
        entry = self.entry
        entry.segments = len(self.log.segments)
        entry.batches += 1
        entry.records += len(records)
        entry.first_offset = head["baseOffset"] if entry.first_offset is None else entry.first_offset
        entry.last_offset = head["lastOffset"]

    def check_count(self, head: Document, found: int) -> None:
        """Reject a batch that lacks lines."""
        reason = lack_of_records(head, found)
        if reason is not None:
            raise DecodeError(f"line {self.head_number}: {reason}", code=MALFORMED, file=self.file)

    def close(self) -> None:
        """Close the partition as a clean stop does, with everything flushed to the disk."""
        log, self.log = self.log, None
        if log is not None and self.scheduler is not None and self.entry is not None:
            is_later = self.start_later(log)
            log.flush(force_flush_active_segment=True)
            self.scheduler.run_due()
            log.close()
            self.files.sync_dir(log.directory)
            self.files.sync_dir(self.out)
            self.entry.log_start_offset = log.log_start_offset
            if is_later:
                self.write_log_start(self.entry.name, log.log_start_offset)

    def start_later(self, log: UnifiedLog) -> bool:
        """Let the log start where the exported one did, as after DeleteRecords. A start beyond the log's end is left out: a broker would
        delete the log. Returns whether the log starts within a segment."""
        start = self.log_start
        if start is None or not log.log_start_offset < start <= log.log_end_offset:
            return False
        log.update_high_watermark(log.log_end_offset)
        return log.maybe_increment_log_start_offset(start)

    def write_log_start(self, name: str, offset: int) -> None:
        """Add a log's start to the checkpoint of the log directory. Other partitions there keep theirs."""
        starts = read_checkpoint(self.files, self.out, LOG_START_OFFSET_CHECKPOINT)
        parsed = parse_partition_dir(name)
        starts[TopicPartition(parsed.topic, parsed.partition)] = offset
        self.files.write_atomic(posixpath.join(self.out, LOG_START_OFFSET_CHECKPOINT), write_offset_checkpoint(starts))
