"""Checks a segment or a partition: from files to facts to findings.

`verify_segment` reads a segment's `.log` and its indexes; `check_partition` joins these results with everything else in the partition
directory. Both are pure functions of what is on disk, so they may run in any process, and on Spark.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kops.errors import KopsError
from kops.forensics.findings.finding import Finding, finding
from kops.forensics.verify.checks.log import LogSegment, LogView, PartitionContext, check_log, sane_last_offset, view_log
from kops.forensics.verify.checks.state import (
    check_epoch_file,
    check_epoch_order,
    check_files,
    check_partition_metadata,
    check_producers,
    snapshot_offsets,
)
from kops.forensics.verify.facts.facts import CRC, FULL, QUICK, SegmentFacts, scan_segment_facts
from kops.forensics.verify.facts.index import (
    IndexFile,
    IndexSamples,
    IndexSpacing,
    SegmentView,
    check_complete,
    check_entries,
    check_sanity,
    check_spacing,
    check_time_entries,
    measure_spacing,
    read_index,
)

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import PartitionDir


@dataclass(slots=True)
class SegmentTask:
    """The files to read: a `.log` and its indexes (None: missing, or not requested).

    `is_active`: the last segment of its partition; `is_dead`: in a directory that is being deleted; `clean_stop`: see `PartitionContext`;
    `size`: of the `.log`, in bytes; `indexes_are_made`: the indexes have just been made from this log, so their entries are compared only
    if the log is damaged.
    """

    path: str
    base_offset: int
    size: int
    level: str = CRC
    index_path: str | None = None
    time_index_path: str | None = None
    is_active: bool = False
    is_dead: bool = False
    clean_stop: bool | None = None
    indexes_only: bool = False
    indexes_are_made: bool = False

    @property
    def compares(self) -> bool:
        """Whether the indexes are compared with the log."""
        return self.indexes_only or self.level == FULL


@dataclass(slots=True)
class SegmentResult:
    """The result: the facts (None if the file could not be read) and the findings about the segment's indexes."""

    task: SegmentTask
    facts: SegmentFacts | None
    findings: list[Finding] = field(default_factory=list)
    spacing: IndexSpacing | None = None


def load_index(files: Files, path: str | None, kind: str, base_offset: int) -> IndexFile | None:
    """An index as it is, None if there is none. Raises OSError if it can't be read."""
    return read_index(files.read_all(path), kind, base_offset, path) if path is not None else None


def verify_segment(task: SegmentTask, files: Files, progress: Callable[[int], None] | None = None) -> SegmentResult:
    """Read one segment. Files that cannot be read are findings."""
    findings: list[Finding] = []
    index = _load(files, task.index_path, "index", task.base_offset, findings)
    time_index = _load(files, task.time_index_path, "timeindex", task.base_offset, findings)
    # Headers are enough to show that an index is right. Damaged batches are searched for only before it is called wrong.
    tries = [(QUICK, True), (CRC, True)] if task.indexes_only else [(task.level, task.compares)]
    if task.indexes_are_made:
        tries.insert(0, (task.level, False))
    for level, compares in tries:
        try:
            with files.open(task.path) as source:
                facts = scan_segment_facts(
                    source,
                    0,
                    None,
                    level,
                    index=index if compares else None,
                    time_index=time_index if compares else None,
                    producers=task.compares,
                    progress=progress,
                )
        except (OSError, KopsError) as error:
            return SegmentResult(task, None, [*findings, unreadable(task.path, error)])
        checked, spacing = check_indexes(task, facts, index, time_index, compares=compares)
        facts.samples = IndexSamples()
        if not checked and (compares or not (facts.damages or facts.backward)):
            break
        progress = None
    return SegmentResult(task, facts, findings + checked, spacing)


def _load(files: Files, path: str | None, kind: str, base_offset: int, findings: list[Finding]) -> IndexFile | None:
    try:
        return load_index(files, path, kind, base_offset)
    except (OSError, KopsError) as error:
        findings.append(unreadable(path or "", error))
        return None


def unreadable(path: str, error: OSError | KopsError) -> Finding:
    """The finding about a file that cannot be read, or is another one than it was, or is gone since it was listed."""
    if isinstance(error, FileNotFoundError):
        return finding("file-changed", path, "it is gone: it was deleted or renamed after the directory was listed")
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    is_changed = isinstance(error, OSError) and error.errno == errno.ESTALE
    return finding("file-changed" if is_changed else "file-unreadable", path, reason)


