"""`kops scan recover`: the recovery of `kops log recover` for a whole cluster, with a task for each partition.

Each task merges the intact batches of all replicas of its partitions and writes the result, with the code of `kops.forensics.recover`.
A task may fail and run again, or run twice at the same time: see `kops.forensics.recover.task`. Every executor must see the paths and the
output directory (a shared file system, or one machine).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from kops.errors import UsageError
from kops.files import OsFiles
from kops.forensics.inventory.replicas import expand
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.output import prepare_out, write_report
from kops.forensics.recover.partition import Job
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.run import SHAPES, Shape
from kops.forensics.recover.tables import require_pyarrow
from kops.forensics.recover.task import Order, begin_results, end_results, plan_partition, recover_partition, results_so_far
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.tasks import answers_of, cut, frame_from, parallelism

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
    files, out_files = OsFiles(read_only=True), OsFiles()
    if shape not in SHAPES:
        raise UsageError(f"--as {shape}: must be one of {', '.join(SHAPES)}")
    if shape == "parquet":
        require_pyarrow()
    order = Order(os.path.abspath(os.fspath(out)), shape, renumber, plan)
    # A worker has another working directory.
    jobs, skipped = find_jobs([os.path.abspath(path) for path in expand(paths)], order.out, files, leftovers=leftovers)
    report = RecoverReport(order.out, shape, renumber, skipped=skipped)
    done: dict[str, RecoveredPartition] = {}
    if not plan:
        done = prepare_out(out_files, order.out, report, force=force, resume=resume)
        done |= results_so_far(out_files, order) if resume else {}
        begin_results(out_files, order, (job.name for job in jobs), done)
        report.partitions = list(done.values())
        write_report(out_files, report)
    written = _run(spark, order, [job for job in jobs if job.name not in done], task_bytes)
    entries = {**done, **{entry.name: entry for entry in written}}
    report.partitions = [entries[job.name] for job in jobs]
    if not plan:
        write_report(out_files, report)
        end_results(out_files, order)
    return report


def _run(spark: SparkSession, order: Order, jobs: list[Job], task_bytes: int) -> list[RecoveredPartition]:
    """Run the tasks, large partitions first, with several tasks for each core, so that no core waits long for the last one."""
    ordered = sorted(jobs, key=lambda job: -job.size)
    tasks = cut(ordered, lambda job: job.size, _TASKS_A_CORE * parallelism(spark), task_bytes)
    return answers_of(spark, tasks, partial(_one, order=order), "reads all replicas" if order.is_plan else "recovers partitions")


def _one(job: Job, *, order: Order) -> RecoveredPartition:
    """Runs in a task."""
    files = OsFiles(read_only=True)
    return plan_partition(files, order, job) if order.is_plan else recover_partition(files, OsFiles(), order, job, uuid.uuid4().hex)


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
