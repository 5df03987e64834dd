"""The search for the batch of an offset in a segment by its headers: every fetch searches, and a batch may have a megabyte.

Format: Kafka's DefaultRecordBatch. The result is that of FileRecords.searchForOffsetFromPosition. This is a hot module (see
`kops._compiled`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kops.config.values.java import INT_MAX, LONG_MAX
from kops.records.batch import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD
from kops.storage.segment_files.index_entries import OffsetSpan

if TYPE_CHECKING:
    from kops.records import ByteSource

_WINDOW: Final = 1 << 13  # At the default index interval, a search passes 4 KiB and a batch.
_MAGIC: Final = 2
_FIRST_FIELDS: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_LAST_OFFSET: Final = LONG_MAX - INT_MAX  # Behind it, the last offset of a batch may wrap around.


def search_headers(source: ByteSource, target: int, position: int, end: int) -> tuple[OffsetSpan | None, int]:
    """Find the batch that contains `target`, or else the first batch after it, between two byte positions of a file.

    Returns (the batch, its position), or (None, the position of a batch from which a walk over whole batches must continue) where a batch
    has an old format or no plain header, and after the last batch. Raises OSError if the file can't be read.
    """
    headers, base = b"", position
    previous = previous_offset = last_offset = -1  # The batch before: its position and offsets.
    while 0 <= position < end - HEADER_SIZE_UP_TO_MAGIC:
        if position + BATCH_OVERHEAD > base + len(headers):
            headers, base = source.read(position, min(_WINDOW, end - position)), position
            if len(headers) < BATCH_OVERHEAD:
                return None, position if previous < 0 else previous
        fields: tuple[int, int, int, int] = _FIRST_FIELDS.unpack_from(headers, position - base)
        offset, length, magic, delta = fields
        size = LOG_OVERHEAD + length
        if magic != _MAGIC or size < BATCH_OVERHEAD or size > end - position or not 0 <= offset < _LAST_OFFSET:
            return None, position if previous < 0 else previous
        if offset >= target:
            if offset == target or last_offset < target:
                return OffsetSpan(offset, position, size), position
            break
        previous, previous_offset, last_offset = position, offset, offset + delta
        position += size
    if previous < 0 or last_offset < target:
        return None, position if previous < 0 else previous
    return OffsetSpan(previous_offset, previous, position - previous), previous
