"""The segments that retention deletes, by log start offset, size and time (Kafka UnifiedLog.deleteOldSegments).

Retention deletes segments from the oldest on, as long as a condition holds, and never one that reaches above the high watermark. If all
segments would be deleted, a new one is rolled first, so that the log keeps its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.storage.readable_log import ReadableLog
    from kops.storage.segments.segment import LogSegment

    Condition = Callable[[LogSegment, LogSegment | None], bool]


def deletable_segments(log: ReadableLog, condition: Condition) -> list[LogSegment]:
    """Return the oldest segments that meet a condition (on a segment and its successor) and are below the high watermark."""
    segments = list(log.segments)
    deletable = []
    for place, segment in enumerate(segments):
        following = segments[place + 1] if place + 1 < len(segments) else None
        upper_bound = log.log_end_offset if following is None else following.base_offset
        is_last_and_empty = following is None and not segment.size
        if log.high_watermark < upper_bound or not condition(segment, following) or is_last_and_empty:
            break
        deletable.append(segment)
    return deletable


def below_log_start(log: ReadableLog) -> list[LogSegment]:
    """Return the segments that are completely below the log's start offset."""
    return deletable_segments(log, lambda segment, following: following is not None and following.base_offset <= log.log_start_offset)


def over_size(log: ReadableLog) -> list[LogSegment]:
    """Return the oldest segments that exceed `retention.bytes`."""
    limit, size = log.config.retention_bytes, log.size
    if limit < 0 or size < limit:
        return []
    excess = size - limit

    def fits_in_excess(segment: LogSegment, following: LogSegment | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return deletable_segments(log, fits_in_excess)


def over_age(log: ReadableLog) -> list[LogSegment]:
    """Return the oldest segments whose records are all older than `retention.ms`."""
    limit, now = log.config.retention_ms, log.now_ms()
    if limit < 0:
        return []

    def is_too_old(segment: LogSegment, following: LogSegment | None) -> bool:
        largest = segment.largest_timestamp
        if now < largest:
            log.warn(f"{segment} contains future timestamp(s), making it ineligible to be deleted")
        return now - largest > limit

    return deletable_segments(log, is_too_old)
