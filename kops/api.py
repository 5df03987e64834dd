"""The public Python API: the functions behind `kops log`, clusters for tests, and clients. `kops` exports all of it and loads each name on
first use.

Most functions only read their input. `rebuild_indexes`, `repair` and `rollback` change files in place, and so do `append_lines` and
`truncate`. `recover`, `compact` and `import_lines` write to another directory. Paths may be files, partition directories, log directories,
or folders that contain these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from kops import records as _records
from kops._compiled import document
from kops.errors import DecodeError, KopsError, LockHeldError, MissingDependencyError, NotFoundError, UsageError
from kops.files import Files, OsFiles
from kops.forensics.inventory.tree import FileEntry, Inventory, LogDir, PartitionDir, Segment, open_partition, open_paths
from kops.late import late
from kops.records import Batch, BatchBuilder, BytesSource, Damage, Record, scan

if TYPE_CHECKING:
    from kops.client.admin.faces.blocking import Admin
    from kops.client.consumer.errors import WakeupError
    from kops.client.consumer.faces.blocking import Consumer
    from kops.client.consumer.records import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        ConsumerRecords,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionInfo,
        SubscriptionPattern,
    )
    from kops.client.errors import KafkaError, KafkaTimeoutError, ProducerClosedError, SerializationError
    from kops.client.producer.core.batches import RecordMetadata
    from kops.client.producer.faces.blocking import Producer
    from kops.client.producer.faces.outcomes import RecordFuture
    from kops.client.share.core.acknowledgements import AcknowledgeType
    from kops.client.share.core.records import ShareRecord
    from kops.client.share.faces.blocking import ShareConsumer
    from kops.cluster.embedded import AsyncCluster, Cluster
    from kops.forensics.compact import CompactReport
    from kops.forensics.forecast.run import Forecast
    from kops.forensics.index.rebuild import RebuildReport
    from kops.forensics.lines.appending import AppendReport
    from kops.forensics.lines.exporting import Document
    from kops.forensics.lines.importing import ImportReport
    from kops.forensics.recover.report import RecoverReport
    from kops.forensics.repair.run import RepairReport
    from kops.forensics.truncate import TruncateReport
    from kops.forensics.verify.run import VerifyReport
    from kops.records.log_offsets import TopicPartition

Path = str | os.PathLike[str]

__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncCluster",
    "Batch",
    "BatchBuilder",
    "BytesSource",
    "Cluster",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerRecords",
    "Damage",
    "DecodeError",
    "FileEntry",
    "Files",
    "Inventory",
    "KafkaError",
    "KafkaTimeoutError",
    "KopsError",
    "LockHeldError",
    "LogDir",
    "MissingDependencyError",
    "NotFoundError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OsFiles",
    "PartitionDir",
    "PartitionInfo",
    "Producer",
    "ProducerClosedError",
    "Record",
    "RecordFuture",
    "RecordMetadata",
    "Segment",
    "SerializationError",
    "ShareConsumer",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
    "UsageError",
    "WakeupError",
    "append_lines",
    "build_batch",
    "compact",
    "export_lines",
    "forecast",
    "import_lines",
    "open_partition",
    "open_paths",
    "read_records",
    "rebuild_indexes",
    "recover",
    "repair",
    "rollback",
    "scan",
    "scan_file",
    "truncate",
    "verify",
]

_LATE = {
    **dict.fromkeys(("AsyncCluster", "Cluster"), "kops.cluster.embedded"),
    "Producer": "kops.client.producer.faces.blocking",
    "RecordFuture": "kops.client.producer.faces.outcomes",
    **dict.fromkeys(("KafkaError", "KafkaTimeoutError", "ProducerClosedError", "SerializationError"), "kops.client.errors"),
    "Admin": "kops.client.admin.faces.blocking",
    **dict.fromkeys(
        (
            "ConsumerGroupMetadata",
            "ConsumerRecord",
            "ConsumerRecords",
            "OffsetAndMetadata",
            "OffsetAndTimestamp",
            "PartitionInfo",
            "SubscriptionPattern",
        ),
        "kops.client.consumer.records",
    ),
    "Consumer": "kops.client.consumer.faces.blocking",
    "TopicPartition": "kops.records.log_offsets",
    "WakeupError": "kops.client.consumer.errors",
    "RecordMetadata": "kops.client.producer.core.batches",
    "AcknowledgeType": "kops.client.share.core.acknowledgements",
    "ShareConsumer": "kops.client.share.faces.blocking",
    "ShareRecord": "kops.client.share.core.records",
}
document(Batch)
document(BatchBuilder)
document(Files)
document(OsFiles)


if not TYPE_CHECKING:  # a program that only reads files imports neither a node nor a client
    __getattr__ = late(globals(), _LATE)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def build_batch(records: Iterable[Record], **fields: object) -> bytes:
    """Return a batch of these records with their offsets. `fields` are those of `BatchBuilder`; the base offset defaults to the first
    offset."""
    return _records.build_batch(records, **fields)  # which may be compiled, and then has no docstring


def scan_file(path: Path, *, check_crc: bool = True, resync: bool = True, files: Files | None = None) -> Iterator[Batch | Damage]:
    """Yield every batch of a `.log` file and all damage between them, in order and without a gap.

    `check_crc=False` trusts headers whose length fits. `resync=False` stops after the first damage, as a broker's recovery does. A batch
    keeps the part of the file from which it was read in memory, so keep only the batches that you need. Raises NotFoundError or OSError.
    Wrong bytes do not raise an error; they are reported as `Damage`.
    """
    source = files if files is not None else OsFiles(read_only=True)
    name = os.fspath(path)
    if not source.exists(name):
        raise NotFoundError(f"{name}: no such file")
    return _scan(source, name, check_crc, resync)


def _scan(files: Files, path: str, check_crc: bool, resync: bool) -> Iterator[Batch | Damage]:
    with closing(files.open(path)) as log:
        yield from scan(log, check_crc=check_crc, resync=resync)


def read_records(
    path: Path, *, isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted", files: Files | None = None
) -> Iterator[Record]:
    """Yield the records of a partition directory or of one `.log` file, as a consumer would get them. Damage is skipped.

    `read_committed` omits the records of aborted transactions (according to the markers in the log) and stops at the first transaction that
    is still open. Raises NotFoundError, OSError, and DecodeError for a batch whose records are invalid although its checksum is correct.
    """
    from kops.records.isolation import aborted_transactions, read_committed, read_uncommitted

    logs = _logs(path, files)
    if isolation == "read_uncommitted":
        chosen: Iterable[Batch] = read_uncommitted(_batches(logs, files))
    elif isolation == "read_committed":
        chosen = read_committed(
            _batches(logs, files), aborted_transactions(_batches(logs, files)), _last_stable_offset(_batches(logs, files))
        )
    else:
        raise UsageError(f"isolation {isolation!r} is not one of read_uncommitted, read_committed")
    return (record for batch in chosen for record in batch.iterate())


def _logs(path: Path, files: Files | None) -> list[str]:
    found = open_paths([path], files)
    logs = [entry.path for entry in found.loose_files if entry.kind == "log"]
    partitions = list(found.partitions())
    if len(partitions) + len(logs) != 1:
        raise UsageError(f"{os.fspath(path)}: neither a partition directory nor a .log file")
    return logs or [segment.log.path for segment in partitions[0].live_segments if segment.log is not None]


def _batches(logs: list[str], files: Files | None) -> Iterator[Batch]:
    return (item for log in logs for item in scan_file(log, files=files) if isinstance(item, Batch))


def _last_stable_offset(batches: Iterable[Batch]) -> int | None:
    """Return the first offset of the oldest transaction without a marker, or None if all are committed or aborted."""
    open_since: dict[int, int] = {}
    for batch in batches:
        if batch.is_control and batch.has_producer_id:
            open_since.pop(batch.producer_id, None)
        elif batch.is_transactional:
            open_since.setdefault(batch.producer_id, batch.base_offset)
    return min(open_since.values(), default=None)


def verify(
    *paths: Path, level: Literal["quick", "crc", "deep", "full"] = "crc", jobs: int | None = 1, files: Files | None = None
) -> VerifyReport:
    """Verify files, partition directories or log directories. Returns the findings; `has_problems` says whether there are any problems.

    `level` is `quick` (headers and sizes), `crc` (also every checksum), `deep` (also every record) or `full` (also every check across
    files). `jobs` is the number of processes (None: as many as are useful). Raises NotFoundError, UsageError.
    """
    from kops.forensics.verify.run import verify as run

    return run(paths, level, jobs=jobs, files=files)


def forecast(
    *paths: Path,
    assume: Literal["clean", "crash"] | None = None,
    recovery_point: int | None = None,
    config: Mapping[str, str] | None = None,
    now_ms: int | None = None,
    files: Files | None = None,
) -> Forecast:
    """Predict what an Apache Kafka 4.3 broker would truncate, delete or reject when it starts, and which records that would lose.

    `paths` are all log directories of one broker, or partition directories, each of which is examined alone. `assume` and `recovery_point`
    override the state found on disk. `config` has topic settings (`segment.bytes`, ...). `now_ms` is the time of the start (default: now).
    The broker's own loader runs, on a copy-on-write overlay in memory. Raises NotFoundError, UsageError.
    """
    from kops.forensics.forecast.run import ForecastOptions
    from kops.forensics.forecast.run import forecast as run

    options = ForecastOptions(
        now_ms=int(time.time() * 1000) if now_ms is None else now_ms,
        clean_shutdown=None if assume is None else assume == "clean",
        recovery_point=recovery_point,
        overrides=dict(config or {}),
    )
    return run(files if files is not None else OsFiles(read_only=True), [os.fspath(path) for path in paths], options)


def recover(
    *paths: Path, out: Path, shape: Literal["segment", "jsonl", "parquet"] = "segment", renumber: bool = False, files: Files | None = None
) -> RecoverReport:
    """Write every intact batch of `paths` below `out`, at its offset or, with `renumber`, without gaps. Returns the report, which is also
    written there.

    `shape` is `segment` (directories that Apache Kafka can open), `jsonl` or `parquet`. Raises NotFoundError, UsageError, OSError.
    """
    from kops.forensics.recover.run import recover as run

    return run(paths, out, shape=shape, renumber=renumber, files=files)


def compact(
    *paths: Path,
    out: Path,
    config: Mapping[str, str] | None = None,
    dirty_from: int | None = None,
    roll: bool = False,
    now_ms: int | None = None,
    files: Files | None = None,
) -> CompactReport:
    """Keep the latest record of each key, as a broker's cleaner does, and write the logs of `paths` below `out`. Returns a report.

    `config` has topic settings (`delete.retention.ms`, ...). `dirty_from` replaces the offset of the cleaner's checkpoint. `roll` closes
    the active segment first, so that it is also cleaned. `now_ms` (default: now) decides which tombstones have expired. Raises
    NotFoundError, UsageError, OSError.
    """
    from kops.forensics.compact import CompactOptions
    from kops.forensics.compact import compact as run

    now = _now_ms() if now_ms is None else now_ms
    return run(paths, out, CompactOptions(now, dict(config or {}), dirty_from, roll), files=files)


def append_lines(
    directory: Path,
    documents: Iterable[Document],
    *,
    leader_epoch: int | None = None,
    compression: str = "none",
    config: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> AppendReport:
    """Append records to a partition directory as its leader would, while no broker runs. Returns a report.

    A document is a record as `export_lines` yields it (`timestamp`, `key`, `value`, `headers`, in base64). Other documents are skipped. If
    `leader_epoch` is None, that of the last leader that wrote is used. Raises NotFoundError, DecodeError for a document that is not a
    record, ApiError if a leader would reject one (those before it are appended), OSError, and LockHeldError while a broker runs on the log
    directory.
    """
    from kops.config.topic import topic_config
    from kops.forensics.lines.appending import AppendOptions, AppendReport
    from kops.forensics.lines.appending import append_lines as run
    from kops.forensics.plans.journal import locked

    writer = files if files is not None else OsFiles()
    name = writer.absolute(os.fspath(directory))
    report = AppendReport(name)
    options = AppendOptions(leader_epoch, compression)
    with locked(writer, os.path.dirname(name)):
        run(writer, enumerate(documents, 1), name, topic_config(config), options, file="documents", now_ms=_now_ms, report=report)
    return report


def export_lines(*paths: Path, raw: bool = False, files: Files | None = None) -> Iterator[Document]:
    """Yield the documents of `kops log export`: the partitions, segments, batches and records of `paths`, and all damage between them.

    With `raw`, compressed batches also have their bytes. Raises NotFoundError, UsageError for a path without Kafka's files, OSError.
    """
    from kops.forensics.inventory.tree import refuse_foreign
    from kops.forensics.lines.exporting import ExportCounts, export_documents

    source = files if files is not None else OsFiles(read_only=True)
    inventory = open_paths(paths, source)
    refuse_foreign(paths, inventory, source)
    return export_documents(source, inventory, ExportCounts(), raw=raw)


def import_lines(
    documents: Iterable[Document], *, out: Path, config: Mapping[str, str] | None = None, files: Files | None = None
) -> ImportReport:
    """Create the partitions of an export below `out`, written by the broker's own log code. Returns a report.

    Raises UsageError if a partition exists, DecodeError for an invalid document and for an export that lacks documents (everything before
    is written and closed as after a clean stop), OSError, LockHeldError.
    """
    from kops.forensics.lines.importing import ImportReport, import_config
    from kops.forensics.lines.importing import import_lines as run
    from kops.forensics.plans.journal import locked

    writer = files if files is not None else OsFiles()
    name, settings = writer.absolute(os.fspath(out)), import_config(config or {})
    report = ImportReport(name)
    if not writer.exists(name):
        writer.mkdir(name)
    with locked(writer, name):
        run(writer, enumerate(documents, 1), name, settings, file="documents", now_ms=_now_ms, report=report)
    return report


def truncate(
    directory: Path, offset: int, *, dry_run: bool = False, config: Mapping[str, str] | None = None, files: Files | None = None
) -> TruncateReport:
    """Truncate a partition's log at `offset`, as a follower does, while no broker runs. Returns a report.

    With `dry_run`, nothing is written. A journal (`journal` in the report) keeps everything that is removed, and `rollback` restores it.
    Raises NotFoundError, UsageError for an offset before the log's start, OSError, LockHeldError.
    """
    from kops.config.topic import topic_config
    from kops.forensics.truncate import plan_truncate
    from kops.forensics.truncate import truncate as run

    name, settings = os.fspath(directory), topic_config(config)
    if dry_run:
        return plan_truncate(files if files is not None else OsFiles(read_only=True), name, offset, settings, now_ms=_now_ms)[1]
    return run(name, offset, settings, files=files, now_ms=_now_ms)[1]


def rebuild_indexes(*paths: Path, everything: bool = False, dry_run: bool = False, files: Files | None = None) -> RebuildReport:
    """Rebuild wrong or missing indexes of partition or log directories, or with `everything` all indexes, as a broker writes them.

    With `dry_run`, only the plan is made. A journal keeps everything that is replaced, and `rollback` restores it. Raises NotFoundError,
    UsageError, OSError, and LockHeldError while a broker runs on the log directory.
    """
    from kops.forensics.index.rebuild import apply_rebuild, plan_rebuild

    names = [os.fspath(path) for path in paths]
    report = plan_rebuild(names, everything=everything, files=files)
    if not dry_run:
        apply_rebuild(report, names, files=files)
    return report


def repair(*paths: Path, mode: Literal["plan", "preen", "all"] = "plan", files: Files | None = None) -> RepairReport:
    """Repair log or partition directories in place. Every intact batch stays at its offset.

    The `mode` `plan` writes nothing, `preen` makes only repairs that lose nothing, `all` makes all repairs. A journal keeps everything that
    is replaced, and `rollback` restores it. An interrupted repair is finished first. Raises NotFoundError, UsageError, OSError, and
    LockHeldError while a broker runs on one of the directories.
    """
    from kops.forensics.repair.run import repair as run

    return run([os.fspath(path) for path in paths], mode=mode, files=files)


def rollback(journal: Path, *, force: bool = False, files: Files | None = None) -> int:
    """Undo the repair (or rebuild) that wrote this journal, byte for byte. Returns the number of undone steps.

    Raises ChangedSinceError (a KopsError) before it changes anything if a file has changed since the repair, unless `force` is set. Also
    raises NotFoundError, and LockHeldError while a broker runs on the directory.
    """
    from kops.forensics.plans.journal import locked, open_journal
    from kops.forensics.plans.journal import rollback as run

    writer = files if files is not None else OsFiles()
    found = open_journal(writer, os.fspath(journal))
    with locked(writer, found.log_dir):
        return run(writer, found, force=force)
