"""`kops log index check`: checks every offset, time and transaction index against its log; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.files import Files, OsFiles
from kops.forensics.findings.finding import Finding, finding, sort_findings
from kops.forensics.inventory.tree import PartitionDir
from kops.forensics.verify.checks.state import check_files, check_transactions
from kops.forensics.verify.facts.facts import CRC
from kops.forensics.verify.facts.index import check_spacing
from kops.forensics.verify.jobs import run_tasks
from kops.forensics.verify.partition import SegmentResult, partition_view
from kops.forensics.verify.run import PartitionPlan, VerifyPlan, plan_verify

if TYPE_CHECKING:
    from os import PathLike

KINDS: Final = ("index", "timeindex", "txnindex")
CODES: Final = frozenset(
    (
        "index-missing",
        "time-index-missing",
        "index-size-odd",
        "index-disorder",
        "index-entry-wrong",
        "index-beyond-log",
        "index-zero-tail",
        "index-preallocated",
        "index-incomplete",
        "transaction-index-malformed",
        "transaction-index-wrong",
        "transaction-index-missing",
        "file-unreadable",
        "log-file-missing",
    )
)
"""The findings about indexes."""


@dataclass(slots=True)
class IndexReport:
    """The result of `check_indexes`. `indexes` is the number of checked index files; `segments` and `bytes` count what was read of the
    logs."""

    paths: list[str]
    segments: int = 0
    indexes: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> list[Finding]:
        """Errors and warnings."""
        return [found for found in self.findings if found.is_problem]

    def to_json(self) -> dict[str, object]:
        """The document `kops.index-check/v1`, without its schema."""
        findings = [found.to_json() for found in self.findings]
        return {"paths": self.paths, "segments": self.segments, "indexes": self.indexes, "bytes": self.bytes, "findings": findings}


def check_indexes(
    paths: Sequence[str | PathLike[str]],
    *,
    jobs: int = 1,
    files: Files | None = None,
    progress: Callable[[int], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> IndexReport:
    """Check every index of the paths against its log; read-only. Raises `NotFoundError` for a missing path."""
    reader = files if files is not None else OsFiles(read_only=True)
    plan = plan_verify(paths, CRC, reader)
    return check_plan(plan, jobs if files is None else 1, reader, progress, on_start)


def check_plan(
    plan: VerifyPlan,
    jobs: int,
    files: Files,
    progress: Callable[[int], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> IndexReport:
    """Do the same for the result of `plan_verify`."""
    for task in plan.tasks:
        task.indexes_only = True
    if on_start is not None:
        on_start(sum(task.size for task in plan.tasks))
    results = {result.task.path: result for result in run_tasks(plan.tasks, files, jobs, None, progress)}
    report = IndexReport(plan.paths)
    findings = unlisted(plan)
    for each in plan.partitions:
        found = [results[task.path] for task in each.tasks]
        report.segments += len(found)
        report.bytes += sum(result.facts.scanned_to for result in found if result.facts is not None)
        report.indexes += sum(1 for segment in each.partition.segments for kind in KINDS if segment.suffix == "" and kind in segment.files)
        findings += _check_partition(each, found, files)
    report.findings = sort_findings(found for found in findings if found.code in CODES)
    return report


def unlisted(plan: VerifyPlan) -> list[Finding]:
    """The paths that could not be listed."""
    return [finding("file-unreadable", problem.path, problem.reason) for problem in plan.inventory.problems]


def _check_partition(each: PartitionPlan, results: list[SegmentResult], files: Files) -> Iterator[Finding]:
    for result in results:
        yield from result.findings
    yield from check_spacing([result.spacing for result in results if result.spacing is not None])
    if each.is_loose:
        return  # Files that were not named are not missing.
    needs_time_index = has_time_indexes(each.partition, results)
    yield from check_files(each.partition, files, needs_time_index=needs_time_index, clean_stop=each.context.clean_stop)
    if each.partition.state != "delete":
        yield from check_transactions(each.partition, partition_view(each.partition, results, each.context), files)


def has_time_indexes(partition: PartitionDir, results: list[SegmentResult]) -> bool:
    """Whether the partition was written by a version that has time indexes (0.10.1)."""
    return (
        partition.file("leader-epoch-checkpoint") is not None
        or any("timeindex" in segment.files for segment in partition.segments)
        or any(result.facts is not None and 2 in result.facts.magics for result in results)
    )
