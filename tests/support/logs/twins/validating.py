"""Random appends for the validation by a leader, as a client of any age, a coordinator or an attacker would send them."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kops.records import Batch, BytesSource, compress, scan
from kops.records.batch import HEADER_V2
from kops.records.build import write_batch, write_message, write_record
from kops.records.compression import CODEC_IDS
from kops.records.validation.validate import AppendOrigin, ValidationRules
from tests.fuzz.records_worker import mutate, with_right_checksums

CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
MAX_LONG = (1 << 63) - 1
HOUR = 3_600_000


@dataclass(frozen=True)
class Sent:
    """One append."""

    data: bytes
    rules: ValidationRules
    origin: AppendOrigin

    def batches(self) -> list[Batch]:
        found = []
        position = 0
        while position < len(self.data):
            found.append(Batch(self.data, position))
            position += found[-1].size
        return found


def random_rules(rng: random.Random) -> ValidationRules:
    return ValidationRules(
        "orders-0",
        compacted=rng.random() < 0.2,
        timestamp_type="LogAppendTime" if rng.random() < 0.25 else "CreateTime",
        timestamp_before_max_ms=rng.choice((MAX_LONG, MAX_LONG, 24 * HOUR)),
        timestamp_after_max_ms=rng.choice((MAX_LONG, HOUR, HOUR)),
        compression_type=rng.choice(("producer",) * 6 + ("uncompressed", "gzip", "snappy", "lz4", "zstd")),
        gzip_level=rng.choice((-1, 1, 9)),
        lz4_level=rng.choice((9, 9, 1, 17)),
        zstd_level=rng.choice((3, 1, -5, 19)),
        magic=rng.choice((2,) * 8 + (1, 0)),
    )


def random_timestamp(rng: random.Random, now: int) -> int:
    usual = now - rng.randrange(HOUR // 2)
    return rng.choice((usual,) * 30 + (-1, -1, now - 48 * HOUR, now + 2 * HOUR, 0))


def random_v2(rng: random.Random, now: int) -> bytes:
    """Return a batch of format v2 with a right checksum. Its header or its records are sometimes wrong."""
    codec = rng.choice(CODECS)
    count = rng.choice((1, 1, 2, 3, 20))
    base = rng.choice((now - 5, now - 5, now - 5, -1, 0, MAX_LONG, -MAX_LONG - 1) if rng.random() < 0.2 else (now - 5,))
    keys = rng.choice(((b"key", b""), (b"key", None), (None,)))
    deltas = list(range(count))
    if rng.random() < 0.1:
        deltas = sorted(rng.sample(range(-1, 3 * count), count))
    wild = rng.random() < 0.1
    first = random_timestamp(rng, now)
    if rng.random() < 0.6:
        base = first
    records: list[bytes] = []
    for delta in deltas:
        timestamp = random_timestamp(rng, now) if records else first
        timestamp = timestamp - base if abs(base) < MAX_LONG else rng.choice((0, 1, -1, MAX_LONG))
        if wild:
            timestamp = rng.choice((timestamp, rng.randrange(-MAX_LONG - 1, MAX_LONG)))
        timestamp = max(-MAX_LONG - 1, min(MAX_LONG, timestamp))
        headers: list[tuple[str | bytes, bytes | None]] = [("h", b"v"), (b"\xff\xe2x", None), ("", b"")]
        headers = headers[: rng.choice((0, 0, 0, 3))]
        records.append(write_record(delta, timestamp, rng.choice(keys), rng.choice((b"value" * 9, None, b"")), headers))
    body = b"".join(records)
    if rng.random() < 0.1:
        body = mutate(rng, body)
    idempotent = rng.random() < 0.3
    base_offset = 0 if rng.random() < 0.9 else rng.choice((5, MAX_LONG - 1))
    attributes = CODEC_IDS[codec] | rng.choice((0,) * 12 + (8, 0x20, 0x30, 0x40, 0x80)) | (0x10 if idempotent and rng.random() < 0.5 else 0)
    return write_batch(
        compress(codec, body),
        base_offset=base_offset,
        last_offset=base_offset + (count - 1 if rng.random() < 0.95 else rng.choice((-1, 0, count, 7))),
        count=count if rng.random() < 0.95 else rng.choice((-1, 0, count + 1, max(0, count - 1))),
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=rng.choice((now, now, -1, now + 2 * HOUR)),
        producer_id=9 if idempotent else -1,
        producer_epoch=3 if idempotent else -1,
        base_sequence=rng.choice((0, 5, 5, (1 << 31) - 1, -1)) if idempotent else -1,
    )


WRONG_HEADERS = (
    b"\x82SNAPPY " + bytes(8),
    b"\x82SNAXPY\0" + bytes.fromhex("0000000100000001"),
    b"\x82SNAPPY\0" + bytes.fromhex("0000000000000001"),
    b"\x82SNAPPY\0" + bytes.fromhex("8000000000000001"),
    b"\x82SNAPPY\0" + bytes.fromhex("0000000900000000"),
    b"\x82SNAPPY ",
)


def snappy_stream(rng: random.Random, now: int) -> bytes:
    """Return a batch or set in several snappy streams, most of them with a wrong header.

    It is cut where Kafka's reads of 2 KiB begin, or anywhere.
    """
    count = rng.choice((1, 3, 8))
    size = rng.choice((10, 700, 2040, 6000))
    magic = rng.choice((2, 2, 2, 1, 0))
    values = [rng.choice((rng.randbytes(size), b"text" * (size // 4), None)) for _ in range(count)]
    headers = [("name", b"x" * rng.choice((1, 3000)))] if rng.random() < 0.3 else ()
    if magic == 2:
        parts = [write_record(number, 0, b"key", value, headers) for number, value in enumerate(values)]
    else:
        parts = [write_message(magic, number, now, b"key", value) for number, value in enumerate(values)]
    body = b"".join(parts)
    places = [*range(2048, len(body), 2048), *accumulate(map(len, parts)), *(rng.randrange(len(body)) for _ in range(3))]
    cuts = [0, *sorted(min(rng.choice(places), len(body)) for _ in range(rng.choice((1, 1, 2, 3)))), len(body)]
    data = b""
    for begin, end in pairwise(cuts):
        stream = compress("snappy", body[begin:end])
        data += rng.choice(WRONG_HEADERS) + stream[16:] if data and rng.random() < 0.8 else stream
        if rng.random() < 0.1:
            data += rng.choice(WRONG_HEADERS)
    if magic == 2:
        numbers = {"base_offset": 0, "base_timestamp": now, "max_timestamp": now, "count": count, "last_offset": count - 1}
        return write_batch(data, attributes=CODEC_IDS["snappy"], **numbers)
    return write_message(magic, count - 1, now, None, data, codec=CODEC_IDS["snappy"])


def broken_stream(rng: random.Random, now: int) -> bytes:
    """Return a compressed batch or set with a right checksum and a spoiled stream.

    Often a record that cannot be read comes before the spoiled place.
    """
    count = rng.choice((1, 3, 40))
    size = rng.choice((10, 700, 6000, 50_000))
    magic = rng.choice((2, 2, 2, 1, 0))
    codec = rng.choice(("gzip", "snappy", "lz4", "zstd") if magic == 2 else ("gzip", "snappy", "lz4"))
    values = [rng.choice((rng.randbytes(size), b"text" * (size // 4), None)) for _ in range(count)]
    if magic == 2:
        parts = [write_record(number, 0, b"key", value, ()) for number, value in enumerate(values)]
    else:
        parts = [write_message(magic, number, now, b"key", value) for number, value in enumerate(values)]
    if rng.random() < 0.5:
        at = rng.randrange(count)
        wrong = bytearray(parts[at])
        wrong[rng.randrange(min(len(wrong), 16))] ^= 1 << rng.randrange(8)
        parts[at] = bytes(wrong)
    frames = rng.choice((1, 1, 2, 3))
    body = b"".join(parts)
    cuts = [0, *sorted(rng.randrange(len(body)) for _ in range(frames - 1)), len(body)]
    packed = b"".join(compress(codec, body[begin:end], magic=magic) for begin, end in pairwise(cuts))
    stream = bytearray(packed)
    match rng.choice(("flip", "flip", "cut", "tail", "whole")):
        case "flip":
            stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
        case "cut":
            del stream[rng.randrange(len(stream)) :]
        case "tail":
            stream += rng.choice((b"x", b"rubbish", bytes(30), packed[: rng.randrange(len(packed))]))
    if magic < 2:
        return write_message(magic, count - 1, now, None, bytes(stream), codec=CODEC_IDS[codec])
    return write_batch(
        bytes(stream),
        base_offset=0,
        last_offset=count - 1,
        count=count,
        attributes=CODEC_IDS[codec],
        base_timestamp=now,
        max_timestamp=now,
    )


def random_message(rng: random.Random, magic: int, now: int, offset: int, *, kind: str = "CreateTime") -> bytes:
    timestamp = max(-1, random_timestamp(rng, now)) if rng.random() < 0.98 else -7
    key = rng.choice((b"key", b"key", None, b""))
    return write_message(magic, offset, timestamp, key, rng.choice((b"value" * 9, None, b"")), timestamp_type=kind)


def random_set(rng: random.Random, magic: int, now: int) -> bytes:
    """Return a compressed message of v0 or v1 with a right checksum. Its contents are sometimes wrong."""
    codec = rng.choice(("gzip", "snappy", "lz4"))
    count = rng.choice((1, 2, 5))
    start = rng.choice((0, 0, 0, 3))
    inner_magic = magic if rng.random() < 0.95 else rng.choice((0, 1))
    parts = [random_message(rng, inner_magic, now, start + number) for number in range(count)]
    if rng.random() < 0.1:
        parts = [random_message(rng, inner_magic, now, 0) for number in range(count)]
    if rng.random() < 0.1:
        at = rng.randrange(count)
        spoiled = bytearray(parts[at])
        spoiled[rng.randrange(12, len(spoiled))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.7:
            spoiled[12:16] = zlib.crc32(spoiled[16:]).to_bytes(4, "big")
        parts[at] = bytes(spoiled)
    body = b"".join(parts)
    if rng.random() < 0.05:
        body = mutate(rng, body)
    offset = start + count - 1 if rng.random() < 0.8 else rng.choice((0, 1, 50))
    timestamp = random_timestamp(rng, now)
    kind = "LogAppendTime" if rng.random() < 0.1 else "CreateTime"
    value = None if rng.random() < 0.02 else compress(codec, body, magic=magic)
    return write_message(magic, offset, timestamp, None, value, codec=CODEC_IDS[codec], timestamp_type=kind)


def random_old(rng: random.Random, now: int) -> bytes:
    magic = rng.choice((0, 1, 1))
    if rng.random() < 0.5:
        return random_set(rng, magic, now) * (2 if rng.random() < 0.05 else 1)
    kind = "LogAppendTime" if rng.random() < 0.1 else "CreateTime"
    parts = [
        random_message(rng, magic if rng.random() < 0.97 else 1 - magic, now, offset, kind=kind) for offset in range(rng.choice((1, 3)))
    ]
    if rng.random() < 0.03:
        parts.append(random_v2(rng, now))
    return b"".join(parts)


def random_append(rng: random.Random, now: int) -> Sent:
    data = random_v2(rng, now) if rng.random() < 0.65 else random_old(rng, now)
    if rng.random() < 0.03:
        data += random_v2(rng, now)
    if rng.random() < 0.03:
        data = whole(with_right_checksums(mutate(rng, data)))
    origin = rng.choice((AppendOrigin.CLIENT,) * 5 + (AppendOrigin.COORDINATOR,))
    return Sent(data, random_rules(rng), origin)


def whole(data: bytes) -> bytes:
    """Return the batches at the beginning of `data` whose checksums hold. The analysis leaves them for validation."""
    return b"".join(bytes(item.data()) for item in scan(BytesSource(data), resync=False) if isinstance(item, Batch))


def header(batch: Batch) -> tuple[object, ...]:
    """Return a v2 header without the fields that recompression changes: size and checksum."""
    fields = HEADER_V2.unpack_from(batch.buffer, batch.index)
    return (fields[0], *fields[2:4], *fields[5:])
