"""`kops scan diff` of large partitions, which are read in slices: the report is that of `kops log diff`. Tasks run in this process."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kops.files import Files
from kops.forensics.replicas import stream
from kops.forensics.replicas.run import diff
from kops.forensics.replicas.slices import Summary, after_slice
from kops.forensics.replicas.stream import Chunk, Hurt, LogFile, OnBytes
from kops.records import BatchBuilder
from kops.spark.jobs.diff import scan_diff
from kops.spark.remembered import State
from tests.spark.jobs.test_scan_kept import Here, settle


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Provide a stand-in for Spark. Windows are small, so that a small log is divided."""
    monkeypatch.setattr(stream, "BLOCK", 1000)
    return Here(monkeypatch)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Summary]:
    """Provide a list of the slices behind which comparisons continued."""
    found: list[Summary] = []

    def after(files: Files, logs: Sequence[LogFile], summary: Summary, on_bytes: OnBytes | None) -> Iterator[Chunk | Hurt]:
        found.append(summary)
        return after_slice(files, logs, summary, on_bytes)

    monkeypatch.setattr("kops.forensics.replicas.compare.after_slice", after)
    return found


def brokers(root: Path) -> list[str]:
    """Write a partition on three brokers: two segments, and an index entry every 2 KiB; damaged at one place each."""
    rng = random.Random(1)
    batches: list[tuple[int, bytes]] = []
    for offset in range(0, 3000, 10):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=offset // 1000)
        for number in range(offset, offset + 10):
            builder.append(1_700_000_000_000 + number, b"key", rng.randbytes(20), offset=number)
        batches.append((offset, builder.build()))
    for broker, roll in enumerate((1000, 1500, 1700)):
        folder = root / f"broker-{broker}" / "orders-0"
        folder.mkdir(parents=True)
        for base in (0, roll):
            data, index, indexed = bytearray(), bytearray(), 0
            for offset, batch in batches:
                if (offset >= roll) != (base == roll):
                    continue
                if len(data) - indexed > 2048:
                    index += struct.pack(">ii", offset + 9 - base, len(data))
                    indexed = len(data)
                data += batch
            if base <= 500 * broker + 700 < (roll if base == 0 else 3000):
                data[len(data) // 2] ^= 1
            (folder / f"{base:020d}.log").write_bytes(data)
            (folder / f"{base:020d}.index").write_bytes(index)
    return [str(root / f"broker-{broker}") for broker in range(3)]


def test_a_large_partition(here: Here, passed: list[Summary], tmp_path: Path) -> None:
    paths = brokers(tmp_path)
    whole = diff(paths).to_json()
    assert [found["code"] for found in whole["findings"]] == ["replica-damaged"] * 3
    assert scan_diff(here, paths).to_json() == whole
    assert not passed
    assert scan_diff(here, paths, task_bytes=1).to_json() == whole
    assert len(passed) >= 2 * len(paths), "in front of the first damaged place and between two of them"


def test_answers_about_slices_are_kept(here: Here, passed: list[Summary], tmp_path: Path) -> None:
    paths = brokers(tmp_path / "data")
    settle(tmp_path / "data")

    def scan() -> State:
        state = State(str(tmp_path / "state"), paths=paths)
        assert scan_diff(here, paths, task_bytes=1, state=state).to_json() == diff(paths).to_json()
        return state

    first = scan()
    assert first.reused == 0 and first.read > 10
    assert scan().read == 0
    log = tmp_path / "data" / "broker-1" / "orders-0" / f"{1500:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    settle(tmp_path / "data" / "broker-1" / "orders-0")
    third = scan()
    assert 0 < third.reused < first.read
