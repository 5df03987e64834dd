"""Repair: scan, facts, findings, plan, apply, and scan again.

    plans = plan_repair(["/var/lib/kafka"])
    report = repair(["/var/lib/kafka"], mode="all")

Findings of `verify` at level `full` become steps. The result of the steps is verified without changing a file
(`kops.forensics.plans.plan.PlannedFiles`), and this repeats until nothing more can be repaired. Only `apply_plan` writes, under the lock
that a broker takes, with a journal (`kops.forensics.plans.journal`). A log keeps every intact batch at its offset, so that a broker's
recovery, after a clean stop or a crash, keeps them, too.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kops.errors import DecodeError, UsageError
from kops.files import Files, OsFiles
from kops.forensics.findings.finding import Finding
from kops.forensics.inventory.tree import BROKER_FILES, Inventory, LogDir, PartitionDir, open_paths
from kops.forensics.plans.checked import CheckedFiles
from kops.forensics.plans.journal import Journal, apply_plan, locked, open_journal, resume, rollback, unfinished_journals
from kops.forensics.plans.plan import Move, Plan, PlannedFiles, Step
from kops.forensics.repair.dirs import DIR_CODES, DirRepair
from kops.forensics.repair.partition import Donors, PartitionRepair, Steps
from kops.forensics.repair.topics import TopicIds
from kops.forensics.verify.facts.facts import FULL
from kops.forensics.verify.partition import SegmentResult, verify_segment
from kops.forensics.verify.run import check_plan, plan_verify, verify
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.meta_properties import MetaProperties, read_meta_properties
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT

__all__ = ["MODES", "RepairReport", "apply_plan", "locked", "open_journal", "plan_repair", "repair", "rollback"]

Mode = Literal["plan", "preen", "all"]
MODES: Final = ("plan", "preen", "all")
FindDonors = Callable[[Files, Inventory], Donors]
"""Finds other replicas of the partitions under repair."""
BETWEEN_DIRS: Final = frozenset(("meta-properties-differ", "partition-twice"))
"""Findings that concern several log directories together."""
DIRECTORY_CODES: Final = frozenset(("directory-name-invalid",))
"""Findings about a directory as such."""
_ROUNDS: Final = 10


@dataclass(slots=True)
class RepairReport:
    """The result of a repair. `journals` are those of applied plans. `left` are the remaining problems (in mode `plan`, those that would
    remain)."""

    mode: str
    plans: list[Plan] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return sum(len(plan.steps) for plan in self.plans)

    @property
    def fixed(self) -> bool:
        """Whether anything was done."""
        return bool(self.journals or self.resumed)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.repair/v1` without its schema."""
        return {
            "mode": self.mode,
            "plans": [plan.to_json() for plan in self.plans],
            "journals": [journal.path for journal in self.journals],
            "resumed": self.resumed,
            "left": [found.to_json() for found in self.left],
        }


@dataclass(slots=True)
class _Target:
    """The unit of a repair: a log directory, or the folder around partitions that were given on their own."""

    path: str
    log_dir: LogDir | None
    partitions: list[PartitionDir]
    paths: list[str]


