"""Lists the segments of partitions, their states and ranges, for `kops log ls`.

By default it is cheap: it reads the first batch's header, and the batches after the last entry of the offset index. `deep` reads all
batches, which gives counts, every leader epoch and producer, and damage (with checksums).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import File, Files
from kops.forensics.inventory.tree import SEGMENT_KINDS, Inventory, PartitionDir, Segment, open_partition
from kops.records import Batch, Damage, scan
from kops.storage.formats.producer_snapshot import read_producer_snapshot
from kops.storage.segment_files.offset_index import read_offset_index
from kops.storage.segment_files.time_index import read_time_index
from kops.storage.segment_files.transaction_index import ENTRY_SIZE as TXN_ENTRY_SIZE

SCHEMA: Final = "kops.ls/v1"


@dataclass(slots=True)
class SegmentRow:
    """A segment. Sizes in bytes, times in ms; None for an unknown value (counts need `deep`).

    `name` is `topic-partition`, or the folder's name. `state`: `live`, `deleted`, `cleaned` or `swap`; `dir_state`: that of the partition's
    folder, `""`, `delete`, `stray` or `future`. `size` is that of the `.log`, `total_size` that of all files. `flags`: `active` (the last
    live one), `empty`, `damaged`, `no-log`, `no-index`, `no-timeindex`, `preallocated` (an index still has its zeros: no clean stop),
    `bad-index`, `bad-snapshot`.
    """

    dir: str
    name: str
    topic: str | None
    partition: int
    dir_state: str
    state: str
    base_offset: int
    first_offset: int | None = None
    last_offset: int | None = None
    size: int | None = None
    total_size: int = 0
    batches: int | None = None
    records: int | None = None
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    leader_epochs: list[int] = field(default_factory=list)
    producers: int | None = None
    index_entries: int | None = None
    timeindex_entries: int | None = None
    aborted_txns: int | None = None
    snapshot_producers: int | None = None
    codecs: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in SegmentRow.__slots__}


def segment_rows(
    files: Files, inventory: Inventory, *, deep: bool = False, on_error: Callable[[OSError], object] | None = None
) -> Iterator[SegmentRow]:
    """Yield a row for each segment, partition by partition. For a file that can't be read, see `partition_rows`."""
    for partition in inventory.partitions():
        yield from partition_rows(files, partition, deep=deep, on_error=on_error)
    for entry in inventory.loose_files:
        if entry.kind in SEGMENT_KINDS and entry.offset is not None:
            partition = open_partition(os.path.dirname(entry.path) or ".", files)
            yield from partition_rows(files, partition, deep=deep, only=(entry.suffix, entry.offset), on_error=on_error)


def partition_rows(
    files: Files,
    partition: PartitionDir,
    *,
    deep: bool = False,
    only: tuple[str, int] | None = None,
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[SegmentRow]:
    """A row for each of a partition's segments, or for the one of this suffix and base offset.

    A file that can't be read raises OSError. With `on_error`, that gets the error, and the segment's row has the flag `unreadable`.
    """
    live = partition.live_segments
    for segment in partition.segments:
        if only is not None and only != (segment.suffix, segment.base_offset):
            continue
        row = SegmentRow(
            dir=partition.path,
            name=partition.name,
            topic=partition.topic,
            partition=partition.partition,
            dir_state=partition.state,
            state=segment.state,
            base_offset=segment.base_offset,
            total_size=segment.size,
            files={entry.name: entry.size for entry in segment.files.values()},
        )
        if live and segment is live[-1]:
            row.flags.append("active")
        try:
            tail = _indexes(files, segment, row)
            _log(files, segment, row, tail, deep)
        except OSError as error:
            if on_error is None:
                raise
            on_error(error)
            row.flags.append("unreadable")
        yield row


def _indexes(files: Files, segment: Segment, row: SegmentRow) -> int:
    """Fill in the data of the other files. Returns the position from which the end of the log can be found."""
    position = 0
    found = segment.files
    if "index" in found:
        index = read_offset_index(files.read_all(found["index"].path), segment.base_offset)
        row.index_entries = index.written
        if index.written < index.entries:
            row.flags.append("preallocated")
        if index.written:
            last = index[min(index.written, index.entries) - 1] if index.entries else None
            size = segment.log.size if segment.log is not None else 0
            position = last.position if last is not None and 0 <= last.position < size else 0
    elif segment.suffix == "":
        row.flags.append("no-index")
    if "timeindex" in found:
        times = read_time_index(files.read_all(found["timeindex"].path), segment.base_offset)
        row.timeindex_entries = times.written
        if 0 < times.written <= times.entries:
            row.max_timestamp = times[times.written - 1].timestamp
    elif segment.suffix == "":
        row.flags.append("no-timeindex")
    if "txnindex" in found:
        row.aborted_txns = found["txnindex"].size // TXN_ENTRY_SIZE
    if "snapshot" in found:
        try:
            row.snapshot_producers = len(read_producer_snapshot(files.read_all(found["snapshot"].path)))
        except DecodeError:
            row.flags.append("bad-snapshot")
    return position


def _log(files: Files, segment: Segment, row: SegmentRow, tail: int, deep: bool) -> None:
    log = segment.log
    if log is None:
        row.flags.append("no-log")
        return
    row.size = log.size
    with files.open(log.path) as file:
        if not log.size:
            row.flags.append("empty")
            row.batches = row.records = 0
            return
        first = next(scan(file, check_crc=deep), None)
        if isinstance(first, Batch):
            row.first_offset = first.base_offset
            row.first_timestamp = first.max_timestamp if first.magic < 2 else first.base_timestamp
            _epochs(row, first)
        if deep:
            _walk(file, row)
        elif not _tail(file, row, tail):
            row.flags.append("bad-index")
            _tail(file, row, 0)


def _epochs(row: SegmentRow, batch: Batch) -> None:
    if batch.magic > 1 and batch.partition_leader_epoch not in row.leader_epochs:
        row.leader_epochs.append(batch.partition_leader_epoch)
    if batch.codec not in row.codecs:
        row.codecs.append(batch.codec)


def _tail(file: File, row: SegmentRow, position: int) -> bool:
    """Find the log's end from a position on; False if no batch begins there."""
    first = True
    for item in scan(file, position, check_crc=False):
        if isinstance(item, Damage):
            if first and position:
                return False
            if "damaged" not in row.flags:
                row.flags.append("damaged")
        else:
            row.last_offset = item.last_offset
            row.max_timestamp = max(item.max_timestamp, -1 if row.max_timestamp is None else row.max_timestamp)
            _epochs(row, item)
        first = False
    return True


def _walk(file: File, row: SegmentRow) -> None:
    """Read every header and checksum of the log."""
    producers: set[int] = set()
    row.max_timestamp = None
    batches = records = 0
    counted = True
    for item in scan(file):
        if isinstance(item, Damage):
            if "damaged" not in row.flags:
                row.flags.append("damaged")
            continue
        batches += 1
        if item.count is None:
            counted = counted and not item.compressed
            records += 1
        else:
            records += item.count
        if item.has_producer_id:
            producers.add(item.producer_id)
        row.last_offset = item.last_offset
        row.max_timestamp = max(item.max_timestamp, -1 if row.max_timestamp is None else row.max_timestamp)
        _epochs(row, item)
    row.batches = batches
    row.records = records if counted else None
    row.producers = len(producers)
