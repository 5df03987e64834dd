"""`verify`: checks that everything on disk is as Apache Kafka would have written it. Read-only, in as many processes as requested.

    report = verify(["/var/lib/kafka"], level="full", jobs=4)
    for found in report.findings: print(found.severity, found.code, found.file, found.position)

Levels, each with all of the one before: `quick` headers, lengths, offsets, gaps and overlaps between segments, sanity of the indexes,
names; `crc` every checksum; `deep` every record decompressed and parsed; `full` every check across files (index entries against the log,
producers and their snapshots, leader epochs, transaction indexes, checkpoints, meta.properties).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kops.errors import KopsError, UsageError
from kops.files import Files, OsFiles
from kops.files.urls import absolute_path
from kops.forensics.findings.finding import Finding, finding, has_problems, sort_findings
from kops.forensics.inventory.tree import FileEntry, Inventory, LogDir, PartitionDir, open_paths, refuse_foreign
from kops.forensics.verify.checks.dirs import METADATA_TOPIC, DirContext, check_dirs, check_offsets, read_dir
from kops.forensics.verify.checks.log import PartitionContext
from kops.forensics.verify.checks.loose import check_loose, logs_beside
from kops.forensics.verify.checks.metadata import check_metadata
from kops.forensics.verify.facts.facts import CRC, FULL, LEVELS
from kops.forensics.verify.partition import (
    SegmentResult,
    SegmentTask,
    check_partition,
    partition_view,
    segment_tasks,
    unreadable,
)

if TYPE_CHECKING:
    from os import PathLike

SCHEMA = "kops.verify/v1"


@dataclass(slots=True)
class VerifyReport:
    """What was read and what was found. `segments` and `bytes` are those read. `left_out` are the paths of logs that a sample, a time limit
    or Ctrl-C left unread; `stopped` says which (`sample`, `time`, `interrupted` or ""), and `resume_from` where to continue."""

    paths: list[str]
    level: str = CRC
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    stopped: str = ""
    resume_from: str = ""

    @property
    def has_problems(self) -> bool:
        """Whether there is any error or warning."""
        return has_problems(self.findings)

    def to_json(self) -> dict[str, object]:
        """The document `kops.verify/v1`, findings as objects."""
        document: dict[str, object] = {
            "schema": SCHEMA,
            "paths": self.paths,
            "level": self.level,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "findings": [found.to_json() for found in self.findings],
        }
        if self.left_out:
            document |= {"stopped": self.stopped, "resume_from": self.resume_from, "left_out": self.left_out}
        return document


@dataclass(slots=True)
class PartitionPlan:
    """One partition to check; `dir_path` is its log directory, if that was named or contains the partition;
    `is_loose`: not a partition, but files of it that were named by themselves."""

    partition: PartitionDir
    context: PartitionContext
    tasks: list[SegmentTask]
    dir_path: str | None
    is_loose: bool = False


@dataclass(slots=True)
class VerifyPlan:
    """The work to do: partitions with their segments, and the facts from the log directories' own files."""

    paths: list[str]
    level: str
    inventory: Inventory
    partitions: list[PartitionPlan] = field(default_factory=list)
    dirs: list[DirContext] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def tasks(self) -> list[SegmentTask]:
        """Every segment, in order."""
        return [task for plan in self.partitions for task in plan.tasks]


def plan_verify(paths: Sequence[str | PathLike[str]], level: str = CRC, files: Files | None = None) -> VerifyPlan:
    """List the paths and plan what to read.

    Raises `UsageError` for an unknown level and for a path without any of Kafka's files, `NotFoundError` for a missing path.
    """
    check_level(level)
    files = files if files is not None else OsFiles(read_only=True)
    inventory = open_paths(paths, files)
    refuse_foreign(paths, inventory, files)
    return plan_inventory(paths, level, inventory, files)


def check_level(level: str) -> None:
    """Raise UsageError for an unknown level."""
    if level not in LEVELS:
        raise UsageError(f"unknown level '{level}': one of {', '.join(LEVELS)}")


