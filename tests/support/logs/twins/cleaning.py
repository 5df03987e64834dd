"""Logs of random shapes for the cleaner: keys, tombstones, transactions, producers, codecs, delete horizons, headers, gaps, old formats."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from kops.config.topic import TopicConfig, topic_config
from kops.files import Files, OsFiles
from kops.records import BatchBuilder
from kops.records.build import empty_batch
from kops.storage.cleaning.cleaner import CleanRange
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog

NOW_MS = 2_200_000_000_000
"""Later than the clock of any machine that runs this, so no producer has expired for Kafka either."""
SETTINGS = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "200",
    "segment.index.bytes": "1200",
    "internal.segment.bytes": "9000",
    "delete.retention.ms": "1000",
}


def open_log(
    directory: str, files: Files | None = None, config: TopicConfig | None = None, *, clean: bool = True, at_ms: int = NOW_MS
) -> UnifiedLog:
    """Open a partition's folder. The clock stands still."""

    def now_ms() -> int:
        return at_ms

    return UnifiedLog.open(
        files if files is not None else OsFiles(),
        directory,
        topic_config(SETTINGS) if config is None else config,
        now_ms=now_ms,
        scheduler=Scheduler(now_ms),
        failures=LogDirFailureChannel(),
        had_clean_shutdown=clean,
    )


def whole(log: UnifiedLog, first_dirty_offset: int = 0) -> CleanRange:
    """Return the range of everything but the active segment."""
    return CleanRange(first_dirty_offset, log.segments.active.base_offset)


@dataclass(slots=True)
class Shape:
    """The properties of a random log. The chances are per batch or per record."""

    segments: int = 5
    batches: int = 14
    records: int = 8
    keys: int = 25
    codecs: tuple[str, ...] = ("none",)
    transactions: float = 0.3
    idempotent: float = 0.3
    old_formats: tuple[str, ...] = ()
    """Codecs of messages of v0 and v1 in the first half of the segments. If it is empty, there are no such messages."""
    null_keys: bool = False
    append_time: float = 0.2
    horizons: float = 0.1
    empty: float = 0.05
    gaps: float = 0.1


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    batches: int = 0


@dataclass(slots=True)
class LogWriter:
    """A writer of the batches of a shape, one after the other."""

    rng: random.Random
    shape: Shape
    offset: int = 0
    producers: list[_Producer] = field(default_factory=lambda: [_Producer(1000 + number) for number in range(4)])

    def batch(self) -> bytes:
        """Return the next batch."""
        rng, shape = self.rng, self.shape
        if rng.random() < shape.gaps:
            self.offset += rng.randint(1, 5)
        open_producers = [producer for producer in self.producers if producer.is_open]
        if open_producers and rng.random() < 0.25:
            return self.marker(rng.choice(open_producers))
        if rng.random() < shape.empty:
            return self.header()
        if rng.random() < shape.transactions:
            return self.data(rng.choice(self.producers), transactional=True)
        idle = [producer for producer in self.producers if not producer.is_open]
        if idle and rng.random() < shape.idempotent:
            return self.data(rng.choice(idle))
        return self.data(None)

    def marker(self, producer: _Producer) -> bytes:
        """Return the end of an open transaction."""
        producer.is_open = False
        horizon = NOW_MS + self.rng.choice([-5000, 5000]) if self.rng.random() < self.shape.horizons else None
        builder = BatchBuilder(
            base_offset=self.offset,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            control=True,
            partition_leader_epoch=3,
            delete_horizon_ms=horizon,
        )
        builder.append_end_txn_marker(NOW_MS - 9000 + self.offset, self.rng.random() < 0.5, 1)
        self.offset += 1
        return builder.build()

    def header(self) -> bytes:
        """Return an empty batch, as an earlier cleaning leaves it."""
        self.offset += 3
        return empty_batch(base_offset=self.offset - 3, last_offset=self.offset - 1, timestamp=NOW_MS - 20_000, partition_leader_epoch=2)

    def data(self, producer: _Producer | None, *, transactional: bool = False) -> bytes:
        """Return a batch of records."""
        rng, shape = self.rng, self.shape
        builder = BatchBuilder(
            base_offset=self.offset,
            codec=rng.choice(shape.codecs),
            timestamp_type="LogAppendTime" if rng.random() < shape.append_time else "CreateTime",
            log_append_time=NOW_MS - 8000 + self.offset,
            partition_leader_epoch=3,
            delete_horizon_ms=NOW_MS + rng.choice([-5000, 5000]) if rng.random() < shape.horizons else None,
        )
        count = rng.randint(1, shape.records)
        if producer is not None:
            builder.producer_id, builder.producer_epoch, builder.base_sequence = producer.producer_id, producer.epoch, producer.sequence
            builder.transactional = transactional
            producer.is_open = producer.is_open or transactional
            producer.sequence += count
        for _ in range(count):
            self._record(builder)
        data = builder.build(last_offset=self.offset - 1)
        return data

    def _record(self, builder: BatchBuilder) -> None:
        rng = self.rng
        key: bytes | None = b"key-%d" % rng.randrange(self.shape.keys)
        if self.shape.null_keys and rng.random() < 0.1:
            key = None
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 3, 40, 70, 200]))
        names = ["a", "trace", "ключ", ""]
        headers = [(rng.choice(names), rng.choice([None, b"", b"x" * rng.randint(1, 90)])) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        builder.append(NOW_MS - 10_000 + self.offset * 7 - rng.choice([0, 0, 500]), key, value, headers, offset=self.offset)
        self.offset += 1

    def old_batch(self) -> bytes:
        """Return a batch of v0 or v1."""
        rng = self.rng
        magic = rng.choice([0, 1])
        codec = rng.choice(self.shape.old_formats)
        fixed = magic == 1 and rng.random() < 0.3
        builder = BatchBuilder(
            magic=magic,
            codec=codec,
            base_offset=self.offset,
            timestamp_type="LogAppendTime" if fixed else "CreateTime",
            log_append_time=NOW_MS - 8000,
        )
        for _ in range(1 if codec == "none" else rng.randint(1, self.shape.records)):
            value = None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 3, 40]))
            builder.append(NOW_MS - 10_000 + self.offset, b"key-%d" % rng.randrange(self.shape.keys), value, offset=self.offset)
            self.offset += 1
        return builder.build()


def write_log(directory: Path, rng: random.Random, shape: Shape) -> list[int]:
    """Write a folder with indexed segments that is closed cleanly. Return the segments' base offsets.

    The times of the files grow in steps of 700 ms up to now.
    """
    directory.mkdir(parents=True)
    writer = LogWriter(rng, shape)
    bases = []
    for number in range(shape.segments):
        bases.append(writer.offset)
        is_old = bool(shape.old_formats) and number < shape.segments // 2
        data = b"".join(writer.old_batch() if is_old else writer.batch() for _ in range(shape.batches))
        directory.joinpath(f"{bases[-1]:020d}.log").write_bytes(data)
    log = open_log(str(directory), config=replace(topic_config(SETTINGS), segment_index_bytes=10 << 20), clean=False)
    log.close()
    for number, base in enumerate(bases):
        modified_s = (NOW_MS - 700 * (len(bases) - number)) / 1000
        os.utime(directory / f"{base:020d}.log", (modified_s, modified_s))
    return bases
