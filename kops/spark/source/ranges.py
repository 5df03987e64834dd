"""Reads the rows of a range of offsets from a log that is being written, in a task of a stream. Needs no Spark.

A row belongs to the range with its offset, a batch (mode `batches`) to the range with its last offset, and damage to the range with the
offset after the batch before it. So consecutive ranges have every row once. Segments are looked up when they are read: they may have been
rolled, compacted, renamed (`.deleted`) or removed since the range was planned.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.errors import KopsError, NotFoundError
from kops.files import File, Files
from kops.forensics.inventory.tree import Segment, open_paths
from kops.records import Batch, Damage, scan
from kops.spark.source.rows import Source, Table, Wanted, batches_of, records_of
from kops.spark.tail.last_stable import markers
from kops.spark.tail.look import live_segments
from kops.spark.tail.places import before
from kops.spark.tail.planning import DATA_LOSS, Loss, Range

if TYPE_CHECKING:
    import pyarrow as pa

Chosen = tuple[Batch | Damage, int]
"""A batch or damage, and its first requested offset."""

_DELETED: Final = ".deleted"
HOW_TO_GO_ON: Final = "to continue without the lost records, set failOnDataLoss to false; a row of damage then reports them"


class Place(NamedTuple):
    """The place of a replica of the partition."""

    path: str
    broker: int | None


class Work(NamedTuple):
    """A range, and the replicas that have it, the preferred one first. Plain values, because it is pickled."""

    range: Range
    places: tuple[Place, ...]


class DataLossError(KopsError):
    """A stream that must not lose records has lost some."""


@dataclass(slots=True)
class _Cursor:
    """The progress in a range: `offset` is the next one to return. `known` is the offset after the last batch so far, None before the first
    one. `is_torn`: the last item was damage."""

    offset: int
    end: int
    known: int | None = None
    is_torn: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the rest belongs to the next range."""
        return self.known is not None and self.known >= self.end


