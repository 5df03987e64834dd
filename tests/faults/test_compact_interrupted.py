"""Ctrl-C before any operation of a compaction. Each partition is complete or unchanged. The complete ones are in the report and in the
checkpoint.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.files import FaultyFiles, MemoryFiles
from kops.forensics.compact import CompactOptions, CompactReport, compact
from kops.storage.formats.checkpoints import read_offset_checkpoint
from tests.support.logs.twins import cleaning

SETTINGS = {"internal.segment.bytes": "2000", "index.interval.bytes": "200", "segment.index.bytes": "1200"}
OPTIONS = CompactOptions(cleaning.NOW_MS, SETTINGS, force=True, dedupe_buffer_bytes=1 << 14)
SHAPE = cleaning.Shape(segments=3, batches=3, transactions=0, gaps=0, empty=0)
PARTITIONS = ("orders-0", "orders-1")


class Interrupted(FaultyFiles):
    """Files that raise KeyboardInterrupt once, before operation `at`."""

    def step(self, what: str, part: Callable[[int], None] | None = None) -> None:
        self.operations.append(what)
        if len(self.operations) == self.at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compact")
    for seed, name in enumerate(PARTITIONS):
        cleaning.write_log(root / name, random.Random(seed), SHAPE)
    return root


def run(source: Path, earlier: dict[str, bytes], at: int = 0) -> tuple[CompactReport, Interrupted]:
    """Run a compaction. `earlier` is the former content of the output directory."""
    files = MemoryFiles()
    for folder in ("/out", *(f"/out/{name}" for name in PARTITIONS if earlier)):
        files.mkdir(folder)
    for path, data in earlier.items():
        files.write_all(path, data)
    faulty = Interrupted(files, at=at)
    return compact([source], "/out", OPTIONS, out_files=faulty), faulty


def partition(files: FaultyFiles, name: str) -> dict[str, bytes]:
    return {path: files.base.read_all(path) for path in files.base.walk(f"/out/{name}")} if files.base.exists(f"/out/{name}") else {}


@pytest.mark.parametrize("was_there", [pytest.param(False, marks=pytest.mark.slow), True], ids=["new", "replaced"])
def test_partitions_are_whole_wherever_it_comes(was_there: bool, source: Path) -> None:
    earlier = {f"/out/{name}/{0:020d}.log": b"" for name in PARTITIONS} if was_there else {}
    report, files = run(source, earlier)
    whole = {name: partition(files, name) for name in PARTITIONS}
    before = {name: {path: data for path, data in earlier.items() if name in path} for name in PARTITIONS}
    assert [entry.name for entry in report.partitions] == list(PARTITIONS)
    assert all(whole[name] not in ({}, before[name]) for name in PARTITIONS)
    seen = set()
    end = next(number for number, what in enumerate(files.operations) if "/out/cleaner-offset-checkpoint" in what)
    for at in range(1, end + 1):
        report, files = run(source, earlier, at)
        what = files.operations[at - 1]
        assert report.interrupted, what
        done = [entry.name for entry in report.partitions]
        seen.add(len(done))
        for name in PARTITIONS:
            assert partition(files, name) == (whole[name] if name in done else before[name]), (what, name)
        written = "/out/cleaner-offset-checkpoint"
        found = read_offset_checkpoint(files.base.read_all(written)) if files.base.exists(written) else {}
        assert [f"{key.topic}-{key.partition}" for key in found] == done, what
        assert not files.base.exists("/out/.kops-partial"), what
    assert seen == {0, 1, 2}
