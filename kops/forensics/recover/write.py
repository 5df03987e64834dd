"""Writes recovered batches: directories of segments as a broker has them after a clean stop, or tables of records.

A segment gets the indexes that a broker would have written (`kops.storage.segments.recovery`), a producer snapshot at each segment's base
offset and at the log's end, leader-epoch-checkpoint from the batches (Kafka LogSegment.recover), and partition.metadata of the source.
Everything is written under a name that ends in `.kops-partial`, and renamed when it is complete and flushed.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kops.errors import DecodeError, KopsError
from kops.files import File, Files
from kops.forensics.inventory.tree import classify
from kops.forensics.plans.items import item_batch
from kops.forensics.recover.copies.batches import batches
from kops.forensics.recover.copies.runs import Run, expand
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.tables import write_table
from kops.records import Batch, scan
from kops.records.batch import CONTROL_MASK, LOG_OVERHEAD
from kops.records.decode import chunks
from kops.records.scanning.columns import Row
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry, write_leader_epoch_checkpoint
from kops.storage.formats.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, log_file_name
from kops.storage.producers.state import ProducerState, snapshot_bytes
from kops.storage.segments.recovery import RebuiltIndexes, rebuild_indexes

PARTIAL: Final = ".kops-partial"
_CHUNK: Final = 1 << 20
_LONGEST_NAME: Final = 255
_MAX_SIZE: Final = 0x7FFFFFFF
_MAX_RELATIVE: Final = 0x7FFFFFFF


@dataclass(slots=True)
class Segment:
    """A segment to write, from runs of batches."""

    base_offset: int
    runs: list[Run] = field(default_factory=list)
    size: int = 0


def remove_tree(files: Files, path: str) -> None:
    """Remove the remains of an earlier attempt. A symbolic link is removed, not its target."""
    try:
        files.unlink(path)
        return
    except (IsADirectoryError, PermissionError):  # POSIX allows EPERM for a directory.
        if not files.stat(path).is_dir:
            raise
    for name in files.list(path):
        remove_tree(files, posixpath.join(path, name))
    files.rmdir(path)


def short_name(name: str) -> str:
    """A name of a fixed length for what stands beside a partition; its own may be as long as a file system allows."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def output_path(report: RecoverReport, name: str) -> str:
    """Return the path for a partition's segments or records."""
    return _beside(report.out, name, {"segment": "", "jsonl": ".jsonl", "parquet": ".parquet"}[report.shape])


def _beside(folder: str, name: str, ending: str) -> str:
    """A path in the folder with this name and ending. A name that leaves no space for the ending becomes a digest."""
    is_long = ending and len(name.encode("utf-8", "surrogateescape")) + len(ending) > _LONGEST_NAME
    return posixpath.join(folder, (short_name(name) if is_long else name) + ending)


def write_partition(
    files: Files, out_files: Files, report: RecoverReport, entry: RecoveredPartition, runs: Sequence[Run], metadata: bytes | None
) -> bool:
    """Write one partition and fill in its result. An interruption leaves complete segments; `entry.complete` says so.

    Returns False if the interruption came when the partition was already in its place.
    """
    entry.output = output_path(report, entry.name)
    partial = _beside(report.out, posixpath.basename(entry.output), PARTIAL)
    write_partial(files, out_files, report, entry, runs, metadata, partial)
    try:
        if out_files.exists(entry.output):
            remove_tree(out_files, entry.output)
        out_files.rename(partial, entry.output)
    except (OSError, KopsError, KeyboardInterrupt):
        remove_left(out_files, partial)
        raise
    try:
        out_files.sync_dir(report.out)
    except KeyboardInterrupt:
        return False
    return True


def write_partial(
    files: Files,
    out_files: Files,
    report: RecoverReport,
    entry: RecoveredPartition,
    runs: Sequence[Run],
    metadata: bytes | None,
    partial: str,
) -> None:
    """Write one partition under another name and fill in its result. Nothing is left after an error."""
    try:
        if report.shape == "segment":
            _write_folder(files, out_files, partial, report.renumbered, entry, runs, metadata)
        else:
            write_table(files, out_files, partial, report, entry, runs)
    except (OSError, KopsError, KeyboardInterrupt):
        remove_left(out_files, partial)  # Half a partition is useless on a full disk, and --resume starts it again.
        raise


def remove_left(files: Files, path: str) -> None:
    """Remove a partition that was not completed."""
    if files.exists(path):
        remove_tree(files, path)


def count_batch(entry: RecoveredPartition, batch: Batch) -> None:
    """Add a batch to the numbers of its partition."""
    entry.batches += 1
    entry.bytes += batch.size
    if batch.magic < 2:
        entry.records += _legacy_records(entry, batch)
    elif not batch.is_control:
        entry.records += batch.count or 0
    if entry.first_offset is None:
        entry.first_offset = batch.base_offset
    entry.last_offset = batch.last_offset


