"""Segments for measurements, with the indexes that a broker would have written: 100 B records in 16 KiB batches, and 1 KiB records
compressed with lz4.

A few batches are built record by record. The segment repeats them with offsets, timestamps and checksums of their own, so that a GiB takes
seconds. The segments are made once and kept in `.cache/bench`.
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

from kops.files import OsFiles
from kops.records import BatchBuilder, crc32c
from kops.storage.segments.recovery import rebuild_indexes

PROJECT = Path(__file__).resolve().parent.parent.parent
CACHE = PROJECT / ".cache" / "bench"
GIB = 1 << 30
FIRST_TIMESTAMP = 1_700_000_000_000
VARIANTS = 8


def segment(kind: str, size: int = GIB, *, base_offset: int = 0) -> Path:
    """Return the `.log` of a partition directory `.cache/bench/<kind>-<size>-<base_offset>/bench-0`. It has at most about `size` bytes, and
    its indexes are in the same directory.

    `kind` is `plain` (100 B values, 16 KiB batches) or `lz4` (1 KiB values, lz4, 16 KiB of records per batch).
    """
    folder = CACHE / f"{kind}-{size}-{base_offset}" / "bench-0"
    path = folder / f"{base_offset:020d}.log"
    if (folder / ".complete").exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        _write(file.fileno(), kind, size, base_offset)
    with OsFiles(read_only=True).open(str(path)) as log:
        rebuilt = rebuild_indexes(log, base_offset)
    path.with_suffix(".index").write_bytes(rebuilt.index)
    path.with_suffix(".timeindex").write_bytes(rebuilt.timeindex)
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {base_offset}\n")
    (folder / ".complete").touch()
    return path


def linked(kind: str, size: int, count: int) -> Path:
    """Return a log directory with `count` partitions that all have the same segment (hard links)."""
    log = segment(kind, size)
    folder = CACHE / f"{kind}-{size}-times-{count}"
    for number in range(count):
        partition = folder / f"bench-{number}"
        partition.mkdir(parents=True, exist_ok=True)
        for each in log.parent.iterdir():
            if each.name != ".complete" and not (partition / each.name).exists():
                os.link(each, partition / each.name)
    return folder


def template(kind: str, variant: int) -> bytes:
    """Return a batch of 16 KiB of records with base offset 0."""
    chance = random.Random(variant)
    value_size, codec = (100, "none") if kind == "plain" else (1024, "lz4")
    builder = BatchBuilder(codec=codec, base_offset=0, partition_leader_epoch=0)
    taken = 61
    while True:
        value = text(chance, value_size)
        taken += value_size + 8
        if taken > 16384:
            return builder.build()
        builder.append(FIRST_TIMESTAMP + builder.count // 16, None, value)


def text(chance: random.Random, size: int) -> bytes:
    """Return printable text that can be compressed to about a half, as JSON or log lines can."""
    words = [b"order", b"payment", b"customer", b"2026-11-21", b"status", b"amount", b"EUR", b"created"]
    parts: list[bytes] = []
    length = 0
    while length < size:
        part = words[chance.randrange(len(words))] if chance.random() < 0.5 else b"%08x" % chance.getrandbits(32)
        parts.append(part)
        length += len(part) + 1
    return b" ".join(parts)[:size].ljust(size, b".")


def _write(descriptor: int, kind: str, size: int, base_offset: int) -> None:
    templates = [bytearray(template(kind, variant)) for variant in range(VARIANTS)]
    counts = [struct.unpack_from(">i", each, 57)[0] for each in templates]
    spans = [struct.unpack_from(">q", each, 35)[0] - struct.unpack_from(">q", each, 27)[0] for each in templates]
    offset, written, number = base_offset, 0, 0
    pending: list[bytes] = []
    while written + len(templates[number % VARIANTS]) <= size - (size >> 10):
        batch = templates[number % VARIANTS]
        first = FIRST_TIMESTAMP + number * 10
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">qq", batch, 27, first, first + spans[number % VARIANTS])
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
        pending.append(bytes(batch))
        offset += counts[number % VARIANTS]
        written += len(batch)
        number += 1
        if len(pending) == 256:
            os.write(descriptor, b"".join(pending))
            pending.clear()
    os.write(descriptor, b"".join(pending))
