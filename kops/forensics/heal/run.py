"""`heal`: a repair that fills damage and gaps from other replicas.

    report = heal(["/broker-2"], ["/broker-1", "/broker-3"], mode="all")
    for each in report.partitions: print(each.directory, each.filled, each.lost)

The replicas are compared (`kops.forensics.replicas`). Batches that a damaged one lacks are taken from the others
(`kops.forensics.heal.fill`). The plan is that of `kops.forensics.repair`, with its lock, journal and rollback: indexes, snapshots and
epochs are rebuilt, and holes that no replica can fill are closed as by a repair. A later heal with other replicas can fill those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import UsageError
from kops.files import Files, OsFiles
from kops.forensics.heal.fill import Donor, Filling, Needs, fill_holes
from kops.forensics.inventory.topic_id import topic_id_of
from kops.forensics.inventory.tree import Inventory, PartitionDir, open_paths, refuse_foreign
from kops.forensics.plans.index_interval import infer_index_interval
from kops.forensics.plans.plan import Step
from kops.forensics.repair.log import MendedLog
from kops.forensics.repair.run import Mode, RepairReport, repair
from kops.forensics.replicas.compare import Branch
from kops.forensics.replicas.report import Range, count_offsets, without
from kops.forensics.replicas.run import Group, Replica, examine, group_replicas, known_epochs, log_files

__all__ = ["SCHEMA", "HealReport", "HealedPartition", "heal"]

SCHEMA: Final = "kops.heal/v1"


@dataclass(slots=True)
class HealedPartition:
    """One partition: `filled` are (first offset, last offset, directory they come from), `lost` the offsets that no replica could give."""

    directory: str
    filled: list[tuple[int, int, str]] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As in `kops.heal/v1`."""
        filled = [{"first_offset": first, "last_offset": last, "from": directory} for first, last, directory in self.filled]
        offsets = count_offsets((first, last) for first, last, _ in self.filled)
        return {"directory": self.directory, "filled": filled, "offsets": offsets, "lost": [list(each) for each in self.lost]}