def _legacy_records(entry: RecoveredPartition, batch: Batch) -> int:
    """Return how many records a batch of v0 or v1 has. `carve` also takes one whose checksum holds, but whose contents do not."""
    if not batch.compressed:
        return 1
    try:
        return sum(map(len, chunks(batch)))
    except DecodeError as error:
        entry.notes.append(f"the batch with offset {batch.last_offset} has no readable records ({error.reason})")
        return 0


def _write_folder(
    files: Files,
    out_files: Files,
    partial: str,
    renumber: bool,
    entry: RecoveredPartition,
    runs: Sequence[Run],
    metadata: bytes | None,
) -> None:
    out_files.mkdir(partial)
    folder = Folder(out_files, partial, entry)
    try:
        if renumber:
            folder.write_batches(batches(files, runs, True))
        else:
            for segment in segments_of(runs):
                folder.write_segment(files, segment)
    except KeyboardInterrupt:
        entry.complete = False
        folder.drop_open()
    folder.finish(metadata)


def segments_of(runs: Sequence[Run]) -> Iterator[Segment]:
    """Group the runs into segments. A new one begins with each live file, and where offsets or sizes get too large for one. A batch from
    another replica, whose segments begin elsewhere, does not cut a segment in two.
    """
    segment: Segment | None = None
    last = -1
    for run in runs:
        entry = classify(run.path)
        base = entry.offset if entry.offset is not None and not entry.suffix else None
        new_file = base is not None and (segment is None or base > segment.base_offset)
        if segment is None or new_file or segment.size + run.size > _MAX_SIZE or run.last - segment.base_offset > _MAX_RELATIVE:
            if segment is not None:
                yield segment
            segment = Segment(base if new_file and base is not None and last < base <= run.base else run.base)
        segment.runs.append(run)
        segment.size += run.size
        last = run.last
    if segment is not None:
        yield segment


class _Tally:
    """Counts of a segment's v2 batches by their headers. `has_old`: there are messages of v0 or v1, whose headers do not say enough.

    `epochs` has (leader epoch, first offset) for each higher leader epoch.
    """

    def __init__(self) -> None:
        self.batches = self.bytes = self.records = self.first_offset = 0
        self.last_offset = -1
        self.epochs: list[tuple[int, int]] = []
        self.has_old = False

    def add(self, rows: list[Row]) -> None:
        """Add the headers of the next batches."""
        if not rows:
            return
        if not self.batches:
            self.first_offset = rows[0][0]
        latest = self.epochs[-1][0] if self.epochs else -1
        size = records = 0
        for row in rows:
            size += row[1]
            if not row[5] & CONTROL_MASK:
                records += row[12]
            if row[2] > latest:
                latest = row[2]
                self.epochs.append((latest, row[0]))
            if row[3] < 2:
                self.has_old = True
        self.batches += len(rows)
        self.bytes += size + LOG_OVERHEAD * len(rows)
        self.records += records
        self.last_offset = rows[-1][0] + rows[-1][6]


