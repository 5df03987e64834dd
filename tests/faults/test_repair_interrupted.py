"""Real repairs with a crash at every operation that changes something. The next run gives the same result, and a rollback restores
everything.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.errors import KopsError, LockHeldError
from kops.files import Crash, FaultyFiles, OsFiles, OverlayFiles
from kops.forensics.plans.journal import journal_root
from kops.forensics.repair.run import locked, open_journal, repair, rollback
from tests.support import corpus

CASES = (
    pytest.param("damage-4.3.0-two-flips", marks=pytest.mark.slow),
    "damage-4.3.0-segment-overlap",
    "damage-4.3.0-missing-middle-segment",
    "damage-4.3.0-leftover-swap",
    pytest.param("damage-4.3.0-torn-tail", marks=pytest.mark.slow),
    "damage-4.3.0-stray-files",
)
NOW = 1_800_000_000_000


def overlay() -> OverlayFiles:
    return OverlayFiles(OsFiles(read_only=True), now_ms=lambda: NOW)


def contents(files: OverlayFiles, folder: str) -> dict[str, bytes]:
    return {path: files.read_all(path) for path in files.walk(folder)}


def undamaged(tmp_path: Path, case_id: str) -> str:
    return str(corpus.load(case_id).copy(tmp_path / "log", "before"))


@pytest.mark.parametrize("case_id", CASES)
def test_a_repair_crashed_anywhere_and_run_again_ends_the_same(case_id: str, tmp_path: Path) -> None:
    log_dir = undamaged(tmp_path, case_id)
    whole = overlay()
    counted = FaultyFiles(whole)
    repair([log_dir], mode="all", files=counted, now_ms=lambda: NOW)
    expected = contents(whole, log_dir)
    original = contents(overlay(), log_dir)
    assert expected != original
    for at in range(1, len(counted.operations) + 1):
        files = overlay()
        with pytest.raises(Crash):
            repair([log_dir], mode="all", files=FaultyFiles(files, at=at), now_ms=lambda: NOW)
        files.locks.clear()  # the process died
        report = repair([log_dir], mode="all", files=files, now_ms=lambda: NOW)
        got = {path: data for path, data in contents(files, log_dir).items() if not path.endswith("/.lock")}
        assert got == expected, counted.operations[at - 1]
        assert report.left == []


@pytest.mark.parametrize("case_id", CASES)
def test_a_repair_crashed_anywhere_can_be_undone(case_id: str, tmp_path: Path) -> None:
    log_dir = undamaged(tmp_path, case_id)
    counted = FaultyFiles(overlay())
    repair([log_dir], mode="all", files=counted, now_ms=lambda: NOW)
    original = contents(overlay(), log_dir)
    root = journal_root(log_dir)
    for at in range(1, len(counted.operations) + 1):
        files = overlay()
        with pytest.raises(Crash):
            repair([log_dir], mode="all", files=FaultyFiles(files, at=at), now_ms=lambda: NOW)
        files.locks.clear()
        for name in files.list(root) if files.exists(root) else []:
            if files.exists(f"{root}/{name}/journal.jsonl"):
                rollback(files, open_journal(files, f"{root}/{name}"))
        got = {path: data for path, data in contents(files, log_dir).items() if not path.endswith("/.lock")}
        assert got == original, counted.operations[at - 1]


def test_a_full_disk_is_told_and_the_next_repair_goes_on(tmp_path: Path) -> None:
    log_dir = undamaged(tmp_path, "damage-4.3.0-two-flips")
    counted = FaultyFiles(overlay())
    repair([log_dir], mode="all", files=counted, now_ms=lambda: NOW)
    expected = contents(counted.base, log_dir)  # type: ignore[arg-type]
    for at, operation in enumerate(counted.operations, 1):
        if not operation.startswith("write "):
            continue
        files = overlay()
        with pytest.raises(OSError, match="No space left"):
            repair([log_dir], mode="all", files=FaultyFiles(files, at=at, error=28), now_ms=lambda: NOW)
        repair([log_dir], mode="all", files=files, now_ms=lambda: NOW)
        assert contents(files, log_dir) == expected, operation


def test_nothing_is_done_while_a_broker_holds_the_lock(tmp_path: Path) -> None:
    log_dir = undamaged(tmp_path, "damage-4.3.0-two-flips")
    before = contents(overlay(), log_dir)
    with locked(OsFiles(), log_dir):
        for path in (log_dir, log_dir + "/clicks-two-flips-0"):
            with pytest.raises(LockHeldError):
                repair([path], mode="all")
    assert contents(overlay(), log_dir) == before


def test_a_plan_tells_of_an_interrupted_repair(tmp_path: Path) -> None:
    log_dir = undamaged(tmp_path, "damage-4.3.0-two-flips")
    files = overlay()
    counted = FaultyFiles(overlay())
    repair([log_dir], mode="all", files=counted, now_ms=lambda: NOW)
    at = next(i for i, operation in enumerate(counted.operations, 1) if operation.startswith("rename") and ".kops-new" in operation)
    with pytest.raises(Crash):
        repair([log_dir], mode="all", files=FaultyFiles(files, at=at + 1), now_ms=lambda: NOW)
    files.locks.clear()
    (interrupted,) = repair([log_dir], mode="plan", files=files).resumed
    done = repair([log_dir], mode="preen", files=files, now_ms=lambda: NOW)
    assert done.resumed == [interrupted]
    assert done.left == []


def test_a_journal_of_another_directory_is_not_taken(tmp_path: Path) -> None:
    log_dir = undamaged(tmp_path, "damage-4.3.0-two-flips")
    with pytest.raises(KopsError, match="not the journal of a repair"):
        open_journal(OsFiles(), log_dir)
