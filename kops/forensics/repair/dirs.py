"""Plans the repair of a log directory's own files: checkpoints, meta.properties, the marker of a clean stop, and foreign files.

Sources: Kafka's LogManager and CheckpointFile (what a start does with each), MetaPropertiesEnsemble, LogLoader (a log start offset above
the log's end deletes every segment).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Final

from kops.config.values.java import NumberFormatError, parse_int, parse_long
from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.findings.finding import Finding
from kops.forensics.inventory.tree import LogDir
from kops.forensics.plans.plan import Data, PlannedFiles, Put, Remove
from kops.forensics.repair.partition import Steps, live_bases
from kops.records import Damage, scan
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.clean_shutdown import CleanShutdown, write_clean_shutdown
from kops.storage.formats.kafka_uuid import parse_uuid
from kops.storage.formats.meta_properties import MetaProperties, write_meta_properties
from kops.storage.formats.names import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    METADATA_TOPIC,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    log_file_name,
)

__all__ = ["DIR_CODES", "DirRepair"]

DIR_CODES: Final = frozenset(("log-start-ahead",))
"""Findings about a partition's file that are repaired in the directory's own files."""

Brokers = Callable[[], dict[int, set[str]]]

_UNKNOWN_EPOCH: Final = -1
_OFFSET_CODES: Final = {
    "recovery-point-beyond-end": (RECOVERY_POINT_CHECKPOINT,),
    "recovery-point-invalid": (RECOVERY_POINT_CHECKPOINT,),
    "high-watermark-beyond-end": (REPLICATION_OFFSET_CHECKPOINT,),
    "high-watermark-invalid": (REPLICATION_OFFSET_CHECKPOINT,),
    "log-end-missing": (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT),
    "log-start-beyond-end": (LOG_START_OFFSET_CHECKPOINT,),
    "log-start-below-base": (LOG_START_OFFSET_CHECKPOINT,),
    "cleaner-offset-invalid": (CLEANER_OFFSET_CHECKPOINT,),
}


class DirRepair:
    """One log directory's own files; see `PartitionRepair`. `siblings` are meta.properties of the broker's other directories,
    `brokers` gives the directory ids that the metadata log has of each broker."""

    def __init__(
        self, files: Files, log_dir: LogDir, steps: Steps, *, siblings: Sequence[MetaProperties], brokers: Brokers, date: str
    ) -> None:
        self.files = files
        self.log_dir = log_dir
        self.steps = steps
        self.siblings = siblings
        self.brokers = brokers
        self.date = date

    def path(self, name: str) -> str:
        """A file of the directory."""
        return posixpath.join(self.log_dir.path, name)

    def propose(self, findings: Sequence[Finding]) -> bool:
        """Add steps for these problems. Returns whether there are new ones."""
        changed = False
        wrong: dict[str, list[str]] = {}
        for found in findings:
            if found.code in ("checkpoint-malformed", "checkpoint-number-invalid", "checkpoint-missing"):
                changed |= self._readable_lines(found)
            elif found.code in ("meta-properties-missing", "meta-properties-malformed", "directory-id-missing"):
                changed |= self._meta(found)
            elif found.code == "clean-shutdown-malformed":
                why = f"{found.detail}; the epoch of the broker is not known"
                data = write_clean_shutdown(CleanShutdown(_UNKNOWN_EPOCH))
                changed |= self.steps.put(Put(found.file, "write-clean-shutdown", why, True, (Data(data),)))
            elif found.code == "bootstrap-malformed" and self._has_metadata():
                why = f"{found.detail}; it is not needed beside a metadata log, and a node starts without it"
                changed |= self.steps.put(Remove(found.file, "remove-bootstrap-checkpoint", why, True))
            elif found.code == "log-start-ahead":
                changed |= self._log_start_back(found)
            elif found.code == "file-unknown" and posixpath.dirname(found.file) == self.log_dir.path.rstrip("/"):
                changed |= self.steps.put(Remove(found.file, "remove-foreign-file", f"not a file of Kafka's: {found.detail}", True))
            elif found.code == "directory-name-invalid" and found.severity == "error":
                changed |= self.steps.put(Remove(found.file, "remove-foreign-directory", found.detail, True))
            for name in _OFFSET_CODES.get(found.code, ()):
                wrong.setdefault(name, []).append(found.detail)
        for name, details in wrong.items():
            changed |= self._offsets(name, details)
        return changed

    def _has_metadata(self) -> bool:
        """Whether there is a metadata log that is not empty."""
        folders = [partition for partition in self.log_dir.partitions if partition.topic == METADATA_TOPIC and not partition.state]
        return any(segment.log is not None and segment.log.size > 0 for folder in folders for segment in folder.live_segments)

    # checkpoints

    def _log_start_back(self, found: Finding) -> bool:
        """Restore the log start offset from leader-epoch-checkpoint, with which nothing more is deleted than before."""
        path = self.path(LOG_START_OFFSET_CHECKPOINT)
        folder = posixpath.dirname(found.file)
        partition = next((each for each in self.log_dir.partitions if each.path.rstrip("/") == folder), None)
        if partition is None or partition.topic is None or found.base_offset is None:
            return False
        offsets = read_offset_checkpoint(PlannedFiles(self.files, self.steps.ordered()).read_all(path), file=path)
        offsets[TopicPartition(partition.topic, partition.partition)] = found.base_offset
        return self.steps.put(Put(path, "write-checkpoint", found.detail, True, (Data(write_offset_checkpoint(offsets)),)))

    def _readable_lines(self, found: Finding) -> bool:
        """Rebuild a broken checkpoint from its valid lines. Kafka uses 0 for the missing offsets and reads the log itself."""
        data = self.files.read_all(found.file) if self.files.exists(found.file) else b""
        offsets: dict[TopicPartition, int] = {}
        for line in data.decode("utf-8", "replace").split("\n")[2:]:
            fields = line.split()
            try:
                if len(fields) == 3:
                    offsets[TopicPartition(fields[0], parse_int(fields[1]))] = parse_long(fields[2])
            except NumberFormatError:
                continue
        why = f"{found.detail}; {len(offsets)} entries can be read"
        return self.steps.put(Put(found.file, "write-checkpoint", why, True, (Data(write_offset_checkpoint(offsets)),)))

    def _offsets(self, name: str, details: Sequence[str]) -> bool:
        """Correct entries outside of their logs: set them to the log's end, or remove them if Kafka then finds the right number itself."""
        planned = PlannedFiles(self.files, self.steps.ordered())
        path = self.path(name)
        try:
            offsets = read_offset_checkpoint(planned.read_all(path), file=path)
        except (DecodeError, FileNotFoundError, IsADirectoryError):
            return False
        starts: dict[TopicPartition, int] = {}
        if name == REPLICATION_OFFSET_CHECKPOINT and planned.exists(self.path(LOG_START_OFFSET_CHECKPOINT)):
            try:
                starts = read_offset_checkpoint(planned.read_all(self.path(LOG_START_OFFSET_CHECKPOINT)))
            except (DecodeError, IsADirectoryError):
                starts = {}
        kept: dict[TopicPartition, int] = {}
        for key, offset in offsets.items():
            log = self._log(planned, key)
            right = _within(name, offset, *log, starts.get(key, 0)) if log is not None else offset
            if right is not None:
                kept[key] = right
        if kept == offsets:
            return False
        return self.steps.put(Put(path, "write-checkpoint", "; ".join(details), True, (Data(write_offset_checkpoint(kept)),)))

    def _log(self, planned: Files, key: TopicPartition) -> tuple[int, int] | None:
        """Start and end offset of a partition's planned log."""
        folder = next((p.path for p in self.log_dir.partitions if (p.topic, p.partition) == key and not p.state), None)
        if folder is None:
            return None
        bases = live_bases(planned, folder)
        if not bases:
            return None
        end = bases[-1]
        try:
            log = planned.open(posixpath.join(folder, log_file_name(end, "log")))
        except IsADirectoryError:
            return None  # verify names it
        with log:
            for found in scan(log, check_crc=False, resync=False):
                if not isinstance(found, Damage):
                    end = max(end, found.next_offset)
        return bases[0], end

    # meta.properties

    def _meta(self, found: Finding) -> bool:
        """Rebuild the file from its readable part, the broker's other directories and its registration in the metadata log."""
        path = self.path(META_PROPERTIES)
        fields = _readable_properties(self.files.read_all(path)) if self.files.exists(path) else {}
        sibling = self.siblings[0] if self.siblings else MetaProperties()
        claimed = {other.directory_id for other in self.siblings}
        directory_id = fields.get("directory.id")
        try:
            directory_id = parse_uuid(directory_id) if directory_id else None
        except ValueError:
            directory_id = None
        cluster_id = fields.get("cluster.id") or sibling.cluster_id
        node_id = _node_id(fields.get("node.id")) if sibling.node_id is None else sibling.node_id
        owners = [broker for broker, ids in self.brokers().items() if directory_id in ids]
        if node_id is None and len(owners) == 1:
            node_id = owners[0]
        if directory_id is None or directory_id in claimed:
            free = self.brokers().get(node_id if node_id is not None else -1, set()) - claimed
            directory_id = free.pop() if len(free) == 1 else None
        if cluster_id is None or node_id is None or (found.code == "directory-id-missing" and directory_id is None):
            return False
        meta = MetaProperties(1, cluster_id, node_id, directory_id)
        why = f"{found.detail}; the missing values are known from the broker's other directories and its metadata log"
        return self.steps.put(Put(path, "write-meta-properties", why, True, (Data(write_meta_properties(meta, date=self.date)),)))


def _readable_properties(data: bytes) -> dict[str, str]:
    """The lines `key=value` of a properties file, also of one that cannot be read as a whole."""
    pairs = (line.split("=", 1) for line in data.decode("utf-8", "replace").splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def _node_id(text: str | None) -> int | None:
    try:
        return parse_int(text) if text is not None else None
    except NumberFormatError:
        return None


def _within(name: str, offset: int, start: int, end: int, log_start: int) -> int | None:
    """Return the right entry for a log from `start` up to `end`; None: no entry."""
    if name == RECOVERY_POINT_CHECKPOINT:
        return None if offset < 0 else min(offset, end)
    if name == REPLICATION_OFFSET_CHECKPOINT:
        low = max(start, log_start) if log_start <= end else start
        return min(max(offset, low), end)
    if name == LOG_START_OFFSET_CHECKPOINT:
        return offset if start <= offset <= end else None
    return offset if 0 <= offset <= end else None
