"""Finds the parts of the logs that a query needs: segments are left out by their names and time indexes, parts of segments by their offset
indexes.

It trusts the names of segments, as a broker does (`LogSegments.floorSegment`), a time index in order whose last entry lies in its segment
(Kafka's `LogSegment.onBecomeInactiveSegment` puts the largest timestamp there), and an entry of an offset index if its batch is there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kops.files import Files
from kops.records import Batch, scan
from kops.storage.segment_files.offset_index import read_offset_index
from kops.storage.segment_files.time_index import read_time_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.forensics.inventory.tree import PartitionDir, Segment


_WINDOW = 1 << 16  # A batch at an index entry is seldom larger.


@dataclass(slots=True)
class Bounds:
    """The rows that a query requests. None means any. Offsets are inclusive, times in ms."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp: int | None = None

    def equal(self, name: str, values: Sequence[Any]) -> None:
        """A column is one of these values."""
        known = [value for value in values if value is not None]
        if len(known) != len(values) or not known:
            return
        if name == "topic":
            self.topics = frozenset(known) if self.topics is None else self.topics & frozenset(known)
        elif name == "partition":
            self.partitions = frozenset(known) if self.partitions is None else self.partitions & frozenset(known)
        else:
            self.bound(name, min(known), low=True)
            self.bound(name, max(known), low=False)

    def bound(self, name: str, value: Any, *, low: bool) -> None:
        """A column is at least (`low`) or at most this. A bound of a record's offset or time also bounds the batches that hold it."""
        if name == "offset" or (name == "lastOffset" and low) or (name == "baseOffset" and not low):
            if low:
                self.min_offset = value if self.min_offset is None else max(value, self.min_offset)
            else:
                self.max_offset = value if self.max_offset is None else min(value, self.max_offset)
        elif name in ("timestamp", "maxTimestamp") and low and hasattr(value, "timestamp"):
            milliseconds = int(value.timestamp() * 1000)
            self.min_timestamp = milliseconds if self.min_timestamp is None else max(milliseconds, self.min_timestamp)

    def wants(self, partition: PartitionDir) -> bool:
        """Whether the query requests the partition's topic and number."""
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def wants_segment(self, files: Files, segment: Segment, following: Segment | None) -> bool:
        """Whether a live segment may hold such records. `following` is the next live one."""
        if self.max_offset is not None and segment.base_offset > self.max_offset:
            return False
        if following is None:
            return True  # The active segment: its time index may lack the latest entry.
        if self.min_offset is not None and following.base_offset <= self.min_offset:
            return False
        if self.min_timestamp is None:
            return True
        latest = _latest(files, segment, following.base_offset)
        return latest is None or latest >= self.min_timestamp

    def span(self, files: Files, segment: Segment) -> tuple[int, int]:
        """Return the part of a live segment to read; all of it if its index does not narrow it."""
        size = 0 if segment.log is None else segment.log.size
        entry = segment.files.get("index")
        if entry is None or segment.log is None or (self.min_offset is None and self.max_offset is None):
            return 0, size
        start, end = self._span(files, segment.log.path, entry.path, segment.base_offset)
        return start, size if end is None else end

    def _span(self, files: Files, log_path: str, index_path: str, base_offset: int) -> tuple[int, int | None]:
        """Return the start and end of the part. Both are positions of batches."""
        try:
            index = read_offset_index(files.read_all(index_path), base_offset)
        except OSError:
            return 0, None
        columns = index.columns()
        offsets = [base_offset + each for each in columns.relative_offsets[: index.written]]
        if any(left >= right for left, right in pairwise(offsets)):
            return 0, None
        start, end = 0, None
        if self.min_offset is not None:
            place = bisect_right(offsets, self.min_offset) - 1
            found = _batch_at(files, log_path, columns.positions[place]) if place >= 0 else None
            if found is not None and found.last_offset == offsets[place]:
                start = columns.positions[place]
        if self.max_offset is not None:
            # An entry has its batch's last offset, so after the first entry above the bound no batch begins below it.
            place = bisect_left(offsets, self.max_offset + 1) + 1
            found = _batch_at(files, log_path, columns.positions[place]) if place < len(offsets) else None
            if found is not None and found.magic == 2 and found.last_offset == offsets[place] and found.base_offset > self.max_offset:
                end = columns.positions[place]
        return start, end


def _batch_at(files: Files, path: str, position: int) -> Batch | None:
    with files.open(path) as source:
        found = next(scan(source, position, resync=False, window=_WINDOW), None) if position < source.size() else None
    return found if isinstance(found, Batch) and found.position == position else None


def _latest(files: Files, segment: Segment, end_offset: int) -> int | None:
    """The largest timestamp of a segment that is no longer written; None if its time index does not have it."""
    entry = segment.files.get("timeindex")
    if entry is None:
        return None
    try:
        index = read_time_index(files.read_all(entry.path), segment.base_offset)
    except OSError:
        return None
    if not index.entries or index.written != index.entries or index.disorder() is not None:
        return None
    last = index.last_entry
    return last.timestamp if segment.base_offset <= last.offset < end_offset else None
