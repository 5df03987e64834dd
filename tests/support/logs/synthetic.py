"""Partition directories that are built here, of shapes that the corpus does not have: many producers, offsets far apart, long indexes."""

from __future__ import annotations

import random
from pathlib import Path

from kops.config.topic import TopicConfig
from kops.files import OsFiles
from kops.records import BatchBuilder
from kops.storage.start.loader import load_partition

START_MS = 1_700_000_000_000


def many_producers(rng: random.Random) -> dict[int, bytes]:
    """Return batches of many producers with ids of all sizes (some collide in a hash table).

    Their transactions are open, committed or aborted, and cross segments.
    """
    ids = [*range(40), *(rng.getrandbits(63) for _ in range(40)), *(number << 16 for number in range(60)), *(7 + 64 * n for n in range(12))]
    sequences = dict.fromkeys(ids, 0)
    epochs = dict.fromkeys(ids, 0)
    open_txns: list[int] = []
    segments: dict[int, bytes] = {}
    offset = base = leader_epoch = 0
    data = b""
    for step in range(500):
        if step % 110 == 109:
            segments[base] = data
            base, data = offset, b""
            leader_epoch += rng.choice([0, 1, 3])
        producer = rng.choice(ids)
        timestamp = START_MS + step * 10 - rng.choice([0, 0, 900])
        end = bool(open_txns) and rng.random() < 0.2
        if end:
            producer = open_txns.pop(rng.randrange(len(open_txns)))
        elif rng.random() < 0.05:
            epochs[producer] += 1
            sequences[producer] = 0
            end = producer in open_txns
            open_txns = [other for other in open_txns if other != producer]
        transactional = end or producer in open_txns or rng.random() < 0.2
        builder = BatchBuilder(
            base_offset=offset,
            codec="none" if end else rng.choice(["none", "gzip", "zstd"]),
            producer_id=producer,
            producer_epoch=epochs[producer],
            base_sequence=-1 if end else sequences[producer],
            transactional=transactional,
            control=end,
            partition_leader_epoch=leader_epoch,
        )
        count = 1 if end else rng.randint(1, 5)
        if end:
            builder.append_end_txn_marker(timestamp, rng.random() < 0.5, rng.randint(0, 3))
        else:
            for number in range(count):
                builder.append(timestamp + number, b"k", b"v" * rng.randint(0, 30))
            sequences[producer] += count
            if transactional and producer not in open_txns:
                open_txns.append(producer)
        data += builder.build()
        offset += count
    segments[base] = data
    return segments


def far_offsets(rng: random.Random) -> dict[int, bytes]:
    """Return a segment whose last offsets have no index entry (KAFKA-6264), between two ordinary ones."""
    offsets = [50, 60, 2**31 + 40, 2**31 + 49, 2**31 + 60, 2**31 + 70, 2**32 + 100, 2**32 + 120]
    return {0: _batches([0, 10, 40], rng), 50: _batches(offsets, rng), 2**33: _batches([2**33, 2**33 + 5], rng)}


def long_index(rng: random.Random) -> dict[int, bytes]:
    """Return segments of thousands of batches with an index entry each.

    A look-up meets the warm end of the index as well as the rest of it.
    """
    return {0: _batches(range(0, 6000, 2), rng), 6000: _batches(range(6000, 9000, 2), rng)}


def _batches(offsets: list[int] | range, rng: random.Random) -> bytes:
    parts = []
    for number, offset in enumerate(offsets):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=number // 1000)
        builder.append(START_MS + number * 7 - rng.choice([0, 0, 40]), b"key", b"value %d" % number)
        parts.append(builder.build())
    return b"".join(parts)


SHAPES = {"many-producers": many_producers, "far-offsets": far_offsets, "long-index": long_index}


def write_partition(directory: Path, shape: str, seed: int, *, loaded: bool = True) -> int:
    """Write the directory and return the log end offset.

    With `loaded` it has indexes and snapshots as a first load and a clean stop write them.
    """
    rng = random.Random(f"{shape} {seed}")
    directory.mkdir(parents=True)
    for base_offset, data in SHAPES[shape](rng).items():
        (directory / f"{base_offset:020d}.log").write_bytes(data)
    if not loaded:
        return 0
    log = load_partition(OsFiles(), str(directory), TopicConfig(index_interval_bytes=0), clean_shutdown=False, now_ms=START_MS)
    log.close()
    return log.log_end_offset
