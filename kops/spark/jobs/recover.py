"""`kops scan recover`: the recovery of `kops log recover` for a whole cluster, with a task for several partitions.

Each task merges the intact batches of all replicas of its partitions and writes the result, with the code of `kops.forensics.recover`.
A partition that is much larger than others is divided (`kops.forensics.recover.pieces`): tasks read parts of its files, one decides what is
written, tasks write segments, and one completes the partition. A task may fail and run again, or run twice at the same time: see
`kops.forensics.recover.task`. Every executor must see the paths and the output directory (a shared file system, one machine, or a store).
In a store `_SUCCESS` comes last, if no partition failed.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from kops.errors import UsageError
from kops.files import Files
from kops.files.urls import absolute_path, is_url, plain_path, plain_paths
from kops.forensics.inventory.replicas import expand
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.runs import Reading, read_part
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.output import prepare_out, write_report
from kops.forensics.recover.partition import Job
from kops.forensics.recover.pieces import Merged, Piece, PieceResult, finish_partition, merge_partition, run_step, write_piece
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.run import SHAPES, Shape
from kops.forensics.recover.tables import require_pyarrow
from kops.forensics.recover.task import Order, begin_results, end_results, plan_partition, recover_partition, results_so_far
from kops.forensics.recover.write import remove_left
from kops.forensics.verify.parts import TASK_BYTES, Part, split_segment
from kops.spark.jobs.tasks import answers_of, frame_from, most_bytes, parallelism, size_of_parts
from kops.spark.packed import cut
from kops.spark.stores.reading import driver_files, output_files, task_files
from kops.spark.stores.rows import SUCCESS, succeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_A_CORE = 4
_RUNS_A_PART = 16
_RANGES = "array<struct<first: bigint, last: bigint>>"
COLUMNS = {
    "partition": "string",
    "output": "string",
    "complete": "boolean",
    "compacted": "boolean",
    "batches": "bigint",
    "records": "bigint",
    "bytes": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "lost": _RANGES,
    "gaps": _RANGES,
    "damaged": "array<struct<file: string, position: bigint, length: bigint, code: string, reason: string>>",
    "conflicts": "array<struct<first_offset: bigint, last_offset: bigint, why: string, kept_epoch: int, other_epoch: int, copy: string>>",
    "notes": "array<string>",
    "failure": "string",
    "sources": "array<string>",
}
"""The columns of `recover`, and their types."""


def scan_recover(
    spark: SparkSession,
    paths: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    shape: Shape = "segment",
    renumber: bool = False,
    leftovers: bool = True,
    force: bool = False,
    resume: bool = False,
    plan: bool = False,
    task_bytes: int = TASK_BYTES,
) -> RecoverReport:
    """Write the intact batches of all replicas below `paths`, partition by partition, below `out`; the report is also written there.

    `plan`: read everything, but write nothing. The others are those of `kops.forensics.recover.run.recover`. Raises NotFoundError,
    UsageError and OSError. A failure of one partition is in its row (`failure`).
    """
    if shape not in SHAPES:
        raise UsageError(f"--as {shape}: must be one of {', '.join(SHAPES)}")
    if shape == "parquet":
        require_pyarrow()
    order = Order(absolute_path(plain_path(out)), shape, renumber, plan)
    files = driver_files()
    # A worker has another working directory.
    found = [absolute_path(path) for path in expand(plain_paths(paths), files)]
    jobs, skipped, unreadable = find_jobs(found, order.out, files, leftovers=leftovers)
    report = RecoverReport(order.out, shape, renumber, skipped=skipped, unreadable=unreadable)
    with output_files(order.out) as out_files:
        _recover(spark, order, jobs, report, out_files, force=force, resume=resume, task_bytes=task_bytes)
    return report


def _recover(
    spark: SparkSession,
    order: Order,
    jobs: list[Job],
    report: RecoverReport,
    out_files: Files,
    *,
    force: bool,
    resume: bool,
    task_bytes: int,
) -> None:
    done: dict[str, RecoveredPartition] = {}
    success = posixpath.join(order.out, SUCCESS)
    if not order.is_plan:
        done = prepare_out(out_files, order.out, report, force=force, resume=resume)
        done |= results_so_far(out_files, order) if resume else {}
        remove_left(out_files, success)
        begin_results(out_files, order, (job.name for job in jobs), done)
        report.partitions = list(done.values())
        write_report(out_files, report)
    written = _run(spark, order, [job for job in jobs if job.name not in done], task_bytes)
    entries = {**done, **{entry.name: entry for entry in written}}
    report.partitions = [entries[job.name] for job in jobs]
    if not order.is_plan:
        write_report(out_files, report)
        end_results(out_files, order)
        if is_url(order.out) and not any(entry.failure for entry in report.partitions):
            succeed(out_files, order.out)


def _run(spark: SparkSession, order: Order, jobs: list[Job], task_bytes: int) -> list[RecoveredPartition]:
    """Run the tasks, large partitions first, with several tasks for each core, so that no core waits long for the last one. Partitions that
    are much larger than others are divided."""
    run = uuid.uuid4().hex
    most = most_bytes((job.size for job in jobs), parallelism(spark), task_bytes)
    work = _divided(spark, order, [job for job in jobs if job.size > most], run, task_bytes)
    work += [_Work(job) for job in sorted(jobs, key=lambda job: -job.size) if job.size <= most]
    tasks = cut(work, _rest, _TASKS_A_CORE * parallelism(spark), task_bytes)
    what = "reads all replicas" if order.is_plan else "recovers partitions"
    return list(answers_of(spark, tasks, partial(_one, order=order, run=run), what))


class _Work(NamedTuple):
    """A partition. If it was divided: what is written of it, and the segments that are written already (None: not by segments)."""

    job: Job
    merged: Merged | None = None
    pieces: list[PieceResult] | None = None


def _rest(work: _Work) -> int:
    """The bytes that are left to read."""
    if work.merged is None:
        return work.job.size
    return 0 if work.pieces is not None else sum(segment.size for segment in work.merged.segments)


def _one(work: _Work, *, order: Order, run: str) -> RecoveredPartition:
    """Runs in a task."""
    files, (job, merged, pieces), attempt = task_files(), work, uuid.uuid4().hex
    with output_files(order.out) as out_files:
        if merged is not None and (pieces is not None or merged.entry.failure is not None):
            return finish_partition(files, out_files, order, job, merged, pieces or [], run, attempt)
        salvaged = None if merged is None else (merged.entry, [run for segment in merged.segments for run in segment.runs])
        if order.is_plan:
            return plan_partition(files, order, job, salvaged)
        return recover_partition(files, out_files, order, job, attempt, salvaged)


def _divided(spark: SparkSession, order: Order, jobs: list[Job], run: str, task_bytes: int) -> list[_Work]:
    """Read large partitions in parts, decide what is written of each, and write it by segments if segments are wanted."""
    if not jobs:
        return []
    merged = _merged(spark, order, jobs, task_bytes)
    # Renumbered batches depend on all before them, and records go into one file.
    if order.renumbered or order.shape != "segment":
        return [_Work(job, each) for job, each in zip(jobs, merged, strict=True)]
    pieces = [Piece(job.name, segment, each.gone, run) for job, each in zip(jobs, merged, strict=True) for segment in each.segments]
    tasks = cut(pieces, lambda each: each.segment.size, _TASKS_A_CORE * parallelism(spark), task_bytes)
    what = "reads large partitions again" if order.is_plan else "writes segments of large partitions"
    found: dict[str, list[PieceResult]] = {job.name: [] for job in jobs}
    for result in answers_of(spark, tasks, partial(_write_piece, order=order), what):
        found[result.row.name].append(result)
    return [_Work(job, each, found[job.name]) for job, each in zip(jobs, merged, strict=True)]


def _write_piece(piece: Piece, *, order: Order) -> PieceResult:
    """Runs in a task."""
    with output_files(order.out) as out_files:
        return write_piece(task_files(), out_files, order, piece, uuid.uuid4().hex)


class _Part(NamedTuple):
    """A part of a file of the job and its copy with these numbers, the file's size, and the step of runs (`append_item`)."""

    job: int
    copy: int
    part: Part
    size: int
    step: int


