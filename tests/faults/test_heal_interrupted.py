"""`heal` with a crash at every operation that changes something. The next run gives the same result, and a rollback restores everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import Crash, FaultyFiles, OsFiles, OverlayFiles
from kops.forensics.heal.run import heal
from kops.forensics.plans.journal import journal_root
from kops.forensics.repair.run import open_journal, rollback
from tests.support import corpus

CASES = ("damage-4.3.0-missing-middle-segment", "damage-4.3.0-torn-tail")
NOW = 1_800_000_000_000


def overlay() -> OverlayFiles:
    return OverlayFiles(OsFiles(read_only=True), now_ms=lambda: NOW)


def contents(files: OverlayFiles, folder: str) -> dict[str, bytes]:
    return {path: files.read_all(path) for path in files.walk(folder) if not path.endswith("/.lock")}


@pytest.mark.slow
@pytest.mark.parametrize("case_id", CASES)
def test_a_crash_anywhere(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    damaged, donor = (str(case.copy(tmp_path / folder, folder)) for folder in ("before", "clean"))
    whole = overlay()
    counted = FaultyFiles(whole)
    heal([damaged], [donor], mode="all", files=counted, now_ms=lambda: NOW)
    expected, original = contents(whole, damaged), contents(overlay(), damaged)
    assert [data for _, data in sorted(expected.items())] == [data for _, data in sorted(contents(whole, donor).items())]
    root = journal_root(damaged)
    for at in range(1, len(counted.operations) + 1):
        files, undone = overlay(), overlay()
        for each in (files, undone):
            with pytest.raises(Crash):
                heal([damaged], [donor], mode="all", files=FaultyFiles(each, at=at), now_ms=lambda: NOW)
            each.locks.clear()  # the process died
        report = heal([damaged], [donor], mode="all", files=files, now_ms=lambda: NOW)
        assert contents(files, damaged) == expected, counted.operations[at - 1]
        assert report.repair.left == []
        for name in undone.list(root) if undone.exists(root) else []:
            if undone.exists(f"{root}/{name}/journal.jsonl"):
                rollback(undone, open_journal(undone, f"{root}/{name}"))
        assert contents(undone, damaged) == original, counted.operations[at - 1]
