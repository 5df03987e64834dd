"""Makes segments from the lines of an export, through the log engine itself, for `kops log import`.

Each batch is appended at its offset, as a replica does. A new segment begins where the export says so. Logs, indexes, producer
snapshots and leader epochs come from `kops.storage.unified_log`, so they are what a broker with these settings would have written.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kops.config import TopicConfig
from kops.config.topic import topic_config
from kops.config.values.java import INT_MAX, LONG_MAX
from kops.errors import DecodeError, KopsError, UsageError
from kops.files import Files
from kops.forensics.dump.documents import RECORD
from kops.forensics.dump.files import DAMAGE
from kops.forensics.lines.exporting import BATCH, EPOCH, MALFORMED, PARTITION, SEGMENT, Document, rebuild_batch
from kops.storage.local_log import warn_nobody
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog

__all__ = ["ImportReport", "ImportedPartition", "import_config", "import_lines", "open_log", "parse_lines"]

_NEVER_MS: Final = str(LONG_MAX)
_PARTITION_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+")


@dataclass(slots=True)
class ImportedPartition:
    """The result of one partition. Offsets are None while nothing was appended."""

    name: str
    output: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

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
    """A partition's log for offline work: no producer expires in it, and errors of its tasks are raised."""

    def fail(name: str, error: Exception) -> None:
        raise error

    scheduler = Scheduler(now_ms, on_error=fail)
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
    (`export-malformed`), which names the invalid line, KopsError and OSError.
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
            return
        self.end_batch()
        if schema == BATCH:
            self.head, self.head_number = document, self.number
        elif schema == SEGMENT:
            self.begin_segment(int(document["baseOffset"]))
        elif schema == EPOCH:
            self.begin_epoch(int(document["leaderEpoch"]), int(document["startOffset"]))
        elif schema == PARTITION:
            self.begin_partition(document["name"], document.get("topicId"))
        elif schema == DAMAGE:
            self.report.damaged += 1
        else:
            self.refuse(f"{schema} is not a line of an export")

    def refuse(self, reason: str) -> None:
        """Reject a line."""
        raise DecodeError(f"line {self.number}: {reason}", code=MALFORMED, file=self.file)

    def begin_partition(self, name: str, topic_id: str | None) -> None:
        """Begin a partition: the lines after this one are of it."""
        self.close()
        if not _PARTITION_NAME.fullmatch(name):
            self.refuse(f"{name!r} is not the name of a partition (topic-number)")
        directory = posixpath.join(self.out, name)
        if self.files.exists(directory):
            raise UsageError(f"{directory} exists; import only makes new partitions")
        self.topic_id = topic_id
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
        """Reject a batch that lacks lines: nobody could read a batch whose header promises more records than it has."""
        count = head.get("count")
        if "raw" not in head and count is not None and count != found:
            many = "1 record follows" if found == 1 else f"{found} records follow"
            reason = f"line {self.head_number}: {many}, but the batch has {count}; the export is cut, or lines of it are missing"
            raise DecodeError(reason, code=MALFORMED, file=self.file)

    def close(self) -> None:
        """Close the partition as a clean stop does, with everything flushed to the disk."""
        log, self.log = self.log, None
        if log is not None and self.scheduler is not None:
            log.flush(force_flush_active_segment=True)
            self.scheduler.run_due()
            log.close()
            self.files.sync_dir(log.directory)
            self.files.sync_dir(self.out)
