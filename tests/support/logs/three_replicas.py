"""Three damaged replicas of one partition of the corpus: one with its own damage, the two others with flipped bits elsewhere. And batches
that replicas must not mistake for the same one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from pathlib import Path
from random import Random

from kops.records import Batch, BatchBuilder, BytesSource, scan
from tests.support import corpus

CLEAN = "truth/records/clean.read_uncommitted.jsonl"


def content_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, or none if there is no folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} if folder.is_dir() else {}


def flipped(content: dict[str, bytes], is_hit: Callable[[int], bool]) -> tuple[dict[str, bytes], set[int]]:
    """Return the folder with one bit flipped in the last byte of some batches (by number), and the offsets of these batches."""
    hit: set[int] = set()
    number = 0
    changed = dict(content)
    for name in sorted(name for name in content if name.endswith(".log")):
        data = bytearray(content[name])
        for batch in scan(BytesSource(content[name])):
            assert isinstance(batch, Batch)
            if is_hit(number):
                data[batch.position + batch.size - 1] ^= 1
                hit.update(range(batch.base_offset, batch.last_offset + 1))
            number += 1
        changed[name] = bytes(data)
    return changed, hit


def expand(ranges: list[list[int]] | list[tuple[int, int]]) -> set[int]:
    """Return ranges of offsets, both ends inclusive, as a set."""
    return {offset for first, last in ranges for offset in range(first, last + 1)}


def folders(case: corpus.Case) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the folders of the partition of a damage case: before its damage, and damaged."""
    folder = posixpath.basename(case.json["damagedDir"])
    return content_of(case.root / "clean" / folder), content_of(case.root / "before" / folder)


def three_damaged(case: corpus.Case) -> tuple[list[dict[str, bytes]], set[int]]:
    """Return three replicas, and the offsets of the records that at least one of them has intact.

    Some batches are damaged in two of them.
    """
    clean, bad = folders(case)
    truth = {row["offset"] for row in case.lines(CLEAN)}
    one, first = flipped(clean, lambda number: number % 3 == 0)
    two, second = flipped(clean, lambda number: number % 3 == 1 or number % 6 == 3)
    return [bad, one, two], (expand(case.json["offsetsIntactOnDisk"]) | (truth - first) | (truth - second)) & truth


def equal_gzip_sets(base_offset: int) -> tuple[bytes, bytes]:
    """Return two different sets of v0 with the same checksum and size. gzip ends what it writes with a checksum, so that of a set whose
    contents gzip only stores depends on nothing but their length.
    """
    noise, known = Random(1), dict[tuple[int, int], bytes]()
    while True:
        builder = BatchBuilder(magic=0, codec="gzip", base_offset=base_offset)
        builder.append(-1, None, noise.randbytes(200))
        data = builder.build()
        other = known.setdefault((Batch(data).crc, len(data)), data)
        if other != data:
            return other, data