class Folder:
    """The partition directory while it is being written."""

    def __init__(self, files: Files, path: str, entry: RecoveredPartition) -> None:
        self.files = files
        self.path = path
        self.entry = entry
        self.producers: ProducerState | None = ProducerState()
        self.epochs: list[EpochEntry] = []
        self.open_log: str | None = None
        self.next_offset = 0
        self.number = 0

    def name(self, offset: int, kind: FileKind) -> str:
        """The path of a segment's file."""
        return posixpath.join(self.path, log_file_name(offset, kind))

    def write_segment(self, source: Files, segment: Segment) -> None:
        """One segment from ranges of the sources."""
        self.open_log = self.name(segment.base_offset, "log")
        with self.files.open(self.open_log, "new") as log:
            self.copy(source, segment, log)
            self.close_segment(log, segment.base_offset)

    def copy(self, source: Files, segment: Segment, log: File) -> None:
        """Write a segment's log."""
        position = 0
        for run in segment.runs:
            for chunk in chunks_of(source, run):
                log.write(position, chunk)
                position += len(chunk)
        log.sync()

    def write_batches(self, found: Iterator[Batch]) -> None:
        """Write batch by batch, into segments of at most a GiB."""
        log: File | None = None
        base = position = 0
        for batch in found:
            if log is not None and (position + batch.size > 1 << 30 or batch.last_offset - base > _MAX_RELATIVE):
                log.sync()
                self.close_segment(log, base)
                log.close()
                log = None
            if log is None:
                base, position = batch.base_offset, 0
                self.open_log = self.name(base, "log")
                log = self.files.open(self.open_log, "new")
            log.write(position, batch.data())
            position += batch.size
        if log is not None:
            log.sync()
            self.close_segment(log, base)
            log.close()

    def close_segment(self, log: File, base_offset: int) -> None:
        """Write the other files of a segment whose log is written."""
        if self.number:
            self.snapshot(base_offset)
        counted = _Tally()
        tally: _Tally | None = counted
        try:
            built = rebuild_indexes(log, base_offset, producers=self.producers, on_rows=counted.add)
        except LoadError as error:
            # Transactions contradict each other. The producer state is unknown, but each segment can be indexed by itself.
            self.entry.notes.append(f"{posixpath.basename(log.path)}: no producer snapshots from here on ({error})")
            self.producers = tally = None
            built = self.indexes_alone(log, base_offset)
        if built.damage is not None:
            raise KopsError(f"{log.path}: the new segment cannot be read back ({built.damage})")
        for kind, data in (("index", built.index), ("timeindex", built.timeindex), ("txnindex", built.txnindex)):
            if data or kind != "txnindex":
                self.write(self.name(base_offset, kind), data)  # type: ignore[arg-type]
        if tally is None or tally.has_old:
            self.count(log)
        else:
            self.take(tally)
        self.open_log = None
        self.number += 1

    def indexes_alone(self, log: File, base_offset: int) -> RebuiltIndexes:
        """Return the indexes of a segment by itself; none if Kafka fails on a batch in it whose checksum is correct."""
        try:
            return rebuild_indexes(log, base_offset)
        except LoadError as error:
            self.entry.notes.append(f"{posixpath.basename(log.path)}: it gets no indexes, and Kafka will not open it ({error})")
            return RebuiltIndexes(b"", b"", b"", log.size(), None)

    def count(self, log: File, on_batch: Callable[[Batch], None] | None = None) -> None:
        """Count batches, records, offsets and leader epochs of a complete segment."""
        for batch in scan(log, check_crc=False):
            assert isinstance(batch, Batch), "what was just written holds no damage"
            count_batch(self.entry, batch)
            if on_batch is not None:
                on_batch(batch)
            self.next_offset = batch.next_offset
            self.note_epoch(batch.partition_leader_epoch, batch.base_offset)

    def take(self, tally: _Tally) -> None:
        """Count the batches of a segment that were counted when its indexes were made."""
        entry = self.entry
        entry.batches += tally.batches
        entry.bytes += tally.bytes
        entry.records += tally.records
        if tally.batches:
            entry.first_offset = tally.first_offset if entry.first_offset is None else entry.first_offset
            entry.last_offset, self.next_offset = tally.last_offset, tally.last_offset + 1
        for epoch, offset in tally.epochs:
            self.note_epoch(epoch, offset)

    def note_epoch(self, epoch: int, offset: int) -> None:
        """A batch of this leader epoch is at this offset."""
        if epoch >= 0 and (not self.epochs or epoch > self.epochs[-1].epoch):
            self.epochs.append(EpochEntry(epoch, offset))

    def snapshot(self, offset: int) -> None:
        """Write the producers' state at this offset."""
        if self.producers is not None:
            self.write(self.name(offset, "snapshot"), snapshot_bytes(self.producers))

    def write(self, path: str, data: bytes) -> None:
        """Write a small file and flush it."""
        with self.files.open(path, "new") as file:
            file.write(0, data)
            file.sync()

    def drop_open(self) -> None:
        """Remove the segment that an interruption left incomplete."""
        if self.open_log is None:
            return
        stem = self.open_log.removesuffix(".log")
        for kind in ("log", "index", "timeindex", "txnindex", "snapshot"):
            if self.files.exists(f"{stem}.{kind}"):
                self.files.unlink(f"{stem}.{kind}")

    def finish(self, metadata: bytes | None) -> None:
        """Write the files of the partition as a whole."""
        if self.number and not self.files.exists(self.name(self.next_offset, "snapshot")):
            self.snapshot(self.next_offset)
        self.write(posixpath.join(self.path, LEADER_EPOCH_CHECKPOINT), write_leader_epoch_checkpoint(self.epochs))
        if metadata is not None:
            self.write(posixpath.join(self.path, PARTITION_METADATA), metadata)
        self.files.sync_dir(self.path)


def chunks_of(files: Files, run: Run) -> Iterator[bytes]:
    if not run.is_plain:
        for item in expand(files, run):
            yield bytes(item_batch(files, item).data())
        return
    with files.open(run.path) as file:
        for position in range(run.start, run.end, _CHUNK):
            chunk = file.read(position, min(_CHUNK, run.end - position))
            if not chunk:
                raise KopsError(f"{run.path}: the file became shorter while it was read")
            yield chunk
