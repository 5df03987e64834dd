"""The hot loop's two variants give the same answer for any bytes; what the answer must be is told by the slow reader here."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kops.errors import DecodeError
from kops.records.build import write_record
from kops.records.varint import read_varint, read_varlong
from tests.support.hot import hot, variants

NAME = "kops.records._hot"
Headers = list[tuple[str | bytes, bytes | None]]


def slow(data: bytes, start: int, end: int, count: int) -> list[tuple[int, int, bytes | None, bytes | None, Headers]] | None:
    """(offset delta, timestamp delta, key, value, headers) of each record, read plainly; None where one can't be read."""
    found = []
    position = start
    try:
        for _ in range(count):
            length, position = read_varint(data[:end], position)
            stop = position + length
            if length < 0 or stop > end:
                return None
            view = data[:stop]
            timestamp, position = read_varlong(view, position + 1)
            offset, position = read_varint(view, position)
            fields = []
            for _ in range(2):
                size, position = read_varint(view, position)
                if size >= 0 and position + size > stop:
                    return None
                fields.append(view[position : position + size] if size >= 0 else None)
                position += max(size, 0)
            headers: Headers = []
            number, position = read_varint(view, position)
            if number < 0 or number > stop - position:
                return None
            for _ in range(number):
                size, position = read_varint(view, position)
                if size < 0 or position + size > stop:
                    return None
                raw, position = view[position : position + size], position + size
                size, position = read_varint(view, position)
                if size >= 0 and position + size > stop:
                    return None
                value = view[position : position + size] if size >= 0 else None
                position += max(size, 0)
                try:
                    headers.append((raw.decode(), value))
                except UnicodeDecodeError:
                    headers.append((raw, value))
            if position != stop:
                return None
            found.append((offset, timestamp, fields[0], fields[1], headers))
    except DecodeError:
        return None
    return found


def some_records(rng: random.Random, count: int) -> bytes:
    parts = []
    for number in range(count):
        sizes = [rng.choice((None, 0, 1, 5, 63, 64, 70, 300)) for _ in range(2)]
        key, value = (None if size is None else rng.randbytes(size) for size in sizes)
        headers = [(rng.choice(("", "h", "ü", "x" * 70)), rng.choice((None, b"", b"v" * 80))) for _ in range(rng.choice((0, 0, 0, 1, 3)))]
        delta = rng.choice((0, 5, -3, 64, -65, 9000, 1 << 40, -(1 << 62), (1 << 63) - 1, -(1 << 63)))
        parts.append(write_record(number * rng.choice((1, 1, 70)), delta, key, value, headers))
    return b"".join(parts)


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        if not out:
            break
        at = rng.randrange(len(out))
        what = rng.randrange(5)
        if what == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[at] = rng.choice((0, 1, 2, 127, 128, 129, 254, 255))
        elif what == 2:
            del out[at:]
        elif what == 3:
            out[at:at] = bytes(rng.choice((0, 1, 128, 255)) for _ in range(rng.choice((1, 4, 9))))
        else:
            del out[at : at + rng.choice((1, 3, 20))]
    return bytes(out)


def indexed(data: bytes, index: list[int]) -> list[tuple[object, ...]]:
    """The records that `index_records` tells of: offset delta, timestamp delta, key, value, number of headers."""
    found: list[tuple[object, ...]] = []
    for at in range(0, len(index), 8):
        offset, timestamp, key_at, key_size, value_at, value_size, _, headers = index[at : at + 8]
        key = None if key_size < 0 else data[key_at : key_at + key_size]
        value = None if value_size < 0 else data[value_at : value_at + value_size]
        found.append((offset, timestamp, key, value, headers))
    return found


@pytest.mark.hot
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
        index: list[int] = []
        assert loop.index_records(data, start, end, count, index) == stop
        assert indexed(data, index) == [(row[0] - (1 << 40), row[1], row[3], row[4], len(row[5])) for row in rows]  # type: ignore[operator, arg-type]
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


@pytest.mark.hot
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
        places: tuple[list[int], list[int]] = ([], [])
        assert pure.index_records(*arguments[:4], places[0]) == fast.index_records(*arguments[:4], places[1])
        assert places[0] == places[1]
        assert pure.are_plain(data, start, end, count) == fast.are_plain(data, start, end, count)


@pytest.mark.hot
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
