"""Answers that are joined from parts of a log are those about the whole log: over the corpus, and over generated logs.

A log is cut before every batch, so each seam that a large log may have is there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.coordinators.offsets import DEFAULT_RETENTION_MS, PartitionOffsets, join_offsets, read_offsets, read_part_offsets
from kops.forensics.coordinators.open_transactions import (
    PartitionTransactions,
    join_transactions,
    read_part_transactions,
    read_transactions,
)
from kops.forensics.coordinators.records import Lost, batches
from kops.forensics.inventory.tree import PartitionDir, open_partition, open_paths
from kops.forensics.questions.producers import joined, read_producers, rows_of
from kops.protocol.messages import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kops.protocol.record_values import write_coordinator_key, write_versioned
from kops.records import Batch, BatchBuilder
from kops.records.build import end_txn_marker
from tests.support import corpus

FILES = OsFiles(read_only=True)


def roots() -> list[Path]:
    """Return the directories of the corpus that have logs of Kafka 4.3."""
    damaged = [corpus.load(case).root / "before" for case in corpus.cases("damage")]
    return [*damaged, *(corpus.load("cluster-4.3.0").root / "nodes").iterdir(), corpus.load("broker-dir-4.3.0").root / "crash"]


def partitions() -> Iterator[PartitionDir]:
    for root in roots():
        yield from (each for each in open_paths([str(root)], FILES).partitions() if not each.state)


def pieces(items: list[Batch | Lost], sizes: random.Random | None) -> list[list[Batch | Lost]]:
    """Return the items in pieces: each by itself, or several."""
    if sizes is None:
        return [[item] for item in items]
    found: list[list[Batch | Lost]] = [[]]
    for item in items:
        if sizes.random() < 0.3:
            found.append([])
        found[-1].append(item)
    return found


def judged(found: PartitionTransactions) -> tuple[object, ...]:
    empty = sorted(found.empty, key=lambda one: one.offset)
    return found.open, empty, found.committed, found.aborted, found.end_offset, found.last_timestamp, found.lost


def replayed(found: PartitionOffsets) -> tuple[object, ...]:
    return list(found.replay.positions("log", DEFAULT_RETENTION_MS)), found.raw, found.lost


@pytest.mark.slow
def test_every_log_of_the_corpus() -> None:
    seen = 0
    for partition in partitions():
        items = list(batches(FILES, partition))
        for sizes in (None, random.Random(len(items))):
            check(partition, items, pieces(items, sizes), partition.path)
        seen += 1
    assert seen > 100


def generated(seed: int) -> list[bytes]:
    """Return batches of three producers that break every rule, of commits of two groups, and damage."""
    rng = random.Random(seed)
    found = []
    for offset in range(60):
        producer, epoch, time = rng.randrange(3), rng.choice((0, 1)), 1000 * rng.randrange(60)
        kind = rng.randrange(16)
        if kind == 0:
            found.append(b"\0" * 80)
            continue
        if kind < 4:
            about = {"coordinator_epoch": rng.randrange(3), "producer_id": producer, "producer_epoch": epoch}
            found.append(end_txn_marker(offset, time, commit=rng.random() < 0.6, **about))
            continue
        fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": rng.choice((0, offset, offset + 1))}
        builder = BatchBuilder(base_offset=offset, transactional=kind < 7, **(fields if kind < 9 else {}))  # type: ignore[arg-type]
        group = rng.choice("gh")
        if rng.random() < 0.1:
            builder.append(time, *_group(rng, group))
        else:
            key = OffsetCommitKey(group=group, topic=rng.choice("tu"), partition=0)
            value = OffsetCommitValue(offset=offset, commit_timestamp=time)
            builder.append(time, write_coordinator_key(key), None if rng.random() < 0.1 else write_versioned(value, 3))
        found.append(builder.build())
    return found


def _group(rng: random.Random, group: str) -> tuple[bytes, bytes | None]:
    if rng.random() < 0.5:
        return write_coordinator_key(ConsumerGroupMetadataKey(group)), rng.choice((None, write_versioned(ConsumerGroupMetadataValue(1), 0)))
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", current_state_timestamp=rng.randrange(99))
    return write_coordinator_key(GroupMetadataKey(group=group)), rng.choice((None, b"\0\1\2", write_versioned(value, 3)))


def test_generated_logs(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    seeds = pytestconfig.getoption("--seeds") or 15
    dropped = 0
    for seed in range(seeds):
        folder = tmp_path / f"{seed}" / "__consumer_offsets-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(b"".join(generated(seed)))
        partition = open_partition(str(folder), FILES)
        items = list(batches(FILES, partition))
        for sizes in (None, random.Random(seed)):
            dropped += check(partition, items, pieces(items, sizes), f"seed {seed}")
    assert dropped > seeds, "commits that others replace are left out"


def check(partition: PartitionDir, items: list[Batch | Lost], cut: list[list[Batch | Lost]], name: str) -> int:
    """Compare all questions; returns how many records the parts left out."""
    whole = joined([read_producers(items)])
    parts = joined(map(read_producers, cut))
    assert (list(rows_of(parts)), parts.lost) == (list(rows_of(whole)), whole.lost), name
    transactions = join_transactions(FILES, partition, map(read_part_transactions, cut))
    assert judged(transactions) == judged(read_transactions(FILES, partition)), name
    left = 0
    for at_ms in (30_000, None):
        kept = [read_part_offsets(FILES, partition, part, at_ms=at_ms) for part in cut]
        assert replayed(join_offsets(partition, kept)) == replayed(read_offsets(FILES, partition, at_ms=at_ms)), name
        left = len(items) - sum(map(len, kept))
    return left
