"""Plans the repair of one partition directory, from the findings of `verify`.

Logs come first (`kops.forensics.repair.log`), then the files made from them: indexes as a broker writes them, producer snapshots, leader
epochs. Sources: Kafka's LogSegment.recover, LogLoader (what a start trusts, deletes and fails on), ProducerStateManager,
LeaderEpochFileCache.
"""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.findings.damage_codes import finding_code
from kops.forensics.findings.finding import Finding
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.forensics.plans.index_interval import infer_index_interval
from kops.forensics.plans.plan import Copy, Data, Move, Part, PlannedFiles, Put, Remove, Step
from kops.forensics.repair.log import MendedLog, TargetSegment, arrange, fill, mend_log
from kops.forensics.repair.markers import restore_markers
from kops.records import Damage, scan
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.leader_epoch_checkpoint import (
    EpochEntry,
    effective_epochs,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)
from kops.storage.formats.names import LEADER_EPOCH_CHECKPOINT, METADATA_TOPIC, PARTITION_METADATA, FileKind, log_file_name
from kops.storage.formats.partition_metadata import PartitionMetadata, write_partition_metadata
from kops.storage.formats.producer_snapshot import read_producer_snapshot
from kops.storage.producers.state import ProducerState, load_snapshot, snapshot_bytes
from kops.storage.segment_files.index_bytes import DEFAULT_INDEX_INTERVAL_BYTES
from kops.storage.segments.recovery import RebuiltIndexes, rebuild_indexes

__all__ = ["LOG_CODES", "PartitionRepair", "Steps"]

LOG_CODES: Final = frozenset(
    (
        "batch-crc-mismatch",
        "batch-length-invalid",
        "batch-magic-invalid",
        "batch-offset-invalid",
        "batch-header-invalid",
        "unreadable-bytes",
        "zeroed-range",
        "torn-tail",
        "garbage-tail",
        "zero-tail",
        "batch-undecodable",
        "batch-count-mismatch",
        "batch-last-offset-mismatch",
        "batch-offsets-disorder",
        "batch-max-timestamp-mismatch",
        "offset-not-increasing",
        "offset-outside-segment",
        "segment-overlap",
        "sequence-gap",
        "sequence-duplicate",
        "leader-epoch-negative",
        "leader-epoch-back",
    )
)
"""Findings about the logs themselves."""
HOLE_CODES: Final = frozenset(("offset-gap", "segment-gap", "segment-empty"))
INDEX_CODES: Final = frozenset(
    (
        "index-missing",
        "time-index-missing",
        "index-size-odd",
        "index-disorder",
        "index-entry-wrong",
        "index-beyond-log",
        "index-zero-tail",
        "index-incomplete",
        "transaction-index-malformed",
        "transaction-index-wrong",
        "transaction-index-missing",
    )
)
EPOCH_CODES: Final = frozenset(
    ("leader-epoch-file-missing", "leader-epoch-file-malformed", "leader-epoch-file-wrong", "leader-epoch-beyond-end", "log-start-missing")
)
SNAPSHOT_CODES: Final = frozenset(("snapshot-malformed", "snapshot-wrong", "snapshot-beyond-end", "snapshot-missing"))
_CHUNK: Final = 1 << 20
_SIDES: Final[tuple[FileKind, ...]] = ("index", "timeindex", "txnindex")


class Steps:
    """The steps of a log directory so far, at most one for each path, in their order."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._by_directory: dict[str, dict[str, Step]] = {}

    def put(self, step: Step) -> bool:
        """Add a step, or replace that of its path. Returns whether anything changed."""
        if self._steps.get(step.path) == step:
            return False
        self._steps[step.path] = step
        self._by_directory.setdefault(posixpath.dirname(step.path), {})[step.path] = step
        return True

    def drop(self, path: str) -> None:
        """Forget the step of a path."""
        if self._steps.pop(path, None) is not None:
            del self._by_directory[posixpath.dirname(path)][path]

    def __contains__(self, path: str) -> bool:
        return path in self._steps

    def ordered(self) -> list[Step]:
        """The steps in order: logs, then their other files, then removals, then the log directory's own files."""
        return sorted(self._steps.values(), key=_place)

    def inside(self, directory: str) -> list[Step]:
        """The steps of one directory's files, in the same order."""
        return sorted(self._by_directory.get(posixpath.dirname(posixpath.join(directory, "")), {}).values(), key=_place)


