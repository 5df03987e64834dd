"""Salvage over every damage case: everything that was intact is recovered unchanged, at its offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.recover.run import recover
from kops.records import Damage, Record, scan
from tests.support import corpus


def expand(ranges: list[list[int]]) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


def read_folder(folder: Path) -> dict[int, Record]:
    """Return every record of a partition's folder, as a broker would serve it (no damage allowed)."""
    found: dict[int, Record] = {}
    last = -1
    for path in sorted(folder.glob("*.log")):
        base = int(path.stem)
        assert base > last
        with OsFiles(read_only=True).open(str(path)) as file:
            for batch in scan(file):
                assert not isinstance(batch, Damage)
                assert batch.base_offset >= base and batch.base_offset > last
                last = batch.last_offset
                if not batch.is_control:
                    found.update((record.offset, record) for record in batch.records())
    return found


UNTOLD: dict[str, set[int]] = {}

CLEAN = "truth/records/clean.read_uncommitted.jsonl"


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_everything_intact_comes_back(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    report = recover([case.root / case.json["damagedDir"]], tmp_path / "out")
    (entry,) = report.partitions
    got = read_folder(Path(entry.output))
    truth = {row["offset"]: row for row in case.lines(CLEAN)}
    intact = expand(case.json["offsetsIntactOnDisk"])
    for offset in intact & set(truth):
        assert corpus.as_truth(got[offset]) == truth[offset]
    assert set(got) <= set(truth)
    for offset, record in got.items():
        assert corpus.as_truth(record) == truth[offset]
    assert entry.records == len(got)
    missing = set(truth) - set(got)
    assert not {offset for first, last in entry.lost for offset in range(first, last + 1)} & set(got)
    told = {offset for first, last in entry.missing for offset in range(first, last + 1)}
    assert report.lossy == bool(told)
    assert missing <= told | UNTOLD.get(case_id, set())
