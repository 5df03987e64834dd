"""Replicas that are compared in slices: the result is that of an undivided comparison, whatever is damaged."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kops.files import Files, OsFiles
from kops.forensics.inventory.tree import open_paths
from kops.forensics.replicas import stream
from kops.forensics.replicas.compare import compare
from kops.forensics.replicas.run import log_files
from kops.forensics.replicas.slices import Summary, after_slice, plan_slices, read_slice
from kops.forensics.replicas.stream import Chunk, Hurt, LogFile, OnBytes
from kops.records import Batch, BatchBuilder
from kops.records.build import empty_batch
from tests.support import corpus

FILES = OsFiles(read_only=True)
BLOCK = 700
SEEDS = 12


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make windows small enough that the logs here have many of them."""
    monkeypatch.setattr(stream, "BLOCK", BLOCK)


def summaries(replicas: Sequence[Sequence[LogFile]]) -> list[dict[int, Summary]]:
    """Read the slices of all replicas."""
    found: list[dict[int, Summary]] = [{} for _ in replicas]
    for each in plan_slices(FILES, replicas, 1):
        summary = read_slice(FILES, each)
        if summary is not None:
            found[each.replica][each.start.offset] = summary
    return found


def compared(replicas: Sequence[Sequence[LogFile]]) -> int:
    """Compare in slices and undivided. Return how many batches were not read in the comparison in slices."""
    passed = 0

    def after(files: Files, logs: Sequence[LogFile], summary: Summary, on_bytes: OnBytes | None) -> Iterator[Chunk | Hurt]:
        nonlocal passed
        passed += summary.batches
        return after_slice(files, logs, summary, on_bytes)

    slices = summaries(replicas)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kops.forensics.replicas.compare.after_slice", after)
        found = compare(FILES, replicas, slices=slices)
    assert found == compare(FILES, replicas)
    return passed


# logs that the test makes -------------------------------------------------------------------------------------------------------------


def history(rng: random.Random, count: int) -> list[bytes]:
    """Return batches of one partition, with leader epochs that grow."""
    offset, epoch, found = 0, 1, []
    for _ in range(count):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
        records = rng.randrange(1, 5)
        for number in range(records):
            builder.append(1_700_000_000_000 + offset + number, b"key", rng.randbytes(rng.randrange(60)), offset=offset + number)
        found.append(builder.build())
        offset += records + (rng.randrange(1, 4) if rng.random() < 0.02 else 0)
        epoch += rng.random() < 0.03
    return found


def damaged(rng: random.Random, batches: list[bytes]) -> list[bytes]:
    """Damage a replica once, or not at all."""
    kind = rng.choice(("none", "flip", "cut", "zeros", "end", "start", "twice", "moved", "epoch", "other", "closed"))
    at = rng.randrange(len(batches))
    one = batches[at]
    if kind == "flip":
        place = rng.randrange(len(one))
        return [*batches[:at], one[:place] + bytes([one[place] ^ 1 << rng.randrange(8)]) + one[place + 1 :], *batches[at + 1 :]]
    if kind == "cut":
        return batches[:at] + batches[at + rng.randrange(1, 4) :]
    if kind == "zeros":
        return [*batches[:at], bytes(rng.randrange(1, 200)), *batches[at:]]
    if kind == "end":
        return batches[:at]
    if kind == "start":
        return batches[at:]
    if kind == "twice":
        return [*batches[: at + 1], *batches[max(at - 2, 0) :]]
    if kind == "moved":
        return [*batches[:at], struct.pack(">q", rng.randrange(400)) + one[8:], *batches[at + 1 :]]
    if kind == "epoch":
        return [*batches[:at], one[:12] + struct.pack(">i", rng.randrange(4)) + one[16:], *batches[at + 1 :]]
    if kind == "other":
        ahead = history(rng, 200)
        first = Batch(one, 0, 0).base_offset
        return batches[:at] + [each for each in ahead if Batch(each, 0, 0).base_offset >= first]
    if kind == "closed":
        batch = Batch(one, 0, 0)
        return [
            *batches[:at],
            empty_batch(base_offset=batch.base_offset, last_offset=batch.last_offset, partition_leader_epoch=1),
            *batches[at + 1 :],
        ]
    return batches


def written(rng: random.Random, folder: Path, batches: list[bytes]) -> list[LogFile]:
    """Write a replica in a few segments, with sparse indexes."""
    folder.mkdir()
    logs: list[LogFile] = []
    data, index = bytearray(), bytearray()

    def close() -> None:
        if logs:
            Path(logs[-1].path).write_bytes(data)
            Path(logs[-1].path).with_suffix(".index").write_bytes(bytes(index) + bytes(8 * rng.randrange(3)))
        data.clear()
        index.clear()

    for each in batches:
        batch = Batch(each, 0, 0) if len(each) > 60 and any(each) else None
        base = batch.base_offset if batch is not None else -1
        is_ahead = base > (logs[-1].base_offset if logs else -1)
        if not logs or (len(data) > 3000 and rng.random() < 0.02 and is_ahead):
            close()
            logs.append(LogFile(str(folder / f"{max(base, 0):020d}.log"), max(base, 0)))
        if batch is not None and rng.random() < 0.4 and 0 <= batch.last_offset - logs[-1].base_offset < 1 << 31:
            index += struct.pack(">ii", batch.last_offset - logs[-1].base_offset, len(data))
        data += each
    close()
    return logs


def test_random_replicas(tmp_path: Path) -> None:
    passed = sum(random_replicas(tmp_path / str(seed), seed) for seed in range(SEEDS))
    assert passed > 20 * SEEDS


def random_replicas(folder: Path, seed: int) -> int:
    """Compare two or three replicas of a random history, each damaged up to twice."""
    rng = random.Random(seed)
    folder.mkdir()
    batches = history(rng, 150)
    replicas = []
    for number in range(rng.randrange(2, 4)):
        own = batches
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            own = damaged(rng, own) or batches
        replicas.append(written(rng, folder / str(number), own))
    return compared(replicas)


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_the_corpus(case_id: str) -> None:
    """A damaged replica beside the whole one, and beside itself."""
    root = corpus.load(case_id).root
    damaged_logs, whole_logs = (
        [log_files(each) for each in open_paths([str(root / name)], FILES).partitions()] for name in ("before", "clean")
    )
    for one in damaged_logs:
        for two in whole_logs[:1]:
            compared([one, two, one])