def read_range(files: Files, work: Work, wanted: Wanted, *, is_committed: bool, fails: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. `fails`: raise DataLossError for lost records, instead of a row of damage."""
    asked = work.range
    if asked.loss is not None:
        yield _lost(work, wanted, asked.loss, fails=fails)
    cursor = _Cursor(asked.begin, asked.end)
    while cursor.offset < cursor.end:
        # Twice, because a segment may have been replaced after it was listed.
        for place in (*work.places, *work.places):
            try:
                yield from _read_replica(files, asked, place, cursor, wanted, is_committed=is_committed)
            except FileNotFoundError:
                continue  # The next replica continues from here.
            break
        if cursor.offset >= cursor.end:
            return
        begins = [each.base_offset for place in work.places for each in _segments(files, place.path)]
        end = min((base for base in begins if cursor.offset < base < cursor.end), default=cursor.end)
        reason = f"offsets {cursor.offset} to {end - 1} are no longer in the log: they were deleted or cut off before they were read"
        yield _lost(work, wanted, Loss(asked.key, cursor.offset, end - 1, reason), fails=fails)
        cursor.offset = end


def _read_replica(
    files: Files, asked: Range, place: Place, cursor: _Cursor, wanted: Wanted, *, is_committed: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows from the cursor on. Raises FileNotFoundError if this replica does not have them. If its log ends earlier, the cursor
    stops there."""
    undo = _Undo(files, place.path, asked.end) if is_committed else None
    last = -1
    if not _segments(files, place.path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place.path)
    while segments := [each for each in _segments(files, place.path) if each.base_offset > last]:
        bases = [each.base_offset for each in segments]
        if last < 0 and bases[0] > cursor.offset:
            raise FileNotFoundError(errno.ENOENT, "the log begins later", place.path)
        for segment, following in zip_longest(segments, bases[1:]):
            if following is not None and following < cursor.offset:
                continue
            if segment.base_offset >= cursor.end:
                cursor.offset = cursor.end  # Compaction has removed the last ones.
                return
            yield from _read_segment(files, asked, place, segment, following, cursor, wanted, undo)
            if cursor.is_done:
                cursor.offset = cursor.end
                return
            if following is not None:
                cursor.offset = max(cursor.offset, min(following, cursor.end))
        last = bases[-1]  # It may have been rolled meanwhile.
    if last >= 0 and cursor.is_torn:
        cursor.offset = cursor.end  # The row of damage stands for the rest.


def _read_segment(
    files: Files, asked: Range, place: Place, segment: Segment, following: int | None, cursor: _Cursor, wanted: Wanted, undo: _Undo | None
) -> Iterator[pa.RecordBatch]:
    log = segment.log
    assert log is not None
    topic, partition = asked.key
    source = Source(log.path, topic, partition, segment.base_offset, segment.state, log.size, place.broker)
    with _open(files, log.path) as file:
        position = before(files, segment, cursor.offset)
        cursor.known, cursor.is_torn = None if position else segment.base_offset, False
        chosen = _chosen(scan(file, position), cursor, following, is_whole=wanted.mode == "batches")
        if undo is not None:
            chosen = (each for each in chosen if not (isinstance(each[0], Batch) and undo.removes(each[0])))
        yield from _rows(chosen, source, wanted, asked.end)


def _chosen(found: Iterator[Batch | Damage], cursor: _Cursor, following: int | None, *, is_whole: bool) -> Iterator[Chosen]:
    """Yield the batches and the damage of a range, each with its first requested offset. `is_whole`: batches with their last offset in the
    range.

    A batch whose offsets were already read, or are those of a later segment, is misplaced. A consumer does not get it either
    (`CompletedFetch`).
    """
    first = cursor.offset
    for item in found:
        if cursor.is_done:
            return
        cursor.is_torn = isinstance(item, Damage)
        if isinstance(item, Damage):
            if cursor.known is not None and cursor.known >= first:
                yield item, first
        elif following is None or item.last_offset < following:
            offset = cursor.offset
            cursor.known = max(item.next_offset, cursor.known or 0)
            if item.last_offset >= offset and (item.last_offset < cursor.end if is_whole else _first_offset(item) < cursor.end):
                cursor.offset = min(item.next_offset, cursor.end)
                yield item, offset


def _first_offset(batch: Batch) -> int:
    # The first offset of a compressed set of v0 or v1 needs decompression; its records are read one by one anyway.
    return batch.base_offset if batch.magic > 1 else -1


def _rows(chosen: Iterator[Chosen], source: Source, wanted: Wanted, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the chosen batches. A batch that is only partly in the range is handled alone, and its rows are selected by
    offset."""
    if wanted.mode == "batches":
        table = Table(wanted)
        yield from batches_of((item for item, _ in chosen), source, wanted, table)
        if table.rows:
            yield table.take()
        return

    def part(each: Chosen) -> int:
        item, first = each
        if isinstance(item, Damage):
            return -1
        whole = item.magic > 1 and item.base_offset >= first and item.last_offset < end
        return -1 if whole else item.position

    wider = replace(wanted, columns=(*wanted.columns, *(name for name in ("offset", "damage") if name not in wanted.columns)))
    for position, group in groupby(chosen, part):
        if position < 0:
            yield from records_of((item for item, _ in group), source, wanted)
            continue
        ((item, first),) = group
        for rows in records_of([item], source, wider):
            assert isinstance(item, Batch)
            yield _between(rows, first, end, is_last=item.last_offset < end).select(list(wanted.columns))


def _between(rows: pa.RecordBatch, first: int, end: int, *, is_last: bool) -> pa.RecordBatch:
    """Yield the rows with these offsets; a row of damage belongs to the range with the batch's last offset."""
    import pyarrow as pa
    import pyarrow.compute as pc

    damaged = pc.is_valid(rows.column("damage"))
    offsets = rows.column("offset")
    within = pc.and_(pc.greater_equal(offsets, pa.scalar(first, pa.int64())), pc.less(offsets, pa.scalar(end, pa.int64())))
    return rows.filter(pc.if_else(damaged, pa.scalar(is_last), within))


class _Undo:
    """Knows the batches of aborted transactions. It reads the markers at the first transactional batch."""

    def __init__(self, files: Files, path: str, end: int) -> None:
        self._files = files
        self._path = path
        self._end = end
        self._markers: dict[int, tuple[list[int], list[bool]]] | None = None

    def removes(self, batch: Batch) -> bool:
        """Whether the next marker of the batch's producer aborts."""
        if batch.is_control or not batch.is_transactional:
            return False
        if self._markers is None:
            self._markers = self._look(batch.base_offset)
        offsets, commits = self._markers.get(batch.producer_id, ([], []))
        place = bisect_right(offsets, batch.last_offset)
        return place < len(offsets) and not commits[place]

    def _look(self, begin: int) -> dict[int, tuple[list[int], list[bool]]]:
        """Read all markers from `begin` on, until all transactions with records before the range's end have theirs."""
        found: dict[int, tuple[list[int], list[bool]]] = {}
        waiting: set[int] = set()
        segments = _segments(self._files, self._path)
        for segment, following in zip_longest(segments, [each.base_offset for each in segments[1:]]):
            if following is not None and following <= begin:
                continue
            assert segment.log is not None
            with _open(self._files, segment.log.path) as file:
                for item in scan(file, before(self._files, segment, begin), check_crc=False):
                    if isinstance(item, Damage):
                        continue
                    if item.base_offset >= self._end and not waiting:
                        return found
                    if item.is_control:
                        for offset, commits in markers(item):
                            offsets, outcomes = found.setdefault(item.producer_id, ([], []))
                            offsets.append(offset)
                            outcomes.append(commits)
                            waiting.discard(item.producer_id)
                    elif item.is_transactional and item.base_offset < self._end:
                        waiting.add(item.producer_id)
        return found


def _segments(files: Files, path: str) -> list[Segment]:
    """The current live segments in a directory; none if it is gone."""
    try:
        found = [each for each in open_paths([path], files).partitions() if each.path == path]
    except NotFoundError:
        return []
    return live_segments(found[0]) if found else []


def _open(files: Files, path: str) -> File:
    """Open a segment's log. Kafka renames one that it deletes, and removes it `file.delete.delay.ms` later."""
    try:
        return files.open(path)
    except FileNotFoundError:
        return files.open(path + _DELETED)


def _lost(work: Work, wanted: Wanted, loss: Loss, *, fails: bool) -> pa.RecordBatch:
    """Return the row that stands for lost records, or raise DataLossError."""
    if fails:
        raise DataLossError(f"{loss}; {HOW_TO_GO_ON}")
    topic, partition = loss.key
    row: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "path": work.places[0].path if work.places else None,
        "broker": work.places[0].broker if work.places else None,
        "damage": {"code": DATA_LOSS, "reason": loss.reason, "baseOffset": loss.first, "lastOffset": loss.last},
    }
    row |= {"offset": loss.first} if wanted.mode == "records" else {"baseOffset": loss.first, "lastOffset": loss.last}
    table = Table(wanted)
    table.add(1, {}, row)
    return table.take()
