"""Replays a metadata log into the image at an offset, past damage: the newest usable snapshot below it, then the log.

Sources: Kafka's `MetadataLoader`, `MetadataBatchLoader` (a transaction becomes visible when it ends), `RecordsSnapshotReader`. Kafka ends
at the first record that can't be read or that contradicts the image. This replay reports it, leaves it out and continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import DecodeError
from kops.metadata.image.batch_loader import BatchLoader, LoadedBatch
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.raft.log.control_records import check_control_record
from kops.metadata.raft.log.entries import data_value
from kops.metadata.records import read_record
from kops.protocol.messages import RemoveTopicRecord
from kops.records import Batch, Damage, scan
from kops.records.record import SNAPSHOT_FOOTER, ControlRecord, SnapshotHeader, read_control_record

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import FileEntry
    from kops.forensics.metadata_log.source import MetadataSource
    from kops.protocol.declaration import Message

DAMAGED: Final = "damaged"
UNREADABLE: Final = "unreadable"
CONTRADICTION: Final = "contradiction"
GAP: Final = "gap"


class Fault(NamedTuple):
    """Something that was left out: its kind, place and reason. `position` is None for a record inside a batch."""

    kind: str
    file: str
    position: int | None
    length: int | None
    base_offset: int | None
    last_offset: int | None
    reason: str


@dataclass(slots=True)
class Replayed:
    """An image, the snapshot it began with (None: an empty image), the next offset after the last one read, and what was left out.

    `open_transaction` says that the log ends within a metadata transaction, whose records are not in the image.
    """

    image: MetadataImage = EMPTY
    snapshot: FileEntry | None = None
    end_offset: int = 0
    faults: list[Fault] = field(default_factory=list)
    open_transaction: bool = False


def replay(source: MetadataSource, files: Files, *, end: int | None = None, use_snapshots: bool = True) -> Replayed:
    """Return the image of all records below `end` (None: of all records).

    The snapshot is the newest one that ends at or below `end` and has no damage; if all are damaged, the newest. Without `use_snapshots`,
    or without any, the replay begins with the first segment.
    """
    result = Replayed()
    if use_snapshots:
        _begin_with_snapshot(source, files, end, result)
    extend(source, files, end, result)
    return result


def _begin_with_snapshot(source: MetadataSource, files: Files, end: int | None, result: Replayed) -> None:
    usable = [each for each in source.snapshots if each.offset is None or end is None or each.offset <= end]
    chosen: tuple[MetadataImage, FileEntry] | None = None
    for entry in reversed(usable):
        image, faults = read_snapshot(entry, files)
        result.faults += faults
        if chosen is None or not faults:
            chosen = (image, entry)
        if not faults:
            break
    if chosen is not None:
        result.image, result.snapshot = chosen
        result.end_offset = chosen[1].offset or 0


def read_snapshot(entry: FileEntry, files: Files) -> tuple[MetadataImage, list[Fault]]:
    """The image in a snapshot and what is wrong with it. OSError if it can't be read."""
    faults: list[Fault] = []
    delta = MetadataDelta(EMPTY)
    time_ms = -1
    is_complete = False
    for batch in _batches(entry, files, faults):
        if batch.is_control:
            time_ms = max(time_ms, _header_time(batch))
            is_complete = SNAPSHOT_FOOTER in _check_controls(entry.path, batch, faults)
            continue
        for message in _messages(entry.path, batch, faults):
            try:
                delta.replay(message)
            except (DecodeError, ValueError) as error:
                faults.append(_fault(CONTRADICTION, entry.path, batch, f"{type(message).__name__}: {_reason(error)}"))
    if not is_complete and not faults:
        reason = "the snapshot has no footer: it was not finished" if entry.size else "the snapshot is empty"
        faults.append(Fault(DAMAGED, entry.path, entry.size, None, None, None, reason))
    delta.finish_snapshot()
    return delta.apply(MetadataProvenance((entry.offset or 0) - 1, entry.epoch or 0, time_ms, True)), faults


def _controls(batch: Batch) -> list[ControlRecord]:
    try:
        return [read_control_record(record) for record in batch.records()]
    except DecodeError:
        return []


