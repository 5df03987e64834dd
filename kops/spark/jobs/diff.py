"""`kops scan diff`: compares the replicas of each partition as `kops log diff` does, in a task for several partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import is_url, plain_paths
from kops.forensics.replicas.compare import Comparison
from kops.forensics.replicas.report import DiffReport, PartitionDiff
from kops.forensics.replicas.run import Group, compare_group, diff_group, judge_group, log_files
from kops.forensics.replicas.run import diff as run
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.tasks import answers_of, cut, frame_from, parallelism
from kops.spark.remembered import Answers, State, Unit
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGES: Final = "array<struct<first: bigint, last: bigint>>"
COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "directory": "string",
    "broker": "int",
    "start_offset": "bigint",
    "end_offset": "bigint",
    "last_epoch": "int",
    "high_watermark": "bigint",
    "batches": "bigint",
    "bytes": "bigint",
    "damaged": "bigint",
    "missing": _RANGES,
    "loses": _RANGES,
    "offsets_lost": "bigint",
    "committed_lost": "bigint",
    "best": "boolean",
    "first_difference": "bigint",
    "code": "string",
    "detail": "string",
}


def diff(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], *, task_bytes: int = TASK_BYTES, state: State | None = None
) -> DataFrame:
    """Return a row for each replica: its offsets, the missing ones, and the first difference of its partition's replicas.

    The columns are those of `kops log diff --replicas --format jsonl`, and of the partition's first divergence. `state`: use and keep the
    comparisons of partitions there.
    """
    return frame_from(spark, _rows(scan_diff(spark, paths, task_bytes=task_bytes, state=state)), COLUMNS)


def scan_diff(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], *, task_bytes: int = TASK_BYTES, state: State | None = None
) -> DiffReport:
    """Return the report of `kops log diff`, read by Spark's tasks. The errors are those of `kops log diff`."""

    def compare(groups: list[Group]) -> list[PartitionDiff]:
        kept = state.answers("diff", []) if state is not None else None
        known = state.known(kept, map(_unit, groups)) if state is not None and kept is not None else [False] * len(groups)
        work = list(zip(groups, known, strict=True))
        tasks = cut(work, lambda each: 0 if each[1] else _size(each[0]), parallelism(spark), task_bytes)
        return answers_of(spark, tasks, partial(_compare, folder=os.getcwd(), kept=kept), "compares replicas")

    return run(plain_paths(paths), files=driver_files(), compare_groups=compare)


def _size(group: Group) -> int:
    logs = (segment.log for replica in group.replicas for segment in replica.folder.live_segments)
    return sum(log.size for log in logs if log is not None)


def _unit(group: Group) -> Unit:
    """The replicas of a partition as a unit of kept answers. Checkpoints change all the time; they are read again."""
    logs = tuple(log.path for replica in group.replicas for log in log_files(replica.folder))
    return Unit((group.topic, group.partition, *(replica.folder.path for replica in group.replicas), *logs), logs, _size(group))


def _compare(work: tuple[Group, bool], *, folder: str, kept: Answers | None) -> PartitionDiff:
    """Runs in a task."""
    group, files = work[0], task_files()
    with _working_in(folder, group):
        if kept is None:
            return diff_group(group, files)
        return judge_group(group, files, kept.of(_unit(group), lambda: compare_group(group, files), keep=_is_read))


def _is_read(seen: Comparison) -> bool:
    """Whether all files could be read; another time they may be readable."""
    return not any(injury.hurt.code == "unreadable" for walk in seen.walks for injury in walk.injuries)


@contextmanager
def _working_in(folder: str, group: Group) -> Iterator[None]:
    """Resolve relative paths as on the driver: a worker has another working directory."""
    if all(is_url(replica.folder.path) or os.path.isabs(replica.folder.path) for replica in group.replicas):
        yield
        return
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _rows(report: DiffReport) -> Iterator[dict[str, Any]]:
    for partition in report.partitions:
        first = partition.first_divergence
        about: dict[str, Any] = {} if first is None else {"first_difference": first.offset, "code": first.code, "detail": first.detail}
        for replica in partition.replicas:
            lists = {"missing": _ranges(replica.missing), "loses": _ranges(replica.loses)}
            yield {"topic": partition.topic, "partition": partition.partition, **replica.to_json(), **lists, **about}


def _ranges(ranges: list[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"first": low, "last": high} for low, high in ranges]
