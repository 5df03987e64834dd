"""`kops scan recover`: the recovery of `kops log recover` for a whole cluster, with a task for each partition.

Each task merges the intact batches of all replicas of its partitions and writes the result, with the code of `kops.forensics.recover`.
A task may fail and run again, or run twice at the same time: see `kops.forensics.recover.task`. Every executor must see the paths and the
output directory (a shared file system, one machine, or a store). In a store `_SUCCESS` comes last, if no partition failed.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from kops.errors import UsageError
from kops.files import Files
from kops.files.urls import absolute_path, is_url, plain_path, plain_paths
from kops.forensics.inventory.replicas import expand
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.output import prepare_out, write_report
from kops.forensics.recover.partition import Job
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.run import SHAPES, Shape
from kops.forensics.recover.tables import require_pyarrow
from kops.forensics.recover.task import Order, begin_results, end_results, plan_partition, recover_partition, results_so_far
from kops.forensics.recover.write import remove_left
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.tasks import answers_of, cut, frame_from, parallelism
from kops.spark.stores.reading import driver_files, output_files, task_files
from kops.spark.stores.rows import SUCCESS, succeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_A_CORE = 4
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
    jobs, skipped = find_jobs(found, order.out, files, leftovers=leftovers)
    report = RecoverReport(order.out, shape, renumber, skipped=skipped)
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
    """Run the tasks, large partitions first, with several tasks for each core, so that no core waits long for the last one."""
    ordered = sorted(jobs, key=lambda job: -job.size)
    tasks = cut(ordered, lambda job: job.size, _TASKS_A_CORE * parallelism(spark), task_bytes)
    return answers_of(spark, tasks, partial(_one, order=order), "reads all replicas" if order.is_plan else "recovers partitions")


def _one(job: Job, *, order: Order) -> RecoveredPartition:
    """Runs in a task."""
    files = task_files()
    if order.is_plan:
        return plan_partition(files, order, job)
    with output_files(order.out) as out_files:
        return recover_partition(files, out_files, order, job, uuid.uuid4().hex)


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
