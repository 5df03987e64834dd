"""Splitting a segment whose offsets are too large for its index (KAFKA-6264; Kafka LocalLog.splitOverflowedSegment, replaceSegments)."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from kops.storage.failures.load_errors import ILLEGAL_STATE, LoadError, illegal_argument
from kops.storage.segment_files.paths import CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, segment_path
from kops.storage.segments.segment import LogSegment

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.config import TopicConfig
    from kops.files import Files
    from kops.storage.segment_files.file_records import LogView
    from kops.storage.segments.segment import LogSegments

_COPY_BYTES = 1 << 20


def split_overflowed_segment(
    files: Files,
    directory: str,
    config: TopicConfig,
    segment: LogSegment,
    segments: LogSegments,
    opened: Callable[[LogSegment], None],
) -> tuple[list[LogSegment], list[LogSegment]]:
    """Copy the segment into as many segments as its offsets need, and replace it with them. Returns (removed segments, new segments).

    A segment whose last offset fits into an index entry is an illegal argument: the offsets in it do not increase, and the broker's startup
    is aborted. `opened` is called with every segment that is opened.
    """
    if not segment.log.path.endswith(LOG):
        illegal_argument(f"Cannot split file {segment.log.path}")
    if not segment.has_overflow():
        illegal_argument(f"Split operation is only permitted for segments with overflow, and the problem path is {segment.log.path}")
    created: list[LogSegment] = []
    try:
        _copy(files, directory, config, segment, created, opened)
        given_up = replace_segments(files, directory, segments, created, [segment])
    except (LoadError, OSError):
        for part in created:
            part.close()
            part.delete()
        raise
    return given_up, created


def _copy(
    files: Files,
    directory: str,
    config: TopicConfig,
    segment: LogSegment,
    created: list[LogSegment],
    opened: Callable[[LogSegment], None],
) -> None:
    position = 0
    while position < segment.size:
        first = next(segment.log.batches(position), None)
        if first is None:
            words = f"{segment.log.path} can't be split: there is no whole batch at position {position}"
            raise LoadError("", exception="java.util.NoSuchElementException", words=words)
        part = create_cleaned_segment(files, directory, config, first.base_offset)
        created.append(part)
        opened(part)
        copied = append_from(part, segment.log, position)
        if copied == 0:
            raise LoadError(f"Failed to append records from position {position} in {segment}", exception=ILLEGAL_STATE)
        position += copied
    modified_ms = files.stat(segment.log.path).mtime_ms
    for part in created:
        part.on_become_inactive()
        part.flush()
        for path in (part.log.path, part.offset_index_path, part.time_index_path):
            files.set_mtime(path, modified_ms)
    total = sum(part.size for part in created)
    if total != segment.size:
        reason = f"Inconsistent segment sizes after split before: {segment.size} after: {total}"
        raise LoadError(reason, exception=ILLEGAL_STATE)


def append_from(part: LogSegment, source: LogView, start: int) -> int:
    """Copy batches of another segment from a byte position on, as long as their offsets fit. Returns the number of bytes copied."""
    position = start
    while position < start + source.size:
        copied = _append_chunk(part, source, position)
        if copied == 0:
            break
        position += copied
    return position - start


def _append_chunk(part: LogSegment, source: LogView, position: int) -> int:
    size = 0
    batches = []
    for batch in source.batches(position):
        if not part.fits(batch.last_offset) or (size and size + batch.size >= _COPY_BYTES):
            break
        batches.append(batch)
        size += batch.size
    if batches:
        part.append(batches[-1].last_offset, source.read_at(position, size), batches)
    return size


def create_cleaned_segment(files: Files, directory: str, config: TopicConfig, base_offset: int) -> LogSegment:
    """Create an empty `.cleaned` segment. It replaces one that an earlier attempt left (LocalLog.createNewCleanedSegment)."""
    for kind in (INDEX, TIME_INDEX, TXN_INDEX, LOG):
        path = segment_path(directory, base_offset, kind, CLEANED)
        if files.exists(path):
            files.unlink(path)
    return LogSegment(
        files, directory, base_offset, config, initial_size=config.init_file_size, preallocate=config.preallocate, suffix=CLEANED
    )


def replace_segments(files: Files, directory: str, segments: LogSegments, new: list[LogSegment], old: list[LogSegment]) -> list[LogSegment]:
    """Replace old segments with `.cleaned` ones, safe against a crash at every step. Returns the old segments whose offset has no
    successor.

    All new segments become `.swap`, the highest offset first. Then the old segments become `.deleted`. Then the suffix `.swap` is removed.
    """
    new = sorted(new, key=lambda segment: segment.base_offset)
    old = sorted((segment for segment in old if segment.base_offset in segments), key=lambda segment: segment.base_offset)
    for segment in reversed(new):
        segment.change_suffixes(CLEANED, SWAP)
        segments.add(segment)
    new_offsets = {segment.base_offset for segment in new}
    given_up = []
    for segment in old:
        if segment.base_offset != new[0].base_offset:
            segments.remove(segment.base_offset)
        if not segment.has_suffix(DELETED):
            segment.change_suffixes("", DELETED)
        if segment.base_offset not in new_offsets:
            given_up.append(segment)
    for segment in new:
        segment.change_suffixes(SWAP, "")
    files.sync_dir(posixpath.normpath(directory))
    return given_up
