"""A repair that is interrupted at any operation and then continued or undone, on a small directory with every kind of step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.errors import DecodeError, KopsError, LockHeldError, NotFoundError
from kops.files import Crash, FaultyFiles, Files, MemoryFiles, OsFiles
from kops.forensics.plans.journal import (
    ChangedSinceError,
    apply_plan,
    journal_root,
    locked,
    open_journal,
    resume,
    rollback,
    unfinished_journals,
)
from kops.forensics.plans.plan import Copy, Data, Move, Plan, PlannedFiles, Put, Remove, Step

NOW = 1_700_000_000_123


def clock() -> int:
    return NOW


def build(files: Files, top: str) -> Plan:
    """Create two logs, an index and a leftover file. Return a plan that rewrites, creates, renames and removes files."""
    files.mkdir(top)
    folder = top + "/t-0"
    files.mkdir(folder)
    files.mkdir(top + "/foreign")
    files.write_all(top + "/foreign/x", b"x")
    files.set_mtime(top + "/foreign/x", NOW)
    for name, data in {"a.log": b"0123456789", "b.log": b"abcdefghij", "a.index": b"xx", "old.swap": b"left", "18.log": b"moved"}.items():
        files.write_all(f"{folder}/{name}", data)
        files.set_mtime(f"{folder}/{name}", NOW - len(name) * 1000)
    steps: list[Step] = [
        Put(
            f"{folder}/a.log",
            "rewrite-log",
            "w",
            False,
            (Copy(f"{folder}/a.log", 0, 4), Data(b"--"), Copy(f"{folder}/b.log", 5, 5)),
            NOW - 5,
        ),
        Put(f"{folder}/a.index", "rebuild-index", "w", True, (Data(b"index"),)),
        Put(f"{folder}/new.timeindex", "rebuild-time-index", "w", True, (Data(b"time"),)),
        Remove(f"{folder}/b.log", "remove", "w", False),
        Remove(f"{folder}/old.swap", "remove-leftover", "w", True),
        Move(f"{folder}/18.log", "rename", "w", True, f"{folder}/21.log"),
        Put(f"{folder}/empty", "make", "w", True, (Data(b""),)),
        Remove(f"{top}/foreign", "remove-foreign-directory", "w", True),
    ]
    return Plan(top, steps)


def content(files: Files, top: str) -> dict[str, bytes]:
    return {path: files.read_all(path) for path in files.walk(top)}


def times(files: Files, top: str) -> dict[str, int]:
    return {path: files.stat(path).mtime_ms for path in files.walk(top)}


AFTER = {
    "a.log": b"0123--fghij",
    "a.index": b"index",
    "new.timeindex": b"time",
    "21.log": b"moved",
    "empty": b"",
}


def test_planned_files_show_what_apply_makes() -> None:
    files = MemoryFiles(now_ms=clock)
    plan = build(files, "/d")
    planned = PlannedFiles(files, plan.steps)
    assert content(planned, "/d/t-0") == {f"/d/t-0/{name}": data for name, data in AFTER.items()}
    with planned.open("/d/t-0/a.log") as file:
        assert [file.read(position, 4) for position in range(0, 12, 3)] == [b"0123", b"3--f", b"fghi", b"ij"]
    apply_plan(files, plan, now_ms=clock)
    assert content(files, "/d/t-0") == {f"/d/t-0/{name}": data for name, data in AFTER.items()}
    assert files.stat("/d/t-0/a.log").mtime_ms == NOW - 5


@pytest.mark.parametrize("torn", [None, 3])
def test_every_interruption_goes_on_to_the_same_end(torn: int | None) -> None:
    counted = FaultyFiles(MemoryFiles(now_ms=clock))
    apply_plan(counted, build(counted.base, "/d"), now_ms=clock)
    expected = content(counted, "/d")
    for at in range(1, len(counted.operations) + 1):
        memory = MemoryFiles(now_ms=clock)
        plan = build(memory, "/d")
        with pytest.raises(Crash):
            apply_plan(FaultyFiles(memory, at=at, torn=torn), plan, now_ms=clock)
        left = unfinished_journals(memory, "/d")
        for journal in left:
            resume(memory, journal)
        if not left and content(memory, "/d") != expected:
            apply_plan(memory, plan, now_ms=clock)
        assert content(memory, "/d") == expected, counted.operations[at - 1]
        assert unfinished_journals(memory, "/d") == []


def test_every_interruption_can_be_undone() -> None:
    counted = FaultyFiles(MemoryFiles(now_ms=clock))
    apply_plan(counted, build(counted.base, "/d"), now_ms=clock)
    for at in range(1, len(counted.operations) + 1):
        memory = MemoryFiles(now_ms=clock)
        plan = build(memory, "/d")
        before, before_times = content(memory, "/d"), times(memory, "/d")
        with pytest.raises(Crash):
            apply_plan(FaultyFiles(memory, at=at), plan, now_ms=clock)
        root = journal_root("/d")  # including a journal whose last line, `done`, was already written
        for name in memory.list(root) if memory.exists(root) else []:
            if memory.exists(f"{root}/{name}/journal.jsonl"):
                rollback(memory, open_journal(memory, f"{root}/{name}"))
        assert content(memory, "/d") == before, counted.operations[at - 1]
        assert times(memory, "/d") == before_times


def test_an_interrupted_rollback_is_finished_by_another() -> None:
    reference = MemoryFiles(now_ms=clock)
    journal = apply_plan(reference, build(reference, "/d"), now_ms=clock)
    assert journal is not None
    counted = FaultyFiles(reference)
    rollback(counted, journal)
    for at in range(1, len(counted.operations) + 1):
        memory = MemoryFiles(now_ms=clock)
        plan = build(memory, "/d")
        before = content(memory, "/d")
        done = apply_plan(memory, plan, now_ms=clock)
        assert done is not None
        with pytest.raises(Crash):
            rollback(FaultyFiles(memory, at=at), open_journal(memory, done.path))
        rollback(memory, open_journal(memory, done.path))
        assert content(memory, "/d") == before, counted.operations[at - 1]
        assert open_journal(memory, done.path).state == "rolled-back"


def test_a_file_system_without_links(tmp_path: Path) -> None:
    class NoLinks(OsFiles):
        def link(self, source: Any, target: Any) -> None:
            raise OSError(18, "Invalid cross-device link", target)

    top = str(tmp_path / "d")
    files = NoLinks()
    plan = build(files, top)
    before, before_times = content(files, top), times(files, top)
    journal = apply_plan(files, plan)
    assert journal is not None
    assert {os.path.basename(path): data for path, data in content(files, top).items()} == AFTER
    rollback(files, journal)
    assert (content(files, top), times(files, top)) == (before, before_times)


def test_rollback_keeps_inodes_and_nanoseconds(tmp_path: Path) -> None:
    top = str(tmp_path / "d")
    files = OsFiles()
    plan = build(files, top)
    os.utime(f"{top}/t-0/a.log", ns=(1, 1_234_567_891))

    def identity() -> dict[str, tuple[int, int, int]]:
        return {path: (os.stat(path).st_ino, os.stat(path).st_mtime_ns, os.stat(path).st_mode) for path in files.walk(top)}

    before = identity()
    journal = apply_plan(files, plan)
    assert journal is not None
    assert identity() != before
    assert rollback(files, journal) == 8
    assert identity() == before
    assert rollback(files, open_journal(files, journal.path)) == 0


def test_a_change_after_the_repair_is_not_thrown_away(tmp_path: Path) -> None:
    changes: list[Callable[[str], object]] = [
        lambda folder: Path(folder, "a.log").write_bytes(b"0123--fghijk"),
        lambda folder: Path(folder, "b.log").write_bytes(b"new"),
        lambda folder: Path(folder, "21.log").unlink(),
    ]
    for number, change in enumerate(changes):
        top = str(tmp_path / str(number))
        files = OsFiles()
        plan = build(files, top)
        before = content(files, top)
        journal = apply_plan(files, plan)
        assert journal is not None
        change(top + "/t-0")
        with pytest.raises(ChangedSinceError, match="changed since the repair"):
            rollback(files, journal)
        if number < 2:
            rollback(files, journal, force=True)
            assert content(files, top) == before


def test_a_full_disk_leaves_a_journal_to_go_on_with() -> None:
    memory = MemoryFiles(now_ms=clock)
    plan = build(memory, "/d")
    counted = FaultyFiles(MemoryFiles(now_ms=clock))
    apply_plan(counted, build(counted.base, "/d"), now_ms=clock)
    at = next(i for i, what in enumerate(counted.operations, 1) if what.startswith("write /d/t-0/a.index"))
    with pytest.raises(OSError, match="No space left"):
        apply_plan(FaultyFiles(memory, at=at, error=28), plan, now_ms=clock)
    (journal,) = unfinished_journals(memory, "/d")
    resume(memory, journal)
    assert content(memory, "/d/t-0") == {f"/d/t-0/{name}": data for name, data in AFTER.items()}


def test_the_lock_is_the_brokers_and_leaves_no_file_behind(tmp_path: Path) -> None:
    files = OsFiles()
    with locked(files, str(tmp_path)), pytest.raises(LockHeldError), locked(files, str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").touch()
    with locked(files, str(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_journal_lies_beside_the_log_dir_or_where_it_is_wanted(tmp_path: Path) -> None:
    assert journal_root("/data/kafka/") == "/data/kafka.kops-journal"
    assert journal_root("/data/kafka", "/backup") == "/backup/kafka.kops-journal"
    memory = MemoryFiles(now_ms=clock)
    journal = apply_plan(memory, build(memory, "/d"), journal="/elsewhere", now_ms=clock)
    assert journal is not None
    assert journal.path == "/elsewhere/d.kops-journal/20231114T221320.123Z"
    files = OsFiles()
    top = str(tmp_path / "d")
    plan = build(files, top)
    (tmp_path / "file").touch()
    with pytest.raises(KopsError, match="choose another directory"):
        apply_plan(files, plan, journal=str(tmp_path / "file"))


def test_a_journal_that_was_cut_or_changed(tmp_path: Path) -> None:
    """If the journal was changed by hand or by the disk, the error gives the line and the remedy. A torn last line is no error, because a
    crash leaves one.
    """
    files = OsFiles()
    done = apply_plan(files, build(files, str(tmp_path / "d")), now_ms=clock)
    assert done is not None
    name = Path(done.path) / "journal.jsonl"
    whole = name.read_bytes()
    lines = whole.splitlines(keepends=True)
    begin = json.loads(lines[0])
    content = Path(done.path) / "content" / "000001"

    def without(*path: str | int) -> bytes:
        document = json.loads(lines[0])
        place = document
        for each in path[:-1]:
            place = place[each]
        del place[path[-1]]
        return json.dumps(document).encode() + b"\n"

    cases = [(without(key), 1, f"'{key}' is missing") for key in ("schema", "log_dir", "steps")]
    cases += [(without("steps", 0, key), 1, f"'{key}' is missing") for key in begin["steps"][0]]
    cases += [
        (b"", 1, "the plan is missing"),
        (b"\n\n", 1, "the plan is missing"),
        (lines[0][:50], 1, "not JSON"),
        (lines[0][:50] + b"\n", 1, "not JSON"),
        (lines[0] + lines[1][:9] + b"\n" + lines[2], 2, "not JSON"),
        (lines[0] + b"3\n", 2, "no JSON object"),
        (lines[0] + lines[1] + b"{}\n", 3, "'state' is missing"),
        (lines[0] + b'{"state":"undone"}\n', 2, "the state is 'undone', not one of"),
        (lines[0] + b'{"step":0,"state":"x"}\n', 2, "the state of step 0 is 'x', not one of"),
        (lines[0] + b'{"step":99,"state":"start"}\n', 2, "there is no step 99"),
        (lines[0] + b'{"step":"0","state":"start"}\n', 2, "'step' is \"0\""),
        (lines[0].replace(b'"put"', b'"pat"', 1), 1, "there is no kind 'pat' of steps"),
        (lines[0].replace(b'"steps":[', b'"steps":[[],', 1), 1, "no JSON object"),
        (b"\xff" + whole, 1, "not JSON"),
    ]
    for text, number, words in cases:
        name.write_bytes(text)
        for attempt in (lambda: open_journal(files, done.path), lambda: unfinished_journals(files, str(tmp_path / "d"))):
            with pytest.raises(DecodeError) as caught:
                attempt()
            assert str(caught.value).startswith(f"{name}: line {number}: {words}"), text
            assert f"move {done.path} away" in str(caught.value)
    for cut in range(len(lines[0]), len(whole)):
        name.write_bytes(whole[:cut])
        read = open_journal(files, done.path)
        assert len(read.steps) == 8
        assert read.unfinished or cut == len(whole) - 1
    name.write_bytes(whole)
    content.write_bytes(b"ind")
    with pytest.raises(DecodeError, match=r"step 1 needs 5 bytes of .*content/000001, which has 3"):
        open_journal(files, done.path)
    content.unlink()
    with pytest.raises(DecodeError, match=r"step 1 needs .*content/000001, which is missing"):
        open_journal(files, done.path)


def test_what_is_no_journal(tmp_path: Path) -> None:
    files = OsFiles()
    with pytest.raises(NotFoundError):
        open_journal(files, str(tmp_path))
    name = tmp_path / "journal.jsonl"
    for text in ("", "{}\n", '{"schema":"kops.repair-journal/v9"}\n', "no json\n{}\n", "[]\n", "3\n"):
        name.write_text(text)
        with pytest.raises(DecodeError):
            open_journal(files, str(tmp_path))