def _check_controls(path: str, batch: Batch, faults: list[Fault], end: int | None = None) -> list[str]:
    """Return the types of the control records below `end` that can be read."""
    found = []
    try:
        for record in batch.iterate():
            if end is not None and record.offset >= end:
                break
            try:
                found.append(check_control_record(batch, record))
            except DecodeError as error:
                faults.append(Fault(UNREADABLE, path, batch.position, None, record.offset, record.offset, error.reason))
    except DecodeError as error:
        faults.append(_fault(DAMAGED, path, batch, error.reason))
    return found


def _header_time(batch: Batch) -> int:
    found = [one.value.last_contained_log_timestamp for one in _controls(batch) if isinstance(one.value, SnapshotHeader)]
    return found[0] if found else -1


def extend(source: MetadataSource, files: Files, end: int | None, result: Replayed) -> None:
    """Replay the log from `result.end_offset` to `end` onto `result.image`. OSError if a segment can't be read."""
    at: list[tuple[FileEntry, Batch]] = []

    def contradicts(where: str, error: DecodeError) -> None:
        entry, batch = at[-1]
        number = where.rpartition(" ")[2]
        offset = int(number) if number.isdigit() else batch.base_offset
        result.faults.append(Fault(CONTRADICTION, entry.path, batch.position, None, offset, offset, error.reason))

    loader = BatchLoader(lambda delta, image, manifest: None, contradicts)
    loader.reset(result.image)
    for entry in source.logs:
        for batch in _batches(entry, files, result.faults):
            if batch.next_offset <= result.end_offset:
                continue
            if end is not None and batch.base_offset >= end:
                break
            if batch.base_offset > result.end_offset:
                _gap(entry, batch, result)
            at[:] = [(entry, batch)]
            _load(loader, entry, batch, end, result)
            result.end_offset = batch.next_offset if end is None else min(batch.next_offset, end)
    loader.flush()
    result.image = loader.image
    result.open_transaction = result.image.offset + 1 < result.end_offset and bool(at)


def _gap(entry: FileEntry, batch: Batch, result: Replayed) -> None:
    first = result.end_offset
    if first == 0 and result.snapshot is None and not result.faults:
        reason = f"the log begins with offset {batch.base_offset}, and no snapshot covers the offsets below"
    else:
        reason = f"offsets {first} to {batch.base_offset - 1} are missing before this batch"
    result.faults.append(Fault(GAP, entry.path, batch.position, None, first, batch.base_offset - 1, reason))


def _load(loader: BatchLoader, entry: FileEntry, batch: Batch, end: int | None, result: Replayed) -> None:
    messages: list[Message] = []
    if batch.is_control:
        _check_controls(entry.path, batch, result.faults, end)
    else:
        messages = list(_messages(entry.path, batch, result.faults, end))
    last_offset = batch.last_offset if end is None else min(batch.last_offset, end - 1)
    epoch, time_ms = batch.partition_leader_epoch, batch.max_timestamp
    if any(isinstance(message, RemoveTopicRecord) for message in messages):
        loader.flush()  # A topic's settings are removed with it only if they are in an image. A node has them in an image by now.
    try:
        loader.load(LoadedBatch(batch.base_offset, last_offset, epoch, time_ms, batch.size, messages))
    except ValueError as error:  # No enumeration of Kafka has this number.
        result.faults.append(_fault(CONTRADICTION, entry.path, batch, _reason(error)))


def _batches(entry: FileEntry, files: Files, faults: list[Fault]) -> Iterator[Batch]:
    with files.open(entry.path) as file:
        for item in scan(file):
            if isinstance(item, Damage):
                place = (item.position, item.length, item.base_offset, item.last_offset)
                faults.append(Fault(DAMAGED, entry.path, *place, item.reason))
            else:
                yield item


def _messages(path: str, batch: Batch, faults: list[Fault], end: int | None = None) -> Iterator[Message]:
    try:
        for record in batch.iterate():
            if end is not None and record.offset >= end:
                return
            try:
                yield read_record(data_value(batch, record))[0]
            except DecodeError as error:
                faults.append(Fault(UNREADABLE, path, batch.position, None, record.offset, record.offset, error.reason))
    except DecodeError as error:
        faults.append(_fault(DAMAGED, path, batch, error.reason))


def _fault(kind: str, path: str, batch: Batch, reason: str) -> Fault:
    return Fault(kind, path, batch.position, batch.size, batch.base_offset, batch.last_offset, reason)


def _reason(error: DecodeError | ValueError) -> str:
    return error.reason if isinstance(error, DecodeError) else str(error)
