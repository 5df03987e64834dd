"""The scanner: bytes in, `Batch | Damage` out. There is no second one.

Source: Kafka's `FileLogInputStream.nextBatch` (where its iteration ends or throws), `DefaultRecordBatch.ensureValid`, `LegacyRecord.ensureValid`.
What comes behind the first damage is ours: the scan goes on at the next position where a plausible header has a checksum that holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from kops.errors import DecodeError
from kops.records.batch import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, Batch
from kops.records.crc import crc32c_function
from kops.records.damage import Damage
from kops.records.resync import Resync
from kops.records.source import ByteSource

WINDOW: Final = 1 << 20
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

    `check_crc=False` believes a header whose length fits. `resync=False` stops after the first damage. `max_magic=127` takes a magic above 2
    for 2, as Kafka does. A batch's `buffer` is the window it was read in (usually 1 MiB), so keep no batches that aren't needed. A claimed
    length never makes the scan read or hold more than the file has; a batch above the window's size is checked before it is held.
    """
    size = source.size()
    limit = size if end is None else min(end, size)
    position = start
    buffer = b""
    base = position
    crc32c = crc32c_function()
    rescue = Resync(source, limit, max_magic)
    last_offset: int | None = None
    while position < limit:
        index = position - base
        left = len(buffer) - index
        if left < BATCH_OVERHEAD and left < limit - position:
            buffer, base, index = source.read(position, min(window, limit - position)), position, 0
            left = len(buffer)
            if left < min(window, limit - position):
                # The file shrank underneath: what is gone is an end like any other.
                limit = rescue.limit = position + left
                if not left:
                    return
        batch: Batch | None = None
        if left >= HEADER_SIZE_UP_TO_MAGIC:
            _, length, _, magic = _PREFIX.unpack_from(buffer, index)
            total = length + LOG_OVERHEAD
            if 0 <= magic <= max_magic and total >= (BATCH_OVERHEAD if magic > 1 else LOG_OVERHEAD + MESSAGE_OVERHEAD_V0 + 8 * magic):
                if total <= left:
                    batch = Batch(buffer, index, position)
                elif total <= limit - position:
                    if total <= window:
                        buffer, base, index = source.read(position, min(window, limit - position)), position, 0
                        if len(buffer) >= total:
                            batch = Batch(buffer, 0, position)
                        else:
                            limit = rescue.limit = position + len(buffer)
                            continue
                    elif not check_crc or rescue.crc_holds(position, total, magic):
                        buffer, base, index = source.read(position, total), position, 0
                        if len(buffer) < total:
                            limit = rescue.limit = position + len(buffer)
                            continue
                        batch = Batch(buffer, 0, position)
        if batch is not None and (
            not check_crc
            or (
                crc32c(memoryview(buffer)[index + 21 : index + batch.size], 0) == batch.crc
                if batch.magic > 1
                else batch.computed_crc() == batch.crc
            )
        ):
            yield batch
            last_offset = batch.last_offset
            position += batch.size
            continue
        for damage in rescue.explain(position, last_offset, go_on=resync):
            yield damage
            if not resync:
                return
            position = damage.end


def file_batches(source: ByteSource, start: int = 0, end: int | None = None, *, window: int = WINDOW) -> Iterator[Batch]:
    """What Kafka's `FileRecords.batches()` gives: headers, no checksum looked at (`Batch.ensure_valid` does that).

    Ends silently at a batch that is not complete. DecodeError (`bad-length`) where Kafka throws CorruptRecordException: a size below 14;
    (`unknown-magic`) for a negative magic, (`torn-tail`) for a v2 header that goes beyond the file: Kafka fails there as soon as a field is read.
    A batch of v2 below 61 bytes is given with the header that its bytes and those behind it make, as Kafka reads it.
    """
    size = source.size()
    limit = size if end is None else min(end, size)
    position = start
    while position < limit - HEADER_SIZE_UP_TO_MAGIC:
        prefix = source.read(position, HEADER_SIZE_UP_TO_MAGIC)
        if len(prefix) < HEADER_SIZE_UP_TO_MAGIC:
            return
        _, length, _, _ = _PREFIX.unpack(prefix)
        if length < MESSAGE_OVERHEAD_V0:
            reason = f"a batch of {length} bytes, at least {MESSAGE_OVERHEAD_V0} are needed"
            raise DecodeError(reason, code="bad-length", position=position)
        total = length + LOG_OVERHEAD
        if position > limit - total:
            return
        yield Batch(source.read(position, max(total, BATCH_OVERHEAD)), 0, position)
        position += total


def read_batches(data: bytes) -> list[Batch]:
    """The batches of a record set in memory (a Produce or Fetch body). DecodeError at the first damage; a cut batch at the end is left out."""
    from kops.records.source import BytesSource

    batches: list[Batch] = []
    for item in scan(BytesSource(data), resync=False, window=max(len(data), 1)):
        if isinstance(item, Damage):
            if item.code == "torn-tail":
                break
            raise DecodeError(item.reason, code=item.code, position=item.position)
        batches.append(item)
    return batches
