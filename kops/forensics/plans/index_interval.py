"""Infers the `index.interval.bytes` with which a partition was written, from its indexes.

A broker adds an index entry for a batch when more than that many bytes lie between its position and that of the last entry's batch (Kafka's
LogSegment.append). So each entry bounds the setting from above, and each batch without one bounds it from below.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.records import Damage, scan_columns
from kops.storage.segment_files.index_bytes import DEFAULT_INDEX_INTERVAL_BYTES
from kops.storage.segment_files.offset_index import read_offset_index

__all__ = ["infer_index_interval"]

_SEGMENTS: Final = 8
_BYTES: Final = 64 << 20  # At most this much of each log: thousands of entries bound the setting as well as all.
_UNBOUNDED: Final = 1 << 31


def infer_index_interval(files: Files, partition: PartitionDir, default: int = DEFAULT_INDEX_INTERVAL_BYTES) -> int:
    """Return the setting that explains the good indexes: `default` if it does, too, or if there is no good index."""
    low, high = 0, _UNBOUNDED
    known = False
    found = [bounds for segment in partition.live_segments[-_SEGMENTS:] if (bounds := _bounds(files, segment)) is not None]
    # An index without entries may have lost them, so it is considered last, and never against the others.
    for bounds in sorted(found, key=lambda bounds: bounds[1] == _UNBOUNDED):
        if max(low, bounds[0]) > min(high, bounds[1]):
            continue
        low, high = max(low, bounds[0]), min(high, bounds[1])
        known = known or bounds[1] < _UNBOUNDED
    if not known or low <= default <= high:
        return default
    nice = 1 << (high.bit_length() - 1)
    return nice if low <= nice <= high else high


def _bounds(files: Files, segment: Segment) -> tuple[int, int] | None:
    """Least and greatest setting with which this segment's index would have been written; None if log or index is not good."""
    log, index = segment.log, segment.files.get("index")
    if log is None or index is None:
        return None
    try:
        written = read_offset_index(files.read_all(index.path), segment.base_offset)
        entries = written.columns().positions.tolist()[: min(written.written, written.entries)]
    except (DecodeError, OSError):
        return None
    positions: list[int] = []
    try:
        with files.open(log.path) as file:
            for found in scan_columns(file, check_crc=False, resync=False):
                if isinstance(found, Damage):
                    return None
                positions += found.positions
                if found.end >= _BYTES:
                    del entries[bisect_right(entries, positions[-1]) :]
                    break
    except OSError:
        return None
    return spacing(positions, entries)


def spacing(positions: list[int], entries: list[int]) -> tuple[int, int] | None:
    """The bounds from the positions of batches and of index entries; None if the entries are not positions of batches in order."""
    low, high = 0, _UNBOUNDED
    last = 0
    for entry in entries:
        place = bisect_left(positions, entry)
        if place == len(positions) or positions[place] != entry or entry <= last:
            return None
        high = min(high, entry - last - 1)
        low = max(low, positions[place - 1] - last)
        last = entry
    if positions:
        low = max(low, positions[-1] - last)
    return (low, high) if low <= high else None
