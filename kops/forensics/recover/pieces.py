"""Recovers one large partition in several tasks: parts of its files are read, and segments are written, each by itself.

1. `read_part` (`kops.forensics.recover.copies.runs`) finds the batches of a part of a file.
2. `merge_partition` joins the parts, merges the copies and decides what is written. It reads only what copies disagree about.
3. `write_piece` writes a segment with its offset and time index, or only counts it.
4. `finish_partition` adds what depends on all segments before: transaction indexes, producer snapshots and leader epochs. It puts the
   partition in its place.

As in `kops.forensics.recover.task`, every step may fail, run again, or run twice at the same time: an attempt writes files under a name of
its own, then renames them. The result is that of `recover_partition`. If it can't be made in this way (transactions that contradict each
other), `finish_partition` makes it in that one.
"""

from __future__ import annotations

import contextlib
import posixpath
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kops.errors import KopsError
from kops.files import Files
from kops.files.urls import is_url
from kops.forensics.recover.copies.batches import batches
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.runs import Reading, Source
from kops.forensics.recover.partition import Job, Known, salvage_partition
from kops.forensics.recover.report import RecoveredPartition
from kops.forensics.recover.task import (
    RESULTS,
    Order,
    failed_partition,
    known_result,
    put_in_place,
    recover_partition,
    write_result,
)
from kops.forensics.recover.write import PARTIAL, Folder, Segment, count_batch, output_path, remove_left, segments_of, short_name
from kops.records import Batch
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry
from kops.storage.formats.names import parse_log_file
from kops.storage.producers.state import ProducerState
from kops.storage.segments.recovery import rebuild_indexes, rebuild_transaction_index

__all__ = ["Merged", "Piece", "PieceResult", "finish_partition", "merge_partition", "run_step", "write_piece"]

_HEADER = 61
_LENGTH = struct.Struct(">I")
Gone = dict[str, list[tuple[int, int]]]


@dataclass(slots=True)
class Merged:
    """What `merge_partition` decided: the row as far as it is known, the segments to write, and the bytes that the disk can't read. With a
    `failure` in the row there is nothing to write."""

    entry: RecoveredPartition
    segments: list[Segment] = field(default_factory=list)
    gone: Gone = field(default_factory=dict)


@dataclass(slots=True)
class Piece:
    """A segment to write. `run` is a name that no other run uses."""

    job: str
    segment: Segment
    gone: Gone
    run: str


@dataclass(slots=True)
class PieceResult:
    """What a segment has. `failure`: why it could not be read or written. `is_alone`: it can't be written by itself."""

    base_offset: int
    row: RecoveredPartition
    epochs: list[EpochEntry] = field(default_factory=list)
    next_offset: int = 0
    failure: str | None = None
    is_alone: bool = True


