"""`heal` on the corpus: each damage case, as one of three replicas, becomes byte for byte what it was before the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.forensics.heal.run import HealReport, heal
from kops.forensics.replicas.run import diff
from tests.support import corpus

NOW = 1_800_000_000_000
NO_DAMAGE = {
    "extra-empty-segment": ("00000000000000000099.",),
    "leftover-deleted": (".deleted",),
    "stray-files": (".hidden", ".bak", "README.txt"),
    "snapshot-stale": (".snapshot",),
    "snapshots-missing": (".snapshot",),
}
"""Files that differ from the clean ones afterwards, because Kafka takes no harm from them: `verify` has an info for them, if anything."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def laid_out(case: corpus.Case, tmp_path: Path) -> list[Path]:
    folders = (("one", "clean"), ("two", "before"), ("three", "clean"))
    return [case.copy(tmp_path / name, folder) for name, folder in folders]


def healed(target: Path, *sources: Path) -> HealReport:
    return heal([target], sources, mode="all", now_ms=lambda: NOW)


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_the_clean_bytes_come_back(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    one, two, three = laid_out(case, tmp_path)
    clean = contents(one)
    report = healed(two, one, three)
    harmless = NO_DAMAGE.get(case_id.split("-", 2)[2], ())
    got = contents(two)
    wrong = {path for path in clean.keys() | got.keys() if clean.get(path) != got.get(path)}
    assert {path for path in wrong if not any(name in path for name in harmless)} == set()
    assert report.repair.left == []
    assert not report.lossy
    assert contents(one) == contents(three) == clean
    assert diff([one, two]).findings == []


def test_three_replicas_each_damaged_elsewhere(tmp_path: Path) -> None:
    """Each is healed from the two others. For the last one, both others are already healed."""
    case = corpus.load("damage-4.3.0-none")
    clean = contents(case.root / "clean")
    logs = sorted(path for path in clean if path.endswith(".log"))
    dirs = []
    for number, name in enumerate(("one", "two", "three")):
        folder = case.copy(tmp_path / name, "clean")
        log = folder / logs[number + 1]
        log.write_bytes(log.read_bytes()[:-40])
        other = bytearray((folder / logs[0]).read_bytes())
        other[300 * (number + 1)] ^= 1
        (folder / logs[0]).write_bytes(other)
        dirs.append(folder)
    for number, folder in enumerate(dirs):
        assert not healed(folder, *(other for i, other in enumerate(dirs) if i != number)).lossy
    assert [contents(folder) == clean for folder in dirs] == [True] * 3


def test_the_damaged_old_leader_takes_nothing_of_the_new_history(tmp_path: Path) -> None:
    """The unclean election of the corpus: after offset 20, broker 3 has another history than broker 2."""
    case = corpus.load("cluster-4.3.0")
    two, three = (case.copy(tmp_path / name, f"diverged/{name}") for name in ("broker-2", "broker-3-live"))
    log = two / "clicks-unclean-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    for place in (300, 1600):  # before and after the divergence
        data[place] ^= 1
    log.write_bytes(data)
    report = healed(two, three)
    (found,) = report.partitions
    assert [last < 20 for _, last, _ in found.filled] == [True]
    assert found.lost
    assert all(first >= 20 for first, _ in found.lost)