@dataclass(slots=True)
class HealReport:
    """The repair, and what was filled, by partition. `alone` are directories of which no other path has a replica."""

    repair: RepairReport
    partitions: list[HealedPartition] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)

    @property
    def lossy(self) -> bool:
        """Whether offsets are lost in every replica."""
        return any(each.lost for each in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.heal/v1` without its schema."""
        partitions = [each.to_json() for each in self.partitions]
        return {"partitions": partitions, "alone": self.alone, **self.repair.to_json()}


def heal(
    paths: Sequence[str | os.PathLike[str]],
    sources: Sequence[str | os.PathLike[str]],
    *,
    mode: Mode = "plan",
    files: Files | None = None,
    journal: str | None = None,
    index_interval: int | None = None,
    now_ms: Callable[[], int] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_step: Callable[[int, int, Step], None] | None = None,
) -> HealReport:
    """Heal log directories, or partition directories, from other replicas. With mode `plan` nothing is written; `sources` are only read.

    Raises LockHeldError while a broker runs on one of the directories, NotFoundError, UsageError (no source has a replica, or one of them
    is to be healed itself), KopsError (no place for the journal), OSError.
    """
    reader = files if files is not None else OsFiles(read_only=True)
    _refuse_the_same(paths, sources, reader)
    others = open_paths(sources, reader)
    refuse_foreign(sources, others, reader)
    found: list[_Replicas] = []

    def donors(own: Files, inventory: Inventory) -> _Replicas:
        found.append(_Replicas(own, inventory, others, on_bytes))
        return found[-1]

    done = repair(
        paths, mode=mode, files=files, journal=journal, index_interval=index_interval, donors=donors, now_ms=now_ms, on_step=on_step
    )
    report = HealReport(done)
    for each in found:
        report.partitions = [
            HealedPartition(directory, filling.filled, filling.lost)
            for directory, filling in sorted(each.fillings.items())
            if filling.filled or filling.lost
        ]
        report.alone = each.alone
    return report


def _refuse_the_same(paths: Sequence[str | os.PathLike[str]], sources: Sequence[str | os.PathLike[str]], files: Files) -> None:
    healed = [os.path.realpath(files.absolute(os.fspath(path))) for path in paths]
    for source in sources:
        real = os.path.realpath(files.absolute(os.fspath(source)))
        for path in healed:
            if real == path or real.startswith(path + "/") or path.startswith(real + "/"):
                raise UsageError(f"--from {os.fspath(source)}: it is, or contains, a directory to heal")


class _Replicas:
    """The other replicas of the partitions under repair: `kops.forensics.repair.partition.Donors`."""

    def __init__(self, files: Files, inventory: Inventory, others: Inventory, on_bytes: Callable[[int], None] | None) -> None:
        self.files = files
        self.fillings: dict[str, Filling] = {}
        self.alone: list[str] = []
        self._on_bytes = on_bytes
        self._needs: dict[str, tuple[Needs, list[Donor]] | None] = {}
        self._own: dict[str, Group] = {}
        donors = {(group.topic, group.partition): group for group in group_replicas(others, files)}
        groups = group_replicas(inventory, files)
        only = len(groups) == 1 and len(donors) == 1 and not inventory.log_dirs and not others.log_dirs
        for group in groups:
            given = next(iter(donors.values())) if only else donors.get((group.topic, group.partition))
            for replica in group.replicas:
                same = self._of_the_same_topic(replica, given.replicas if given is not None else [])
                if same:
                    self._own[replica.folder.path] = Group(group.topic, group.partition, [replica, *same])
                else:
                    self.alone.append(replica.folder.path)
        if not self._own:
            raise UsageError("none of the directories of --from has a replica of a partition to heal")

    def _of_the_same_topic(self, replica: Replica, others: Sequence[Replica]) -> list[Replica]:
        own = topic_id_of(self.files, replica.folder)
        ids = [topic_id_of(self.files, other.folder) for other in others]
        if own is None:
            own = next((each for each in ids if each is not None), None)
        return [other for other, each in zip(others, ids, strict=True) if each is None or own is None or each == own]

    def topic_id(self, partition: PartitionDir) -> str | None:
        """The topic's id in the other replicas."""
        group = self._own.get(partition.path)
        ids = (topic_id_of(self.files, replica.folder) for replica in group.replicas[1:]) if group is not None else iter(())
        return next((each for each in ids if each is not None), None)

    def index_interval(self, partition: PartitionDir) -> int | None:
        """The topic's index.interval.bytes, inferred from the indexes of the first other replica."""
        group = self._own.get(partition.path)
        return infer_index_interval(self.files, group.replicas[1].folder) if group is not None else None

    def lacks(self, partition: PartitionDir) -> bool:
        """Whether the others have something that this directory lacks, or it has damage."""
        known = self._known(partition)
        return known is not None and (bool(known[0].ranges) or known[0].tail)

    def fill(self, partition: PartitionDir, mended: MendedLog) -> None:
        """Put the others' batches into the holes of the log."""
        known = self._known(partition)
        if known is not None:
            self.fillings[partition.path] = fill_holes(self.files, mended, *known)

    def _known(self, partition: PartitionDir) -> tuple[Needs, list[Donor]] | None:
        if partition.path not in self._needs:
            group = self._own.get(partition.path)
            self._needs[partition.path] = self._compare(group) if group is not None else None
        return self._needs[partition.path]

    def _compare(self, group: Group) -> tuple[Needs, list[Donor]]:
        seen, diff = examine(group, self.files, self._on_bytes)
        folder, context = group.replicas[0].folder, group.replicas[0].context
        own = diff.replicas[0]
        end = own.end_offset or 0
        ranges = [*without(own.missing, own.behind), *own.gone]
        closed = [
            (injury.hurt.base_offset or 0, injury.hurt.last_offset or 0)
            for injury in seen.walks[0].injuries
            if injury.hurt.code == "closed"
        ]
        wanted = without([*ranges, *closed], [])
        needs = Needs(folder.path, wanted, any(last >= end for _, last in wanted), known_epochs(self.files, folder))
        needs.misplaced = {(injury.hurt.path, injury.hurt.position) for injury in seen.walks[0].injuries if injury.hurt.code == "misplaced"}
        needs.compacted = any(walk.compacted for walk in seen.walks)
        needs.known_end = max(end, context.recovery_point or 0, context.high_watermark or 0)
        needs.orphans = [segment.base_offset for segment in folder.segments if not segment.suffix and segment.log is None]
        donors = [
            Donor(replica.folder.path, log_files(replica.folder), report.last_epoch, _leaves(seen.root, 0, number))
            for number, (replica, report) in enumerate(zip(group.replicas, diff.replicas, strict=True))
            if number
        ]
        return needs, donors


def _leaves(branch: Branch, own: int, other: int) -> int:
    """The offset at which the history of `other` leaves that of `own`."""
    if branch.parted is None:
        return (1 << 63) - 1
    for below in branch.branches:
        if own in below.members and other in below.members:
            return _leaves(below, own, other)
    sights = {sight.replica for sight in branch.parted.sights}
    # A replica without a batch there is on neither side.
    return branch.parted.first if own in sights and other in sights else (1 << 63) - 1
