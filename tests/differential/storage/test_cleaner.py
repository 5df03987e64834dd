"""Random logs, cleaned by Kafka's own Cleaner and by ours: the files are the same, byte for byte if nothing is recompressed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kops.records import Batch
from kops.records.scanning.scanner import read_batches
from kops.storage.cleaning._hot_clean import OffsetMap
from kops.storage.cleaning.cleaner import Cleaner, CleanRange
from tests.support.kafka.kafka_cleaner import KafkaCleaner
from tests.support.logs.twins import cleaning
from tests.support.logs.twins.cleaning import NOW_MS, Shape

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHAPES = {
    "plain": Shape(transactions=0, idempotent=0),
    "producers": Shape(),
    "transactions": Shape(transactions=0.6, keys=60, horizons=0.3, empty=0.1),
    "codecs": Shape(codecs=CODECS),
    "old formats": Shape(old_formats=("none",), null_keys=True),
    "old formats, codecs": Shape(old_formats=("none", "gzip", "lz4", "snappy"), null_keys=True),
    "few keys": Shape(keys=3, segments=7),
    "many keys": Shape(keys=5000, segments=4),
}
SEEDS = 6


def clean_ours(directory: Path, first_dirty_offset: int, end_offset: int, now_ms: int, memory: int = 1 << 20) -> tuple[int, list[int]]:
    """Clean the same way with ours."""
    log = cleaning.open_log(str(directory))
    cleaner = Cleaner(OffsetMap(memory), now_ms=lambda: now_ms, io_buffer_bytes=8192)
    end, stats = cleaner.clean(log, CleanRange(first_dirty_offset, end_offset))
    log.close()
    counted = [
        stats.map_messages_read,
        stats.messages_read,
        stats.messages_written,
        stats.invalid_messages_read,
        stats.bytes_read,
        stats.bytes_written,
    ]
    return end, counted


def described(batch: Batch) -> tuple[object, ...]:
    """Return a batch without what depends on its compression."""
    header = (batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.magic, batch.attributes, batch.base_timestamp)
    producer = (batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count)
    return (*header, *producer, [tuple(record) for record in batch.records()])


def assert_same(ours: Path, theirs: Path, *, compressed: bool) -> None:
    """Check that the files are the same byte for byte, or with codecs that the batches are the same."""
    kinds = (".log", ".txnindex") if compressed else (".log", ".index", ".timeindex", ".txnindex")
    names = {path.name for path in theirs.iterdir() if path.suffix in kinds}
    assert {path.name for path in ours.iterdir() if path.suffix in kinds} == names
    for name in sorted(names):
        mine, other = (folder.joinpath(name).read_bytes() for folder in (ours, theirs))
        if compressed and name.endswith(".log"):
            assert [described(batch) for batch in read_batches(mine)] == [described(batch) for batch in read_batches(other)], name
        else:
            assert mine == other, name
        if name.endswith(".log"):
            mine_ms, other_ms = (folder.joinpath(name).stat().st_mtime_ns // 1_000_000 for folder in (ours, theirs))
            assert mine_ms == other_ms, name


@pytest.mark.parametrize("name", SHAPES)
def test_cleaned_as_kafka_does(oracle: Oracle, tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    kafka = KafkaCleaner(oracle)
    is_compressed = len(shape.codecs) > 1 or len(shape.old_formats) > 1
    for seed in range(SEEDS):
        rng = random.Random(f"{name} {seed}")
        source, ours, theirs = (tmp_path / f"{seed}-{kind}" / "orders-0" for kind in ("source", "ours", "theirs"))
        bases = cleaning.write_log(source, rng, shape)
        for target in (ours, theirs):
            shutil.copytree(source, target)
        dirty = 0
        now_ms = NOW_MS
        # Two rounds. The second one cleans what the first one left, after the delete horizon.
        for end in (bases[-2], bases[-1]):
            mine, other = clean_ours(ours, dirty, end, now_ms), kafka.clean(theirs, dirty, end, now_ms)
            if is_compressed:
                del mine[1][-2:], other[1][-2:]
            assert mine == other, seed
            assert_same(ours, theirs, compressed=is_compressed)
            dirty, now_ms = mine[0], now_ms + rng.choice([1, 5000])