def plan_inventory(paths: Sequence[str | PathLike[str]], level: str, inventory: Inventory, files: Files) -> VerifyPlan:
    """Plan what to read of an inventory: that of the paths, or of some of their log directories."""
    plan = VerifyPlan([os.fspath(path) for path in paths], level, inventory)
    plan.findings += [finding("file-unreadable", problem.path, problem.reason) for problem in inventory.problems]
    for log_dir in inventory.log_dirs:
        context, found = _read_dir(log_dir, files)
        plan.dirs.append(context)
        plan.findings += found
        for partition in log_dir.partitions:
            _add(plan, partition, context.partition(partition), log_dir.path)
    around: dict[str, DirContext | None] = {}
    for partition in inventory.loose_partitions:
        surrounding = _surrounding(partition, around, files)
        known = surrounding.partition(partition) if surrounding is not None else PartitionContext()
        _add(plan, partition, known, surrounding.path if surrounding is not None else None)
    beside = logs_beside(inventory.loose_files, files)
    for partition in _loose([*inventory.loose_files, *beside]):
        _add(plan, partition, PartitionContext(), None)
        plan.partitions[-1].is_loose = True
    wanted = {entry.path for entry in beside}
    for task in plan.tasks:
        task.indexes_only = task.path in wanted
    return plan


def surroundings(inventory: Inventory, files: Files) -> Iterator[tuple[PartitionDir, PartitionContext]]:
    """Yield each partition directory with the data of the log directory around it."""
    for log_dir in inventory.log_dirs:
        context, _ = _read_dir(log_dir, files)
        for partition in log_dir.partitions:
            yield partition, context.partition(partition)
    around: dict[str, DirContext | None] = {}
    for partition in inventory.loose_partitions:
        surrounding = _surrounding(partition, around, files)
        yield partition, surrounding.partition(partition) if surrounding is not None else PartitionContext()


def _add(plan: VerifyPlan, partition: PartitionDir, context: PartitionContext, dir_path: str | None) -> None:
    plan.partitions.append(PartitionPlan(partition, context, segment_tasks(partition, plan.level, context), dir_path))


def _read_dir(log_dir: LogDir, files: Files) -> tuple[DirContext, list[Finding]]:
    try:
        return read_dir(log_dir, files)
    except OSError as error:
        return DirContext(log_dir.path, clean_stop=False), [unreadable(error.filename or log_dir.path, error)]


def _surrounding(partition: PartitionDir, known: dict[str, DirContext | None], files: Files) -> DirContext | None:
    """The log directory around a partition that was named by itself, for its checkpoints and marker; None if there is none."""
    parent = os.path.dirname(absolute_path(partition.path))
    if parent not in known:
        known[parent] = None
        try:
            found = open_paths([parent], files).log_dirs
        except (OSError, KopsError):
            found = []
        here = [log_dir for log_dir in found if absolute_path(log_dir.path) == parent and log_dir.files]
        if here:
            known[parent] = _read_dir(here[0], files)[0]
    return known[parent]


def _loose(entries: list[FileEntry]) -> list[PartitionDir]:
    """Files that were named by themselves, as small partitions of their own: a `.log` together with those of its side files that were
    named."""
    from kops.forensics.inventory.tree import partition_from

    groups: dict[str, list[FileEntry]] = {}
    for entry in entries:
        groups.setdefault(os.path.dirname(entry.path), []).append(entry)
    return [partition_from(path or ".", group) for path, group in groups.items()]


def check_plan(plan: VerifyPlan, results: Mapping[str, SegmentResult], files: Files) -> list[Finding]:
    """All findings, sorted, from what was read of the plan's segments (path of the `.log` → result). If a segment of a partition was
    left out, each of its segments is judged alone."""
    findings = check_partitions(plan, results, files)
    if plan.level == FULL:
        findings += check_dirs(plan.inventory.log_dirs, plan.dirs, files)
    return sort_findings(findings)


def check_partitions(plan: VerifyPlan, results: Mapping[str, SegmentResult], files: Files) -> list[Finding]:
    """As `check_plan`, without the checks of log directories against each other, and in the order of the plan."""
    findings = list(plan.findings)
    judged = {path for task in plan.tasks for path in (task.index_path, task.time_index_path) if path is not None}
    findings += check_loose(plan.inventory.loose_files, judged, files)
    for each in plan.partitions:
        found = [results[task.path] for task in each.tasks if task.path in results]
        if each.is_loose or len(found) < len(each.tasks):
            findings += _check_alone(each, found, files)
        else:
            findings += check_partition(each.partition, found, each.context, files, plan.level)
            if plan.level == FULL:
                findings += _check_in_dir(each, found, files)
    return findings


def _check_alone(plan: PartitionPlan, results: list[SegmentResult], files: Files) -> Iterator[Finding]:
    """Segments whose neighbours were not read. Gaps between them, and other files, are not judged."""
    for result in results:
        task = result.task
        context = PartitionContext(clean_stop=plan.context.clean_stop, cleaner_offset=plan.context.cleaner_offset)
        only = PartitionDir(plan.partition.path, plan.partition.topic, plan.partition.partition, plan.partition.state)
        yield from check_partition(only, [SegmentResult(task, result.facts, result.findings)], context, files, CRC)


