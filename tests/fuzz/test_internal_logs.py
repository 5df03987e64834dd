"""Records of Kafka's internal topics with changed bytes and correct checksums. Each record is shown or reported, and no other error is
raised.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.coordinators.offsets import read_offsets
from kops.forensics.coordinators.transactional_ids import read_ids
from kops.forensics.inventory.tree import open_partition
from kops.forensics.metadata_log.replay import CONTRADICTION, UNREADABLE, replay
from kops.forensics.metadata_log.source import open_metadata
from kops.forensics.metadata_log.tree import tree
from kops.records import BatchBuilder, read_batches
from tests.support import corpus

FILES = OsFiles(read_only=True)
Pair = tuple[bytes | None, bytes | None]


def batches_of(pattern: str) -> list[list[Pair]]:
    """Return the keys and values of batches that real brokers wrote."""
    root = corpus.load("cluster-4.3.0").root / "nodes"
    found = [batch for path in sorted(root.glob(pattern)) for batch in read_batches(path.read_bytes())]
    return [[(record.key, record.value) for record in batch.records()] for batch in found if not batch.is_control]


def changed(rng: random.Random, data: bytes | None, most: int) -> bytes | None:
    if data is None:
        return None
    new = bytearray(data)
    for _ in range(rng.randint(0, most) if new else 0):
        new[rng.randrange(len(new))] = rng.choice([0, 255, 1, 127, 128, rng.randrange(256)])
    return bytes(new[: rng.randrange(len(new) + 1)] if rng.random() < 0.05 else new)


def write(folder: Path, batches: list[list[Pair]]) -> None:
    data, offset = b"", 0
    for batch in batches:
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=1)
        for key, value in batch:
            builder.append(1000 * offset, key, value)
            offset += 1
        data += builder.build()
    folder.mkdir(exist_ok=True)
    (folder / "00000000000000000000.log").write_bytes(data)


@pytest.mark.parametrize("pattern", ["n2/__consumer_offsets-*/*.log", "n2/__transaction_state-*/*.log"])
def test_coordinators(pattern: str, tmp_path: Path) -> None:
    rng = random.Random(pattern)
    pairs = [pair for batch in batches_of(pattern) for pair in batch]
    raw = positions = ids = 0
    for _ in range(60):
        chosen = []
        for _ in range(60):
            key, value = rng.choice(pairs)
            value = None if rng.random() < 0.15 else changed(rng, value, 2)
            chosen.append([(changed(rng, key, 1) if rng.random() < 0.1 else key, value)])
        write(tmp_path / "copy", chosen)
        partition = open_partition(tmp_path / "copy", FILES)
        offsets, found = read_offsets(FILES, partition), read_ids(FILES, partition)
        assert offsets.lost == found.lost == []
        positions += len(list(offsets.replay.positions("copy", 1)))
        ids += len(list(found.sorted_ids()))
        raw += len(offsets.raw) + len(found.raw)
    assert raw > 100
    assert (positions if "offsets" in pattern else ids) > 100


def test_the_metadata_log(tmp_path: Path) -> None:
    rng = random.Random(7)
    batches = batches_of("n100/__cluster_metadata-0/*.log")
    kinds: set[str] = set()
    for number in range(40):
        chosen = batches if number % 2 else rng.sample(batches, len(batches) // 2)
        write(tmp_path / "__cluster_metadata-0", [[(None, changed(rng, value, 2)) for _, value in batch] for batch in chosen])
        result = replay(open_metadata(str(tmp_path), FILES), FILES)
        assert len(tree(result.image)) == 10
        kinds.update(fault.kind for fault in result.faults)
    assert kinds == {UNREADABLE, CONTRADICTION}
