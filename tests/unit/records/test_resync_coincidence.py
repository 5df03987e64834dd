"""Lengths that lead somewhere by chance: at an offset of five bytes, the leader epoch and the magic look like a length, which may end at
the file's end.
"""

from __future__ import annotations

from kops.records import Batch, BatchBuilder, BytesSource, scan

EPOCH = 3


def batch(offset: int) -> bytes:
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=EPOCH)
    for number in range(2):
        builder.append(1_700_000_000_000 + offset, b"key", b"value %d" % (offset + number))
    return builder.build()


def test_batches_behind_a_batch_that_lost_five_bytes() -> None:
    short = batch(2)
    short = short[:70] + short[75:]
    first = batch(0) + short
    behind = [batch(offset) for offset in range(4, 30, 2)]
    # The damaged batch claims five bytes of the next one. The bytes there claim a length of 3 * 256 + 14, exactly to the end of the file.
    data = (first + b"".join(behind))[: len(first) + 5 + EPOCH * 256 + 14]
    found = [item for item in scan(BytesSource(data)) if isinstance(item, Batch)]
    whole = [each for each in behind if each in data]
    assert len(whole) > 5
    assert [bytes(item.data()) for item in found] == [batch(0), *whole]
