"""`kops scan verify`: the checks of `kops log verify` with the reading spread over a Spark cluster.

The driver plans and judges with the code of `kops.forensics.verify.groups`; tasks read parts of segments into facts, and the
driver merges them. So the result does not depend on where a part was read. Every executor must see the paths (a shared file system, or one
machine).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Final

from kops.files import Files
from kops.files.urls import absolute_path, is_url, plain_paths
from kops.forensics.inventory.replicas import expand
from kops.forensics.verify.facts.facts import CRC
from kops.forensics.verify.groups import GROUP_SEGMENTS, Groups, verify_groups
from kops.forensics.verify.partition import SegmentResult, SegmentTask
from kops.forensics.verify.parts import (
    TASK_BYTES,
    Answer,
    Part,
    check_whole,
    index_beside,
    join_parts,
    part_bytes,
    read_part,
    split_segment,
)
from kops.forensics.verify.parts import pack as divide
from kops.forensics.verify.run import VerifyReport
from kops.spark.failures import plain_errors
from kops.spark.jobs.tasks import frame_from, parallelism
from kops.spark.packed import PackedResults, pack, unpack
from kops.spark.progress import stage
from kops.spark.stores.reading import at_once, driver_files, task_files, with_connections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kops.spark.kept import Kept

COLUMNS: Final = {
    "severity": "string",
    "code": "string",
    "file": "string",
    "position": "bigint",
    "length": "bigint",
    "base_offset": "bigint",
    "last_offset": "bigint",
    "records": "bigint",
    "detail": "string",
    "fix": "string",
}
"""The columns of `verify`, and their types: the keys of a finding."""
_SHARES_A_CORE: Final = 8
"""Half as many as elsewhere: the driver checks the indexes of a segment that was divided, one after the other."""


def scan_verify(
    spark: SparkSession,
    paths: Sequence[str | PathLike[str]],
    level: str = CRC,
    *,
    task_bytes: int = TASK_BYTES,
    kept: Kept | None = None,
    group_segments: int = GROUP_SEGMENTS,
) -> VerifyReport:
    """Verify files, partition and log directories on Spark. Raises UsageError, NotFoundError as `kops.verify`.

    Of many log directories, about `group_segments` segments at a time are planned and read.

    `kept`: the results of earlier scans at this level. They stand for segments that have not changed, and the new ones are added (OSError).
    """
    files = driver_files()

    def read(which: str, tasks: list[SegmentTask]) -> PackedResults:
        earlier = PackedResults()
        for task in tasks:
            found = kept.known(task) if kept is not None else None
            if found is not None:
                earlier.add(found)
        results = _read(spark, files, [task for task in tasks if task.path not in earlier], task_bytes, which)
        if kept is not None:
            kept.add(results)
        results.update(earlier)
        return results

    report = verify_groups(Groups(expand(plain_paths(paths), files), level, files, group_segments), level, read, files)
    if kept is not None:
        kept.keep()
    return report


def verify(
    spark: SparkSession, paths: str | PathLike[str] | Sequence[str | PathLike[str]], level: str = CRC, *, task_bytes: int = TASK_BYTES
) -> DataFrame:
    """Verify files, partition and log directories. Returns a row for each finding (`COLUMNS`). Raises as `scan_verify`."""
    several = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    report = scan_verify(spark, several, level, task_bytes=task_bytes)
    return frame_from(spark, [each.to_json() for each in report.findings], COLUMNS)


def _read(spark: SparkSession, files: Files, tasks: list[SegmentTask], task_bytes: int, which: str) -> PackedResults:
    work = plan_parts(files, tasks, parallelism(spark), task_bytes)
    answers: list[tuple[int, bytes]] = []
    if work:
        what = f"reads segments, group {which}" if which else "reads segments"
        with plain_errors(), stage(spark, what, [sum(part.size for part, _ in each) for each in work]):
            answers = spark.sparkContext.parallelize(work, len(work)).flatMap(with_connections(_read_parts)).collect()
    return _join(files, tasks, answers)


def plan_parts(files: Files, tasks: Sequence[SegmentTask], parallelism: int, task_bytes: int) -> list[list[tuple[Part, SegmentTask]]]:
    """Return what each of Spark's tasks reads."""
    size = part_bytes(parallelism, [task.size for task in tasks], task_bytes, shares=_SHARES_A_CORE)

    # A worker has another working directory; the report names files as they were given.
    def cut(number: int) -> list[Part]:
        task = tasks[number]
        return split_segment(files, number, task.path, task.size, index_beside(files, task) if task.size > size else None, size)

    each_cut = at_once(cut, range(len(tasks)), threads=any(is_url(task.path) and task.size > size for task in tasks))
    parts = [_at(part, absolute_path(part.path)) for parts in each_cut for part in parts]
    bins = divide(parts, parallelism, task_bytes) if parts else []
    return [[(part, _absolute(tasks[part.number])) for part in each] for each in bins]


def _at(part: Part, path: str) -> Part:
    return part if path == part.path else part._replace(path=path)


def _absolute(task: SegmentTask) -> SegmentTask:
    path = absolute_path(task.path)
    if path == task.path:
        return task  # So are its indexes. A plan has many tasks, and would have each of them twice.
    index, time_index = (each and absolute_path(each) for each in (task.index_path, task.time_index_path))
    return replace(task, path=path, index_path=index, time_index_path=time_index)


def _read_parts(assigned: Iterable[tuple[Part, SegmentTask]]) -> Iterator[tuple[int, bytes]]:
    """Runs in a task. The answers have the numbers of their segments and are packed.

    The indexes of whole segments are checked here, too: on the driver this would be a fifth of the work of two cores, one index after the
    other.
    """
    files = task_files()
    for part, task in assigned:
        files.expect({task.path: (task.size, 0)})
        answer = read_part(files, part, task)
        facts = answer[1]
        result = None if facts is None else check_whole(files, part, task, facts)
        yield part.number, pack(answer if result is None else result)


def _join(files: Files, tasks: list[SegmentTask], answers: Iterable[tuple[int, bytes]]) -> PackedResults:
    """Join parts into whole segments, in the order of the plan."""
    by_segment: dict[int, list[bytes]] = {}
    for segment, data in answers:
        by_segment.setdefault(segment, []).append(data)

    def join(number: int) -> SegmentResult:
        task, found = tasks[number], [unpack(data) for data in by_segment.pop(number)]
        if isinstance(found[0], SegmentResult):
            return _named(found[0], task)
        parts: list[Answer] = found
        return join_parts(files, task, sorted(parts, key=lambda answer: answer[0].start))

    joined = PackedResults()
    # It reads the indexes.
    for result in at_once(join, range(len(tasks)), threads=any(is_url(task.path) for task in tasks)):
        joined.add(result)
    return joined


def _named(result: SegmentResult, task: SegmentTask) -> SegmentResult:
    """A result of a task, with the names of files as they were given."""
    spacing = result.spacing and replace(result.spacing, path=task.index_path or result.spacing.path)
    return replace(result, task=task, spacing=spacing)
