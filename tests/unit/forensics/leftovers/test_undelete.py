"""`undelete` on the leftovers of real brokers: it restores those that fit, rejects the others with a reason, and a rollback restores every
byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kops.errors import KopsError, LockHeldError, UsageError
from kops.files import OsFiles
from kops.forensics.leftovers.undelete import undelete
from kops.forensics.plans.journal import open_journal, rollback
from kops.forensics.verify.run import verify
from tests.support import corpus

if TYPE_CHECKING:
    from kops.files.api import StrPath

RETENTION = "v2-4.3.0-retention"
COMPACTED = "v2-4.3.0-compacted"


def copied(case_id: str, target: Path, folder: str = "data") -> Path:
    """Return a writable copy of a broker's log directory."""
    return corpus.load(case_id).copy(target / "log", folder)


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and times of all files."""
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def logs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.log"))


def test_segments_that_retention_deleted_come_back(tmp_path: Path) -> None:
    log_dir = copied(RETENTION, tmp_path)
    before = state(log_dir)
    deleted = sorted(path.name.removesuffix(".deleted") for path in log_dir.rglob("*.log.deleted"))
    assert deleted and not set(deleted) & set(logs(log_dir))
    planned = undelete([log_dir])
    assert state(log_dir) == before
    done = undelete([log_dir], apply=True)
    assert done.refused == [] and done.steps == planned.steps and len(done.journals) == 1
    assert set(deleted) <= set(logs(log_dir))
    assert not list(log_dir.rglob("*.deleted"))
    assert {each.code for each in verify([log_dir], "full").findings if each.is_problem} == set()
    files = OsFiles()
    rollback(files, open_journal(files, done.journals[0].path))
    assert state(log_dir) == before


def test_what_the_cleaner_replaced_stays(tmp_path: Path) -> None:
    log_dir = copied(COMPACTED, tmp_path)
    before = state(log_dir)
    assert list(log_dir.rglob("*.log.deleted"))
    done = undelete([log_dir], apply=True)
    assert done.steps == 0 and done.journals == [] and done.refused
    assert all("is in the log" in each.reason or "already" in each.reason for each in done.refused), done.refused
    assert state(log_dir) == before


def test_a_damaged_segment_stays_and_what_is_behind_it_too(tmp_path: Path) -> None:
    log_dir = copied(RETENTION, tmp_path)
    (victim, *_) = sorted(log_dir.rglob("*.log.deleted"), reverse=True)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
    report = undelete([log_dir])
    assert any(each.path == str(victim) and "damaged" in each.reason for each in report.refused)


def test_a_hole_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    log_dir = copied(RETENTION, tmp_path)
    (partition,) = {path.parent for path in log_dir.rglob("*.log")}
    for path in partition.glob("00000000000000000055.*"):
        path.unlink()
    report = undelete([log_dir])
    assert report.steps == 0
    assert any("offsets 55 to 109 are missing" in each.reason for each in report.refused), report.refused
    assert undelete([log_dir], allow_gaps=True).steps > 0


def test_what_a_recovery_cut_off_behind_the_end_stays(tmp_path: Path) -> None:
    log_dir = copied(RETENTION, tmp_path)
    (partition,) = {path.parent for path in log_dir.rglob("*.log")}
    last = max(partition.glob("*.log"))
    last.rename(partition / "00000000000000009000.log")
    for path in partition.glob("*.log"):
        if path.name.endswith("9000.log"):
            path.rename(path.with_name(last.name + ".deleted"))
    report = undelete([log_dir])
    assert any("beyond the log's end" in each.reason for each in report.refused), report.refused


def test_a_deleted_directory_comes_back_and_names_do_not_collide(tmp_path: Path) -> None:
    log_dir = copied(RETENTION, tmp_path)
    (partition,) = {path.parent for path in log_dir.rglob("*.log")}
    name = partition.name
    gone = partition.rename(log_dir / f"{name}.bedfa0622697425e891d1c9dd79ba6fd-delete")
    before = state(log_dir)
    done = undelete([gone], apply=True)
    assert [step["target"] for plan in done.plans for step in plan.to_json()["steps"]] == [str(log_dir / name)]
    assert partition.is_dir() and not gone.exists()
    files = OsFiles()
    rollback(files, open_journal(files, done.journals[0].path))
    assert state(log_dir) == before
    partition.mkdir()
    (partition / "00000000000000000000.log").touch()
    refused = undelete([log_dir], apply=True)
    assert refused.steps == 0
    assert [f"{partition} exists" in each.reason for each in refused.refused] == [True]


def test_the_metadata_decides_about_topics(tmp_path: Path) -> None:
    """The topic was deleted, and the real broker of this directory crashed before it removed the files."""
    log_dir = copied("broker-dir-4.3.0", tmp_path, "crash/disk1")
    report = undelete([log_dir])
    moved = [step for plan in report.plans for step in plan.steps if step.action == "undelete-directory"]
    assert [Path(step.path).name.partition(".bedfa")[0] for step in moved] == ["sensor.readings-gone-0"]
    assert any("the cluster has no topic with id" in note for plan in report.plans for note in plan.notes)


def test_a_running_broker_is_not_disturbed(tmp_path: Path) -> None:
    log_dir = copied(RETENTION, tmp_path)
    before = state(log_dir)
    with OsFiles().lock(str(log_dir)):
        assert undelete([log_dir]).steps > 0
        with pytest.raises(LockHeldError):
            undelete([log_dir], apply=True)
    (log_dir / ".lock").unlink()
    assert state(log_dir) == before


def test_what_is_no_directory_of_kafkas(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a log directory"):
        undelete([tmp_path])
    (tmp_path / "00000000000000000000.log").touch()
    with pytest.raises(KopsError):
        undelete([tmp_path / "00000000000000000000.log"])


@pytest.mark.parametrize("kind", ["segment", "directory"])
def test_an_interruption_at_every_rename_is_finished_or_undone(kind: str, tmp_path: Path) -> None:
    """The next run finishes the journal of the interrupted one, and its rollback restores every byte."""

    class Interrupted(OsFiles):
        left = 0

        def rename(self, source: StrPath, target: StrPath) -> None:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            super().rename(source, target)

    for number in range(20):
        log_dir = copied(RETENTION, tmp_path / str(number))
        if kind == "directory":
            (partition,) = {path.parent for path in log_dir.rglob("*.log")}
            partition.rename(log_dir / f"{partition.name}.bedfa0622697425e891d1c9dd79ba6fd-delete")
        before = state(log_dir)
        files = Interrupted()
        files.left = number
        try:
            undelete([log_dir], apply=True, files=files)
        except KeyboardInterrupt:
            again = undelete([log_dir], apply=True)
            # When the directory is back, the segments in it can be restored, too.
            for journal in [*(each.path for each in reversed(again.journals)), *again.resumed]:
                rollback(OsFiles(), open_journal(OsFiles(), journal))
            assert state(log_dir) == before
        else:
            assert number > 0
            return
    raise AssertionError("it was never done")
