"""`kops scan diff`: compares the replicas of each partition as `kops log diff` does, in a task for several partitions.

A partition that is much larger than others is divided (`kops.forensics.replicas.slices`): tasks read slices of its replicas, and the task
that compares the replicas passes over the slices that are equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files.urls import is_url, plain_paths
from kops.forensics.replicas.compare import Comparison
from kops.forensics.replicas.report import DiffReport, PartitionDiff
from kops.forensics.replicas.run import Group, compare_group, judge_group, log_files
from kops.forensics.replicas.run import diff as run
from kops.forensics.replicas.slices import Slice, Summary, plan_slices, read_slice
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.tasks import answers_of, frame_from, most_bytes, parallelism, size_of_parts
from kops.spark.packed import cut
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
        sizes = [0 if is_known else _size(group) for group, is_known in zip(groups, known, strict=True)]
        work = _in_slices(spark, [_Work(*each) for each in zip(groups, sizes, strict=True)], task_bytes, state)
        tasks = cut(work, lambda each: each.rest, parallelism(spark), task_bytes)
        return list(answers_of(spark, tasks, partial(_compare, folder=os.getcwd(), kept=kept), "compares replicas"))

    return run(plain_paths(paths), files=driver_files(), compare_groups=compare)


class _Work(NamedTuple):
    """A partition, the bytes that are left to read, and summaries of the slices that have been read, by replica and first offset."""

    group: Group
    rest: int
    slices: tuple[dict[int, Summary], ...] = ()


def _in_slices(spark: SparkSession, work: list[_Work], task_bytes: int, state: State | None) -> list[_Work]:
    """Read the partitions that are much larger than the share of a core, in slices."""
    most = most_bytes((each.rest for each in work), parallelism(spark), task_bytes)
    large = [number for number, each in enumerate(work) if each.rest > most]
    if not large:
        return work
    folder = os.getcwd()
    size = size_of_parts((work[number].rest for number in large), parallelism(spark), task_bytes)
    planning = cut([work[number].group for number in large], None, parallelism(spark), task_bytes)
    plans = answers_of(spark, planning, partial(_plan, size=size, folder=folder), "divides large partitions")
    slices = [(each, work[number].group) for number, plan in zip(large, plans, strict=True) for each in plan]
    kept = state.answers("diff-slices", []) if state is not None else None
    known = state.known(kept, (_slice_unit(*each) for each in slices)) if state is not None and kept is not None else [False] * len(slices)
    sized = list(zip(slices, known, strict=True))
    tasks = cut(sized, lambda each: 0 if each[1] else each[0][0].size, parallelism(spark), task_bytes)
    read = iter(answers_of(spark, tasks, partial(_read, folder=folder, kept=kept), "reads slices of large partitions"))
    divided = list(work)
    for number, plan in zip(large, plans, strict=True):
        group, rest, _ = work[number]
        found: tuple[dict[int, Summary], ...] = tuple({} for _ in group.replicas)
        for each in plan:
            summary = next(read)
            if summary is not None:
                found[each.replica][each.start.offset] = summary
                rest -= summary.size
        divided[number] = _Work(group, rest, found)
    return divided


def _plan(group: Group, *, size: int, folder: str) -> list[Slice]:
    """Runs in a task."""
    with _working_in(folder, group):
        return plan_slices(task_files(), [log_files(replica.folder) for replica in group.replicas], size)


def _slice_unit(work: Slice, group: Group) -> Unit:
    """A slice as a unit of kept answers. It is read up to its end, and in the last log beyond it."""
    logs = tuple(log.path for log in work.logs[: work.end.log - work.start.log + 1])
    places = (*work.start, *work.end)
    return Unit(
        (group.topic, group.partition, group.replicas[work.replica].folder.path, *places, *(log.path for log in work.logs)), logs, work.size
    )


def _read(work: tuple[tuple[Slice, Group], bool], *, folder: str, kept: Answers | None) -> Summary | None:
    """Runs in a task."""
    each, group = work[0]
    with _working_in(folder, group):
        if kept is None:
            return read_slice(task_files(), each)
        return kept.of(_slice_unit(each, group), lambda: read_slice(task_files(), each), keep=lambda found: found is not None)


def _size(group: Group) -> int:
    logs = (segment.log for replica in group.replicas for segment in replica.folder.live_segments)
    return sum(log.size for log in logs if log is not None)


def _unit(group: Group) -> Unit:
    """The replicas of a partition as a unit of kept answers. Checkpoints change all the time; they are read again."""
    logs = tuple(log.path for replica in group.replicas for log in log_files(replica.folder))
    return Unit((group.topic, group.partition, *(replica.folder.path for replica in group.replicas), *logs), logs, _size(group))


def _compare(work: _Work, *, folder: str, kept: Answers | None) -> PartitionDiff:
    """Runs in a task."""
    group, files = work.group, task_files()

    def seen() -> Comparison:
        return compare_group(group, files, slices=work.slices)

    with _working_in(folder, group):
        return judge_group(group, files, seen() if kept is None else kept.of(_unit(group), seen, keep=_is_read))


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
