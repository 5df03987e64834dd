"""Repair over every damage case: verify is clean afterwards, and a broker's load, after any kind of stop, keeps
everything that was intact.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from kops.config.topic import TopicConfig
from kops.files import OsFiles, OverlayFiles
from kops.forensics.repair.run import RepairReport, open_journal, plan_repair, repair, rollback
from kops.forensics.verify.run import verify
from kops.records import Damage, Record, scan
from kops.storage.start.loader import load_partition
from tests.support import corpus

CLEAN = "truth/records/clean.read_uncommitted.jsonl"
UNKNOWN_TOPIC = {"damage-4.3.0-partition-metadata-malformed", "damage-4.3.0-partition-metadata-missing"}
"""Nothing in these cases knows the topic's id."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def records(files: OverlayFiles, folder: str) -> dict[int, Record]:
    """Return what a consumer would get."""
    found: dict[int, Record] = {}
    for name in files.list(folder):
        if name.endswith(".log"):
            with files.open(posixpath.join(folder, name)) as log:
                for batch in scan(log):
                    assert not isinstance(batch, Damage), name
                    if not batch.is_control:
                        found.update((record.offset, record) for record in batch.records())
    return found


def check_loads(folder: Path, case: corpus.Case) -> None:
    """Load the folder as after a crash with recovery point 0, with the recovery point at the end, and as after a clean stop."""
    intact = {offset for first, last in case.json["offsetsIntactOnDisk"] for offset in range(first, last + 1)}
    truth = {row["offset"]: row for row in case.lines(CLEAN)}
    expected = intact & set(truth)
    for mode, point in (("full", 0), ("left", max(truth) + 1), ("clean", max(truth) + 1)):
        files = OverlayFiles(OsFiles(read_only=True))
        loaded = load_partition(
            files,
            str(folder),
            TopicConfig(),
            recovery_point=point,
            clean_shutdown=mode == "clean",
            now_ms=case.json["clockMs"],
            producer_id_expiration_ms=2147483647,
        )
        got = records(files, str(folder))
        assert expected <= set(got), mode
        assert {offset: got[offset].timestamp for offset in expected} == {offset: truth[offset]["timestamp"] for offset in expected}
        assert loaded.log_end_offset > max(expected, default=-1)
        loaded.close()


def repaired(case_id: str, target: Path) -> tuple[corpus.Case, Path, RepairReport]:
    case = corpus.load(case_id)
    log_dir = case.copy(target, "before")
    return case, log_dir, repair([log_dir], mode="all")


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_repaired_is_clean_and_keeps_everything_intact(case_id: str, tmp_path: Path) -> None:
    case, log_dir, report = repaired(case_id, tmp_path / "log")
    left = [found.code for found in verify([log_dir], "full").findings if found.is_problem]
    if case_id in UNKNOWN_TOPIC:
        assert left == [case_id.removeprefix("damage-4.3.0-")]
    else:
        assert left == []
    assert [found.code for found in report.left] == left
    if "partition-metadata-malformed" not in left:  # it takes the log directory offline, repaired or not
        check_loads(log_dir / damaged(case), case)
    assert repair([log_dir], mode="all").journals == []


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_the_plan_says_what_is_done_and_touches_nothing(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    log_dir = case.copy(tmp_path / "log", "before")
    before = contents(log_dir)
    plan = repair([log_dir], mode="plan")
    assert contents(log_dir) == before
    assert list(tmp_path.iterdir()) == [log_dir]
    done = repair([log_dir], mode="all")
    assert [part.to_json() for part in plan.plans] == [part.to_json() for part in done.plans]
    assert plan.left == done.left


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_rollback_gives_every_byte_name_and_time_back(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    log_dir = case.copy(tmp_path / "log", "before")
    before, times = contents(log_dir), {path: path.stat().st_mtime_ns for path in log_dir.rglob("*") if path.is_file()}
    report = repair([log_dir], mode="all")
    for journal in report.journals:
        rollback(OsFiles(), open_journal(OsFiles(), journal.path))
    assert contents(log_dir) == before
    assert {path: path.stat().st_mtime_ns for path in log_dir.rglob("*") if path.is_file()} == times


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_preen_touches_no_batch(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    log_dir = case.copy(tmp_path / "log", "before")
    before = batches(log_dir / damaged(case))
    report = repair([log_dir], mode="preen")
    assert all(step.lossless for plan in report.plans for step in plan.steps)
    assert batches(log_dir / damaged(case)) == before
    whole = plan_repair([case.root / "before"])
    if all(step.lossless for plan in whole for step in plan.steps):
        assert [found.code for found in report.left] == [found.code for plan in whole for found in plan.left]
    else:
        assert report.left


def damaged(case: corpus.Case) -> str:
    """Return the name of the damaged folder."""
    return posixpath.basename(str(case.json["damagedDir"]))


def batches(folder: Path) -> set[tuple[int, int]]:
    """Return the base offset and checksum of every readable batch of the live logs."""
    found: set[tuple[int, int]] = set()
    for path in sorted(folder.glob("*.log")):
        with OsFiles(read_only=True).open(str(path)) as log:
            found |= {(item.base_offset, item.crc) for item in scan(log) if not isinstance(item, Damage)}
    return found
