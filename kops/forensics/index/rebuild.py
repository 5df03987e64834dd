"""`kops log index rebuild`: rebuilds offset, time and transaction indexes from their logs.

The broker's own loop rebuilds an index (`kops.storage.segments.recovery`, Kafka's LogSegment.recover and .append). On a leader of 3.9 or
4.x the result is what the broker wrote, byte for byte. `index.interval.bytes` is not in the directory; it is estimated from the intact
indexes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kops.errors import DecodeError, KopsError, UsageError
from kops.files import Files, OsFiles
from kops.forensics.findings.finding import Finding, sort_findings
from kops.forensics.index.check import KINDS, IndexReport, check_indexes, check_plan, unlisted
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.forensics.verify.facts.facts import CRC
from kops.forensics.verify.partition import unreadable
from kops.forensics.verify.run import PartitionPlan, plan_verify

if TYPE_CHECKING:
    from os import PathLike

    from kops.forensics.plans.journal import Journal
    from kops.forensics.plans.plan import Plan, Step
    from kops.storage.producers.state import ProducerState
    from kops.storage.segments.recovery import RebuiltIndexes


@dataclass(slots=True)
class Rebuilt:
    """One segment's indexes as they should be, and the existing ones (None: no such file). `note` says why they cover less than the whole
    log. `unreadable` names files that could not be read; indexes that depend on them are not in `indexes`."""

    segment: Segment
    partition: PartitionDir
    indexes: dict[str, bytes] = field(default_factory=dict)
    existing: dict[str, bytes | None] = field(default_factory=dict)
    note: str = ""
    unreadable: list[Finding] = field(default_factory=list)

    def path(self, kind: str) -> str:
        """Return the path of the index of this kind, which may not exist."""
        return os.path.join(self.partition.path, f"{self.segment.base_offset:020d}.{kind}")

    def differs(self, kind: str) -> bool:
        """Whether the file differs from that after a clean stop. A transaction index without entries need not exist."""
        existing = self.existing[kind]
        if kind == "txnindex":
            return (existing or b"") != self.indexes[kind]
        return existing != self.indexes[kind]


def rebuild_partition(
    partition: PartitionDir, files: Files, interval: int | None = None, progress: Callable[[int], None] | None = None
) -> Iterator[Rebuilt]:
    """Yield the indexes of each live segment as a broker would have written them.

    `interval`: `index.interval.bytes` (None: estimated from the intact indexes, else 4096). A damaged log gives entries up to the damage,
    and an unreadable one gives none. After it the producers are those of the next snapshot; without one no transaction index is made.
    """
    from kops.forensics.plans.index_interval import infer_index_interval
    from kops.storage.failures.load_errors import LoadError
    from kops.storage.producers.state import ProducerState
    from kops.storage.segments.recovery import rebuild_indexes

    wanted = infer_index_interval(files, partition) if interval is None else interval
    state: ProducerState | None = None
    for number, segment in enumerate(partition.live_segments):
        log = segment.log
        assert log is not None, "a live segment has a log"
        made = Rebuilt(segment, partition)
        if state is None:
            state = _state_before(segment, files)
        producers = state if state is not None else ProducerState()
        try:
            with files.open(log.path) as source:
                size = source.size()
                rebuilt: RebuiltIndexes = rebuild_indexes(source, segment.base_offset, wanted, producers=producers, path=log.path)
        except LoadError as error:
            made.note = f"{log.path}: the indexes can't be rebuilt: {error}"
            state = None
        except OSError as error:
            made.unreadable.append(unreadable(log.path, error))
            state = None
        else:
            made.indexes = {"index": rebuilt.index, "timeindex": rebuilt.timeindex}
            if state is not None or not number:
                made.indexes["txnindex"] = rebuilt.txnindex
                state = producers
            if rebuilt.damage is not None or rebuilt.valid_bytes < size:
                made.note = f"{log.path}: the log is damaged at {rebuilt.valid_bytes}, so its indexes end there"
            if progress is not None:
                progress(size)
        _read_existing(made, files)
        yield made


def _state_before(segment: Segment, files: Files) -> ProducerState | None:
    """The producers at the beginning of a segment, from the snapshot there; None if there is none."""
    from kops.storage.formats.producer_snapshot import read_producer_snapshot
    from kops.storage.producers.state import load_snapshot

    entry = segment.files.get("snapshot")
    if entry is None:
        return None
    try:
        state = load_snapshot(read_producer_snapshot(files.read_all(entry.path), file=entry.path))
    except (DecodeError, OSError):
        return None  # As in a broker: without it.
    state.map_end_offset = segment.base_offset
    return state


def _read_existing(made: Rebuilt, files: Files) -> None:
    for kind in KINDS:
        entry = made.segment.files.get(kind)
        try:
            made.existing[kind] = files.read_all(entry.path) if entry is not None else None
        except OSError as error:
            made.unreadable.append(unreadable(made.path(kind), error))
            made.indexes.pop(kind, None)


@dataclass(slots=True)
class RebuildReport:
    """The result of `rebuild`: a plan for each log directory, the journals of applied plans, notes, and the remaining problems."""

    plans: list[Plan] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    applied: bool = False

    @property
    def steps(self) -> list[Step]:
        """All steps."""
        return [step for plan in self.plans for step in plan.steps]


def plan_rebuild(
    paths: Sequence[str | PathLike[str]],
    *,
    everything: bool = False,
    interval: int | None = None,
    files: Files | None = None,
    progress: Callable[[int], None] | None = None,
) -> RebuildReport:
    """Return the indexes to write: the wrong ones, or, with `everything`, all that a broker would now write differently.

    Opens nothing for writing. Raises `NotFoundError` for a missing path, `UsageError` for a file, `KopsError` if nothing can be read.
    """
    from kops.forensics.plans.plan import Plan

    reader = files if files is not None else OsFiles(read_only=True)
    checked = plan_verify(paths, CRC, reader)
    if checked.inventory.loose_files:
        raise UsageError(f"{checked.inventory.loose_files[0].path}: is a file; name its partition directory")
    if not checked.partitions and checked.inventory.problems:
        raise KopsError(f"{checked.inventory.problems[0].path}: {checked.inventory.problems[0].reason}")
    report = RebuildReport()
    # If everything is rebuilt, no check is needed first. That saves a pass over the logs.
    found = IndexReport(checked.paths, findings=unlisted(checked)) if everything else check_plan(checked, 1, reader, progress)
    wrong_paths = {problem.file for problem in found.problems}
    by_dir: dict[str, Plan] = {}
    for each in checked.partitions:
        if each.partition.state == "delete":
            continue
        plan = by_dir.setdefault(_lock_dir(each), Plan(_lock_dir(each)))
        if everything or any(os.path.dirname(path) == each.partition.path for path in wrong_paths):
            _plan_partition(each, plan, report, reader, everything, interval, wrong_paths)
        plan.findings += [problem for problem in found.problems if os.path.dirname(problem.file) == each.partition.path]
    report.plans = [plan for plan in by_dir.values() if plan.steps or plan.findings]
    planned = {step.path for step in report.steps}
    report.left = sort_findings([*report.left, *(problem for problem in found.problems if problem.file not in planned)])
    return report


def _plan_partition(
    each: PartitionPlan,
    plan: Plan,
    report: RebuildReport,
    files: Files,
    everything: bool,
    interval: int | None,
    wrong: set[str],
) -> None:
    from kops.forensics.plans.plan import Data, Put, Remove

    needs_time = any("timeindex" in segment.files for segment in each.partition.segments) or (
        each.partition.file("leader-epoch-checkpoint") is not None
    )
    for rebuilt in rebuild_partition(each.partition, files, interval):
        report.left += [each for each in rebuilt.unreadable if each.file not in wrong]
        touched = False
        for kind in KINDS:
            path = rebuilt.path(kind)
            if kind not in rebuilt.indexes or not rebuilt.differs(kind) or (kind == "timeindex" and not needs_time and path not in wrong):
                continue
            if not everything and path not in wrong:
                continue
            touched = True
            size = len(rebuilt.indexes[kind])
            why = f"{size} bytes, made from the log" + ("" if rebuilt.existing[kind] is not None else "; there was none")
            if kind == "txnindex" and not size:
                plan.steps.append(Remove(path, "remove-index", "the log has no aborted transaction in this segment", True))
            else:
                plan.steps.append(Put(path, "rebuild-index", why, True, (Data(rebuilt.indexes[kind]),)))
        if rebuilt.note and (touched or not rebuilt.indexes):
            report.notes.append(rebuilt.note)


def _lock_dir(each: PartitionPlan) -> str:
    """The directory whose `.lock` a broker would hold: the log directory around a partition."""
    return os.path.dirname(os.path.normpath(os.path.abspath(each.partition.path)))


def apply_rebuild(
    report: RebuildReport,
    paths: Sequence[str | PathLike[str]],
    *,
    files: Files | None = None,
    journal: str | None = None,
    on_step: Callable[[int, int, Step], None] | None = None,
) -> None:
    """Carry out the plan under the lock of each log directory, with a journal that `kops log repair --rollback` undoes.

    Raises `LockHeldError` while a broker holds a lock; then nothing in that directory changes.
    """
    from kops.forensics.plans.journal import apply_plan, locked

    writer = files if files is not None else OsFiles()
    for plan in report.plans:
        if plan.empty:
            continue
        with locked(writer, plan.log_dir):
            done = apply_plan(writer, plan, journal=journal, on_step=on_step)
        if done is not None:
            report.journals.append(done)
    report.applied = True
    report.left = check_indexes(paths, files=files).problems
