"""Salvage from whole nodes: three replicas of everything, one of them damaged, give what a consumer got."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import pytest

from kops.files import MemoryFiles, OsFiles
from kops.forensics.recover.run import recover
from kops.records import Damage, scan
from tests.support import corpus


def offsets(files: MemoryFiles, folder: str) -> dict[int, tuple[int, int]]:
    """Return offset → (timestamp, size of the value) of every record."""
    found: dict[int, tuple[int, int]] = {}
    for name in files.list(folder):
        if name.endswith(".log"):
            with files.open(posixpath.join(folder, name)) as log:
                for batch in scan(log):
                    assert not isinstance(batch, Damage)
                    if not batch.is_control:
                        found.update((record.offset, (record.timestamp, len(record.value or b""))) for record in batch.records())
    return found


def truths(case: corpus.Case) -> dict[str, list[dict[str, Any]]]:
    """Return partition → what a consumer got."""
    found = {}
    for path in case.files("truth/records"):
        name = posixpath.basename(path)
        if name.endswith(".read_uncommitted.jsonl") and "before" not in name:
            found[name.removesuffix(".read_uncommitted.jsonl")] = case.lines(path)
    return found


@pytest.mark.parametrize("case_id", corpus.cases("cluster"))
def test_three_nodes_give_what_a_consumer_got(case_id: str) -> None:
    case = corpus.load(case_id)
    nodes = sorted((case.root / "nodes").iterdir())
    out = MemoryFiles()
    report = recover(nodes, "/out", files=OsFiles(read_only=True), out_files=out)
    recovered = {entry.name: entry for entry in report.partitions}
    compared = 0
    for name, rows in truths(case).items():
        if name not in recovered:
            continue
        got = offsets(out, recovered[name].output)
        for row in rows:
            assert got[row["offset"]][0] == row["timestamp"], (name, row["offset"])
        compared += len(rows)
    assert compared > 100
    assert not [entry.name for entry in report.partitions if entry.damaged]


def test_a_damaged_replica_is_completed_by_the_others(tmp_path: Path) -> None:
    case = corpus.load("cluster-4.3.0")
    nodes = [case.root / "nodes" / "n1", case.root / "nodes" / "n2"]
    whole = MemoryFiles()
    expected = recover(nodes, "/out", files=OsFiles(read_only=True), out_files=whole)
    copy = case.copy(tmp_path / "n1", nodes[0].relative_to(case.root).as_posix())
    for log in copy.rglob("*.log"):
        data = bytearray(log.read_bytes())
        if len(data) > 400:
            data[len(data) // 2] ^= 0x10
            log.write_bytes(bytes(data))
    mended = MemoryFiles()
    report = recover([copy, nodes[1]], "/out", files=OsFiles(read_only=True), out_files=mended)
    both = {path.name for path in copy.iterdir() if path.is_dir()} & {path.name for path in nodes[1].iterdir() if path.is_dir()}
    compared = 0
    for entry in expected.partitions:
        if entry.name in both and entry.name != "__cluster_metadata-0":
            assert offsets(mended, f"/out/{entry.name}") == offsets(whole, f"/out/{entry.name}")
            compared += 1
    assert compared > 3
    assert any(entry.damaged for entry in report.partitions)
