"""The readable batches of a log and the damage between them, as `repair`, `recover` and `heal` see them.

A header that contradicts the records under its checksum is mended from them, if they leave no doubt. Source: Kafka's `DefaultRecordBatch`
and `AbstractLegacyRecordBatch` (which fields a checksum covers, and from what a compressed set has its offsets).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.plans.item import Item
from kops.records import Batch, Damage, scan_columns
from kops.records.build import write_batch
from kops.records.scanning.columns import Columns

__all__ = ["Bad", "Item", "item_batch", "item_of", "mend_contents", "read_items", "stream_items"]

_ALL_RECORDS: Final = 0x7FFFFFFF


@dataclass(slots=True)
class Bad:
    """Bytes that are not a readable batch. `code` is the scanner's or that of `Batch.check`. Offsets and `header` are set if they can be
    read."""

    path: str
    position: int
    length: int
    code: str
    reason: str
    base: int | None = None
    last: int | None = None
    header: Item | None = None


def read_items(files: Files, path: str) -> tuple[list[Item], list[Bad]]:
    """Return every readable batch of a log, in file order, and what lies between them (see `stream_items`)."""
    items: list[Item] = []
    bad: list[Bad] = []
    for window in _windows(files, path):
        for found in window:
            if isinstance(found, Bad):
                bad.append(found)
            else:
                items.append(found)
    return items, bad


def stream_items(files: Files, path: str, *, on_bytes: Callable[[int], None] | None = None) -> Iterator[Item | Bad]:
    """Yield the readable batches of a log, and what lies between them, in file order.

    Records are parsed, too. A batch whose header contradicts its records is mended if they leave no doubt; otherwise it is bad.
    """
    for window in _windows(files, path):
        for item in window:
            if on_bytes is not None:
                on_bytes(item.length if isinstance(item, Bad) else item.size)
            yield item


def _windows(files: Files, path: str) -> Iterator[Sequence[Item | Bad]]:
    with files.open(path) as file:
        for found in scan_columns(file):
            yield [item_of(path, found)] if isinstance(found, Damage) else _window_items(path, found)


def _window_items(path: str, window: Columns) -> list[Item | Bad]:
    unsound = set(window.unsound())
    return [
        item_of(path, window.batch(number)) if number in unsound else Item.of_row(path, position, row)
        for number, (row, position) in enumerate(zip(window.rows, window.positions, strict=True))
    ]


def item_of(path: str, found: Batch | Damage) -> Item | Bad:
    """What the scanner found, as in `stream_items`."""
    if isinstance(found, Damage):
        header = Item.of(path, found.batch) if found.batch is not None and found.batch.magic > 1 else None
        base, last = (found.base_offset, found.last_offset) if found.has_offsets else (None, None)
        return Bad(path, found.position, found.length, found.code, found.reason, base, last, header)
    problems = found.check()
    item = _judge(path, found, problems[0]) if problems else Item.of(path, found)
    if isinstance(item, Item) and item.magic == 1 and item.compressed and item.last == 0:
        # No log has a set that ends at 0 if its last record is not the first one, but Kafka takes its relative offsets for absolute ones.
        item.base = -max(record.offset for record in found.iterate())
    return item


def _judge(path: str, batch: Batch, problem: DecodeError) -> Item | Bad:
    """Judge a batch whose checksum holds, but whose records do not fit its header."""
    data = mend_contents(batch) if batch.magic > 1 else _mend_set(batch)
    if data is not None:
        mended = Batch(data)
        mended.position = batch.position
        return Item.of(path, mended, data=data, note=f"header mended from its records: {problem.reason}")
    if problem.code == "bad-offsets":
        return Item.of(path, batch)  # It is readable as it is, and no better value is known.
    return Bad(path, batch.position, batch.size, problem.code, problem.reason, batch.base_offset, batch.last_offset)


def item_batch(files: Files, item: Item) -> Batch:
    """Read the batch of an item."""
    if item.data is not None:
        return Batch(item.data)
    with files.open(item.path) as file:
        return Batch(file.read(item.position, item.size))


def mend_contents(batch: Batch, last_offset: int | None = None) -> bytes | None:
    """Return a v2 batch with the same records and a header that fits them (count, last offset, latest timestamp); None if that is not
    enough.

    `last_offset`: take this one instead of the header's.
    """
    if batch.magic != 2 or batch.count is None:
        return None
    count, last, latest = _survey(batch)
    if not count:
        return None
    mended = write_batch(
        bytes(batch.data()[61:]),
        base_offset=batch.base_offset,
        last_offset=max(batch.last_offset, last) if last_offset is None else last_offset,
        count=count,
        attributes=batch.attributes,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp if batch.attributes & 8 else max(batch.max_timestamp, latest),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
    )
    return None if Batch(mended).check() else mended


def _survey(batch: Batch) -> tuple[int, int, int]:
    """-> (how many records can be read, the last one's offset, their latest timestamp); (0, -1, -1) without any."""
    whole = Batch(bytes(batch.data()))
    whole.count = _ALL_RECORDS
    count, last, latest = 0, -1, -1
    try:
        for record in whole.iterate():
            last = record.offset
            latest = record.timestamp if not count else max(latest, record.timestamp)
            count += 1
    except DecodeError as error:
        if error.code != "bad-records":
            return 0, -1, -1
    return count, last, latest


def _mend_set(batch: Batch) -> bytes | None:
    """Return a compressed v0 set with the offset of its last message, which the checksum covers. The checksum does not cover the set's own
    offset."""
    if batch.magic or not batch.compressed:
        return None
    try:
        last = deque(batch.iterate(), 1)[0].offset
    except DecodeError:
        return None
    mended = struct.pack(">q", last) + bytes(batch.data()[8:])
    return None if Batch(mended).check() else mended
