"""Which offsets a damaged partition had. A forecast counts those that a start no longer serves as lost."""

from __future__ import annotations

import pytest

from kops.files import MemoryFiles
from kops.forensics.forecast.on_disk import offsets_on_disk
from kops.records import BatchBuilder

RECORDS = 5
BATCHES = 4


def segment(base: int) -> list[bytes]:
    """Return batches of five records each."""
    batches = []
    for number in range(BATCHES):
        builder = BatchBuilder(base_offset=base + number * RECORDS, partition_leader_epoch=0)
        for record in range(RECORDS):
            builder.append(1_700_000_000_000 + record, b"key", b"a value")
        batches.append(builder.build())
    return batches


def broken(batch: bytes) -> bytes:
    """Return the batch with a flipped byte in its records."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize("hit", range(BATCHES))
@pytest.mark.parametrize("base", [0, 1000])
def test_a_damaged_batch_is_known_wherever_it_is(base: int, hit: int) -> None:
    """The damaged batch may be the first one of a segment, and may be in the second segment of a log."""
    files = MemoryFiles()
    files.mkdir("/orders-0")
    files.write_all(f"/orders-0/{base:020}.log", b"".join(segment(base)))
    second = base + RECORDS * BATCHES
    batches = segment(second)
    batches[hit] = broken(batches[hit])
    files.write_all(f"/orders-0/{second:020}.log", b"".join(batches))
    found = offsets_on_disk(files, "/orders-0")
    first = second + hit * RECORDS
    assert found.damaged == [(first, first + RECORDS - 1)]
    whole = set(range(base, second + RECORDS * BATCHES))
    assert {offset for low, high in found.intact for offset in range(low, high + 1)} == whole - set(range(first, first + RECORDS))


@pytest.mark.parametrize("base", [0, 1000])
def test_the_first_batch_of_a_log(base: int) -> None:
    files = MemoryFiles()
    files.mkdir("/orders-0")
    batches = segment(base)
    files.write_all(f"/orders-0/{base:020}.log", b"".join([broken(batches[0]), *batches[1:]]))
    found = offsets_on_disk(files, "/orders-0")
    assert found.damaged == [(base, base + RECORDS - 1)]
    assert found.intact == [(base + RECORDS, base + RECORDS * BATCHES - 1)]
