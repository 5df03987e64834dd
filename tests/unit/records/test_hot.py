"""The hot loop's two variants give the same answer for any bytes. The slow reader in this file says what the answer must be."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from kops.records import Batch
from kops.records.build import write_batch, write_record
from tests.support.hot import hot, variants
from tests.support.logs.record_bytes import mutated, slow, some_records

NAME = "kops.records._hot"


@pytest.mark.parametrize("variant", variants())
def test_the_loop_reads_what_the_plain_reader_reads(variant: str) -> None:
    loop = hot(NAME, variant)
    rng = random.Random(1)
    seen = set()
    for _ in range(4000):
        count = rng.choice((0, 1, 2, 3, 10))
        data = b"#" * rng.randrange(3) + mutated(rng, some_records(rng, count))
        start = rng.randrange(3) if len(data) > 3 else 0
        end = rng.choice((len(data), len(data), max(start, len(data) - 1)))
        expected = slow(data, start, end, count)
        rows: list[tuple[object, ...]] = []
        stop = loop.decode_records(data, start, end, count, 1 << 40, 0, "CreateTime", -1, 7, rows)
        status, position, last, most, least, keyless = loop.validate_records(data, start, end, count)
        seen.add(status)
        if expected is None:
            assert stop < 0 and status == loop.UNREADABLE and position == -1 - stop
            continue
        assert [(row[0] - (1 << 40), row[1], row[3], row[4], row[5]) for row in rows] == expected  # type: ignore[operator]
        assert {row[2] for row in rows} <= {"CreateTime"} and {row[6] for row in rows} <= {-1} and {row[7] for row in rows} <= {7}
        if count:
            assert (last, most) == (expected[-1][0], max(record[1] for record in expected))
            assert (least, keyless) == (min(record[1] for record in expected), sum(record[2] is None for record in expected))
        increasing = all(after[0] > before[0] for before, after in pairwise(expected))
        if stop != end:
            assert (status, position) == (loop.LEFT_OVER, stop)
        else:
            assert status == (loop.OK if increasing else loop.NOT_INCREASING)
    assert seen == {loop.OK, loop.UNREADABLE, loop.NOT_INCREASING, loop.LEFT_OVER}


@pytest.mark.parametrize("variant", variants())
def test_plain_records_are_those_that_written_again_are_the_same(variant: str) -> None:
    loop = hot(NAME, variant)
    rng = random.Random(3)
    seen = set()
    for number in range(6000):
        count = rng.choice((0, 1, 2, 70))
        deltas = [0, *(rng.choice((0, 5, -3, 64, -65, 1 << 40, -(1 << 63), (1 << 63) - 1)) for _ in range(count))]
        key, value = (rng.choice((None, b"", b"short", b"x" * 70)) for _ in range(2))
        headers = [("h", b"x")] if rng.random() < 0.05 else []
        data = b"".join(write_record(index, deltas[index], key, value, headers) for index in range(count))
        if number % 2:
            data = mutated(rng, data)
        records = slow(data, 0, len(data), count)
        again = None
        if records is not None and [record[0] for record in records] == list(range(count)) and not any(record[4] for record in records):
            again = b"".join(write_record(*record) for record in records)
        times = [record[1] for record in records or ()]
        plain = again == data and times[:1] in ([], [0]) and all(-(1 << 62) <= time < 1 << 62 for time in times)
        assert loop.are_plain(data, 0, len(data), count) == plain, data.hex()
        seen.add(plain)
    assert seen == {True, False}


@pytest.mark.once
@pytest.mark.parametrize("other", [variant for variant in variants() if variant != "interpreted"])
def test_twins_agree_on_20000_mutated_inputs(other: str) -> None:
    pure, fast = hot(NAME, "interpreted"), hot(NAME, other)
    assert fast.is_compiled() and not pure.is_compiled()
    rng = random.Random(2)
    edges = (0, 5, -1, (1 << 63) - 1, -(1 << 63), (1 << 62), 1_700_000_000_000)
    for _ in range(20_000):
        count = rng.choice((0, 1, 2, 5, 1 << 31, -1))
        data = mutated(rng, some_records(rng, min(max(count, 0), 5)))
        start, end = rng.choice(((0, len(data)), (0, len(data)), (0, len(data) // 2), (3, len(data) + 5)))
        assert pure.validate_records(data, start, end, count) == fast.validate_records(data, start, end, count)
        kind = rng.choice(("CreateTime", "LogAppendTime"))
        arguments = (data, start, end, count, rng.choice(edges), rng.choice(edges), kind, rng.choice((-1, 0, 0x7FFFFFFF)), None)
        rows: tuple[list[object], list[object]] = ([], [])
        assert pure.decode_records(*arguments, rows[0]) == fast.decode_records(*arguments, rows[1])
        assert rows[0] == rows[1]
        assert pure.are_plain(data, start, end, count) == fast.are_plain(data, start, end, count)


@pytest.mark.parametrize("variant", variants())
def test_a_consumer_gets_the_same_records(variant: str) -> None:
    loop = hot(NAME, variant)
    rng = random.Random(4)
    for _ in range(1000):
        count = rng.choice((0, 1, 2, 5))
        data = mutated(rng, some_records(rng, count))
        base = rng.choice((0, 5, 1 << 40, -(1 << 63)))
        kind = rng.choice(("CreateTime", "LogAppendTime"))
        first = rng.choice((-(1 << 63), base, base + 2))
        rows: list[tuple[Any, ...]] = []
        found: list[tuple[Any, ...]] = []
        stop = loop.decode_records(data, 0, len(data), count, base, 7, kind, -1, 3, rows)
        assert loop.decode_for_consumer(data, 0, len(data), count, base, 7, kind, 3, "t", 1, first, found) == stop
        assert [row[2:9] for row in found] == [(*row[:5], tuple(row[5]), row[7]) for row in rows if row[0] >= first]
        assert all(row[:2] == ("t", 1) for row in found)
        assert [row[9:] for row in found] == [tuple(-1 if one is None else len(one) for one in row[5:7]) for row in found]


@pytest.mark.parametrize("variant", variants())
def test_sums_wrap_at_64_bits(variant: str) -> None:
    loop = hot(NAME, variant)
    data = write_record(5, 10, None, None)
    rows: list[tuple[int, ...]] = []
    loop.decode_records(data, 0, len(data), 1, (1 << 63) - 2, (1 << 63) - 3, "CreateTime", 0x7FFFFFFE, None, rows)
    assert rows[0][:2] == (-(1 << 63) + 3, -(1 << 63) + 7)
    assert rows[0][6] == 3
    data = write_record(-1, -10, None, None)
    rows.clear()
    loop.decode_records(data, 0, len(data), 1, -(1 << 63), -(1 << 63) + 1, "CreateTime", -1, None, rows)
    assert rows[0][:2] == ((1 << 63) - 1, (1 << 63) - 9)


@pytest.mark.parametrize("variant", variants())
def test_which_variant_this_is(variant: str) -> None:
    assert hot(NAME, variant).is_compiled() == (variant == "compiled")


@pytest.mark.parametrize("variant", variants())
def test_only_batches_that_need_a_check_are_named(variant: str) -> None:
    """A batch that is not named has no problem. An uncompressed one without a problem is named only for a rare header."""
    loop = hot(NAME, variant)
    rng = random.Random(5)
    named = fine = 0
    for _ in range(500):
        data, indexes, expected = b"", [], []
        for number in range(rng.randrange(1, 8)):
            count = rng.choice((1, 1, 2, 5))
            records = some_records(rng, count)
            body = mutated(rng, records) if rng.random() < 0.3 else records
            attributes = rng.choice((0, 0, 0, 8, 0x10, 1))
            first = rng.choice((0, 1_700_000_000_000, 1 << 62, (1 << 63) - 1, -1))
            latest = rng.choice((first, (1 << 63) - 1, (1 << 63) - 1, -1, 0))
            claimed, last = rng.choice((count, count, count, 0, -1, count + 1)), rng.choice((count - 1, 1 << 20, 0))
            times = {"base_timestamp": first, "max_timestamp": latest}
            indexes.append(len(data))
            batch = write_batch(body, base_offset=number, last_offset=number + last, count=claimed, attributes=attributes, **times)
            data += batch + b"#" * rng.randrange(2)
            is_rare = attributes == 1 or claimed <= 0 or min(first, latest) < 0
            if is_rare or Batch(batch).check():
                expected.append(number)
        assert loop.to_check(data, indexes) == expected
        named, fine = named + len(expected), fine + len(indexes) - len(expected)
    assert named > 100 and fine > 100
