"""`diff`: finds replicas of the same partitions in directories, and compares them.

    report = diff(["/broker-1", "/broker-2", "/broker-3"])
    for found in report.findings: print(found.code, found.file, found.base_offset, found.detail)

A directory is a broker's log directory, a partition directory, or a directory of those. Replicas are partition directories of the same
name. Partition directories that the user names are replicas of each other if their names tell nothing. Read-only.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kops.errors import DecodeError, KopsError, UsageError
from kops.files import Files, OsFiles
from kops.forensics.findings.finding import finding, sort_findings
from kops.forensics.inventory.topic_id import topic_id_of
from kops.forensics.inventory.tree import Inventory, PartitionDir, open_paths, refuse_foreign
from kops.forensics.replicas.compare import Comparison, compare
from kops.forensics.replicas.judge import Beside, judge
from kops.forensics.replicas.report import DiffReport, PartitionDiff
from kops.forensics.replicas.slices import Summary
from kops.forensics.replicas.stream import LogFile, OnBytes
from kops.forensics.verify.checks.log import PartitionContext
from kops.forensics.verify.run import surroundings
from kops.storage.formats.leader_epoch_checkpoint import effective_epochs, read_leader_epoch_checkpoint
from kops.storage.formats.meta_properties import read_meta_properties

__all__ = [
    "SCHEMA",
    "Group",
    "Replica",
    "compare_group",
    "diff",
    "diff_group",
    "examine",
    "group_replicas",
    "judge_group",
    "known_epochs",
    "log_files",
]

SCHEMA = "kops.diff/v1"


@dataclass(slots=True)
class Replica:
    """One partition directory, and what is known of it besides its batches."""

    folder: PartitionDir
    context: PartitionContext
    broker: int | None = None


@dataclass(slots=True)
class Group:
    """The replicas of one partition."""

    topic: str
    partition: int
    replicas: list[Replica] = field(default_factory=list)


def diff(
    paths: Sequence[str | os.PathLike[str]],
    *,
    files: Files | None = None,
    on_bytes: OnBytes | None = None,
    on_total: Callable[[int], None] | None = None,
    compare_groups: Callable[[list[Group]], Iterable[PartitionDiff]] | None = None,
) -> DiffReport:
    """Compare the replicas under these directories. `on_total` gets the number of bytes to read, `on_bytes` each step.

    `compare_groups` does the reading elsewhere: it gives the answer of `diff_group` for each group, in their order.

    Ctrl-C ends the comparison; the report then has the partitions compared so far. Raises NotFoundError, and UsageError for a path without
    Kafka's files and where no partition has two replicas.
    """
    reader = files if files is not None else OsFiles(read_only=True)
    inventory = open_paths(paths, reader, packed=True)
    refuse_foreign(paths, inventory, reader)
    report = DiffReport([os.fspath(path) for path in paths])
    report.findings += [finding("file-unreadable", problem.path, problem.reason) for problem in inventory.problems]
    groups = group_replicas(inventory, reader)
    pairs = [group for group in groups if len(group.replicas) > 1]
    report.alone = [group.replicas[0].folder.path for group in groups if len(group.replicas) == 1]
    if not pairs:
        raise UsageError("no partition has two replicas under these directories; name the log directories of several brokers")
    if on_total is not None:
        logs = (log for group in pairs for replica in group.replicas for log in replica.folder.live_segments)
        on_total(sum(segment.log.size for segment in logs if segment.log is not None))
    parts = [part for group in pairs for part in _by_topic_id(group, reader, report)]
    report.alone += [replica.folder.path for part in parts if len(part.replicas) < 2 for replica in part.replicas]
    wanted = [part for part in parts if len(part.replicas) > 1]
    here = (diff_group(part, reader, on_bytes) for part in wanted)
    try:
        for found in here if compare_groups is None else compare_groups(wanted):
            report.partitions.append(found)
            report.findings += found.findings
    except KeyboardInterrupt:
        if compare_groups is not None:
            raise
        report.left_out = [f"{each.topic}-{each.partition}" for each in wanted[len(report.partitions) :]]
    report.findings = sort_findings(report.findings)
    return report


def diff_group(group: Group, files: Files, on_bytes: OnBytes | None = None) -> PartitionDiff:
    """Compare the replicas of one partition. Reads only their directories."""
    return examine(group, files, on_bytes)[1]


def examine(group: Group, files: Files, on_bytes: OnBytes | None = None) -> tuple[Comparison, PartitionDiff]:
    """Read the replicas of one partition; returns the comparison and the result."""
    seen = compare_group(group, files, on_bytes)
    return seen, judge_group(group, files, seen)


def compare_group(group: Group, files: Files, on_bytes: OnBytes | None = None, slices: Sequence[Mapping[int, Summary]] = ()) -> Comparison:
    """Read the logs of one partition's replicas. The answer depends on nothing else. `slices` of them may have been read already."""
    return compare(files, [log_files(replica.folder) for replica in group.replicas], on_bytes, slices)


