"""`kops scan verify`: the checks of `kops log verify` with the reading spread over a Spark cluster.

The driver plans and judges with the code of `kops.forensics.verify`; tasks read parts of segments into facts (which are merged on the
driver), so the verdict is the same whoever read. Every executor must see the paths (a shared file system, or one machine).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from kops.errors import KopsError
from kops.files import OsFiles
from kops.forensics.verify import VerifyReport, check_plan, count_results, plan_verify
from kops.forensics.verify_facts import CRC, SegmentFacts, join_facts, scan_segment_facts
from kops.forensics.verify_index import IndexSamples
from kops.forensics.verify_partition import SegmentResult, SegmentTask, check_indexes, load_index, verify_segment
from kops.spark.splits import TASK_BYTES, Part, pack, part_bytes, split_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = tuple[Part, SegmentFacts | None, str]
"""A part, its facts, or why the file could not be read."""


def scan_verify(
    spark: SparkSession, paths: Sequence[str | PathLike[str]], level: str = CRC, *, task_bytes: int = TASK_BYTES
) -> VerifyReport:
    """Verify files, partition and log directories on Spark. Raises UsageError, NotFoundError as `kops.verify`."""
    files = OsFiles(read_only=True)
    plan = plan_verify([os.path.abspath(path) for path in paths], level, files)
    tasks = plan.tasks
    context = spark.sparkContext
    size = part_bytes(context.defaultParallelism, [task.size for task in tasks], task_bytes)
    parts = [
        part
        for number, task in enumerate(tasks)
        for part in split_segment(files, number, task.path, task.size, _index_beside(files, task), size)
    ]
    bins = pack(parts, context.defaultParallelism, task_bytes)
    answers: list[Answer] = []
    if parts:
        work = _worker([(part, tasks[part.number]) for part in parts])
        answers = context.parallelize(bins, len(bins)).flatMap(work).collect()
    results = _join(files, tasks, answers)
    report = VerifyReport(plan.paths, level)
    count_results(report, results)
    report.findings = check_plan(plan, results, files)
    return report


def _index_beside(files: OsFiles, task: SegmentTask) -> str | None:
    """The offset index of a segment, whether the level asks for its check or not."""
    path = task.index_path or f"{task.path.removesuffix('.log')}.index"
    return path if files.exists(path) else None


def _worker(parts: list[tuple[Part, SegmentTask]]) -> Callable[[list[Part]], Iterator[Answer]]:
    """The function that runs in a task; only plain values go with it."""
    tasks = dict(parts)

    def work(assigned: Iterable[Part]) -> Iterator[Answer]:
        files = OsFiles(read_only=True)
        for part in assigned:
            yield read_part(files, part, tasks[part])

    return work


def read_part(files: OsFiles, part: Part, task: SegmentTask) -> Answer:
    """The facts about one part."""
    try:
        index = load_index(files, task.index_path if task.compares else None, "index", task.base_offset)
        time_index = load_index(files, task.time_index_path if task.compares else None, "timeindex", task.base_offset)
        with files.open(part.path) as source:
            return part, scan_segment_facts(source, part.start, part.end, task.level, index=index, time_index=time_index), ""
    except (OSError, KopsError) as error:
        return part, None, str(error)


def _join(files: OsFiles, tasks: list[SegmentTask], answers: Iterable[Answer]) -> dict[str, SegmentResult]:
    """Parts to whole segments, in the order of the plan."""
    by_segment: dict[int, list[Answer]] = {}
    for answer in answers:
        by_segment.setdefault(answer[0].number, []).append(answer)
    results: dict[str, SegmentResult] = {}
    for number, task in enumerate(tasks):
        found = sorted(by_segment[number], key=lambda answer: answer[0].start)
        results[task.path] = _join_segment(files, task, found)
    return results


def _join_segment(files: OsFiles, task: SegmentTask, answers: list[Answer]) -> SegmentResult:
    """As `verify_segment`, from parts; where two don't meet at a batch's boundary, their bytes are read again here."""
    facts = [part_facts for _, part_facts, _ in answers if part_facts is not None]
    try:
        index = load_index(files, task.index_path, "index", task.base_offset)
        time_index = load_index(files, task.time_index_path, "timeindex", task.base_offset)
        if len(facts) < len(answers):
            return verify_segment(task, files)  # tells why it can't be read

        def rescan(start: int, end: int) -> SegmentFacts:
            with files.open(task.path) as source:
                return scan_segment_facts(source, start, end, task.level, index=index, time_index=time_index)

        whole = join_facts(facts, rescan)
    except (OSError, KopsError):
        return verify_segment(task, files)
    checked, spacing = check_indexes(task, whole, index, time_index)
    whole.samples = IndexSamples()
    return SegmentResult(task, whole, checked, spacing)
