"""Offsets by timestamp, for ListOffsets (Kafka UnifiedLog.fetchOffsetByTimestamp; KIP-79, KIP-734)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.storage.log_offsets import UNKNOWN_OFFSET
from kops.storage.segment_files.file_records import TimestampAndOffset, first_record, leader_epoch

if TYPE_CHECKING:
    from kops.storage.readable_log import ReadableLog

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
NO_TIMESTAMP: Final = -1


def fetch_offset_by_timestamp(log: ReadableLog, target: int) -> TimestampAndOffset | None:
    """Return the first record whose timestamp is not below `target` (ms), or None. `target` may also be one of the constants above.

    `MAX_TIMESTAMP` is the first record with the largest timestamp. There is no tiered storage, so `LATEST_TIERED` and
    `EARLIEST_PENDING_UPLOAD` have the offset -1.
    """
    if target in (EARLIEST, EARLIEST_LOCAL):
        first = log.epochs.earliest_entry
        epoch = first.epoch if first is not None and first.start_offset <= log.log_start_offset else None
        return TimestampAndOffset(NO_TIMESTAMP, log.log_start_offset, epoch)
    if target == LATEST:
        return TimestampAndOffset(NO_TIMESTAMP, log.log_end_offset, log.epochs.latest_epoch)
    if target in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampAndOffset(NO_TIMESTAMP, UNKNOWN_OFFSET, -1)
    if target == MAX_TIMESTAMP:
        return _max_timestamp(log)
    for segment in log.segments:
        if segment.largest_timestamp >= target:
            return segment.find_offset_by_timestamp(target, log.log_start_offset)
    return None


def _max_timestamp(log: ReadableLog) -> TimestampAndOffset | None:
    segment = max(log.segments, key=lambda segment: segment.largest.timestamp)
    largest = segment.largest
    position = segment.offset_index.lookup(largest.offset).position
    for batch in segment.log.batches(position):
        if batch.max_timestamp == largest.timestamp:
            if batch.magic == 0:
                return None
            found = first_record(batch, lambda record: record.timestamp == largest.timestamp)
            return None if found is None else TimestampAndOffset(found.timestamp, found.offset, leader_epoch(batch))
    return None