def judge_group(group: Group, files: Files, seen: Comparison) -> PartitionDiff:
    """Judge a comparison, by the checkpoints beside the logs."""
    return judge(group.topic, group.partition, [_beside(replica, files) for replica in group.replicas], seen)


def group_replicas(inventory: Inventory, files: Files) -> list[Group]:
    """Group the partition directories of an inventory by partition. Deleted ones are left out; in log directories, also strays and those
    still being copied."""
    contexts = {id(folder): context for folder, context in surroundings(inventory, files)}
    brokers = {log_dir.path: _broker(files, log_dir.path) for log_dir in inventory.log_dirs}
    loose = inventory.loose_partitions
    same = len({folder.name for folder in loose if folder.topic is not None}) <= 1 and any(folder.topic is None for folder in loose)
    name = next((folder.name for folder in loose if folder.topic is not None), loose[0].name if loose else "")
    groups: dict[str, Group] = {}
    for log_dir in inventory.log_dirs:
        for folder in log_dir.partitions:
            if not folder.state:
                _add(groups, folder.name, folder, contexts[id(folder)], brokers[log_dir.path])
    for folder in loose:
        broker = _broker(files, posixpath.dirname(files.absolute(folder.path)))
        _add(groups, name if same else folder.name, folder, contexts[id(folder)], broker)
    return sorted(groups.values(), key=lambda group: (group.topic, group.partition))


def _add(groups: dict[str, Group], name: str, folder: PartitionDir, context: PartitionContext, broker: int | None) -> None:
    group = groups.get(name)
    if group is None:
        group = groups[name] = Group(folder.topic if folder.topic is not None else name, folder.partition)
    if folder.topic is not None:
        group.topic, group.partition = folder.topic, folder.partition
    group.replicas.append(Replica(folder, context, broker))


def _by_topic_id(group: Group, files: Files, report: DiffReport) -> list[Group]:
    """Group the replicas by topic id. A topic that was deleted and created again has another id and is not compared with the old one."""
    parts: dict[str, Group] = {}
    unknown: list[Replica] = []
    for replica in group.replicas:
        found = topic_id_of(files, replica.folder)
        if found is None:
            unknown.append(replica)
            continue
        parts.setdefault(found, Group(group.topic, group.partition)).replicas.append(replica)
    if not parts:
        return [group]
    most = max(parts.values(), key=lambda part: len(part.replicas))
    most.replicas += unknown
    most.replicas.sort(key=group.replicas.index)
    for identity, part in parts.items():
        if part is not most:
            for replica in part.replicas:
                detail = f"its topic id is {identity}, that of {most.replicas[0].folder.path} is another: they are not compared"
                report.findings.append(finding("topic-id-differs", replica.folder.path, detail))
    return list(parts.values())


def log_files(folder: PartitionDir) -> list[LogFile]:
    """The logs that a broker would load, in the order of their base offsets."""
    return [LogFile(segment.log.path, segment.base_offset) for segment in folder.live_segments if segment.log is not None]


def known_epochs(files: Files, folder: PartitionDir) -> list[tuple[int, int]]:
    """(epoch, first offset) of leader-epoch-checkpoint; empty if it can't be read."""
    try:
        data = files.read_all(posixpath.join(folder.path, "leader-epoch-checkpoint"))
        return [(entry.epoch, entry.start_offset) for entry in effective_epochs(read_leader_epoch_checkpoint(data))]
    except (OSError, KopsError):
        return []


def _beside(replica: Replica, files: Files) -> Beside:
    folder = replica.folder
    logs = [segment.log for segment in folder.live_segments if segment.log is not None]
    last = (logs[-1].path, logs[-1].size) if logs else ("", 0)
    # The log cleaner leaves empty segments, too. Retention deletes whole ones.
    bases = [log.offset or 0 for log in logs[:2]]
    is_emptied = len(logs) > 1 and logs[0].size == 0 and bases[1] > max(bases[0], replica.context.cleaner_offset or 0)
    first = (logs[0].path, bases[0]) if logs else ("", 0)
    return Beside(folder.path, replica.broker, replica.context, known_epochs(files, folder), last, first, is_emptied)


def _broker(files: Files, log_dir: str) -> int | None:
    """The node.id of meta.properties."""
    try:
        return read_meta_properties(files.read_all(posixpath.join(log_dir, "meta.properties"))).node_id
    except (OSError, DecodeError):
        return None