def _check_in_dir(plan: PartitionPlan, results: list[SegmentResult], files: Files) -> Iterator[Finding]:
    """Check a partition against the checkpoints of its log directory, and the files that only the metadata log has."""
    view = partition_view(plan.partition, results, plan.context)
    if plan.dir_path is not None:
        start, end, torn = view.start_offset, view.end_offset, view.tail_is_damaged
        yield from check_offsets(plan.partition, plan.context, start, end, plan.dir_path, torn=torn)
    if plan.partition.topic == METADATA_TOPIC and not plan.partition.state:
        epochs = [run.epoch for segment in view.segments for run in segment.facts.epochs]
        yield from check_metadata(plan.partition, view.start_offset, max(epochs, default=-1), files)


def verify(
    paths: Sequence[str | PathLike[str]],
    level: str = CRC,
    *,
    jobs: int | None = 1,
    sample: str | None = None,
    max_duration: float | None = None,
    resume_from: str | None = None,
    files: Files | None = None,
    progress: Callable[[int], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> VerifyReport:
    """Verify files, partition directories, log directories, or directories of those.

    `jobs`: processes (None: as many as pay off); more than one needs `files` to be the file system. `sample`: `n/t` (the n-th of t shares)
    or `x%` of the segments, always the same ones. `max_duration`: seconds after which no further segment is begun. `progress` gets the
    bytes read, `on_start` their total. Ctrl-C ends the reading; the KeyboardInterrupt has the report of what was read as `report`. Raises
    `UsageError`, `NotFoundError`.
    """
    from kops.forensics.verify.jobs import choose, jobs_that_pay, run_tasks

    plan = plan_verify(paths, level, files)
    tasks, left_out = choose(plan.tasks, sample)
    if resume_from is not None:
        tasks, earlier = _resume(plan, tasks, resume_from)
        left_out = earlier + left_out
    report = VerifyReport(plan.paths, level, left_out=left_out, stopped="sample" if left_out else "")
    if on_start is not None:
        on_start(sum(task.size for task in tasks))
    deadline = time.monotonic() + max_duration if max_duration is not None else None
    reader = files if files is not None else OsFiles(read_only=True)
    workers = jobs_that_pay(jobs, tasks) if files is None or isinstance(files, OsFiles) else 1
    results: dict[str, SegmentResult] = {}
    interrupted = False
    try:
        for result in run_tasks(tasks, reader, workers, deadline, progress):
            results[result.task.path] = result
    except KeyboardInterrupt:
        interrupted = True
    unread = [task.path for task in tasks if task.path not in results]
    if unread:
        report.left_out = report.left_out + unread
        report.stopped = "interrupted" if interrupted else "time"
        report.resume_from = _first_unread(plan, set(unread))
    count_results(report, results)
    report.findings = check_plan(plan, results, reader)
    if interrupted:
        raise VerifyInterrupted(report)
    return report


class VerifyInterrupted(KeyboardInterrupt):
    """Raised after Ctrl-C; `report` is about the segments read so far."""

    def __init__(self, report: VerifyReport) -> None:
        super().__init__()
        self.report = report


def _resume(plan: VerifyPlan, tasks: list[SegmentTask], resume_from: str) -> tuple[list[SegmentTask], list[str]]:
    """-> (the tasks from the partition of that `.log` on, the paths of those before)."""
    wanted = os.path.abspath(resume_from)
    before: set[str] = set()
    for each in plan.partitions:
        if any(os.path.abspath(task.path) == wanted for task in each.tasks):
            return [task for task in tasks if task.path not in before], [task.path for task in tasks if task.path in before]
        before |= {task.path for task in each.tasks}
    raise UsageError(f"--resume-from {resume_from}: there is no .log of this path in {', '.join(plan.paths)}")


def _first_unread(plan: VerifyPlan, unread: set[str]) -> str:
    """The first `.log` of the first partition that was not read as a whole."""
    return next((each.tasks[0].path for each in plan.partitions if any(task.path in unread for task in each.tasks)), "")


def count_results(report: VerifyReport, results: Mapping[str, SegmentResult]) -> None:
    for result in results.values():
        if result.facts is not None:
            report.segments += 1
            report.batches += result.facts.batches
            report.records += result.facts.records
            report.bytes += result.facts.scanned_to - result.facts.start
