"""Mutates logs of every format and reads them in every way. `test_records.py` runs this program. It limits its memory and time itself.

    python -m tests.fuzz.records_worker COUNT SEED

Prints the number of batches and of damages that it found and exits with 0. Any error other than a DecodeError ends the program with a
traceback.
"""

from __future__ import annotations

import itertools
import random
import resource
import signal
import struct
import sys
import zlib
from pathlib import Path

from kops.errors import DecodeError
from kops.records import (
    Batch,
    BatchBuilder,
    BytesSource,
    Columns,
    Damage,
    crc32c,
    empty_batch,
    end_txn_marker,
    file_batches,
    read_control_record,
    scan,
    scan_columns,
)

MEMORY = 256 << 20
LONGEST_S = 10
LIMIT = 1 << 20
EDGES = [
    bytes.fromhex(text) for text in ("00", "7f", "80", "ff", "0000", "ffff", "7fffffff", "80000000", "ffffffff", "00000000", "40000000")
]


def seeds(rng: random.Random) -> list[bytes]:
    """Return small logs of a few batches, one for each format and codec."""
    found = []
    for magic in (0, 1, 2):
        for codec in ("none", "gzip", "snappy", "lz4", *(("zstd",) if magic == 2 else ())):
            parts, offset = [], rng.randrange(1, 1000)
            for _ in range(3):
                builder = BatchBuilder(magic=magic, codec=codec, base_offset=offset, partition_leader_epoch=1 if magic > 1 else -1)
                for number in range(rng.choice((1, 3, 6))):
                    headers = [("h", b"x"), ("", None)] if magic > 1 and number % 2 else []
                    builder.append(1_700_000_000_000 + number, b"key", rng.randbytes(rng.choice((0, 8, 40))), headers)
                parts.append(builder.build())
                offset = (builder.last_offset or 0) + 1
            found.append(b"".join(parts))
    markers = [end_txn_marker(i, 5, commit=bool(i % 2), coordinator_epoch=1, producer_id=9, producer_epoch=0) for i in range(3)]
    found.append(b"".join(markers) + empty_batch(base_offset=3, last_offset=9))
    return found


def mutate(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(8)
        if what < 3 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 3:
            edge = rng.choice(EDGES)
            out[at : at + len(edge)] = edge
        elif what == 4:
            del out[at : at + rng.choice((1, 4, 12, 61, 200))]
        elif what == 5:
            out[at:at] = rng.choice((bytes(rng.choice((1, 20, 100))), rng.randbytes(rng.choice((1, 12, 80)))))
        elif what == 6:
            start = rng.randrange(len(out) + 1)
            out[at:at] = out[start : start + rng.choice((12, 61, 150))]
        else:
            del out[at:]
    return bytes(out)


def with_right_checksums(data: bytes) -> bytes:
    """Return the data with correct checksums for all batches that the chain of lengths reaches, so that the decoders see the damage."""
    out = bytearray(data)
    at = 0
    while at + 17 < len(out):
        size = struct.unpack_from(">i", out, at + 8)[0] + 12
        if size < 26 or at + size > len(out):
            break
        if 1 < out[at + 16] < 128:
            if size >= 61:
                out[at + 17 : at + 21] = crc32c(bytes(out[at + 21 : at + size])).to_bytes(4, "big")
        else:
            out[at + 12 : at + 16] = zlib.crc32(out[at + 16 : at + size]).to_bytes(4, "big")
        at += size
    return bytes(out)


def read_all(batch: Batch) -> None:
    """Read everything that a batch offers."""
    problems = batch.check()
    try:
        records = batch.records(LIMIT)
    except DecodeError as error:
        assert any(problem.code == error.code for problem in problems), (error, problems)
    else:
        if batch.is_control:
            for record in records:
                try:
                    read_control_record(record)
                except DecodeError as error:
                    assert error.code in ("bad-control-record", "bad-varint")
    assert isinstance(batch.base_offset, int) and batch.codec and batch.timestamp_type and isinstance(batch.last_sequence, int)
    repr(batch)


def look(data: bytes) -> tuple[int, int]:
    """Scan the data in several ways and return the number of batches and of damages."""
    source = BytesSource(data)
    items = []
    end = 0
    for item in scan(source):
        assert item.position == end, (item, end)
        if isinstance(item, Damage):
            assert item.length > 0 and item.reason and item.code
            end += item.length
            repr(item)
        else:
            end += item.size
            read_all(item)
        items.append((item.position, isinstance(item, Damage)))
    assert end == len(data)
    flat = []
    for found in scan_columns(source, window=100):
        if isinstance(found, Columns):
            flat += [(position, False) for position in found.positions]
        else:
            flat.append((found.position, True))
    assert flat == items
    try:
        for batch in itertools.islice(file_batches(source), 50):
            read_all(batch)
    except DecodeError:
        pass
    for item in scan(source, check_crc=False, resync=False, max_magic=127):
        if isinstance(item, Batch):
            read_all(item)
    damages = sum(damage for _, damage in items)
    return len(items) - damages, damages


def too_long(*_: object) -> None:
    raise TimeoutError(f"one input took more than {LONGEST_S} s")


def main(count: int, seed: int) -> None:
    rng = random.Random(seed)
    bases = seeds(rng)
    for base in bases:
        look(base)
    signal.signal(signal.SIGALRM, too_long)
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    good = bad = 0
    for number in range(count):
        data = mutate(rng, rng.choice(bases))
        if rng.random() < 0.6:
            data = with_right_checksums(data)
        signal.alarm(LONGEST_S)
        try:
            batches, damages = look(data)
        except BaseException:
            print(f"input {number} of seed {seed}: {data.hex()}", file=sys.stderr)
            raise
        signal.alarm(0)
        good += batches
        bad += damages
    print(good, bad)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
