"""The steps that mend a log directory's own files: checkpoints, meta.properties, the marker of a clean stop, what is none of Kafka's.

Sources: Kafka's LogManager and CheckpointFile (what a start does with each), MetaPropertiesEnsemble, LogLoader (a log start offset behind
the log's end deletes every segment).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Final

from kops.config.java import NumberFormatError, parse_int, parse_long
from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.findings import Finding
from kops.forensics.inventory import LogDir
from kops.forensics.plan import Data, PlannedFiles, Put, Remove
from kops.forensics.repair_partition import Steps, live_bases
from kops.records import Damage, scan
from kops.storage.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.clean_shutdown import CleanShutdown, write_clean_shutdown
from kops.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kops.storage.names import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    log_file_name,
)

__all__ = ["DirRepair"]

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
    """One log directory's own files; see `PartitionRepair`. `siblings` are meta.properties of the broker's other directories."""

    def __init__(self, files: Files, log_dir: LogDir, steps: Steps, *, siblings: Sequence[MetaProperties], date: str) -> None:
        self.files = files
        self.log_dir = log_dir
        self.steps = steps
        self.siblings = siblings
        self.date = date

    def path(self, name: str) -> str:
        """A file of the directory."""
        return posixpath.join(self.log_dir.path, name)

    def propose(self, findings: Sequence[Finding]) -> bool:
        """Add steps for these problems; whether there is anything new."""
        changed = False
        wrong: dict[str, list[str]] = {}
        for found in findings:
            if found.code in ("checkpoint-malformed", "checkpoint-number-invalid", "checkpoint-missing"):
                changed |= self._readable_lines(found)
            elif found.code in ("meta-properties-missing", "meta-properties-malformed"):
                changed |= self._meta(found)
            elif found.code == "clean-shutdown-malformed":
                why = f"{found.detail}; an empty marker says the same as an unreadable one"
                changed |= self.steps.put(
                    Put(found.file, "write-clean-shutdown", why, True, (Data(write_clean_shutdown(CleanShutdown())),))
                )
            elif found.code == "file-unknown" and posixpath.dirname(found.file) == self.log_dir.path.rstrip("/"):
                changed |= self.steps.put(Remove(found.file, "remove-foreign-file", f"not a file of Kafka's: {found.detail}", True))
            elif found.code == "directory-name-invalid" and found.severity == "error":
                changed |= self.steps.put(Remove(found.file, "remove-foreign-directory", found.detail, True))
            for name in _OFFSET_CODES.get(found.code, ()):
                wrong.setdefault(name, []).append(found.detail)
        for name, details in wrong.items():
            changed |= self._offsets(name, details)
        return changed

    # checkpoints

    def _readable_lines(self, found: Finding) -> bool:
        """A checkpoint that can't be read, of its lines that can: what is left out, Kafka takes for 0, and looks at the log itself."""
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
        """Entries that lie outside of their logs: set to the log's end, or left out where Kafka then finds the right number itself."""
        planned = PlannedFiles(self.files, self.steps.ordered())
        path = self.path(name)
        try:
            offsets = read_offset_checkpoint(planned.read_all(path), file=path)
        except (DecodeError, FileNotFoundError):
            return False
        starts: dict[TopicPartition, int] = {}
        if name == REPLICATION_OFFSET_CHECKPOINT and planned.exists(self.path(LOG_START_OFFSET_CHECKPOINT)):
            try:
                starts = read_offset_checkpoint(planned.read_all(self.path(LOG_START_OFFSET_CHECKPOINT)))
            except DecodeError:
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
        with planned.open(posixpath.join(folder, log_file_name(end, "log"))) as log:
            for found in scan(log, check_crc=False, resync=False):
                if not isinstance(found, Damage):
                    end = max(end, found.next_offset)
        return bases[0], end

    # meta.properties

    def _meta(self, found: Finding) -> bool:
        if not self.siblings:
            return False
        sibling = self.siblings[0]
        directory_id = None
        if self.files.exists(found.file):
            try:
                directory_id = read_meta_properties(self.files.read_all(found.file)).directory_id
            except DecodeError:
                directory_id = None
        if directory_id in {other.directory_id for other in self.siblings}:
            directory_id = None
        meta = MetaProperties(**{field: getattr(sibling, field) for field in MetaProperties.__slots__} | {"directory_id": directory_id})
        why = f"{found.detail}; cluster and node as in the broker's other log directory"
        path = self.path(META_PROPERTIES)
        return self.steps.put(Put(path, "write-meta-properties", why, True, (Data(write_meta_properties(meta, date=self.date)),)))


def _within(name: str, offset: int, start: int, end: int, log_start: int) -> int | None:
    """The right entry for a log that goes from `start` to before `end`; None: no entry."""
    if name == RECOVERY_POINT_CHECKPOINT:
        return None if offset < 0 else min(offset, end)
    if name == REPLICATION_OFFSET_CHECKPOINT:
        low = max(start, log_start) if log_start <= end else start
        return min(max(offset, low), end)
    if name == LOG_START_OFFSET_CHECKPOINT:
        return offset if start <= offset <= end else None
    return offset if 0 <= offset <= end else None
