"""Bytes of records of format v2 for tests of the loops over them. They are made, damaged, and read by a plain reader."""

from __future__ import annotations

import random

from kops.errors import DecodeError
from kops.records.build import write_record
from kops.records.varint import read_varint, read_varlong

Headers = list[tuple[str | bytes, bytes | None]]


def slow(data: bytes, start: int, end: int, count: int) -> list[tuple[int, int, bytes | None, bytes | None, Headers]] | None:
    """Return (offset delta, timestamp delta, key, value, headers) of each record, or None if one cannot be read."""
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
