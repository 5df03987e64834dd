"""The interface to files: the system's files, files in memory and an overlay behave alike."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.errors import KopsError, LockHeldError
from kops.files import CrashFiles, File, Files, Lock, MemoryFiles, OsFiles, OverlayFiles, ReadOnlyError, SnapshotFiles
from kops.files.os_files import SYSTEM, OsFile


def system(root: Path) -> tuple[Files, str]:
    return OsFiles(), str(root)


def memory(root: Path) -> tuple[Files, str]:
    files = MemoryFiles()
    files.mkdir("/data")
    return files, "/data"


def overlay(root: Path) -> tuple[Files, str]:
    return OverlayFiles(OsFiles(read_only=True)), str(root)


def overlay_of_overlay(root: Path) -> tuple[Files, str]:
    return OverlayFiles(OverlayFiles(OsFiles(read_only=True))), str(root)


def crash(root: Path) -> tuple[Files, str]:
    files = CrashFiles()
    files.mkdir("/data")
    return files, "/data"


@pytest.fixture(params=[system, memory, overlay, overlay_of_overlay, crash])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    make: Callable[[Path], tuple[Files, str]] = request.param
    return make(tmp_path)


def test_write_read_truncate(tree: tuple[Files, str]) -> None:
    files, root = tree
    path = f"{root}/log"
    with files.open(path, "create") as file:
        assert file.size() == 0
        assert file.read(0, 10) == b""
        file.write(3, b"abc")
        assert file.size() == 6
        assert file.read(0, 100) == b"\0\0\0abc"
        assert file.read(4, 1) == b"b"
        assert file.read(6, 1) == b""
        assert file.read(100, 1) == b""
        file.write(1, memoryview(b"xyzw"))
        file.write(5, bytearray(b""))
        assert file.read(0, 6) == b"\0xyzwc"
        file.truncate(2)
        assert (file.size(), file.read(0, 9)) == (2, b"\0x")
        file.truncate(4)
        assert file.read(0, 9) == b"\0x\0\0"
        files.preallocate(file, 8)
        files.preallocate(file, 5)
        assert file.size() == 8
        file.sync()
        assert file.path == path
    assert files.read_all(path) == b"\0x" + bytes(6)
    file.close()


def test_every_path_may_be_a_path_object(tmp_path: Path) -> None:
    files, log, other = OsFiles(), tmp_path / "log", tmp_path / "other"
    with files.open(log, "create") as file:
        assert (file.path, type(file.path)) == (str(log), str)
    files.write_all(log, b"abc")
    files.write_atomic(log, b"abcd")
    files.sync_dir(tmp_path)
    files.link(log, other)
    files.rename(other, tmp_path / "third")
    files.copy_owner(log, tmp_path / "third")
    files.set_mode(log, 0o640)
    files.set_mtime(log, 1_000)
    assert (files.read_all(log), files.exists(log), files.exists(other)) == (b"abcd", True, False)
    assert (files.stat(log).size, files.stat(log).mtime_ms, files.stat(log).mode) == (4, 1_000, 0o640)
    files.mkdir(tmp_path / "directory")
    assert files.list(tmp_path) == ["directory", "log", "third"]
    assert list(files.walk(tmp_path)) == [str(log), str(tmp_path / "third")]
    files.rmdir(tmp_path / "directory")
    files.unlink(tmp_path / "third")
    assert files.absolute(tmp_path / "x" / ".." / "log") == str(log)
    with files.lock(tmp_path) as lock:
        assert lock.path == str(tmp_path / ".lock")
        assert files.lock_owner(tmp_path) == os.getpid()
    with OsFile(log, os.open(log, os.O_RDONLY), False) as file:
        assert file.path == str(log)


def test_a_missing_path_object_is_named_as_text(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure:
        OsFiles().open(tmp_path / "none")
    assert failure.value.filename == str(tmp_path / "none")
    with pytest.raises(ReadOnlyError, match="none"):
        OsFiles(read_only=True).open(tmp_path / "none", "create")


def test_modes(tree: tuple[Files, str]) -> None:
    files, root = tree
    path = f"{root}/a"
    for mode in ("r", "rw"):
        with pytest.raises(FileNotFoundError):
            files.open(path, mode)
    files.open(path, "new").close()
    with pytest.raises(FileExistsError):
        files.open(path, "new")
    with files.open(path, "create") as file:
        file.write(0, b"kept")
    with files.open(path, "create") as file:
        assert file.read(0, 10) == b"kept"
    with files.open(path) as file:
        writes: list[Callable[[], None]] = [lambda: file.write(0, b"x"), lambda: file.truncate(0), file.sync]
        for write in writes:
            with pytest.raises(ReadOnlyError):
                write()
    with pytest.raises(IsADirectoryError):
        files.open(root)
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/no/such", "create")
    with pytest.raises(NotADirectoryError):
        files.open(f"{path}/below", "create")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Nobody writes into the pipe, so reading it must not wait."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    for files in (OsFiles(), OsFiles(read_only=True)):
        with pytest.raises(OSError, match="Is a pipe, not a file") as caught:
            files.open(path)
        assert caught.value.filename == path


def test_a_closed_file_is_an_error(tree: tuple[Files, str]) -> None:
    files, root = tree
    file = files.open(f"{root}/a", "create")
    file.write(0, b"x")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size()
    for change in (file.sync, lambda: file.truncate(1), lambda: file.write(0, b"y")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            change()


def test_directories(tree: tuple[Files, str]) -> None:
    files, root = tree
    files.mkdir(f"{root}/d")
    with pytest.raises(FileExistsError):
        files.mkdir(f"{root}/d")
    with pytest.raises(FileNotFoundError):
        files.mkdir(f"{root}/x/y")
    files.write_all(f"{root}/d/b", b"2")
    files.write_all(f"{root}/d/a", b"1")
    files.mkdir(f"{root}/d/c")
    files.write_all(f"{root}/d/c/e", b"3")
    files.sync_dir(f"{root}/d")
    assert files.list(f"{root}/d") == ["a", "b", "c"]
    assert list(files.walk(root)) == [f"{root}/d/a", f"{root}/d/b", f"{root}/d/c/e"]
    with pytest.raises(OSError) as error:
        files.rmdir(f"{root}/d")
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        files.rmdir(f"{root}/d/a")
    with pytest.raises(NotADirectoryError):
        files.list(f"{root}/d/a")
    with pytest.raises(FileNotFoundError):
        files.list(f"{root}/none")
    with pytest.raises(OSError):
        files.unlink(f"{root}/d")
    files.unlink(f"{root}/d/c/e")
    files.rmdir(f"{root}/d/c")
    assert not files.exists(f"{root}/d/c")
    assert not files.exists(f"{root}/d/a/below")
    assert files.exists(f"{root}/d/a")
    assert files.absolute(f"{root}/d/../d/./a") == f"{root}/d/a"


def test_rename(tree: tuple[Files, str]) -> None:
    files, root = tree
    files.write_all(f"{root}/a", b"old")
    files.write_all(f"{root}/b", b"new")
    files.rename(f"{root}/b", f"{root}/a")
    assert (files.list(root), files.read_all(f"{root}/a")) == (["a"], b"new")
    files.mkdir(f"{root}/d")
    files.rename(f"{root}/a", f"{root}/d/a")
    files.mkdir(f"{root}/e")
    files.rename(f"{root}/d", f"{root}/e")
    assert files.read_all(f"{root}/e/a") == b"new"
    files.rename(f"{root}/e", f"{root}/e")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/d", f"{root}/x")
    files.mkdir(f"{root}/d")
    with pytest.raises(OSError) as error:
        files.rename(f"{root}/d", f"{root}/e")
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        files.rename(f"{root}/d", f"{root}/e/a")
    with pytest.raises(IsADirectoryError):
        files.rename(f"{root}/e/a", f"{root}/d")
    with pytest.raises(OSError) as error:
        files.rename(f"{root}/e", f"{root}/e/below")
    assert error.value.errno == errno.EINVAL


def test_an_open_file_survives_its_name(tree: tuple[Files, str]) -> None:
    files, root = tree
    files.write_all(f"{root}/a", b"one")
    with files.open(f"{root}/a", "rw") as file:
        files.rename(f"{root}/a", f"{root}/b")
        file.write(3, b"+")
        assert files.read_all(f"{root}/b") == b"one+"
        files.unlink(f"{root}/b")
        assert file.read(0, 9) == b"one+"
    assert files.list(root) == []


def test_stat_and_times(tree: tuple[Files, str]) -> None:
    files, root = tree
    files.write_all(f"{root}/a", b"four")
    files.set_mtime(f"{root}/a", 1_700_000_000_123)
    status = files.stat(f"{root}/a")
    assert (status.size, status.mtime_ms, status.is_dir) == (4, 1_700_000_000_123, False)
    assert status.mode & 0o600 == 0o600
    files.set_mode(f"{root}/a", 0o640)
    assert files.stat(f"{root}/a").mode == 0o640
    assert files.stat(root).is_dir
    with files.open(f"{root}/a", "rw") as file:
        file.write(0, b"F")
    assert files.stat(f"{root}/a").mtime_ms > 1_700_000_000_123
    for missing in (
        files.stat,
        lambda path: files.set_mtime(path, 0),
        lambda path: files.set_mode(path, 0),
        files.unlink,
        files.read_all,
        files.rmdir,
    ):
        with pytest.raises(FileNotFoundError):
            missing(f"{root}/none")


def test_write_atomic(tree: tuple[Files, str]) -> None:
    files, root = tree
    files.write_all(f"{root}/a", b"old contents")
    files.write_all(f"{root}/a.tmp", b"left by a crash, and longer")
    files.write_atomic(f"{root}/a", b"new")
    assert (files.list(root), files.read_all(f"{root}/a")) == (["a"], b"new")


def test_lock(tree: tuple[Files, str]) -> None:
    files, root = tree
    with files.lock(root) as lock:
        assert files.list(root) == [".lock"]
        with pytest.raises(LockHeldError, match="held"):
            files.lock(root)
        assert files.read_all(f"{root}/.lock") == b""
        with pytest.raises(LockHeldError):
            files.lock(root)
    lock.release()
    files.lock(root).release()
    assert files.list(root) == [".lock"]


def test_one_of_many_threads_gets_the_lock(tmp_path: Path) -> None:
    files = OsFiles()
    barrier = threading.Barrier(8)
    taken: list[Lock] = []
    refused: list[LockHeldError] = []

    def take() -> None:
        barrier.wait()
        try:
            taken.append(files.lock(str(tmp_path)))
        except LockHeldError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (1, 7)
    taken[0].release()
    taken[0].release()
    files.lock(str(tmp_path)).release()


LOCKER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("refused")
else:
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_lock_against_another_process(tmp_path: Path) -> None:
    files = OsFiles()
    path = str(tmp_path / ".lock")
    reader = OsFiles(read_only=True)
    assert reader.lock_owner(str(tmp_path)) is None
    with files.lock(str(tmp_path)):
        # Closing another descriptor of the file would release a record lock. That must not happen.
        files.read_all(path)
        assert reader.lock_owner(str(tmp_path)) == os.getpid()
        assert subprocess.run([sys.executable, "-c", LOCKER, path], capture_output=True, text=True, check=True).stdout == "refused\n"
    with subprocess.Popen([sys.executable, "-c", LOCKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        with pytest.raises(LockHeldError, match=f"process {other.pid}"):
            files.lock(str(tmp_path))
        assert reader.lock_owner(str(tmp_path)) == other.pid
        other.communicate("")
    files.lock(str(tmp_path)).release()
    assert reader.lock_owner(str(tmp_path)) is None


def test_read_only_files_write_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "d").mkdir()
    files = OsFiles(read_only=True)
    a, d, new = str(tmp_path / "a"), str(tmp_path / "d"), str(tmp_path / "new")
    attempts: list[Callable[[], object]] = [
        lambda: files.open(a, "rw"),
        lambda: files.open(new, "create"),
        lambda: files.open(new, "new"),
        lambda: files.write_all(a, b""),
        lambda: files.write_atomic(a, b""),
        lambda: files.rename(a, new),
        lambda: files.unlink(a),
        lambda: files.rmdir(d),
        lambda: files.mkdir(new),
        lambda: files.set_mtime(a, 0),
        lambda: files.set_mode(a, 0),
        lambda: files.sync_dir(d),
        lambda: files.lock(d),
        lambda: files.link(a, new),
    ]
    before = os.stat(a).st_mtime_ns
    for attempt in attempts:
        with pytest.raises(ReadOnlyError) as error:
            attempt()
        assert isinstance(error.value, KopsError)
    assert (sorted(os.listdir(tmp_path)), os.listdir(d), os.stat(a).st_mtime_ns) == (["a", "d"], [], before)


def test_a_file_that_shrinks_gives_fewer_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(10_000_000))
    with OsFiles(read_only=True).open(str(path)) as file:
        assert len(file.read(0, 10_000_000)) == 10_000_000
        os.truncate(path, 5)
        assert file.read(0, 1 << 40) == bytes(5)
        assert file.read(3, 100) == bytes(2)
        assert file.read(1 << 40, 1 << 40) == b""


def test_short_writes_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread = os.pwrite, os.pread
    calls = []

    def write_some(fd: int, data: memoryview, position: int) -> int:
        calls.append(len(data))
        return pwrite(fd, data[:3], position)

    monkeypatch.setattr(SYSTEM, "pwrite", write_some)
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 4), position))
    with OsFiles().open(str(tmp_path / "a"), "create") as file:
        file.write(0, b"0123456789")
        assert calls == [10, 7, 4, 1]
        assert file.read(0, 10) == b"0123456789"
        assert file.read(2, 100) == b"23456789"


def test_signals_do_not_end_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    signals = []

    def interrupted_write(fd: int, data: memoryview, position: int) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return pwrite(fd, data[: 1 << 16], position)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
    try:
        monkeypatch.setattr(SYSTEM, "pwrite", interrupted_write)
        with OsFiles().open(str(tmp_path / "a"), "create") as file:
            file.write(5, bytes(range(256)) * 4096)
            file.sync()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(signals) == 16
    assert (tmp_path / "a").read_bytes() == bytes(5) + bytes(range(256)) * 4096


def test_a_write_that_ends_half_way_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    sizes = [4, 0]

    def full(fd: int, data: memoryview, position: int) -> int:
        size = sizes.pop(0)
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data[:size], position)

    monkeypatch.setattr(SYSTEM, "pwrite", full)
    with OsFiles().open(str(tmp_path / "a"), "create") as file, pytest.raises(OSError) as error:
        file.write(0, b"0123456789")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"0123"


def test_overlay_leaves_its_base_alone(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "a.log").write_bytes(b"0123456789")
    (tmp_path / "t-0" / "b.log").write_bytes(b"bbb")
    (tmp_path / "t-0" / "same").write_bytes(b"same")
    (tmp_path / "meta").write_bytes(b"m")
    root = str(tmp_path)
    files = OverlayFiles(OsFiles(read_only=True))
    assert files.changes(root) == ([], [], [], [], [])
    with files.open(f"{root}/t-0/a.log", "rw") as file:
        file.truncate(4)
        file.truncate(6)
        file.write(5, b"!")
    with files.open(f"{root}/t-0/same", "rw") as file:
        file.write(0, b"sa")
    files.unlink(f"{root}/meta")
    files.rename(f"{root}/t-0/b.log", f"{root}/t-0/b.log.deleted")
    files.mkdir(f"{root}/u-0")
    files.write_all(f"{root}/u-0/c.log", b"c")
    assert files.read_all(f"{root}/t-0/a.log") == b"0123\0!"
    changes = files.changes(root)
    assert changes.created == [f"{root}/t-0/b.log.deleted", f"{root}/u-0/c.log"]
    assert changes.changed == [f"{root}/t-0/a.log"]
    assert changes.removed == [f"{root}/meta", f"{root}/t-0/b.log"]
    assert (changes.created_dirs, changes.removed_dirs) == ([f"{root}/u-0"], [])
    assert (tmp_path / "t-0" / "a.log").read_bytes() == b"0123456789"
    assert sorted(os.listdir(tmp_path / "t-0")) == ["a.log", "b.log", "same"]
    assert sorted(os.listdir(tmp_path)) == ["meta", "t-0"]


def test_overlay_moves_whole_directories(tmp_path: Path) -> None:
    (tmp_path / "t-0" / "sub").mkdir(parents=True)
    (tmp_path / "t-0" / "a.log").write_bytes(b"a")
    (tmp_path / "t-0" / "sub" / "b").write_bytes(b"b")
    root = str(tmp_path)
    files = OverlayFiles(OsFiles(read_only=True))
    files.rename(f"{root}/t-0", f"{root}/t-0.x-delete")
    assert files.list(root) == ["t-0.x-delete"]
    assert list(files.walk(root)) == [f"{root}/t-0.x-delete/a.log", f"{root}/t-0.x-delete/sub/b"]
    changes = files.changes(root)
    assert changes.created == [f"{root}/t-0.x-delete/a.log", f"{root}/t-0.x-delete/sub/b"]
    assert changes.removed == [f"{root}/t-0/a.log", f"{root}/t-0/sub/b"]
    assert changes.created_dirs == [f"{root}/t-0.x-delete", f"{root}/t-0.x-delete/sub"]
    assert changes.removed_dirs == [f"{root}/t-0", f"{root}/t-0/sub"]
    files.rename(f"{root}/t-0.x-delete", f"{root}/t-0")
    assert files.changes(root) == ([], [], [], [], [])
    files.unlink(f"{root}/t-0/sub/b")
    files.rmdir(f"{root}/t-0/sub")
    files.mkdir(f"{root}/t-0/sub")
    assert files.list(f"{root}/t-0/sub") == []
    assert files.changes(root).removed == [f"{root}/t-0/sub/b"]
    assert files.changes(root).removed_dirs == []
    files.rmdir(f"{root}/t-0/sub")
    files.write_all(f"{root}/t-0/sub", b"now a file")
    assert files.changes(root).removed_dirs == [f"{root}/t-0/sub"]
    assert files.changes(root).created == [f"{root}/t-0/sub"]


def test_overlay_of_a_large_file_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    files = OverlayFiles(OsFiles(read_only=True))
    with files.open(str(path), "rw") as log:
        log.truncate(1 << 39)
        log.write((1 << 39) - 2, b"1234")
        assert log.size() == (1 << 39) + 2
        assert log.read((1 << 39) - 4, 100) == b"\0\x001234"
        log.truncate(1 << 41)
        assert log.read((1 << 40) + 5, 3) == bytes(3)
    assert files.changes(str(tmp_path)).changed == [str(path)]


def test_a_snapshot_stays_as_it_was_first_seen(tmp_path: Path) -> None:
    for name in ("log", "later"):
        (tmp_path / name).write_bytes(b"abc")
    files = SnapshotFiles(OsFiles(read_only=True))
    root = str(tmp_path)
    assert files.list(root) == ["later", "log"]
    assert files.stat(f"{root}/log").size == 3
    assert not files.exists(f"{root}/gone")
    with (tmp_path / "log").open("ab") as file:
        file.write(b"def")
    (tmp_path / "new").write_bytes(b"")
    (tmp_path / "gone").write_bytes(b"")
    (tmp_path / "later").unlink()
    assert files.list(root) == ["later", "log"]
    assert not files.exists(f"{root}/new")
    assert not files.exists(f"{root}/gone")
    assert not files.exists(f"{root}/later"), "it was named, but never looked at"
    assert files.stat(f"{root}/log").size == 3
    with files.open(f"{root}/log") as log:
        assert (log.size(), log.read(0, 100)) == (3, b"abc")
    assert files.read_all(f"{root}/log") == b"abc"


def test_a_time_of_its_own() -> None:
    files = MemoryFiles(now_ms=lambda: 42)
    files.write_all("/a", b"")
    assert files.stat("/a").mtime_ms == 42
    assert files.stat("/").is_dir
    assert files.read_all("a") == b""
    with pytest.raises(OSError) as error:
        files.open("/a").fileno()
    assert error.value.errno == errno.ENOTSUP


def test_walking_over_a_dead_link(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    (tmp_path / "b").write_bytes(b"")
    for files in (OsFiles(read_only=True), OverlayFiles(OsFiles(read_only=True))):
        assert list(files.walk(str(tmp_path))) == [str(tmp_path / "b")]
        assert not files.exists(str(tmp_path / "a"))


def test_descriptor_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with OsFiles(read_only=True).open(str(tmp_path / "a")) as file:
        assert os.pread(file.fileno(), 3, 0) == b"abc"
        with pytest.raises(OSError):
            os.write(file.fileno(), b"x")


def test_hard_links(tree: tuple[Files, str]) -> None:
    files, root = tree
    files.write_all(f"{root}/a", b"one")
    files.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        files.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileNotFoundError):
        files.link(f"{root}/none", f"{root}/c")
    files.unlink(f"{root}/a")
    assert files.read_all(f"{root}/b") == b"one"


def test_importing_the_interface_is_cheap() -> None:
    """Every command imports these two. They import nothing slow, and only what an inspection needs."""
    code = "import kops.files, kops.storage.formats.names, sys; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "kops.storage.formats.names" in loaded
    slow = {
        "dataclasses",
        "inspect",
        "json",
        "logging",
        "tempfile",
        "asyncio",
        "crc32c",
        "numpy",
        "typer",
        "kops.files.tree",
        "kops.files.faulty",
    }
    assert not slow & loaded


@pytest.mark.parametrize("act", [lambda file: file.write(0, b"x" * 8192), lambda file: file.truncate(-1)], ids=["write", "truncate"])
def test_what_fails_on_a_descriptor_names_the_file(act: Callable[[File], None]) -> None:
    with OsFiles().open("/dev/full", "rw") as full, pytest.raises(OSError) as caught:
        act(full)
    assert caught.value.filename == "/dev/full"
    assert caught.value.errno in (errno.ENOSPC, errno.EINVAL)


def test_an_overlay_keeps_few_files_of_its_base_open(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).write_text(str(number))
    before = len(os.listdir("/proc/self/fd"))
    snapshot = SnapshotFiles(OsFiles(read_only=True))
    overlay = OverlayFiles(snapshot)
    handles = [overlay.open(str(tmp_path / str(number))) for number in range(300)]
    for _ in range(2):
        assert [handle.read(0, 9) for handle in handles] == [str(number).encode() for number in range(300)]
        assert len(os.listdir("/proc/self/fd")) - before <= 150
    overlay.close_base_files()
    snapshot.close_base_files()
    assert len(os.listdir("/proc/self/fd")) == before
    assert handles[7].read(0, 9) == b"7"
    handles[7].close()
