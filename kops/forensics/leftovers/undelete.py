"""Restores what Kafka renamed for deletion: `.deleted`, `.cleaned` and `.swap` segments, `-delete` and `-stray` directories.

    report = undelete(["/var/lib/kafka"], apply=True)

Every step is a rename, carried out by the journal of `kops log repair`, which can be continued and undone. A segment is restored only if
its offsets are missing and the log gets no holes and no overlaps. log-start-offset-checkpoint and leader-epoch-checkpoint then get the
values of the longer log (LogManager, LeaderEpochFileCache). A directory is restored only if no other has its name, and the cluster's
metadata has no other topic of that name.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files, OsFiles
from kops.forensics.inventory.topic_id import topic_id_of
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.forensics.leftovers.places import STATES, Contents, Place, contents_of, log_starts, places
from kops.forensics.plans.journal import Journal, apply_plan, locked, resume, unfinished_journals
from kops.forensics.plans.plan import Data, Move, Plan, Put, Step
from kops.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from kops.storage.formats.names import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT

__all__ = ["SCHEMA", "Refused", "UndeleteReport", "undelete"]

SCHEMA: Final = "kops.undelete/v1"


@dataclass(slots=True)
class Refused:
    """A leftover that is not restored, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class UndeleteReport:
    """Plans with steps, the leftovers that are not restored, the journals of applied plans, and directories that can't be listed."""

    plans: list[Plan] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return sum(len(plan.steps) for plan in self.plans)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.undelete/v1` without its schema."""
        return {
            "plans": [{key: value for key, value in plan.to_json().items() if key in ("log_dir", "steps", "notes")} for plan in self.plans],
            "refused": [{"path": each.path, "reason": each.reason} for each in self.refused],
            "journals": [journal.path for journal in self.journals],
            "resumed": self.resumed,
            "unreadable": self.unreadable,
        }


def undelete(
    paths: Sequence[str | os.PathLike[str]],
    *,
    apply: bool = False,
    allow_gaps: bool = False,
    files: Files | None = None,
    journal: str | None = None,
    now_ms: Callable[[], int] | None = None,
    on_step: Callable[[int, int, Step], None] | None = None,
) -> UndeleteReport:
    """Plan and, with `apply`, restore what fits. An interrupted repair is finished first.

    `allow_gaps`: also restore segments with missing offsets between them and the log. Raises LockHeldError while a broker runs,
    NotFoundError, UsageError, OSError.
    """
    writer = files if files is not None else OsFiles(read_only=not apply)
    report = UndeleteReport()
    with ExitStack() as locks:
        if apply:
            for place in places(paths, writer, []):
                if place.is_log_dir:
                    locks.enter_context(locked(writer, place.path))
                for found in unfinished_journals(writer, place.path, journal):
                    resume(writer, found, on_step)
                    report.resumed.append(found.path)
        for place in places(paths, writer, report.unreadable):
            plan = Plan(place.path)
            starts: dict[tuple[str, int], int] = {}
            for partition in place.chosen:
                if partition.state in STATES:
                    _directory(writer, place, partition, plan, report)
                else:
                    _segments(writer, place, partition, plan, report, starts, allow_gaps)
            _lower_starts(writer, place, plan, starts)
            report.plans.append(plan)
            done = apply_plan(writer, plan, journal=journal, now_ms=now_ms, on_step=on_step) if apply else None
            if done is not None:
                report.journals.append(done)
    return report


# Directories.


def _directory(files: Files, place: Place, partition: PartitionDir, plan: Plan, report: UndeleteReport) -> None:
    path = files.absolute(partition.path)
    target = posixpath.join(place.path, partition.name)
    reason = ""
    if files.exists(target):
        reason = f"{target} exists; kops log recover copies the records of this one"
    elif any(isinstance(step, Move) and step.target == target for step in plan.steps):
        reason = f"another directory of {partition.name} is restored; name this one alone to choose it"
    else:
        reason = _identity(files, place, partition, plan)
    if reason:
        report.refused.append(Refused(partition.path, reason))
        return
    why = "the partition was deleted" if partition.state == "delete" else "a broker did not know the partition when it started"
    plan.steps.append(Move(path, "undelete-directory", why, True, target))


def _identity(files: Files, place: Place, partition: PartitionDir, plan: Plan) -> str:
    """Return why a broker of this cluster would not accept the directory, or "". Mere possibilities become notes."""
    own = topic_id_of(files, partition)
    image = place.image
    if own is None:
        plan.notes.append(f"{partition.path}: partition.metadata is missing, so a broker treats it as stray; kops log repair writes it")
        return ""
    if image is None:
        plan.notes.append(f"{partition.path}: a broker keeps it only if the cluster has the topic {partition.topic} with id {own}")
        return ""
    other = [known for known, name in image.topics.items() if name == partition.topic and known != own]
    if other:
        return (
            f"the cluster has another topic {partition.topic} (id {other[0]}, not {own}); kops log recover copies the records of this one"
        )
    if own not in image.topics:
        plan.notes.append(
            f"{partition.path}: the cluster has no topic with id {own} any more; a broker that starts treats it as stray again"
        )
        return ""
    registration = image.partitions.get((own, partition.partition))
    if registration is not None and place.node_id is not None and place.node_id not in registration.replicas:
        plan.notes.append(
            f"{partition.path}: the partition belongs to the brokers {registration.replicas}; this one treats it as stray again"
        )
    return ""


# Segments.


def _segments(
    files: Files,
    place: Place,
    partition: PartitionDir,
    plan: Plan,
    report: UndeleteReport,
    starts: dict[tuple[str, int], int],
    allow_gaps: bool,
) -> None:
    left = [each for each in partition.segments if each.suffix]
    for each in left:
        if each.log is None:
            report.refused.append(Refused(next(iter(each.files.values())).path, "its .log is gone, so there is nothing to restore"))
    candidates = [each for each in left if each.log is not None]
    if not candidates:
        return
    live = _Live(files, partition)
    taken: list[tuple[Segment, Contents]] = []
    # From the log outwards: the nearest segments come first, so that the others can join them.
    for segment in sorted(candidates, key=lambda each: (-each.base_offset, each.suffix)):
        found = contents_of(files, segment)
        reason = live.refuses(segment, found, allow_gaps)
        if reason:
            assert segment.log is not None
            report.refused.append(Refused(segment.log.path, reason))
            continue
        live.add(segment, found)
        taken.append((segment, found))
    for segment, _ in sorted(taken, key=lambda each: each[0].base_offset):
        for entry in segment.files.values():
            target = entry.path.removesuffix(segment.suffix)
            if files.exists(target):
                report.refused.append(Refused(entry.path, f"{posixpath.basename(target)} exists"))
                continue
            why = f"its offsets are not in the log any more; it was renamed to {segment.suffix}"
            plan.steps.append(Move(files.absolute(entry.path), "undelete-segment", why, True, files.absolute(target)))
    if taken:
        _epochs(files, partition, plan, [found for _, found in taken])
        if partition.topic is not None:
            first = min(found.first for _, found in taken)
            starts[(partition.topic, partition.partition)] = first
        plan.notes.append(f"{partition.name}: retention deletes it again if the topic's settings stay as they are (kops log why-deleted)")


class _Live:
    """The offsets that a partition's log has: ranges [first, end) by segment, including restored ones."""

    def __init__(self, files: Files, partition: PartitionDir) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.names = {each.base_offset for each in partition.live_segments}
        segments = partition.live_segments
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            end = following if following is not None else max(contents_of(files, segment).last + 1, segment.base_offset)
            self.ranges.append((segment.base_offset, end))

    def refuses(self, segment: Segment, found: Contents, allow_gaps: bool) -> str:
        """Return why the segment does not fit, or ""."""
        if found.problem:
            return f"{found.problem}; kops log recover saves the intact batches"
        if not found.batches:
            return "it is empty"
        if segment.base_offset in self.names:
            return "a segment of that name is in the log"
        covering = next((each for each in self.ranges if each[0] <= found.last and segment.base_offset < each[1]), None)
        if covering is not None:
            return f"the log already has the offsets {covering[0]} to {covering[1] - 1}, and this one has {found.first} to {found.last}"
        above = min((first for first, _ in self.ranges if first > found.last), default=None)
        below = max((end for _, end in self.ranges if end <= segment.base_offset), default=None)
        if above is None and below is not None:
            return f"it is beyond the log's end ({below}): it was cut off, and the log may have continued with other records"
        if above is not None and above > found.last + 1 and not allow_gaps:
            return f"offsets {found.last + 1} to {above - 1} are missing between it and the log; --allow-gaps restores it nevertheless"
        return ""

    def add(self, segment: Segment, found: Contents) -> None:
        """Record that the log has it now."""
        self.ranges.append((segment.base_offset, found.last + 1))
        self.names.add(segment.base_offset)


def _epochs(files: Files, partition: PartitionDir, plan: Plan, taken: Sequence[Contents]) -> None:
    """Add the epochs of restored segments to leader-epoch-checkpoint."""
    path = posixpath.join(files.absolute(partition.path), LEADER_EPOCH_CHECKPOINT)
    try:
        entries = read_leader_epoch_checkpoint(files.read_all(path), file=path) if files.exists(path) else []
    except DecodeError:
        plan.notes.append(f"{path}: cannot be read; kops log repair rebuilds it")
        return
    lowest = {entry.epoch: entry.start_offset for entry in entries}
    for found in taken:
        for entry in found.epochs:
            lowest[entry.epoch] = min(entry.start_offset, lowest.get(entry.epoch, entry.start_offset))
    merged = [EpochEntry(epoch, start) for epoch, start in sorted(lowest.items())]
    if merged != entries:
        data = write_leader_epoch_checkpoint(merged)
        plan.steps.append(Put(path, "write-epochs", "it must have the epochs of the restored segments", True, (Data(data),)))


def _lower_starts(files: Files, place: Place, plan: Plan, starts: dict[tuple[str, int], int]) -> None:
    """Lower the offsets in log-start-offset-checkpoint: a broker deletes segments below them again."""
    known = log_starts(files, place)
    changed = {name: first for name, first in starts.items() if known.get(name, 0) > first}
    if not changed:
        return
    path = posixpath.join(place.path, LOG_START_OFFSET_CHECKPOINT)
    offsets = read_offset_checkpoint(files.read_all(path), file=path)
    lowered = {key: changed.get((key.topic, key.partition), offset) for key, offset in offsets.items()}
    data = write_offset_checkpoint(lowered)
    plan.steps.append(Put(path, "write-checkpoint", "a broker deletes segments below the log start offset again", True, (Data(data),)))
