"""The places of records' fields, in Arrow's layout. Both variants agree, and agree with the plain reader."""

from __future__ import annotations

import random
from array import array
from types import ModuleType
from typing import Any

import pytest

from kops.spark.source.rows import microseconds
from tests.support.hot import hot, variants
from tests.support.logs.record_bytes import mutated, slow, some_records

NAME = "kops.spark._hot_columns"
BASE = 1 << 40
LAST = ((1 << 63) - 1) // 1000  # the last millisecond that Spark's timestamps can hold


def wrapped(value: int) -> int:
    """Return a number as Java's long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def contents(index: Any) -> tuple[object, ...]:
    """Return all that a RecordIndex knows."""
    writers = (index.offsets, index.timestamps, index.keys, index.values, index.absent, index.headers)
    return (
        tuple(each.getvalue() for each in writers),
        index.rows,
        index.null_keys,
        index.null_values,
        index.null_timestamps,
        index.header_count,
    )


def rows_of(data: bytes, index: Any, shift: int) -> list[tuple[object, ...]]:
    """Return (offset, timestamp in µs, key, value, number of headers) of the records in the index."""
    offsets, timestamps = array("q", index.offsets.getvalue()), array("q", index.timestamps.getvalue())
    flags = list(index.absent.getvalue())
    fields: list[list[object]] = [[None if flag & 4 else time for time, flag in zip(timestamps, flags, strict=True)]]
    assert not any(time for time, flag in zip(timestamps, flags, strict=True) if flag & 4)
    for places, flag in ((index.keys, 1), (index.values, 2)):
        bounds, absent = array("i", places.getvalue()), [byte & flag for byte in flags]
        pairs = list(zip(bounds[::2], bounds[1::2], absent, strict=True))
        assert all(start == end for start, end, null in pairs if null)
        fields.append([None if null else data[start - shift : end - shift] for start, end, null in pairs])
    headers = array("i", index.headers.getvalue())[1::2]
    found: list[tuple[object, ...]] = list(zip(offsets, *fields, headers, strict=True))
    assert index.rows == len(found) and index.header_count == sum(headers)
    assert (index.null_timestamps, index.null_keys, index.null_values) == tuple(column.count(None) for column in fields)
    return found


@pytest.mark.hot
@pytest.mark.parametrize("variant", variants())
def test_the_index_tells_what_the_plain_reader_reads(variant: str) -> None:
    loop: ModuleType = hot(NAME, variant)
    rng = random.Random(7)
    seen = set()
    for _ in range(3000):
        index = loop.RecordIndex()
        expected: list[tuple[object, ...]] = []
        shift = rng.choice((0, 0, 1000))
        content = b""
        for _ in range(3):  # a batch that cannot be read keeps the earlier ones, and later ones follow them
            count = rng.choice((0, 1, 2, 3, 10))
            data = mutated(rng, some_records(rng, count))
            start, content = len(content), content + data
            base, fixed = rng.choice((0, 1_700_000_000_000, -1, LAST, LAST + 1, -(1 << 62))), rng.random() < 0.3
            records = slow(data, 0, len(data), count)
            if data and slow(data[:-1], 0, len(data) - 1, count) is not None:
                records = None  # bytes are left over
            taken = index.add(content, start, len(content), count, shift, BASE, base, fixed)
            assert taken == (records is not None), data.hex()
            seen.add(taken)
            for offset, delta, key, value, headers in records or ():
                expected.append((BASE + offset, microseconds(base if fixed else wrapped(base + delta)), key, value, len(headers)))
        assert rows_of(content, index, shift) == expected
    assert seen == {True, False}


@pytest.mark.parametrize("other", [variant for variant in variants() if variant != "interpreted"])
def test_twins_agree_on_mutated_inputs(other: str) -> None:
    pure, fast = hot(NAME, "interpreted"), hot(NAME, other)
    assert fast.is_compiled() and not pure.is_compiled()
    rng = random.Random(8)
    edges = (0, 5, -1, (1 << 63) - 1, -(1 << 63), 1 << 62, 1_700_000_000_000)
    indexes = pure.RecordIndex(), fast.RecordIndex()
    for _ in range(10_000):
        count = rng.choice((0, 1, 2, 5, 1 << 31))
        data = mutated(rng, some_records(rng, min(max(count, 0), 5)))
        start, end = rng.choice(((0, len(data)), (0, len(data)), (0, len(data) // 2), (3, len(data) + 5)))
        arguments = (data, start, end, count, rng.choice((0, 77)), rng.choice(edges), rng.choice(edges), rng.random() < 0.2)
        assert indexes[0].add(*arguments) == indexes[1].add(*arguments)
        if indexes[0].rows > 500:
            assert contents(indexes[0]) == contents(indexes[1])
            indexes = pure.RecordIndex(), fast.RecordIndex()
    assert contents(indexes[0]) == contents(indexes[1])
