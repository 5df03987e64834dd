"""Offsets by timestamp, for ListOffsets (Kafka UnifiedLog.fetchOffsetByTimestamp, legacyFetchOffsetsBefore; KIP-79, KIP-734)."""

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


def offsets_before(log: ReadableLog, timestamp: int, max_count: int) -> list[int]:
    """Return the base offsets of segments that were last modified at or before `timestamp` (ms, or `LATEST`, `EARLIEST`), the newest first.

    There are at most `max_count` of them. Brokers before 4.0 gave this answer to ListOffsets version 0. The log's end counts as a base
    offset of the present time.
    """
    times = [(max(segment.base_offset, log.log_start_offset), segment.last_modified_ms) for segment in log.segments]
    if log.segments.active.size:
        times.append((log.log_end_offset, log.now_ms()))
    if timestamp == LATEST:
        count = len(times)
    elif timestamp == EARLIEST:
        count = 1
    else:
        count = next((place + 1 for place in reversed(range(len(times))) if times[place][1] <= timestamp), 0)
    newest_first = [offset for offset, _ in reversed(times[:count])]
    return sorted(newest_first[:max_count], reverse=True)