def plan_repair(
    paths: Sequence[str | os.PathLike[str]],
    *,
    mode: Mode = "all",
    files: Files | None = None,
    index_interval: int | None = None,
    keep_holes: bool = False,
    donors: FindDonors | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> list[Plan]:
    """Plan the repair of log directories, or of partition directories: one plan for each log directory. Nothing is written.

    `mode`: `all`, or `preen` for only steps that lose nothing. `index_interval`: the topics' index.interval.bytes (default: estimated from
    the indexes). `keep_holes`: leave holes in the offsets open, for brokers before 0.11, which cannot read the empty batches that close
    them. `donors` finds other replicas that fill holes. Raises NotFoundError, UsageError (a path that is neither), OSError.
    """
    reader = CheckedFiles(files if files is not None else OsFiles(read_only=True))
    targets, inventory = _targets(paths, reader)
    reader.keep(partition.path for target in targets for partition in target.partitions)
    topics = TopicIds(reader, inventory)
    metas = _metas(reader, inventory)
    found = donors(reader, inventory) if donors is not None else None
    plans = [_plan(reader, target, topics, metas, mode == "preen", index_interval, keep_holes, found, on_bytes) for target in targets]
    if len(plans) > 1:
        _add_disagreements(reader, plans, [path for target in targets for path in target.paths])
    return plans


def _add_disagreements(files: Files, plans: Sequence[Plan], paths: Sequence[str]) -> None:
    """Add contradictions between log directories. Nothing on the disk shows which of them is right."""
    for found in verify(paths, "full", files=files).findings:
        if found.code in BETWEEN_DIRS:
            plan = next((plan for plan in plans if found.file.startswith(plan.log_dir.rstrip("/") + "/")), plans[0])
            plan.findings.append(found)
            plan.left.append(found)


def repair(
    paths: Sequence[str | os.PathLike[str]],
    *,
    mode: Mode = "plan",
    files: Files | None = None,
    journal: str | None = None,
    index_interval: int | None = None,
    keep_holes: bool = False,
    donors: FindDonors | None = None,
    now_ms: Callable[[], int] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_step: Callable[[int, int, Step], None] | None = None,
) -> RepairReport:
    """Plan and, unless `mode` is `plan`, apply. An interrupted repair is finished first.

    Raises LockHeldError while a broker runs on one of the directories, NotFoundError, UsageError, KopsError (no place for the journal),
    OSError.
    """
    if mode not in MODES:
        raise UsageError(f"mode {mode}: must be one of {', '.join(MODES)}")
    writer = files if files is not None else OsFiles(read_only=mode == "plan")
    targets, _ = _targets(paths, writer)
    report = RepairReport(mode)
    if mode == "plan":
        for target in targets:
            report.resumed += [found.path for found in unfinished_journals(writer, target.path, journal)]
        report.plans = plan_repair(
            paths, files=writer, index_interval=index_interval, keep_holes=keep_holes, donors=donors, on_bytes=on_bytes
        )
        report.left = [found for plan in report.plans for found in plan.left]
        return report
    with ExitStack() as locks:
        for target in targets:
            locks.enter_context(_lock(writer, target))
        for target in targets:
            for found in unfinished_journals(writer, target.path, journal):
                resume(writer, found, on_step)
                report.resumed.append(found.path)
        report.plans = plan_repair(
            paths, mode=mode, files=writer, index_interval=index_interval, keep_holes=keep_holes, donors=donors, on_bytes=on_bytes
        )
        for plan in report.plans:
            done = apply_plan(writer, plan, journal=journal, now_ms=now_ms, on_step=on_step)
            if done is not None:
                report.journals.append(done)
        for target, plan in zip(targets, report.plans, strict=True):
            again = verify(target.paths, "full", files=writer).findings if plan.steps else plan.left
            report.left += [found for found in again if found.is_problem and found.code not in BETWEEN_DIRS]
            report.left += [found for found in plan.left if found.code in BETWEEN_DIRS]
    return report


def _lock(files: Files, target: _Target) -> Any:
    """Take the lock of a log directory. A directory without broker files is not a log directory, so no broker can hold its lock."""
    return locked(files, target.path) if target.log_dir is not None else ExitStack()


def _targets(paths: Sequence[str | os.PathLike[str]], files: Files) -> tuple[list[_Target], Inventory]:
    inventory = open_paths(paths, files)
    if inventory.loose_files:
        raise UsageError(f"{inventory.loose_files[0].path}: is a file; repair takes log directories and partition directories")
    if not inventory.log_dirs and not inventory.loose_partitions:
        raise UsageError(f"{os.fspath(paths[0])}: not a log directory or a partition directory")
    targets = [_Target(log_dir.path, log_dir, log_dir.partitions, [log_dir.path]) for log_dir in inventory.log_dirs]
    around: dict[str, _Target] = {}
    for partition in inventory.loose_partitions:
        parent = posixpath.dirname(files.absolute(partition.path))
        target = around.get(parent)
        if target is None:
            log_dir = LogDir(parent) if set(files.list(parent)) & set(BROKER_FILES) else None
            target = around[parent] = _Target(parent, log_dir, [], [])
            targets.append(target)
        target.partitions.append(partition)
        target.paths.append(partition.path)
        if target.log_dir is not None:
            target.log_dir.partitions.append(partition)  # The directory's checkpoints name it.
    return targets, inventory


def _metas(files: Files, inventory: Inventory) -> dict[str, MetaProperties]:
    """The readable meta.properties, by log directory."""
    found = {}
    for log_dir in inventory.log_dirs:
        entry = log_dir.file("meta-properties")
        if entry is None:
            continue
        try:
            meta = read_meta_properties(files.read_all(entry.path), file=entry.path)
        except (DecodeError, IsADirectoryError):
            continue
        if meta.cluster_id is not None and meta.node_id is not None:
            found[log_dir.path] = meta
    return found


def _plan(
    files: Files,
    target: _Target,
    topics: TopicIds,
    metas: dict[str, MetaProperties],
    preen: bool,
    index_interval: int | None,
    keep_holes: bool,
    donors: Donors | None,
    on_bytes: Callable[[int], None] | None,
) -> Plan:
    steps = Steps()
    plan = Plan(target.path)
    look = _Look(files, target.paths, on_bytes)
    findings = plan.findings = look.problems(())
    starts = _log_starts(files, target)
    partitions = [
        PartitionRepair(
            files,
            partition,
            steps,
            preen=preen,
            topic_id=topics.of(partition) or (donors.topic_id(partition) if donors is not None else None),
            index_interval=index_interval,
            keep_holes=keep_holes,
            log_start=max(0, starts.get((partition.topic, partition.partition), 0)) if partition.topic is not None else 0,
            donors=donors,
        )
        for partition in target.partitions
    ]
    log_dir = target.log_dir
    parent = os.path.dirname(os.path.normpath(os.path.abspath(target.path)))
    siblings = [meta for path, meta in metas.items() if path != target.path and os.path.dirname(os.path.abspath(path)) == parent]
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    own = DirRepair(files, log_dir, steps, siblings=siblings, brokers=topics.brokers, date=date) if log_dir is not None else None
    healed = [partition.heal() for partition in partitions]
    if any(healed):
        findings = look.problems(steps.ordered())
    for _ in range(_ROUNDS):
        if not findings or not _round(files, findings, partitions, own):
            break
        findings = look.problems(steps.ordered())
    plan.steps = steps.ordered()
    plan.left = findings
    planned = PlannedFiles(files, plan.steps)  # A foreign directory in the log directory itself is removed; the next repair goes on.
    blocked = sorted({found.file for found in findings if found.code not in DIRECTORY_CODES and _is_blocked(planned, found.file)})
    plan.notes += [f"{path}: is a directory, so the file that belongs there can't be written" for path in blocked]
    for partition in partitions:
        plan.notes += partition.notes
        plan.lossy_held_back += partition.held_back
    return plan


class _Look:
    """`verify` at level full on what a plan would leave, repeatedly. Files that no step changes are read once."""

    def __init__(self, files: Files, paths: Sequence[str], on_bytes: Callable[[int], None] | None) -> None:
        self.files = files
        self.paths = paths
        self.on_bytes = on_bytes
        self._known: dict[str, SegmentResult] = {}

    def problems(self, steps: Sequence[Step]) -> list[Finding]:
        """Return the problems after these steps."""
        planned = PlannedFiles(self.files, steps)
        touched = {self.files.absolute(step.path) for step in steps}
        touched |= {self.files.absolute(step.target) for step in steps if isinstance(step, Move)}
        plan = plan_verify(self.paths, FULL, planned)
        results: dict[str, SegmentResult] = {}
        made = {self.files.absolute(step.path) for step in steps if step.action in ("rebuild-index", "rebuild-time-index")}
        for task in plan.tasks:
            indexes = {self.files.absolute(path) for path in (task.index_path, task.time_index_path) if path is not None}
            task.indexes_are_made = len(indexes) == 2 and indexes <= made
            places = {self.files.absolute(task.path), *indexes}
            known = self._known.get(task.path)
            if known is None or known.task != task or places & touched:
                known = verify_segment(task, planned, self.on_bytes if not steps else None)
                if not places & touched:
                    self._known[task.path] = known
            results[task.path] = known
        return [found for found in check_plan(plan, results, planned) if found.is_problem]


def _log_starts(files: Files, target: _Target) -> dict[tuple[str, int], int]:
    """log-start-offset-checkpoint, as far as it can be read."""
    path = posixpath.join(target.path, LOG_START_OFFSET_CHECKPOINT)
    try:
        return {(key.topic, key.partition): offset for key, offset in read_offset_checkpoint(files.read_all(path), file=path).items()}
    except (DecodeError, OSError):
        return {}


def _is_blocked(files: Files, path: str) -> bool:
    """Whether a directory is in the place of records or of a broker's file, so that nothing can be written there.

    A directory in the place of a partition's other files is taken away: they are rebuilt from the records, and a rollback gives it back.
    """
    name = posixpath.basename(path)
    return (name.endswith(".log") or name in BROKER_FILES) and files.exists(path) and files.stat(path).is_dir


def _round(files: Files, findings: Sequence[Finding], partitions: Sequence[PartitionRepair], own: DirRepair | None) -> bool:
    """Collect steps from all parts. Returns whether there are new ones."""
    changed = False
    rest = [found for found in findings if found.code in DIRECTORY_CODES or not _is_blocked(files, found.file)]
    for partition in partitions:
        prefix = partition.partition.path.rstrip("/") + "/"
        mine = [found for found in rest if found.file.startswith(prefix)]
        if mine:
            changed |= partition.propose(mine)
            taken = {id(found) for found in mine}
            rest = [found for found in rest if id(found) not in taken or found.code in DIR_CODES]
    # The directory's own files are compared with the planned logs, so they come last.
    if own is not None and rest and not changed:
        changed = own.propose(rest)
    return changed