def _merged(spark: SparkSession, order: Order, jobs: list[Job], task_bytes: int) -> list[Merged]:
    files = driver_files()
    size = size_of_parts((job.size for job in jobs), parallelism(spark), task_bytes)
    parts: list[_Part] = []
    steps: list[int] = []
    for number, job in enumerate(jobs):
        sizes = {path: files.stat(path).size for source in job.sources for path in source.paths}
        step = run_step(job.sources[0], sum(sizes[path] for path in job.sources[0].paths), max(min(size, task_bytes) // _RUNS_A_PART, 1))
        steps.append(step)
        for place, path in ((place, path) for place, source in enumerate(job.sources) for path in source.paths):
            index = f"{path.removesuffix('.log')}.index"
            known = index if sizes[path] > size and files.exists(index) else None
            for part in split_segment(files, number, path, sizes[path], known, size):
                parts.append(_Part(number, place, part, sizes[path], step))
    tasks = cut(parts, lambda each: each.part.size, parallelism(spark), task_bytes)
    readings: list[list[list[Reading | None]]] = [[[] for _ in job.sources] for job in jobs]
    for each, reading in zip(parts, answers_of(spark, tasks, _read_part, "reads large partitions"), strict=True):
        readings[each.job][each.copy].append(reading)
    work = list(zip(jobs, readings, steps, strict=True))
    merging = cut(work, None, parallelism(spark))
    return list(answers_of(spark, merging, partial(_merge, order=order), "merges replicas of large partitions"))


def _read_part(work: _Part) -> Reading | None:
    """Runs in a task."""
    files = task_files()
    files.expect({work.part.path: (work.size, 0)})
    return read_part(PatientFiles(files), work.part, work.step)


def _merge(work: tuple[Job, list[list[Reading | None]], int], *, order: Order) -> Merged:
    """Runs in a task."""
    job, readings, step = work
    return merge_partition(task_files(), order, job, readings, step)


def recover(
    spark: SparkSession, paths: str | PathLike[str] | Sequence[str | PathLike[str]], out: str | PathLike[str], **options: Any
) -> DataFrame:
    """Recover a cluster. Returns a row for each partition (`COLUMNS`). `options` are those of `scan_recover`."""
    several = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    report = scan_recover(spark, several, out, **options)
    return frame_from(spark, [_row(entry) for entry in report.partitions], COLUMNS)


def _row(entry: RecoveredPartition) -> dict[str, Any]:
    row = entry.to_json()
    for name in ("lost", "gaps"):
        row[name] = [{"first": first, "last": last} for first, last in row[name]]
    return row
