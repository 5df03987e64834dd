"""The loop over the batches of a fetch response reads plain batches, and stops before every other one. Both variants do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kops.records import Record, build_batch
from kops.records.batch import Batch
from kops.records.windows import OVERHEAD
from tests.support.hot import hot, variants

NAME = "kops.records.scanning._hot_fetch"
COMMITTED = {"stops_at_producers": True}


def batch(first: int, count: int = 3, *, kind: str = "CreateTime", **more: Any) -> bytes:
    return build_batch([Record(first + index, 1000 + index, kind, None, b"%d" % index) for index in range(count)], **more)


def read(variant: str, data: bytes, first: int = 0, most: int = 1000, **more: bool) -> tuple[list[int], int]:
    """Return (the offsets that were read, the index after the last batch)."""
    rows: list[tuple[Any, ...]] = []
    flags = {"checks_crcs": True, "stops_at_producers": False, **more}
    index, last = hot(NAME, variant).read_plain(data, 0, first, most, "t", 7, flags["checks_crcs"], flags["stops_at_producers"], rows)
    assert (last is None) == (not index)
    assert {row[:2] for row in rows} <= {("t", 7)}
    if last is not None and rows:
        assert last.index + last.size == index and rows[-1][2] <= last.last_offset
    return [row[2] for row in rows], index


def damaged(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


def with_crc(data: bytes) -> bytes:
    return data[:17] + Batch(data).computed_crc().to_bytes(4, "big") + data[21:]


OTHERS: dict[str, tuple[bytes, dict[str, bool]]] = {
    "compressed": (batch(6, codec="gzip"), {}),
    "control": (with_crc(batch(6)[:22] + b"\x20" + batch(6)[23:]), {}),
    "an old format": (batch(6, magic=1), {}),
    "a wrong checksum": (damaged(batch(6), OVERHEAD + 8), {}),
    "a producer that may have aborted": (batch(6, producer_id=5, producer_epoch=0, base_sequence=0), COMMITTED),
    "cut off": (batch(6)[:-2], {}),
    "cut off in its header": (batch(6)[:40], {}),
    "no records": (with_crc(batch(6)[:57] + bytes(4) + batch(6)[61:]), {}),
    "fewer bytes than its records need": (with_crc(batch(6)[:57] + b"\0\0\0\x04" + batch(6)[61:]), {}),
    "more bytes than its records need": (with_crc(batch(6)[:57] + b"\0\0\0\x02" + batch(6)[61:]), {}),
}


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("name", OTHERS)
def test_it_stops_before_a_batch_that_is_not_plain(variant: str, name: str) -> None:
    other, flags = OTHERS[name]
    before = batch(0) + batch(3)
    assert read(variant, before + other + batch(9), **flags) == (list(range(6)), len(before))
    assert read(variant, other, **flags) == ([], 0)


@pytest.mark.parametrize("variant", variants())
def test_without_checks_and_for_a_known_producer_it_goes_on(variant: str) -> None:
    wrong = damaged(batch(3), 18)
    assert read(variant, batch(0) + wrong, checks_crcs=False)[0] == list(range(6))
    mine = batch(0, producer_id=5, producer_epoch=0, base_sequence=0)
    assert read(variant, mine)[0] == [0, 1, 2]


@pytest.mark.parametrize("variant", variants())
def test_rows_are_those_of_the_step_by_step_reader(variant: str) -> None:
    """Any number of batches, with gaps, from any offset, for any limit."""
    rng = random.Random(3)
    for _ in range(300):
        offset, data, ends, known = 0, b"", [], []
        for _ in range(rng.randrange(1, 6)):
            offset += rng.choice((0, 0, 5))
            count = rng.randrange(1, 5)
            data += batch(offset, count, kind=rng.choice(("CreateTime", "LogAppendTime")))
            known += list(range(offset, offset + count))
            offset += count
            ends.append((len(data), len(known)))
        first, most = rng.randrange(offset + 1), rng.randrange(1, len(known) + 2)
        skipped = sum(one < first for one in known)
        end, total = next((one for one in ends if one[1] - skipped >= most), ends[-1])
        assert read(variant, data, first, most) == (known[skipped:total], end)