def _place(step: Step) -> int:
    if isinstance(step, Put):
        return 0 if step.path.endswith(".log") else 4 if "checkpoint" in step.action or "metadata" in step.action else 2
    return 1 if isinstance(step, Move) else 3


class Donors(Protocol):
    """Other replicas of the partitions under repair (`kops.forensics.heal`)."""

    def lacks(self, partition: PartitionDir) -> bool:
        """Whether they have batches that this directory lacks."""

    def fill(self, partition: PartitionDir, mended: MendedLog) -> None:
        """Put their batches into the holes of the log; the caller then arranges it again."""

    def topic_id(self, partition: PartitionDir) -> str | None:
        """The topic's id in these replicas."""

    def index_interval(self, partition: PartitionDir) -> int | None:
        """The topic's index.interval.bytes, inferred from their indexes."""


class PartitionRepair:
    """One partition directory. `propose` turns findings into steps. It is called again with the findings about the planned state, until
    there are none.

    `preen`: only steps that lose nothing. `held_back` counts the others. `topic_id` is the topic's id according to other files.
    `keep_holes`: no empty batches, which brokers before 0.11 cannot read. `log_start`: the offset in log-start-offset-checkpoint, 0 if
    there is none. `donors`: other replicas that fill holes.
    """

    def __init__(
        self,
        files: Files,
        partition: PartitionDir,
        steps: Steps,
        *,
        preen: bool,
        topic_id: str | None,
        index_interval: int | None,
        keep_holes: bool,
        log_start: int = 0,
        donors: Donors | None = None,
    ) -> None:
        self.files = files
        self.partition = partition
        self.steps = steps
        self.preen = preen
        self.topic_id = topic_id
        self.keep_holes = keep_holes
        self.log_start = log_start
        self.donors = donors
        self._checked: dict[Copy, Copy] = {}
        self._index_interval = index_interval
        self.held_back = 0
        self.notes: list[str] = []
        self._mended: MendedLog | None = None
        self._rebuilt: dict[int, RebuiltIndexes] = {}

    def path(self, name: str) -> str:
        """A file of the folder."""
        return posixpath.join(self.partition.path, name)

    def propose(self, findings: Sequence[Finding]) -> bool:
        """Add steps for these problems; whether there is anything new."""
        codes = {found.code for found in findings}
        changed = self._leftovers(findings)
        if codes & LOG_CODES and self._mended is None:
            changed |= self._mend_logs()
        if codes & HOLE_CODES:
            changed |= self._close_holes([found for found in findings if found.code in HOLE_CODES])
        if changed:
            self._rebuilt.clear()
            return True  # Files made from the logs follow when the logs are settled.
        for found in findings:
            if found.code in INDEX_CODES:
                changed |= self._rebuild_index(found)
            elif found.code in SNAPSHOT_CODES:
                changed |= self._snapshot(found)
        if codes & EPOCH_CODES:
            changed |= self._epochs(sorted(codes & EPOCH_CODES))
        if codes & {"partition-metadata-missing", "partition-metadata-malformed"}:
            changed |= self._metadata()
        if codes & {"metadata-snapshot-malformed", "metadata-snapshot-incomplete"}:
            changed |= self._metadata_snapshots(findings)
        return changed

    @property
    def index_interval(self) -> int:
        """The partition's index.interval.bytes: as given, else inferred from its own indexes."""
        if self._index_interval is None:
            known = self.donors.index_interval(self.partition) if self.donors is not None else None
            default = known if known is not None else DEFAULT_INDEX_INTERVAL_BYTES
            self._index_interval = infer_index_interval(self.files, self.partition, default)
        return self._index_interval

    def planned(self) -> PlannedFiles:
        """The partition's files after the steps so far."""
        return PlannedFiles(self.files, self.steps.inside(self.partition.path))

    # leftovers and foreign files

    def _leftovers(self, findings: Iterable[Finding]) -> bool:
        changed = False
        for found in findings:
            if found.file in self.steps:
                continue
            if found.code == "leftover-cleaned":
                changed |= self._remove(
                    found.file, "remove-leftover", "an interrupted compaction left it; Kafka deletes it at its next start"
                )
            elif found.code == "leftover-swap":
                changed |= self._swap(found)
            elif found.code in ("file-unknown", "file-name-invalid") and self.files.exists(found.file):
                changed |= self._remove(found.file, "remove-foreign-file", f"not a file of Kafka's: {found.detail}")
            elif found.code == "log-file-missing":
                changed |= self._orphans(found)
        return changed

    def _remove(self, path: str, action: str, why: str, *, lossless: bool = True) -> bool:
        if self.preen and not lossless:
            self.held_back += 1
            return False
        return self.steps.put(Remove(path, action, why, lossless))

    def _swap(self, found: Finding) -> bool:
        """At a start a .swap replaces the live files without a check. Keep only the batches that the live files lack."""
        if not found.file.endswith(".log.swap"):
            return self._remove(found.file, "remove-leftover", "belongs to a .log.swap, which has its own step")
        before = self._mended
        if self._mended is None:
            self._mended = self._read_logs()
        taken = self._mended.from_leftovers
        if not taken:
            self._mended = before
            return self._remove(
                found.file, "remove-leftover", "the live segments hold all of its offsets; Kafka would put it in their place"
            )
        if self.preen:
            self.held_back += 1
            self._mended = before
            return False
        arrange(self._mended, self.partition.path)
        self._plan_logs(self._mended)
        self._remove(found.file, "finish-swap", f"{taken} of its batches are in no other file; they are kept")
        return True

    def _orphans(self, found: Finding) -> bool:
        changed = False
        for segment in self.partition.segments:
            if segment.suffix or segment.base_offset != found.base_offset or segment.log is not None:
                continue
            for kind in _SIDES:
                if kind in segment.files:
                    why = "its .log is missing; Kafka deletes it at its next start"
                    changed |= self._remove(segment.files[kind].path, "remove-orphan", why)
        return changed

    # logs

    def _read_logs(self) -> MendedLog:
        mended = mend_log(self.files, self.partition, known_epochs=self._known_epochs())
        if self.donors is not None:
            self.donors.fill(self.partition, mended)
        return mended

    def heal(self) -> bool:
        """Add steps for batches that other replicas have and this one lacks. Returns whether there are any."""
        if self.donors is None or not self.donors.lacks(self.partition) or not self._mend_logs():
            return False
        assert self._mended is not None
        for path, base in self._mended.fresh.items():
            self._make_snapshot(path, base)
        return True

    def _make_snapshot(self, path: str, base: int) -> None:
        """Make the producer snapshot of a new segment. Kafka writes one for every segment but the first."""
        name = self.path(log_file_name(base, "snapshot"))
        older = any(segment.base_offset < base for segment in self.partition.live_segments)
        data = self._snapshot_at(base) if path in self.steps and older and not self.files.exists(name) else None
        if data is not None:
            self.steps.put(Put(name, "write-snapshot", "its segment is new", True, (Data(data),)))

    def _mend_logs(self) -> bool:
        self._mended = mended = self._read_logs()
        restore_markers(self.files, self.partition, mended)
        arrange(mended, self.partition.path)
        in_the_way = self.partition.topic == METADATA_TOPIC and not (mended.ends_with_damage() or mended.is_whole)
        if not mended.lossless() and (self.preen or in_the_way):
            self.held_back += 1
            if not self.preen:
                self.notes.append(
                    f"{self.partition.path}: the metadata log is damaged in its middle; single records cannot be removed from it. "
                    "Replace it from another controller, or start from its newest good snapshot"
                )
            return False
        return self._plan_logs(mended)

    def _close_holes(self, findings: Sequence[Finding]) -> bool:
        if self.preen or self.keep_holes or self.partition.topic == METADATA_TOPIC:
            self.held_back += len(findings) if self.preen else 0
            return False
        if self._mended is None:
            self._mended = self._read_logs()
        closed = 0
        for found in findings:
            if found.base_offset is not None and found.last_offset is not None:
                closed += fill(self._mended, found.base_offset, found.last_offset)
        if not closed:
            return False
        arrange(self._mended, self.partition.path)
        return self._plan_logs(self._mended)

    def _plan_logs(self, mended: MendedLog) -> bool:
        """Add steps for every segment of the arranged log that changes, and for its other files."""
        lossless = mended.lossless()
        live = {segment.log.path: segment for segment in self.partition.live_segments if segment.log is not None}
        changed = [
            target for target in mended.segments if not target.whole and self._plan_segment(target, live.get(target.source), lossless)
        ]
        self._forget_made(mended)
        dropped = False
        for path in mended.gone:
            dropped |= self._drop_segment(live[path], "all of its batches are in other segments, or cannot be read")
        self._rebuilt.clear()
        if changed:
            self._replay(max(target.base_offset for target in changed))
        for target in changed:
            self._index_steps(target, lossless)
        return dropped or bool(changed)

    def _forget_made(self, mended: MendedLog) -> None:
        """Drop the steps of an earlier round for new logs that there are no longer, because their holes were closed since, and for logs
        that stay as they are now."""
        names = {self.path(log_file_name(target.base_offset, "log")) for target in mended.segments}
        whole = {target.source for target in mended.segments if target.whole}
        steps = self.steps.inside(self.partition.path)
        written = [step for step in steps if isinstance(step, Put) and step.path.endswith(".log")]
        for path in [step.path for step in written if step.path in whole or (step.action == "make-log" and step.path not in names)]:
            for step in steps:
                if step.path.startswith(path.removesuffix("log")):
                    self.steps.drop(step.path)

    def _plan_segment(self, target: TargetSegment, source: Segment | None, lossless: bool) -> bool:
        path = self.path(log_file_name(target.base_offset, "log"))
        status = self.files.stat(target.source) if target.source else None
        neighbour = self.partition.live_segments
        mtime_ms = status.mtime_ms if status is not None else neighbour[0].log.mtime_ms if neighbour and neighbour[0].log else None
        step: Step = Put(
            path, "rewrite-log" if target.source else "make-log", _why(target, self._mended), lossless, self._parts(target), mtime_ms
        )
        renamed = source is not None and target.source != path
        frees = renamed and not any(segment.log is not None and segment.log.path == target.source for segment in self._kept(target))
        if frees and not self.files.exists(path) and status is not None and target.parts == [Copy(target.source, 0, status.size)]:
            step = Move(target.source, "rename-log", f"its batches begin with offset {target.base_offset}", lossless, path)
        elif frees:
            self.steps.put(Remove(target.source, "rename-log", f"becomes {posixpath.basename(path)}", lossless))
        changed = self.steps.put(step)
        if renamed and source is not None:
            for kind in (*_SIDES, "snapshot"):
                if kind in source.files and source.files[kind].path not in self.steps:
                    self.steps.put(Remove(source.files[kind].path, "remove-old-name", "its segment has another name now", lossless))
        return changed

    def _parts(self, target: TargetSegment) -> tuple[Part, ...]:
        """The parts of a log. Those from other directories get a checksum, so that a change is noticed."""
        return tuple(self._with_check(part) if isinstance(part, Copy) and not self._is_own(part.path) else part for part in target.parts)

    def _is_own(self, path: str) -> bool:
        return posixpath.dirname(path) == self.partition.path.rstrip("/")

    def _with_check(self, part: Copy) -> Copy:
        if part not in self._checked:
            check, position, end = 0, part.position, part.position + part.length
            with self.files.open(part.path) as file:
                while position < end and (chunk := file.read(position, min(_CHUNK, end - position))):
                    check = zlib.crc32(chunk, check)
                    position += len(chunk)
            self._checked[part] = replace(part, crc=check)
        return self._checked[part]

    def _kept(self, target: TargetSegment) -> list[Segment]:
        """Live segments whose file name another target keeps."""
        assert self._mended is not None
        names = {self.path(log_file_name(other.base_offset, "log")) for other in self._mended.segments if other is not target}
        return [segment for segment in self.partition.live_segments if segment.log is not None and segment.log.path in names]

    def _drop_segment(self, segment: Segment, why: str) -> bool:
        changed = False
        for entry in segment.files.values():
            if entry.kind != "snapshot":
                changed |= self.steps.put(Remove(entry.path, "remove-segment", why, False))
        return changed

    # indexes

    def _index_steps(self, target: TargetSegment, lossless: bool) -> None:
        """Add steps for the indexes of a segment whose log changes."""
        rebuilt = self._rebuilt[target.base_offset]
        source = next((s for s in self.partition.live_segments if s.base_offset == target.base_offset), None)
        for kind, data in zip(_SIDES, (rebuilt.index, rebuilt.timeindex, rebuilt.txnindex), strict=True):
            path = self.path(log_file_name(target.base_offset, kind))
            there = source is not None and kind in source.files
            if data or there or kind != "txnindex":
                self.steps.put(Put(path, f"rebuild-{_NAMES[kind]}", "its log changes", lossless, (Data(data),)))

    def _rebuild_index(self, found: Finding) -> bool:
        name = posixpath.basename(found.file)
        stem, _, kind = name.rpartition(".")
        if kind not in _SIDES or not stem.isdigit():
            return False
        try:
            rebuilt = self._rebuild(int(stem), with_transactions=kind == "txnindex")
        except LoadError:
            return False
        if rebuilt.damage is not None:
            return False  # It cannot be made while the log is damaged.
        data = {"index": rebuilt.index, "timeindex": rebuilt.timeindex, "txnindex": rebuilt.txnindex}[kind]
        if kind == "txnindex" and not data:
            return self.files.exists(found.file) and self.steps.put(Remove(found.file, "remove-transaction-index", found.detail, True))
        return self.steps.put(Put(found.file, f"rebuild-{_NAMES[kind]}", found.detail, True, (Data(data),)))

    def _rebuild(self, base_offset: int, *, with_transactions: bool) -> RebuiltIndexes:
        """Rebuild a segment's indexes. A transaction index needs the producers' state after the segments before."""
        if base_offset not in self._rebuilt and with_transactions:
            self._replay(base_offset)
        if base_offset in self._rebuilt:
            return self._rebuilt[base_offset]
        with self.planned().open(self.path(log_file_name(base_offset, "log"))) as log:
            return rebuild_indexes(log, base_offset, self.index_interval)

    def _replay(self, until: int) -> None:
        """Rebuild the indexes of the planned segments from the first to the one that begins with `until`."""
        planned = self.planned()
        state: ProducerState | None = ProducerState()
        for base in live_bases(planned, self.partition.path):
            if base > until:
                break
            with planned.open(self.path(log_file_name(base, "log"))) as log:
                try:
                    self._rebuilt[base] = rebuild_indexes(log, base, self.index_interval, producers=state)
                except LoadError:  # transactions that contradict each other
                    state = None
                    self._rebuilt[base] = rebuild_indexes(log, base, self.index_interval)

    # producers, epochs, topic

    def _snapshot(self, found: Finding) -> bool:
        name = posixpath.basename(found.file)
        offset = int(name.partition(".")[0])
        if found.code == "snapshot-beyond-end":
            return self.steps.put(Remove(found.file, "remove-snapshot", f"{found.detail}; Kafka deletes it at its next start", True))
        data = self._snapshot_at(offset)
        if data is None:
            return self.files.exists(found.file) and self.steps.put(Remove(found.file, "remove-snapshot", found.detail, True))
        return self.steps.put(Put(found.file, "write-snapshot", found.detail, True, (Data(data),)))

    def _snapshot_at(self, offset: int) -> bytes | None:
        """The producers' state at a segment's beginning or the log's end, from the nearest good snapshot before it."""
        planned = self.planned()
        bases = live_bases(planned, self.partition.path)
        state = ProducerState()
        start = -1
        for base in bases:
            path = self.path(log_file_name(base, "snapshot"))
            if base < offset and path not in self.steps and planned.exists(path):
                try:
                    entries = read_producer_snapshot(planned.read_all(path), file=path)
                except (DecodeError, IsADirectoryError):
                    continue
                state = load_snapshot(entries)
                start = base
        following = start
        for base in bases:
            if base < start or base >= offset:
                continue
            try:
                log = planned.open(self.path(log_file_name(base, "log")))
            except IsADirectoryError:
                return None
            with log:
                try:
                    rebuilt = rebuild_indexes(log, base, self.index_interval, producers=state)
                except LoadError:
                    return None
                if rebuilt.damage is not None:
                    return None
                following = max(base, state.map_end_offset)
        at_segment = offset in bases
        return snapshot_bytes(state) if at_segment or following == offset else None

    def _known_epochs(self) -> list[tuple[int, int]]:
        entry = self.partition.file("leader-epoch-checkpoint")
        if entry is None:
            return []
        try:
            entries = effective_epochs(read_leader_epoch_checkpoint(self.files.read_all(entry.path)))
        except DecodeError:
            return []
        return [(known.epoch, known.start_offset) for known in entries]

    def _epochs(self, codes: Sequence[str]) -> bool:
        lossless = "log-start-missing" not in codes
        if self.preen and not lossless:
            self.held_back += 1
            return False
        planned = self.planned()
        entries: list[EpochEntry] = []
        for base in live_bases(planned, self.partition.path):
            with planned.open(self.path(log_file_name(base, "log"))) as log:
                for found in scan(log, check_crc=False):
                    if isinstance(found, Damage) or found.magic < 2 or found.partition_leader_epoch < 0:
                        continue
                    if not entries or found.partition_leader_epoch > entries[-1].epoch:
                        entries.append(EpochEntry(found.partition_leader_epoch, found.base_offset))
        # Records before the log start offset were deleted, and Kafka moves the first epoch's start up with it.
        first = next((number for number, entry in enumerate(entries[1:]) if entry.start_offset > self.log_start), len(entries) - 1)
        if entries and entries[first].start_offset < self.log_start:
            entries = [EpochEntry(entries[first].epoch, self.log_start), *entries[first + 1 :]]
        path = self.path(LEADER_EPOCH_CHECKPOINT)
        why = "rebuilt from the batches: " + ", ".join(codes)
        return self.steps.put(Put(path, "write-leader-epoch-checkpoint", why, lossless, (Data(write_leader_epoch_checkpoint(entries)),)))

    def _metadata_snapshots(self, findings: Iterable[Finding]) -> bool:
        """A bad snapshot of the metadata log stops the node. It can be removed if there is an older good one and the log from there on."""
        bad = {found.file for found in findings if found.code.startswith("metadata-snapshot-")}
        first = min((segment.base_offset for segment in self.partition.live_segments), default=None)
        snapshots = [
            entry for entry in self.partition.files if entry.kind == "checkpoint" and not entry.suffix and entry.offset is not None
        ]
        changed = False
        for entry in snapshots:
            older = [other for other in snapshots if other.path not in bad and (other.offset or 0) < (entry.offset or 0)]
            if entry.path in bad and first is not None and (first == 0 or any(first <= (other.offset or 0) for other in older)):
                why = "it is damaged; an older snapshot and the log after it are intact"
                changed |= self._remove(entry.path, "remove-metadata-snapshot", why, lossless=False)
        return changed

    def _metadata(self) -> bool:
        path = self.path(PARTITION_METADATA)
        if self.topic_id is None:
            note = f"{path}: the topic's id is not known; name the other log directories and the metadata log, too"
            if note not in self.notes:
                self.notes.append(note)
            return False
        data = write_partition_metadata(PartitionMetadata(self.topic_id))
        return self.steps.put(Put(path, "write-partition-metadata", f"topic id {self.topic_id}", True, (Data(data),)))


_NAMES: Final[dict[str, str]] = {"index": "index", "timeindex": "time-index", "txnindex": "transaction-index"}


def live_bases(files: Files, directory: str) -> list[int]:
    """Base offsets of the live logs."""
    names = (name[:-4] for name in files.list(directory) if name.endswith(".log"))
    return sorted(int(stem) for stem in names if stem.isascii() and stem.isdigit())


def _why(target: TargetSegment, mended: MendedLog | None) -> str:
    reasons = list(dict.fromkeys(target.mended))
    for bad in mended.bad if mended is not None else ():
        if bad.path == target.source:
            reasons.append(f"{bad.length} bytes at {bad.position} are not a batch ({finding_code(bad.code)})")
    for aside in mended.aside if mended is not None else ():
        if aside.item.path == target.source:
            reasons.append(f"the batch at {aside.item.position} is left out: {aside.why}")
    return "; ".join(reasons) if reasons else "its batches are reordered, or move to another segment"
