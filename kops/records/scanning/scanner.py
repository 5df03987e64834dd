"""The scanner: bytes in, `Batch | Damage` out. kops has no other parser of batches.

Source: Kafka's `FileLogInputStream.nextBatch` (where its iteration ends or throws) and the `ensureValid` of `DefaultRecordBatch` and
`LegacyRecord`.
Kafka stops at the first damage. This scan continues at the next position with a plausible header and a correct checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from kops.errors import DecodeError
from kops.records.batch import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, Batch
from kops.records.crc import crc32c_function
from kops.records.scanning.damage import Damage
from kops.records.scanning.resync import Resync
from kops.records.scanning.source import ByteSource

WINDOW: Final = 1 << 20
HELD_UNCHECKED: Final = 16 << 20
_PREFIX: Final = struct.Struct(">qiib")


def scan(
    source: ByteSource,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    resync: bool = True,
    max_magic: int = 2,
    window: int = WINDOW,
) -> Iterator[Batch | Damage]:
    """Yield all batches and damage between the positions `start` and `end`, in order, without a gap.

    `check_crc=False` accepts a header whose length fits. `resync=False` stops after the first damage. `max_magic=127` accepts any magic, as
    Kafka does: above 2 it counts as 2, below 0 as an old format. The `buffer` of a batch is the window in which it was read (usually 1
    MiB), so keep only the batches that are needed. The scan never reads or holds more than the file has, whatever length a header claims.
    It checks a batch that is larger than a window before it holds it. If checks are off and the checksum is wrong, `buffer` has only the
    header.
    """
    size = source.size()
    limit = size if end is None else min(end, size)
    rescue = Resync(source, limit, max_magic)
    return scan_on(rescue, start, None, check_crc=check_crc, resync=resync, window=window)


def scan_on(rescue: Resync, start: int, last_offset: int | None, *, check_crc: bool, resync: bool, window: int) -> Iterator[Batch | Damage]:
    """Continue `scan` at `start`, where a batch with `last_offset` ended, with the remaining credits of `rescue`."""
    position = start
    buffer = b""
    base = position
    crc32c = crc32c_function()
    while position < rescue.limit:
        index = position - base
        left = len(buffer) - index
        total = _claimed(buffer, index, left, rescue.max_magic)
        if left < BATCH_OVERHEAD or total > left:
            # The window ends within this batch. The next window begins with it.
            ask = min(window, rescue.limit - position)
            if left < ask:
                buffer, base, index = rescue.source.read(position, ask), position, 0
                left = len(buffer)
                if left < ask:
                    # The file shrank during the scan, so it ends here.
                    rescue.limit = position + left
                    if not left:
                        return
                total = _claimed(buffer, index, left, rescue.max_magic)
            if left < total <= rescue.limit - position:
                if rescue.crc_holds(position, total, buffer[index + 16]):
                    buffer, base, index = rescue.source.read(position, total), position, 0
                    left = len(buffer)
                elif not check_crc:
                    # Accepted, but only its header is held.
                    yield (batch := Batch(buffer, index, position))
                    last_offset = batch.last_offset
                    position += total
                    continue
        if 0 < total <= left:
            batch = Batch(buffer, index, position)
            if (
                not check_crc
                or (batch.magic > 1 and crc32c(memoryview(buffer)[index + 21 : index + total], 0) == batch.crc)
                or (batch.magic < 2 and batch.computed_crc() == batch.crc)
            ):
                yield batch
                last_offset = batch.last_offset
                position += total
                continue
        for damage in rescue.explain(position, last_offset, go_on=resync):
            yield damage
            if not resync:
                return
            position = damage.end


def _claimed(buffer: bytes, index: int, left: int, max_magic: int) -> int:
    """Return the size that the batch at `index` claims, or 0 if its first bytes are not a header with a known magic and a possible size."""
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return 0
    _, length, _, magic = _PREFIX.unpack_from(buffer, index)
    total: int = length + LOG_OVERHEAD
    least = BATCH_OVERHEAD if magic > 1 else LOG_OVERHEAD + MESSAGE_OVERHEAD_V0
    return total if (0 <= magic <= max_magic or max_magic == 127) and total >= least else 0


def file_batches(source: ByteSource, start: int = 0, end: int | None = None, *, window: int = WINDOW) -> Iterator[Batch]:
    """Yield the batches as Kafka's `FileRecords.batches()` does: read headers and check no checksum (`Batch.ensure_valid` does that).

    Ends silently at an incomplete batch. Raises DecodeError `bad-length` where Kafka throws CorruptRecordException, for a size below 14.
    Raises DecodeError `torn-tail` for a v2 header that goes beyond the file, where Kafka fails as soon as it reads a field. As in Kafka,
    the header of a v2 batch of less than 61 bytes consists of its own bytes and those after it. A negative magic counts as a message of the
    old formats. If a batch above `HELD_UNCHECKED` bytes has a wrong checksum, its `buffer` has only the header.
    """
    size = source.size()
    limit = size if end is None else min(end, size)
    position = base = start
    buffer = b""
    while position < limit - HEADER_SIZE_UP_TO_MAGIC:
        index = position - base
        left = len(buffer) - index
        if left < BATCH_OVERHEAD and position + left < size:
            buffer, base, index = source.read(position, min(max(window, BATCH_OVERHEAD), size - position)), position, 0
            left = len(buffer)
            if left < HEADER_SIZE_UP_TO_MAGIC:
                return
        _, length, _, magic = _PREFIX.unpack_from(buffer, index)
        if length < MESSAGE_OVERHEAD_V0:
            reason = f"a batch of {length} bytes, at least {MESSAGE_OVERHEAD_V0} are needed"
            raise DecodeError(reason, code="bad-length", position=position)
        total = length + LOG_OVERHEAD
        if position > limit - total:
            return
        if left < total:
            # Kafka also reads batches with a wrong checksum. But a false length must not cause unbounded memory use.
            if total <= max(window, HELD_UNCHECKED) or Resync(source, size, 127).crc_holds(position, total, magic):
                buffer = source.read(position, max(min(window, size - position), total))
            elif index:
                buffer = source.read(position, window)
            base, index = position, 0
        yield Batch(buffer, index, position)
        position += total


def read_batches(data: bytes) -> list[Batch]:
    """Return the batches of a record set in memory. Raises DecodeError at the first damage. A batch that is cut off at the end is left
    out."""
    from kops.records.scanning.source import BytesSource

    batches: list[Batch] = []
    for item in scan(BytesSource(data), resync=False, window=max(len(data), 1)):
        if isinstance(item, Damage):
            if item.code == "torn-tail":
                break
            raise DecodeError(item.reason, code=item.code, position=item.position)
        batches.append(item)
    return batches
