"""CrashFiles: what a power loss may leave, and what it may not."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kops.files import Crash, CrashFiles, Files, MemoryFiles
from kops.files.crash import LOSSES, PAGE_BYTES, SECTOR_BYTES, Fault, Operation

SEEDS = range(60)


def contents(files: Files) -> dict[str, bytes]:
    """Return every file below the root."""
    return {path: files.read_all(path) for path in files.walk("/")}


def states(files: CrashFiles, at: int | None = None) -> list[MemoryFiles]:
    """Return every state that the seeds of this test give."""
    drawn = [(loss, seed) for loss in LOSSES for seed in (SEEDS if loss in ("random", "ordered") else (0,))]
    return [files.after_power_loss(loss, seed, at) for loss, seed in drawn]


def durable(write: Callable[[CrashFiles], None]) -> CrashFiles:
    """Return files whose first state is on the disk."""
    files = CrashFiles()
    write(files)
    files.sync_all()
    return files


def test_what_was_synced_is_there() -> None:
    files = CrashFiles(posix=True)
    files.mkdir("/t-0")
    with files.open("/t-0/log", "new") as log:
        log.write(0, b"a" * 5000)
        log.sync()
        files.sync_dir("/t-0")
        files.sync_dir("/")
        log.write(5000, b"b" * 5000)
    for disk in states(files):
        assert disk.read_all("/t-0/log")[:5000] == b"a" * 5000
        assert disk.read_all("/t-0/log")[5000:].strip(b"b\0") == b""
    sizes = {disk.stat("/t-0/log").size for disk in states(files)}
    assert sizes == {5000, 10_000}
    assert files.killed().read_all("/t-0/log") == b"a" * 5000 + b"b" * 5000


def test_the_same_seed_gives_the_same_state() -> None:
    files = CrashFiles()
    with files.open("/log", "new") as log:
        for i in range(40):
            log.write(i * 700, bytes([i + 1]) * 700)
    found = [contents(files.after_power_loss("random", seed)) for seed in SEEDS]
    assert found == [contents(files.after_power_loss("random", seed)) for seed in SEEDS]
    assert len({state.get("/log") for state in found}) > 20
    assert len({len(state.get("/log", b"")) for state in found}) > 10


def test_lost_and_zeros() -> None:
    files = durable(lambda disk: disk.write_all("/log", b"old"))
    with files.open("/log", "rw") as log:
        log.write(3, b"new" * 3000)
    files.write_all("/other", b"x")
    assert contents(files.after_power_loss("lost")) == {"/log": b"old"}
    assert contents(files.after_power_loss("zeros")) == {"/log": b"old" + bytes(9000), "/other": b"\0"}
    assert contents(files.killed()) == {"/log": b"old" + b"new" * 3000, "/other": b"x"}
    assert contents(files.after_power_loss("random", at=0)) == {}


def test_pages_are_torn_at_sectors_and_within() -> None:
    files = durable(lambda disk: disk.write_all("/log", b"a" * PAGE_BYTES))
    with files.open("/log", "rw") as log:
        log.write(0, b"b" * PAGE_BYTES)
    torn: set[str] = set()
    for seed in range(200):
        data = files.after_power_loss("random", seed).read_all("/log")
        assert len(data) == PAGE_BYTES
        bounds = [i for i in range(1, PAGE_BYTES) if data[i] != data[i - 1]]
        torn.add("within" if any(i % SECTOR_BYTES for i in bounds) else "sectors" if bounds else "whole")
    assert torn == {"within", "sectors", "whole"}


def test_files_are_written_back_in_any_order() -> None:
    files = CrashFiles()
    for name in ("/a", "/b"):
        files.write_all(name, b"0")
    files.sync_all()
    for name in ("/a", "/b"):
        with files.open(name, "rw") as file:
            file.write(0, b"1")
    found = {tuple(contents(disk).values()) for disk in states(files)}
    assert found == {(b"0", b"0"), (b"0", b"1"), (b"1", b"0"), (b"1", b"1")}


def test_names_come_back_in_order_up_to_the_sync_of_their_directory() -> None:
    files = durable(lambda disk: disk.write_all("/a", b"a"))
    files.rename("/a", "/b")
    files.open("/c", "new").close()
    files.unlink("/b")
    found = {tuple(disk.list("/")) for disk in states(files)}
    assert found == {("a",), ("b",), ("b", "c"), ("c",)}
    files.sync_dir("/")
    assert {tuple(disk.list("/")) for disk in states(files)} == {("c",)}
    # The sync of a directory does not cover another directory that changed later.
    files.mkdir("/d")
    files.open("/d/e", "new").close()
    files.sync_dir("/")
    assert {"/d/e" in contents(disk) for disk in states(files)} == {True, False}


@pytest.mark.parametrize("posix", [False, True], ids=["journal", "posix"])
def test_a_sync_forces_the_journal_as_far_as_its_file(posix: bool) -> None:
    files = CrashFiles(posix=posix)
    files.mkdir("/d")
    with files.open("/d/log", "new") as log:
        log.write(0, b"abc")
        files.open("/d/later", "new").close()
        log.sync()
    found = {tuple(contents(disk).items()) for disk in states(files)}
    durable = {(("/d/log", b"abc"),), (("/d/later", b""), ("/d/log", b"abc"))}
    assert found >= durable
    assert (found == durable) is not posix


def test_a_rename_may_come_before_the_bytes() -> None:
    files = durable(lambda disk: disk.write_all("/checkpoint", b"old"))
    files.write_all("/checkpoint.tmp", b"new")
    files.rename("/checkpoint.tmp", "/checkpoint")
    found = {contents(disk)["/checkpoint"] for disk in states(files)}
    assert found == {b"old", b"", b"\0\0\0", b"new"}
    safe = durable(lambda disk: disk.write_all("/checkpoint", b"old"))
    settled = len(safe.operations)
    safe.write_atomic("/checkpoint", b"new")
    for at in range(settled, len(safe.operations) + 1):
        assert {contents(disk)["/checkpoint"] for disk in states(safe, at)} <= {b"old", b"new"}
    assert {contents(disk)["/checkpoint"] for disk in states(safe)} == {b"new"}


def test_what_was_cut_does_not_come_back() -> None:
    files = durable(lambda disk: disk.write_all("/log", b"a" * 6000))
    with files.open("/log", "rw") as log:
        log.truncate(5000)
        log.write(5000, b"b" * 1000)
    found = {contents(disk)["/log"] for disk in states(files)}
    assert all(data[:5000] == b"a" * 5000 for data in found)
    assert {data[5000:] for data in found} >= {b"a" * 1000, b"", bytes(1000), b"b" * 1000}
    for data in found:
        assert set(data[5000:]) in ({ord("a")}, set(), {0}, {ord("b")}, {0, ord("b")})


def test_a_failed_sync_loses_its_pages_for_good() -> None:
    def fails(operation: Operation) -> Fault | None:
        return Fault(errno.EIO) if operation.kind == "sync" and operation.number < 8 else None

    files = durable(lambda disk: disk.write_all("/log", b"old" + bytes(9000)))
    files.fault = fails
    with files.open("/log", "rw") as log:
        log.write(0, b"new")
        with pytest.raises(OSError, match="Input/output"):
            log.sync()
        log.write(8192, b"then")
        log.sync()
        assert log.read(0, 3) == b"new"
        assert {disk.read_all("/log")[:3] for disk in states(files)} >= {b"old", b"new"}
        assert {disk.read_all("/log")[8192:8196] for disk in states(files)} == {b"then"}
        log.write(0, b"n")
        log.sync()
    assert {disk.read_all("/log")[:3] for disk in states(files)} == {b"new"}


def test_a_full_disk_takes_what_fits() -> None:
    files = CrashFiles(space_bytes=10)
    files.write_all("/a", b"1234")
    with files.open("/b", "new") as file:
        with pytest.raises(OSError) as error:
            file.write(0, b"12345678")
        assert (error.value.errno, file.read(0, 100)) == (errno.ENOSPC, b"123456")
        file.write(0, b"654321")
        with pytest.raises(OSError, match="No space"):
            file.write(6, b"7")
        files.unlink("/a")
        file.write(6, b"7")
    assert contents(files.killed()) == {"/b": b"6543217"}


def test_faults() -> None:
    def fault(operation: Operation) -> Fault | None:
        return faults.get(operation.number)

    faults: dict[int, Fault] = {}
    files = CrashFiles(fault=fault)
    files.write_all("/a", b"one")
    faults[len(files.operations) + 1] = Fault(errno.EINTR, written=2)
    with files.open("/a", "rw") as file, pytest.raises(InterruptedError):
        file.write(0, b"two")
    assert files.read_all("/a") == b"twe"
    faults[len(files.operations) + 1] = Fault(errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        files.unlink("/a")
    faults[len(files.operations) + 1] = Fault(0)
    with pytest.raises(Crash):
        files.mkdir("/d")
    with pytest.raises(Crash):
        files.read_all("/a")
    assert contents(files.killed()) == {"/a": b"twe"}


def test_killed_within_a_write() -> None:
    files = CrashFiles()
    files.write_all("/a", b"12345")
    at = len(files.operations) - 1
    assert [contents(files.killed(at, part)) for part in (0, 2)] == [{"/a": b""}, {"/a": b"12"}]
    assert contents(files.killed(0)) == {}


def test_every_state_of_a_random_history_keeps_what_was_synced() -> None:
    dice = random.Random(3)
    files = CrashFiles()
    expected: list[bytes] = []
    now = bytearray()
    with files.open("/log", "new") as log:
        files.sync_dir("/")
        for _ in range(60):
            if dice.random() < 0.2:
                log.sync()
                expected.append(bytes(now))
            else:
                piece = dice.randbytes(dice.randrange(1, 3000))
                log.write(len(now), piece)
                now += piece
            for loss in LOSSES:
                disk = files.after_power_loss(loss, dice.randrange(1000))
                got = disk.read_all("/log")
                assert got[: len(expected[-1])] == expected[-1] if expected else True
                assert len(got) <= len(now)
            assert files.killed().read_all("/log") == now