def check_indexes(
    task: SegmentTask, facts: SegmentFacts, index: IndexFile | None, time_index: IndexFile | None, *, compares: bool = True
) -> tuple[list[Finding], IndexSpacing | None]:
    """Findings about a segment's offset and time index, from the facts about the whole of its log; against its batches if the task says so
    and the facts have the batches at the entries (`compares`). Returns also the facts for judging the partition's indexes together
    (`check_spacing`)."""
    backward = facts.backward
    view = SegmentView(
        log_path=task.path,
        base_offset=task.base_offset,
        log_size=facts.size,
        last_offset=sane_last_offset(facts),
        max_timestamp=facts.max_timestamp,
        damaged=[(fact.position, fact.end) for fact in facts.damages] + [(found.before.position, found.after.end) for found in backward],
        is_active=task.is_active,
        clean_stop=task.clean_stop,
        has_timestamps=bool(facts.magics - {0}),
        is_dead=task.is_dead,
        is_disordered=bool(backward),
    )
    findings: list[Finding] = []
    for each in (index, time_index):
        if each is not None:
            findings += check_sanity(each, view)
    if task.compares:
        if not compares:
            return findings, measure_spacing(index, time_index, facts.samples, view)
        if index is not None:
            findings += check_entries(index, facts.samples, view)
        if time_index is not None:
            findings += check_time_entries(time_index, facts.samples, view)
        findings += check_complete(index, time_index, facts.samples, view)
        return findings, measure_spacing(index, time_index, facts.samples, view)
    return findings, None


def segment_tasks(partition: PartitionDir, level: str, context: PartitionContext) -> list[SegmentTask]:
    """Return the segments of a partition to read: its live ones, in order."""
    live = partition.live_segments
    tasks = []
    for segment in live:
        assert segment.log is not None, "a live segment has a log"
        index, time_index = segment.files.get("index"), segment.files.get("timeindex")
        tasks.append(
            SegmentTask(
                path=segment.log.path,
                base_offset=segment.base_offset,
                size=segment.log.size,
                level=level,
                index_path=index.path if index is not None else None,
                time_index_path=time_index.path if time_index is not None else None,
                is_active=segment is live[-1],
                is_dead=partition.state == "delete",
                clean_stop=context.clean_stop,
            )
        )
    return tasks


def check_partition(
    partition: PartitionDir, results: list[SegmentResult], context: PartitionContext, files: Files, level: str
) -> list[Finding]:
    """Everything about one partition: what its segments' facts say together, and at level `full` the files beside them."""
    findings = [found for result in results for found in result.findings]
    findings += check_spacing([result.spacing for result in results if result.spacing is not None])
    view = partition_view(partition, results, context)
    findings += check_log(view)
    findings += check_epoch_order(view)
    needs_time_index = any(segment.facts.magics & {2} for segment in view.segments) or any(
        "timeindex" in segment.files or segment.files.get("snapshot") for segment in partition.segments
    )
    known = needs_time_index or partition.file("leader-epoch-checkpoint") is not None
    findings += check_files(partition, files, needs_time_index=known, clean_stop=context.clean_stop)
    if level == FULL and partition.state != "delete":
        findings += _check_beside(partition, view, files)
    return findings


def partition_view(partition: PartitionDir, results: list[SegmentResult], context: PartitionContext) -> LogView:
    """The log as its live segments show it."""
    segments = [
        LogSegment(result.task.path, result.task.base_offset, result.facts, result.task.is_active)
        for result in results
        if result.facts is not None
    ]
    hints = [hint for hint in (context.recovery_point, context.high_watermark) if hint is not None]
    return view_log(partition.topic, segments, context, hints + snapshot_offsets(partition))


def _check_beside(partition: PartitionDir, view: LogView, files: Files) -> Iterator[Finding]:
    try:
        yield from check_epoch_file(partition, view, files)
        yield from check_producers(partition, view, files)
        yield from check_partition_metadata(partition, view, files)
    except OSError as error:
        yield unreadable(error.filename or partition.path, error)
