"""One round of compaction by Kafka's Cleaner and by kops, in turn, on copies of the same log. Only the CPU seconds of the round are
measured.

Kafka's Cleaner runs in one warm JVM (its first rounds are not counted, and C2 is on, unlike in the tests). That of kops runs in this
process. This is a program (`python -m tests.bench.compact KIND SIZE ROUNDS`), so that KOPS_PURE can be set. It prints `[[name, cpu_s,
wall_s], …]`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

from kops.config.topic import topic_config
from kops.records import BatchBuilder
from kops.storage.cleaning._hot_clean import OffsetMap, is_compiled
from kops.storage.cleaning.cleaner import DEFAULT_DEDUPE_BUFFER_BYTES, Cleaner, CleanRange
from tests.bench.data import CACHE, FIRST_TIMESTAMP
from tests.support.logs.twins import cleaning

WARM_UP = 3
SEGMENTS = 4
SETTINGS = {"cleanup.policy": "compact"}
NOW_MS = FIRST_TIMESTAMP + (1 << 30)
RECORDS = {"plain": (125, 100), "lz4": (16, 1000)}
"""Records per batch, bytes per value."""


def written(kind: str, size: int) -> tuple[Path, int]:
    """Make a partition of about `size` bytes whose keys occur twice on average. Return its folder and the base offset of its active
    segment.
    """
    folder = CACHE / f"keyed-{kind}-{size}" / "bench-0"
    per_batch, value_size = RECORDS[kind]
    batches = size // SEGMENTS // 16_384
    end = SEGMENTS * batches * per_batch
    if not (folder.parent / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rng = random.Random(size)
        # Text with few different letters, so that lz4 can compress it.
        pool = bytes(rng.choices(b"abcdefgh ", k=1 << 16))
        offset = 0
        for _ in range(SEGMENTS):
            with open(folder / f"{offset:020d}.log", "wb") as file:
                for _ in range(batches):
                    builder = BatchBuilder(base_offset=offset, codec="none" if kind == "plain" else kind, partition_leader_epoch=0)
                    for _ in range(per_batch):
                        start = rng.randrange(len(pool) - value_size)
                        builder.append(FIRST_TIMESTAMP + offset, b"key-%010d" % rng.randrange(end // 2), pool[start : start + value_size])
                        offset += 1
                    file.write(builder.build())
        (folder / f"{end:020d}.log").touch()
        cleaning.open_log(str(folder), config=topic_config(SETTINGS), clean=False).close()
        (folder.parent / ".complete").touch()
    return folder, end


def main() -> None:
    """Run the rounds and print the results."""
    os.environ["_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=4 -Xmx1g"
    from tests.support.kafka.kafka_cleaner import KafkaCleaner
    from tests.support.kafka.oracle import Oracle

    kind, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder, end = written(kind, size)
    copy = CACHE / "compact-copy" / folder.name
    mine, theirs = [], []
    cleaner = Cleaner(OffsetMap(DEFAULT_DEDUPE_BUFFER_BYTES), now_ms=lambda: NOW_MS)
    with Oracle() as oracle:
        kafka = KafkaCleaner(oracle, DEFAULT_DEDUPE_BUFFER_BYTES, buffer=256 << 10, settings=SETTINGS)
        for number in range(WARM_UP + rounds):
            fresh(folder, copy)
            theirs.append(kafka.timed(copy, end, NOW_MS))
            if number < WARM_UP:
                continue
            fresh(folder, copy)
            log = cleaning.open_log(str(copy), config=topic_config(SETTINGS))
            started = time.process_time(), time.perf_counter()
            cleaner.clean(log, CleanRange(0, end), NOW_MS)
            mine.append((time.process_time() - started[0], time.perf_counter() - started[1]))
            log.close_handlers()
    shutil.rmtree(copy.parent)
    name = "kops" if is_compiled() else "kops interpreted"
    print(json.dumps([[name, *median(mine)], ["Kafka's Cleaner", *median(theirs[WARM_UP:])]]))


def fresh(folder: Path, copy: Path) -> None:
    """Make a new copy of the log."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)


def median(times: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the round with the median CPU time."""
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
