"""FaultyFiles: the n-th operation fails, is torn, or is the last one before a crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kops.files import Crash, FaultyFiles, Files, MemoryFiles, OsFiles


def work(files: Files) -> None:
    """Do what a program does: create a file, replace a checkpoint, remove an old file."""
    files.mkdir("/data/t-0")
    with files.open("/data/t-0/a.log", "create") as log:
        log.write(0, b"0123456789")
        log.truncate(8)
        log.sync()
    files.write_atomic("/data/checkpoint", b"new")
    files.unlink("/data/old")
    files.set_mtime("/data/t-0/a.log", 5)
    files.mkdir("/data/empty")
    files.rmdir("/data/empty")


def fresh() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir("/data")
    files.write_all("/data/old", b"old")
    files.write_all("/data/checkpoint", b"before")
    return files


OPERATIONS = [
    "mkdir /data/t-0",
    "create /data/t-0/a.log",
    "write /data/t-0/a.log 0 10",
    "truncate /data/t-0/a.log 8",
    "sync /data/t-0/a.log",
    "create /data/checkpoint.tmp",
    "truncate /data/checkpoint.tmp 0",
    "write /data/checkpoint.tmp 0 3",
    "sync /data/checkpoint.tmp",
    "rename /data/checkpoint.tmp /data/checkpoint",
    "sync_dir /data",
    "unlink /data/old",
    "set_mtime /data/t-0/a.log",
    "mkdir /data/empty",
    "rmdir /data/empty",
]


def state(files: Files) -> dict[str, bytes]:
    return {path: files.read_all(path) for path in files.walk("/")}


def test_operations_are_counted() -> None:
    files = FaultyFiles(fresh())
    work(files)
    assert files.operations == OPERATIONS
    assert state(files) == {"/data/checkpoint": b"new", "/data/t-0/a.log": b"01234567"}


@pytest.mark.parametrize("at", range(1, len(OPERATIONS) + 1))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_nth_operation_fails_and_changes_nothing(at: int, code: int) -> None:
    base = fresh()
    files = FaultyFiles(base, at=at, error=code)
    with pytest.raises(OSError) as error:
        work(files)
    assert error.value.errno == code
    assert files.operations == OPERATIONS[:at]
    # The failed operation has changed nothing, and later operations succeed.
    reference = fresh()
    with pytest.raises(Crash):
        work(FaultyFiles(reference, at=at))
    assert state(base) == state(reference)
    assert files.read_all("/data/checkpoint") in (b"before", b"new")


@pytest.mark.parametrize("at", range(1, len(OPERATIONS) + 1))
def test_nothing_happens_after_a_crash(at: int) -> None:
    base = fresh()
    files = FaultyFiles(base, at=at)
    with pytest.raises(Crash):
        work(files)
    before = state(base)
    for attempt in (
        lambda: files.write_all("/data/x", b""),
        lambda: files.unlink("/data/checkpoint"),
        lambda: files.read_all("/data/checkpoint"),
        lambda: files.list("/data"),
        lambda: files.exists("/data"),
        lambda: files.stat("/data"),
        lambda: files.lock("/data"),
    ):
        with pytest.raises(Crash):
            attempt()
    assert state(base) == before
    # The checkpoint is replaced completely or not at all.
    assert before["/data/checkpoint"] in (b"before", b"new")


@pytest.mark.parametrize("torn", [0, 1, 9, 10])
@pytest.mark.parametrize("code", [None, errno.ENOSPC])
def test_a_torn_write(torn: int, code: int | None) -> None:
    base = fresh()
    files = FaultyFiles(base, at=3, error=code, torn=torn)
    with pytest.raises(Crash if code is None else OSError):
        work(files)
    assert base.read_all("/data/t-0/a.log") == b"0123456789"[:torn]


def test_a_crash_is_caught_by_no_handler_of_errors() -> None:
    files = FaultyFiles(fresh(), at=1)
    cleaned = []
    with pytest.raises(Crash):
        try:
            files.unlink("/data/old")
        except OSError:
            cleaned.append("wrong")
        finally:
            with pytest.raises(Crash):
                files.unlink("/data/checkpoint")
            cleaned.append("tried")
    assert cleaned == ["tried"]


def test_over_the_files_of_the_system(tmp_path: Path) -> None:
    files = FaultyFiles(OsFiles(), at=2, torn=4)
    path = str(tmp_path / "a")
    with pytest.raises(Crash), files.open(path, "create") as file:
        assert os.fstat(file.fileno()).st_size == file.size() == 0
        file.write(0, b"torn write")
    assert (tmp_path / "a").read_bytes() == b"torn"
    assert files.absolute(path) == path
