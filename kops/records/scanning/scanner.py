"""The scanner: bytes in, `Batch | Damage` out. There is no second one.

Source: Kafka's `FileLogInputStream.nextBatch` (where its iteration ends or throws) and the `ensureValid` of `DefaultRecordBatch` and
`LegacyRecord`.
What comes behind the first damage is ours: the scan goes on at the next position where a plausible header has a checksum that holds.
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
    """Every batch and every damage between the positions `start` and `end`, in order, without a gap.

    `check_crc=False` believes a header whose length fits. `resync=False` stops after the first damage. `max_magic=127` takes any magic, as
    Kafka does: above 2 for 2, below 0 for the old formats. A batch's `buffer` is the window it was read in (usually 1 MiB), so keep only
    what is needed. A claimed length never makes the scan read or hold more than the file has; a batch above the window's size is checked
    before it is held (where it is believed unchecked and its checksum does not hold, `buffer` has its header only).
    """
    size = source.size()
    limit = size if end is None else min(end, size)
    rescue = Resync(source, limit, max_magic)
    return scan_on(rescue, start, None, check_crc=check_crc, resync=resync, window=window)


def scan_on(rescue: Resync, start: int, last_offset: int | None, *, check_crc: bool, resync: bool, window: int) -> Iterator[Batch | Damage]:
    """`scan` from `start`, where the batch before ended with `last_offset`, on the credit that `rescue` has left."""
    position = start
    buffer = b""
    base = position
    crc32c = crc32c_function()
    while position < rescue.limit:
        index = position - base
        left = len(buffer) - index
        total = _claimed(buffer, index, left, rescue.max_magic)
        if left < BATCH_OVERHEAD or total > left:
            # The window ends within this batch: the next one begins with it.
            ask = min(window, rescue.limit - position)
            if left < ask:
                buffer, base, index = rescue.source.read(position, ask), position, 0
                left = len(buffer)
                if left < ask:
                    # The file shrank underneath: what is gone is an end like any other.
                    rescue.limit = position + left
                    if not left:
                        return
                total = _claimed(buffer, index, left, rescue.max_magic)
            if left < total <= rescue.limit - position:
                if rescue.crc_holds(position, total, buffer[index + 16]):
                    buffer, base, index = rescue.source.read(position, total), position, 0
                    left = len(buffer)
                elif not check_crc:
                    # Believed, but not worth the memory: its header.
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
    """The size that the batch at `index` claims; 0 where its first bytes are no header with a known magic and a size that it can have."""
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return 0
    _, length, _, magic = _PREFIX.unpack_from(buffer, index)
    total: int = length + LOG_OVERHEAD
    least = BATCH_OVERHEAD if magic > 1 else LOG_OVERHEAD + MESSAGE_OVERHEAD_V0
    return total if (0 <= magic <= max_magic or max_magic == 127) and total >= least else 0


def file_batches(source: ByteSource, start: int = 0, end: int | None = None, *, window: int = WINDOW) -> Iterator[Batch]:
    """What Kafka's `FileRecords.batches()` gives: headers, no checksum looked at (`Batch.ensure_valid` does that).

    Ends silently at a batch that is not complete. DecodeError (`bad-length`) where Kafka throws CorruptRecordException: a size below 14;
    (`torn-tail`) for a v2 header that goes beyond the file: Kafka fails there as soon as a field is read. A batch of v2 below 61 bytes is
    given with the header that its bytes and those behind it make, as Kafka reads it; a negative magic makes a message of the old formats.
    A batch above `HELD_UNCHECKED` bytes whose checksum is wrong has its header only in its `buffer`.
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
            # Kafka shows what is in a batch whose checksum is wrong, too; but a lying length must not cost memory without a bound.
            if total <= max(window, HELD_UNCHECKED) or Resync(source, size, 127).crc_holds(position, total, magic):
                buffer = source.read(position, max(min(window, size - position), total))
            elif index:
                buffer = source.read(position, window)
            base, index = position, 0
        yield Batch(buffer, index, position)
        position += total


def read_batches(data: bytes) -> list[Batch]:
    """The batches of a record set in memory. DecodeError at the first damage; a batch that is cut at the end is left out."""
    from kops.records.scanning.source import BytesSource

    batches: list[Batch] = []
    for item in scan(BytesSource(data), resync=False, window=max(len(data), 1)):
        if isinstance(item, Damage):
            if item.code == "torn-tail":
                break
            raise DecodeError(item.reason, code=item.code, position=item.position)
        batches.append(item)
    return batches