def run_step(copy: Source, size: int, target: int) -> int:
    """The step at which the runs of a partition end (`append_item`), so that they have about `target` bytes. The names of a copy's segments
    say how many offsets its `size` bytes have; 0 (no step) if there is only one segment."""
    bases = [
        name.offset for path in copy.paths if (name := parse_log_file(posixpath.basename(path))) is not None and name.offset is not None
    ]
    span = max(bases) - min(bases) if bases else 0
    return max(span * target // size, 1) if span and size else 0


def merge_partition(files: Files, order: Order, job: Job, readings: list[list[Reading | None]], step: int) -> Merged:
    """Decide what of a partition is written. `readings` is what was found in the parts of its files, by copy. If a part could not be read
    by itself, everything is read again here."""
    patient = PatientFiles(files)
    found = [[each for each in some if each is not None] for some in readings]
    is_whole = [len(some) for some in found] == [len(some) for some in readings]
    try:
        entry, runs = salvage_partition(patient, job, known=Known(found, step) if is_whole else None)
    except (OSError, KopsError) as error:
        return Merged(failed_partition(order, job, error))
    entry.output = output_path(order.report(), job.name)
    gone = {path: patient.unreadable(path, 0, 1 << 63) for source in job.sources for path in source.paths}
    return Merged(entry, list(segments_of(runs)), {path: ranges for path, ranges in gone.items() if ranges})


def _source(files: Files, gone: Gone) -> PatientFiles:
    patient = PatientFiles(files)
    for path, ranges in gone.items():
        patient.remember(path, ranges)
    patient.sealed = True
    return patient


def _shared(order: Order, name: str, run: str) -> str:
    """Where the files of a partition are gathered. In a store, they are uploaded to their places at once: the result says that all are
    there."""
    output = output_path(order.report(), name)
    return output if is_url(order.out) else posixpath.join(order.out, f"{short_name(name)}.{run}{PARTIAL}")


def _producers_path(order: Order, name: str, base_offset: int) -> str:
    return posixpath.join(order.out, RESULTS, f"{short_name(name)}-{base_offset}.producers")


def write_piece(files: Files, out_files: Files, order: Order, piece: Piece, attempt: str) -> PieceResult:
    """Write one segment, or count it if the order is for a plan."""
    segment, source = piece.segment, _source(files, piece.gone)
    row = RecoveredPartition(piece.job, "", [])
    found = PieceResult(segment.base_offset, row)
    partial = posixpath.join(order.out, f"{short_name(piece.job)}-{segment.base_offset}.{attempt}{PARTIAL}")
    try:
        if order.is_plan:
            for batch in batches(source, segment.runs, False):
                count_batch(row, batch)
            return found
        out_files.mkdir(partial)
        folder = Folder(out_files, partial, row)
        _write(source, folder, segment, _producers_path(order, piece.job, segment.base_offset), attempt)
        found.epochs, found.next_offset = folder.epochs, folder.next_offset
        _move_all(out_files, partial, _shared(order, piece.job, piece.run))
    except LoadError:
        found.is_alone = False
        remove_left(out_files, partial)
    except (OSError, KopsError) as error:
        found.failure = str(error)
        remove_left(out_files, partial)
    return found


def _write(source: Files, folder: Folder, segment: Segment, producers: str, attempt: str) -> None:
    """Write the log, the indexes that depend on it alone, and its batches of producers for `finish_partition`."""
    base = segment.base_offset
    kept = _ProducerBatches()
    with folder.files.open(folder.name(base, "log"), "new") as log:
        folder.copy(source, segment, log)
        built = rebuild_indexes(log, base)
        if built.damage is not None:
            raise KopsError(f"{log.path}: the new segment cannot be read back ({built.damage})")
        folder.write(folder.name(base, "index"), built.index)
        folder.write(folder.name(base, "timeindex"), built.timeindex)
        folder.count(log, kept.add)
    folder.write(f"{producers}.{attempt}", kept.data())
    folder.files.rename(f"{producers}.{attempt}", producers)


def _move_all(files: Files, source: str, target: str) -> None:
    """Move the files of a directory into another one. Equal files of another attempt are replaced."""
    if not files.exists(target):
        with contextlib.suppress(FileExistsError):  # Another task was faster.
            files.mkdir(target)
    for name in files.list(source):
        files.rename(posixpath.join(source, name), posixpath.join(target, name))
    files.rmdir(source)


class _ProducerBatches:
    """The batches of a segment that say what `rebuild_transaction_index` has to know."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._last: dict[int, tuple[tuple[int, bool, bool], int | None]] = {}

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        if batch.magic < 2 or batch.producer_id < 0:
            return
        if batch.is_control:
            self._last.pop(batch.producer_id, None)
            self._kept.append(bytes(batch.data()))
            return
        kind = (batch.producer_epoch, batch.is_transactional, batch.base_sequence < 0)
        header = bytes(batch.data()[:_HEADER])
        before = self._last.get(batch.producer_id)
        if before is None or before[0] != kind:
            self._last[batch.producer_id] = (kind, None)
        elif before[1] is None:
            self._last[batch.producer_id] = (kind, len(self._kept))
        else:
            self._kept[before[1]] = header
            return
        self._kept.append(header)

    def data(self) -> bytes:
        """The batches for a file."""
        return zlib.compress(b"".join(_LENGTH.pack(len(each)) + each for each in self._kept), 1)


def _producer_batches(data: bytes) -> Iterator[Batch]:
    content = zlib.decompress(data)
    position = 0
    while position < len(content):
        (length,) = _LENGTH.unpack_from(content, position)
        position += _LENGTH.size
        yield Batch(content[position : position + length])
        position += length


def counted(entry: RecoveredPartition, pieces: Sequence[PieceResult]) -> None:
    """Add the numbers of all segments to the row."""
    for piece in pieces:
        entry.batches += piece.row.batches
        entry.records += piece.row.records
        entry.bytes += piece.row.bytes
        if entry.first_offset is None:
            entry.first_offset = piece.row.first_offset
        if piece.row.last_offset is not None:
            entry.last_offset = piece.row.last_offset


def finish_partition(
    files: Files, out_files: Files, order: Order, job: Job, merged: Merged, pieces: Sequence[PieceResult], run: str, attempt: str
) -> RecoveredPartition:
    """Complete a partition whose segments are written, or counted for a plan. A failure is in the result."""
    entry = merged.entry
    failure = entry.failure or next((piece.failure for piece in pieces if piece.failure is not None), None)
    if order.is_plan:
        if failure is not None:
            return failed_partition(order, job, KopsError(failure))
        counted(entry, pieces)
        return entry
    shared, partial = _shared(order, job.name, run), posixpath.join(order.out, f"{short_name(job.name)}.{attempt}{PARTIAL}")
    uncounted = replace(entry, notes=list(entry.notes))
    try:
        if failure is not None:
            remove_left(out_files, shared)
            return failed_partition(order, job, KopsError(failure))
        known = known_result(out_files, order, job.name)
        if known is not None:
            return known
        if not all(piece.is_alone for piece in pieces):
            raise LoadError("a segment depends on those before it")
        counted(entry, pieces)
        out_files.mkdir(partial)
        _complete(Folder(out_files, partial, entry), order, job, pieces)
        _move_all(out_files, partial, shared)
        if not is_url(order.out):
            out_files.sync_dir(shared)
            write_result(out_files, order, entry, attempt)
            put_in_place(out_files, shared, entry.output)
            out_files.sync_dir(order.out)
        else:
            write_result(out_files, order, entry, attempt)
    except LoadError:
        remove_left(out_files, partial)
        remove_left(out_files, shared)
        runs = [run for segment in merged.segments for run in segment.runs]
        return recover_partition(files, out_files, order, job, attempt, (uncounted, runs))
    except (OSError, KopsError) as error:
        remove_left(out_files, partial)
        known = known_result(out_files, order, job.name)  # Another attempt may have moved everything to its place.
        return known if known is not None else failed_partition(order, job, error)
    return entry


def _complete(folder: Folder, order: Order, job: Job, pieces: Sequence[PieceResult]) -> None:
    """Write what depends on all segments before: as `Folder.close_segment` and `Folder.finish` do. Raises LoadError if transactions
    contradict each other."""
    producers = folder.producers
    assert isinstance(producers, ProducerState)
    for piece in pieces:
        if folder.number:
            folder.snapshot(piece.base_offset)
        data = folder.files.read_all(_producers_path(order, job.name, piece.base_offset))
        index = rebuild_transaction_index(_producer_batches(data), piece.base_offset, producers)
        if index:
            folder.write(folder.name(piece.base_offset, "txnindex"), index)
        for epoch in piece.epochs:
            folder.note_epoch(epoch.epoch, epoch.start_offset)
        folder.next_offset = piece.next_offset
        folder.number += 1
    folder.finish(job.metadata)
