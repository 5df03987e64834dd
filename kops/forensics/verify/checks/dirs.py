"""Checks a broker's log directories: their own files, and what these mean for each partition.

Sources: Kafka's LogManager (clean-shutdown marker, checkpoints: all four exist once a broker has run, and a clean stop rewrites the first
three), MetaPropertiesEnsemble (meta.properties), KafkaRaftLog and FileQuorumStateStore (the metadata log), BootstrapDirectory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError
from kops.forensics.findings.finding import Finding, finding
from kops.forensics.verify.checks.log import PartitionContext

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import FileEntry, LogDir, PartitionDir
    from kops.storage.formats.meta_properties import MetaProperties

CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
_RECOVERY, _HIGH, _START, _CLEANER = CHECKPOINTS
METADATA_TOPIC: Final = "__cluster_metadata"

Offsets = dict[tuple[str, int], int]


@dataclass(slots=True)
class DirContext:
    """The contents of a log directory's own files. `offsets`: checkpoint's name → partition → offset, for readable checkpoints."""

    path: str
    clean_stop: bool
    offsets: dict[str, Offsets] = field(default_factory=dict)
    meta: MetaProperties | None = None
    marker_has_epoch: bool = False
    has_run: bool = False

    def partition(self, partition: PartitionDir) -> PartitionContext:
        """Return its data about one of its partitions."""
        if partition.topic is None or partition.state in ("delete", "stray"):
            return PartitionContext(clean_stop=False)
        if partition.topic == METADATA_TOPIC:
            return PartitionContext(clean_stop=self.clean_stop, cleaner_known=True, needs_metadata=self.is_kraft)
        key = (partition.topic, partition.partition)
        # For a partition that is moving, the checkpoints have the offsets of the original.
        known = {} if partition.state == "future" else self.offsets
        return PartitionContext(
            clean_stop=self.clean_stop and partition.state == "",
            recovery_point=known.get(_RECOVERY, {}).get(key),
            high_watermark=known.get(_HIGH, {}).get(key),
            log_start=known.get(_START, {}).get(key),
            cleaner_offset=known.get(_CLEANER, {}).get(key),
            cleaner_known=_CLEANER in known,
            needs_metadata=self.is_kraft and partition.state == "",
        )

    @property
    def is_kraft(self) -> bool:
        """Whether a KRaft broker uses the directory."""
        return self.meta is not None and self.meta.version == 1


def read_dir(log_dir: LogDir, files: Files) -> tuple[DirContext, list[Finding]]:
    """Read the directory's own files, and report what is wrong with each (every level). A file that can't be read is a finding."""
    marker = log_dir.file("clean-shutdown")
    context = DirContext(log_dir.path, clean_stop=marker is not None)
    findings: list[Finding] = []
    meta = log_dir.file("meta-properties")
    if meta is not None:
        findings += _meta(meta, context, files)
    if marker is not None:
        findings += _marker(marker, context, files)
    findings += _meta_and_marker(meta, context)
    # A directory that was formatted and never used has neither checkpoints nor partitions.
    context.has_run = any(log_dir.file(name) is not None for name in CHECKPOINTS) or marker is not None
    for name in CHECKPOINTS:
        entry = log_dir.file(name)
        if entry is not None and entry.suffix == "":
            findings += _checkpoint(entry, name, context, files, bool(log_dir.partitions))
        elif context.has_run and _expected(name, log_dir, context):
            findings.append(
                finding("checkpoint-missing", os.path.join(log_dir.path, name), f"{name} is missing, although a broker has run here")
            )
    if marker is None and context.has_run and log_dir.partitions:
        findings.append(finding("unclean-shutdown", log_dir.path))
    if meta is None and context.has_run and (log_dir.partitions or marker is not None) and not _is_ancient(log_dir):
        findings.append(finding("meta-properties-missing", os.path.join(log_dir.path, "meta.properties")))
    bootstrap = log_dir.file("bootstrap-checkpoint")
    if bootstrap is not None:
        findings += _bootstrap(bootstrap, files)
    findings += _names(log_dir)
    return context, findings


def _is_ancient(log_dir: LogDir) -> bool:
    """Whether no file here is from 0.9 or later, which write meta.properties, or this is only a part of a directory."""
    return not any(log_dir.file(name) is not None for name in CHECKPOINTS[:2])


def _expected(name: str, log_dir: LogDir, context: DirContext) -> bool:
    """Whether every broker that could have written this directory makes the checkpoint."""
    if name == _CLEANER:  # Older versions write it only after their cleaner has run.
        return context.marker_has_epoch or (context.meta is not None and context.meta.directory_id is not None)
    if name == _START:
        return any(partition.file("leader-epoch-checkpoint") is not None for partition in log_dir.partitions)
    return log_dir.file("meta-properties") is not None or name in (_RECOVERY, _HIGH)


def _marker(entry: FileEntry, context: DirContext, files: Files) -> Iterator[Finding]:
    from kops.storage.formats.clean_shutdown import CURRENT_VERSION, read_clean_shutdown

    data = files.read_all(entry.path)
    mark = read_clean_shutdown(data)
    context.marker_has_epoch = mark.broker_epoch is not None
    if mark.problem is not None and data:
        yield finding("clean-shutdown-malformed", entry.path, f"{mark.problem}: {data[:80]!r}")
    elif mark.problem is None and mark.version != CURRENT_VERSION:
        yield finding("clean-shutdown-malformed", entry.path, f"version {mark.version} is unknown")
    elif not data and context.is_kraft and context.meta is not None and context.meta.directory_id is not None:
        yield finding("clean-shutdown-malformed", entry.path, "the file is empty, as versions before those with a directory.id wrote it")


def _meta(entry: FileEntry, context: DirContext, files: Files) -> Iterator[Finding]:
    from kops.storage.formats.meta_properties import read_meta_properties

    data = files.read_all(entry.path)
    try:
        context.meta = read_meta_properties(data, file=entry.path)
    except DecodeError as error:
        yield finding("meta-properties-malformed", entry.path, error.reason)
        return
    meta = context.meta
    if meta.cluster_id is None and meta.node_id is None:
        yield finding("meta-properties-malformed", entry.path, "it has neither cluster.id nor a node id")
    elif meta.version == 0 and meta.node_id is None:
        yield finding("meta-properties-malformed", entry.path, "it has no broker.id (version 0)")


def _meta_and_marker(entry: FileEntry | None, context: DirContext) -> Iterator[Finding]:
    meta = context.meta
    if entry is None or meta is None or not context.marker_has_epoch:
        return
    if meta.version == 0 and meta.node_id is not None:
        detail = "version 0, as brokers with ZooKeeper wrote it, but a KRaft broker was stopped here"
        yield finding("meta-properties-malformed", entry.path, detail)
    elif meta.version == 1 and meta.directory_id is None:
        yield finding("directory-id-missing", entry.path)


def _checkpoint(entry: FileEntry, name: str, context: DirContext, files: Files, has_partitions: bool) -> Iterator[Finding]:
    from kops.storage.formats.checkpoints import NUMBER, read_offset_checkpoint

    data = files.read_all(entry.path)
    try:
        context.offsets[name] = {
            (key.topic, key.partition): offset for key, offset in read_offset_checkpoint(data, file=entry.path).items()
        }
    except DecodeError as error:
        yield finding("checkpoint-number-invalid" if error.code == NUMBER else "checkpoint-malformed", entry.path, error.reason)
        return
    if not data and context.clean_stop and has_partitions and name != _CLEANER:
        yield finding("checkpoint-missing", entry.path, f"{name} is empty, although a clean stop writes it")


def _bootstrap(entry: FileEntry, files: Files) -> Iterator[Finding]:
    from kops.records import BytesSource, Damage, scan

    data = files.read_all(entry.path)
    if not data:
        yield finding("bootstrap-malformed", entry.path, "the file is empty")
        return
    for item in scan(BytesSource(data), resync=False):
        if isinstance(item, Damage):
            yield finding("bootstrap-malformed", entry.path, item.reason, position=item.position, length=item.length)
            return
        problems = item.check()
        if problems:
            yield finding("bootstrap-malformed", entry.path, problems[0].reason, position=item.position, length=item.size)
            return


def _names(log_dir: LogDir) -> Iterator[Finding]:
    from kops.config.values.topic_names import topic_name_error
    from kops.storage.formats.names import parse_partition_dir

    for path in log_dir.unknown_dirs:
        yield _invalid_name(path)
    for partition in log_dir.partitions:
        name = os.path.basename(os.path.normpath(partition.path))
        try:
            parsed = parse_partition_dir(name)
        except DecodeError:
            yield _invalid_name(partition.path)
            continue
        problem = topic_name_error(parsed.topic)
        if problem is not None:
            yield finding(
                "directory-name-invalid",
                partition.path,
                f"not the name of a topic: {problem}; the broker takes it for a stray partition",
                severity="warning",
            )
        code = {"delete": "directory-deleted", "stray": "directory-stray", "future": "directory-future"}.get(parsed.state)
        if code is not None:
            yield finding(code, partition.path)
    for entry in log_dir.unknown:
        yield finding("file-unknown", entry.path)


def _invalid_name(path: str) -> Finding:
    name = os.path.basename(os.path.normpath(path))
    return finding("directory-name-invalid", path, f"'{name}' is not the name of a partition directory, and the broker does not start")


# across directories and against the logs ----------------------------------------------------------------------------------------------


def check_offsets(
    partition: PartitionDir, context: PartitionContext, start: int, end: int, dir_path: str, *, torn: bool
) -> Iterator[Finding]:
    """A partition's offsets in the checkpoints against its log, which holds `start` to before `end`; `torn`: its end is damaged (level
    full)."""
    if partition.state or partition.topic is None:
        return
    name = f"{partition.topic}-{partition.partition}"
    where = f"{name}'s log holds {start}-{end - 1}" if end > start else f"{name}'s log is empty at {start}"
    point, high, begin, cleaner = context.recovery_point, context.high_watermark, context.log_start, context.cleaner_offset
    beyond = [value for value in (point, high) if value is not None and value > end]
    if point is not None and point < 0:
        yield finding("recovery-point-invalid", os.path.join(dir_path, _RECOVERY), f"{point} for {name}")
    if high is not None and (high < 0 or (high < max(start, begin or 0) and context.clean_stop)):
        detail = f"{high}, but {where}" + (f" and starts at {begin}" if begin else "")
        yield finding("high-watermark-invalid", os.path.join(dir_path, _HIGH), detail)
    if not torn and len(set(beyond)) == 1 and len(beyond) == 2:
        yield finding(
            "log-end-missing",
            partition.path,
            f"{where}, but recovery point and high watermark are {beyond[0]}",
            base_offset=end,
            last_offset=beyond[0] - 1,
        )
    elif not torn:
        if point is not None and point > end:
            yield finding("recovery-point-beyond-end", os.path.join(dir_path, _RECOVERY), f"{point}, but {where}", base_offset=end)
        if high is not None and high > end:
            yield finding("high-watermark-beyond-end", os.path.join(dir_path, _HIGH), f"{high}, but {where}", base_offset=end)
    if begin is not None and begin > end:
        yield finding(
            "log-start-beyond-end", os.path.join(dir_path, _START), f"{begin}, but {where}", base_offset=start, last_offset=end - 1
        )
    elif begin is not None and begin < start:
        yield finding("log-start-below-base", os.path.join(dir_path, _START), f"{begin}, but {where}")
    if cleaner is not None and (cleaner > end or cleaner < 0):
        yield finding("cleaner-offset-invalid", os.path.join(dir_path, _CLEANER), f"{cleaner}, but {where}")


def check_dirs(log_dirs: list[LogDir], contexts: list[DirContext], files: Files) -> Iterator[Finding]:
    """The log directories against each other (level full). Those with the same node id and cluster id belong to one broker."""
    for log_dir, context in zip(log_dirs, contexts, strict=True):
        yield from _unknown_partitions(log_dir, context)
        yield from _topic_ids(log_dir, files)
    yield from _siblings(log_dirs, contexts)


def _unknown_partitions(log_dir: LogDir, context: DirContext) -> Iterator[Finding]:
    here = {(partition.topic, partition.partition) for partition in log_dir.partitions}
    for name, offsets in context.offsets.items():
        for topic, number in offsets:
            if (topic, number) not in here:
                path = os.path.join(log_dir.path, name)
                yield finding("checkpoint-unknown-partition", path, f"it names {topic}-{number}, which is not in this log directory")


def _topic_ids(log_dir: LogDir, files: Files) -> Iterator[Finding]:
    from kops.storage.formats.partition_metadata import read_partition_metadata

    ids: dict[str, tuple[str, str]] = {}
    for partition in log_dir.partitions:
        entry = partition.file("partition-metadata")
        if entry is None or partition.topic is None or partition.state in ("delete", "stray"):
            continue
        try:
            topic_id = read_partition_metadata(files.read_all(entry.path), file=entry.path).topic_id
        except DecodeError:
            continue  # Reported with the partition.
        known = ids.setdefault(partition.topic, (topic_id, entry.path))
        if known[0] != topic_id:
            yield finding("topic-id-differs", entry.path, f"topic id {topic_id}, but {known[1]} has {known[0]}")


def _siblings(log_dirs: list[LogDir], contexts: list[DirContext]) -> Iterator[Finding]:
    """Directories of one broker: same parent directory, or same node and cluster."""
    groups: dict[str, list[tuple[LogDir, DirContext]]] = {}
    for log_dir, context in zip(log_dirs, contexts, strict=True):
        if context.meta is not None:
            groups.setdefault(os.path.dirname(os.path.normpath(os.path.abspath(log_dir.path))), []).append((log_dir, context))
    for group in groups.values():
        yield from _one_broker(group)


def _one_broker(group: list[tuple[LogDir, DirContext]]) -> Iterator[Finding]:
    by_node: dict[int | None, list[tuple[LogDir, DirContext]]] = {}
    for log_dir, context in group:
        assert context.meta is not None, "only directories with meta.properties are compared"
        by_node.setdefault(context.meta.node_id, []).append((log_dir, context))
    for members in by_node.values():
        first = members[0][1].meta
        ids: dict[str, str] = {}
        partitions: dict[tuple[str | None, int], str] = {}
        for log_dir, context in members:
            meta = context.meta
            assert meta is not None and first is not None, "only directories with meta.properties are compared"
            path = os.path.join(log_dir.path, "meta.properties")
            if meta.cluster_id != first.cluster_id:
                yield finding(
                    "meta-properties-differ", path, f"cluster.id {meta.cluster_id}, but {members[0][0].path} has {first.cluster_id}"
                )
            elif meta.directory_id is not None and meta.directory_id in ids:
                yield finding("meta-properties-differ", path, f"directory.id {meta.directory_id} is also that of {ids[meta.directory_id]}")
            elif meta.directory_id is None and first.directory_id is not None and not context.marker_has_epoch:
                yield finding("directory-id-missing", path, f"no directory.id, but {members[0][0].path} has one")
            if meta.directory_id is not None:
                ids.setdefault(meta.directory_id, log_dir.path)
            if meta.cluster_id == first.cluster_id:
                yield from _twice(log_dir, partitions)


def _twice(log_dir: LogDir, partitions: dict[tuple[str | None, int], str]) -> Iterator[Finding]:
    for partition in log_dir.partitions:
        if partition.state == "" and partition.topic is not None:
            other = partitions.setdefault((partition.topic, partition.partition), partition.path)
            if other != partition.path:
                yield finding("partition-twice", partition.path, f"it is also in {other}")
