"""Recovery: copies every intact batch of damaged logs to another place. The input is not changed.

`recover` looks at log directories, partition directories or single files (also several copies of the same partition: other replicas,
leftovers), takes every batch that can be read (`kops.forensics.recover.runs`) and writes it at its offset, as segments that Apache Kafka
opens, as jsonl, or as Parquet (`kops.forensics.recover.write`). Each partition gets its name when it is complete.
`kops-recover.json` in the output says what was kept and lost. A run with `resume` continues from it.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kops.errors import DecodeError, KopsError, UsageError
from kops.files import Files, OsFiles
from kops.forensics.inventory.tree import FileEntry, Inventory, PartitionDir, open_paths
from kops.forensics.recover.disk import PatientFiles
from kops.forensics.recover.evidence import Evidence, evidence_of, joined
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.runs import Salvage, Source, missing, salvage
from kops.forensics.recover.tables import require_pyarrow
from kops.forensics.recover.write import PARTIAL, remove_tree, write_partition
from kops.storage.formats.names import parse_partition_dir
from kops.storage.formats.partition_metadata import read_partition_metadata

__all__ = ["recover"]

SCHEMA: Final = "kops.recover/v1"
REPORT_FILE: Final = "kops-recover.json"
Shape = Literal["segment", "jsonl", "parquet"]
SHAPES: Final = ("segment", "jsonl", "parquet")
_LEFTOVERS: Final = (".swap", ".cleaned", ".deleted")


@dataclass(slots=True)
class _Job:
    """One partition: its copies, best first, the evidence beside their logs, and the bytes of its partition.metadata."""

    name: str
    topic: str
    partition: int
    sources: list[Source] = field(default_factory=list)
    beside: list[Evidence] = field(default_factory=list)
    metadata: bytes | None = None


def recover(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    shape: Shape = "segment",
    renumber: bool = False,
    leftovers: bool = True,
    force: bool = False,
    resume: bool = False,
    files: Files | None = None,
    out_files: Files | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_total: Callable[[int], None] | None = None,
) -> RecoverReport:
    """Write every intact batch of `paths` below `out`; returns the report, which is also written there.

    `shape`: `segment` (folders that a broker opens), `jsonl` or `parquet`. `renumber`: close the gaps instead of keeping each batch's
    offset. `leftovers`: also look into `.swap`, `.cleaned` and `.deleted` files. `resume`: keep what an earlier run completed. `on_total`
    gets the number of bytes to read, `on_bytes` each step. Raises NotFoundError, UsageError (the output is not empty, is inside the input,
    ...) and OSError. On KeyboardInterrupt what was written so far is made usable, the report says so, and `interrupted` is set.
    """
    source_files = files if files is not None else OsFiles(read_only=True)
    writable = out_files if out_files is not None else OsFiles()
    target = writable.absolute(os.fspath(out))
    if shape not in SHAPES:
        raise UsageError(f"--as {shape}: must be one of {', '.join(SHAPES)}")
    if shape == "parquet":
        require_pyarrow()
    inventory = open_paths(paths, source_files)
    for path in paths:
        inside = source_files.absolute(os.fspath(path)).rstrip("/")
        if target == inside or target.startswith(inside + "/"):
            raise UsageError(f"--out {target} is inside {inside}, which is only read; choose a directory outside")
    jobs, skipped = _jobs(inventory, leftovers, source_files)
    report = RecoverReport(target, shape, renumber, skipped=skipped)
    done = _prepare_out(writable, target, report, force=force, resume=resume)
    if on_total is not None:
        on_total(sum(source_files.stat(path).size for job in jobs for source in job.sources for path in source.paths))
    patient = PatientFiles(source_files)
    for job in jobs:
        if job.name in done:
            report.partitions.append(done[job.name])
            continue
        if not _one(patient, writable, report, job, on_bytes):
            report.interrupted = True
            break
        _write_report(writable, report)
    _write_report(writable, report)
    return report


# Input.


def _jobs(inventory: Inventory, leftovers: bool, files: Files) -> tuple[list[_Job], list[str]]:
    jobs: dict[str, _Job] = {}
    skipped = [f"{problem.path}: {problem.reason}" for problem in inventory.problems]
    folders: list[PartitionDir] = []
    for log_dir in inventory.log_dirs:
        for folder in log_dir.partitions:
            if folder.state == "delete":
                skipped.append(f"{folder.path}: the partition was deleted; name this directory itself to recover it")
            else:
                folders.append(folder)
    folders += inventory.loose_partitions
    beside = evidence_of(inventory, files)
    # The live directory decides which topic it is.
    for folder in sorted(folders, key=lambda folder: _RANKS.index(folder.state or "log")):
        other = _add_folder(jobs, folder, leftovers, beside[folder.path], files)
        if other:
            skipped.append(other)
    for entry in sorted(inventory.loose_files, key=lambda entry: (entry.offset or 0, entry.path)):
        if entry.kind == "log":
            _add_file(jobs, entry)
    for job in jobs.values():
        # Live logs first, then other copies, then leftovers.
        job.sources.sort(key=lambda source: _RANKS.index(source.kind))
    return sorted(jobs.values(), key=lambda job: (job.topic, job.partition)), skipped


_RANKS: Final = ("log", "stray", "future", "delete", "swap", "cleaned", "deleted")


def _job(jobs: dict[str, _Job], topic: str | None, partition: int, name: str) -> _Job:
    return jobs.setdefault(name, _Job(name, topic if topic is not None else name, partition))


def _add_folder(jobs: dict[str, _Job], folder: PartitionDir, leftovers: bool, beside: Evidence, files: Files) -> str:
    """Add a copy, or return why not: it belongs to another topic of the same name."""
    job = _job(jobs, folder.topic, folder.partition, folder.name)
    metadata = _partition_metadata(files, folder)
    if metadata is not None and job.metadata is not None:
        own, taken = (read_partition_metadata(data).topic_id for data in (metadata, job.metadata))
        if own != taken:
            return f"{folder.path}: it belongs to another topic of that name (topic id {own}, not {taken}); name it alone to recover it"
    job.metadata = job.metadata or metadata
    job.beside.append(beside)
    live = [segment.log.path for segment in folder.live_segments if segment.log is not None]
    if live:
        job.sources.append(Source(folder.state or "log", live))
    for suffix in _LEFTOVERS if leftovers else ():
        found = [segment.log.path for segment in folder.segments if segment.suffix == suffix and segment.log is not None]
        if found:
            job.sources.append(Source(suffix[1:], found))
    return ""


def _add_file(jobs: dict[str, _Job], entry: FileEntry) -> None:
    parent = posixpath.basename(posixpath.dirname(os.path.abspath(entry.path)))
    try:
        parsed = parse_partition_dir(parent)
        job = _job(jobs, parsed.topic, parsed.partition, f"{parsed.topic}-{parsed.partition}")
    except DecodeError:
        name = f"{parent}-0" if parent else "recovered-0"
        job = _job(jobs, name.rpartition("-")[0], 0, name)
    kind = entry.suffix[1:] or "log"
    same = next((source for source in job.sources if source.kind == kind), None)
    if same is not None and kind in _RANKS:
        same.paths.append(entry.path)
    else:
        job.sources.append(Source(kind if kind in _RANKS else "log", [entry.path]))


# Output.


def _prepare_out(files: Files, target: str, report: RecoverReport, *, force: bool, resume: bool) -> dict[str, RecoveredPartition]:
    """Make the directory; -> what an earlier run completed."""
    if not files.exists(target):
        for path in _missing(files, target):
            files.mkdir(path)
        return {}
    if not files.stat(target).is_dir:
        raise UsageError(f"--out {target}: is a file; a directory is needed")
    names = files.list(target)
    if not names:
        return {}
    if not resume and not force:
        raise UsageError(f"--out {target}: is not empty; --resume continues an interrupted run, --force writes into it anyway")
    for name in names:
        if name.endswith(PARTIAL):
            remove_tree(files, posixpath.join(target, name))
    return _earlier(files, target, report) if resume else {}


def _missing(files: Files, path: str) -> list[str]:
    found: list[str] = []
    while not files.exists(path):
        found.insert(0, path)
        path = posixpath.dirname(path)
    return found


def _earlier(files: Files, target: str, report: RecoverReport) -> dict[str, RecoveredPartition]:
    path = posixpath.join(target, REPORT_FILE)
    if not files.exists(path):
        raise UsageError(f"--out {target}: there is no {REPORT_FILE} of an earlier run, so there is nothing to resume")
    try:
        document = json.loads(files.read_all(path))
        same = (document["as"], document["renumbered"]) == (report.shape, report.renumbered)
        rows = [row for row in document["partitions"] if row["complete"]]
        found = {row["partition"]: _partition_from(row) for row in rows if files.exists(row["output"])}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the report of an earlier run ({error!r})") from error
    if not same:
        raise UsageError(f"{path}: the earlier run wrote --as {document['as']}; resume it with the same options")
    return found


def _partition_from(row: dict[str, Any]) -> RecoveredPartition:
    return RecoveredPartition(
        row["partition"],
        row["output"],
        row["sources"],
        row["batches"],
        row["records"],
        row["bytes"],
        row["first_offset"],
        row["last_offset"],
        [(first, last) for first, last in row["lost"]],
        [(first, last) for first, last in row["gaps"]],
        row["damaged"],
        row["notes"],
    )


def _write_report(files: Files, report: RecoverReport) -> None:
    document = {"schema": SCHEMA, **report.to_json()}
    files.write_atomic(posixpath.join(report.out, REPORT_FILE), json.dumps(document, indent=1).encode() + b"\n")


def _one(files: PatientFiles, out_files: Files, report: RecoverReport, job: _Job, on_bytes: Callable[[int], None] | None) -> bool:
    """Write one partition. False if it was interrupted; its complete part is there nevertheless."""
    paths = [path for source in job.sources for path in source.paths]
    entry = RecoveredPartition(job.name, "", paths)
    files.sealed = False
    try:
        found = salvage(files, job.sources, on_bytes)
    except KeyboardInterrupt:
        return False
    files.sealed = True
    entry.damaged = [
        {"file": bad.path, "position": bad.position, "length": bad.length, "code": bad.code, "reason": bad.reason} for bad in found.bad
    ]
    held = [known for beside in job.beside for known in beside.held(files, found.runs, compacted=found.compacted)]
    entry.lost = joined(missing(found.runs, [*found.lost, *held]))
    entry.notes, entry.compacted = found.notes, found.compacted
    entry.gaps = list(_gaps(found))
    try:
        is_undisturbed = write_partition(files, out_files, report, entry, found.runs, job.metadata)
    except KeyboardInterrupt:
        return False  # not while batches were written, which leaves a partition that is usable
    report.partitions.append(entry)
    return entry.complete and is_undisturbed


def _gaps(found: Salvage) -> Iterator[tuple[int, int]]:
    before = None
    for run in found.runs:
        if before is not None and run.base > before + 1:
            yield before + 1, run.base - 1
        before = run.last


def _partition_metadata(files: Files, folder: PartitionDir) -> bytes | None:
    """The bytes of a folder's partition.metadata, where it can be read."""
    path = posixpath.join(folder.path, "partition.metadata")
    try:
        data = files.read_all(path)
        read_partition_metadata(data, file=path)
    except (OSError, KopsError):
        return None
    return data
