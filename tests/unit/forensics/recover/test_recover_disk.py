"""Recovery from a disk with bad sectors: only batches on them are lost, the report names the places, and a dead disk is
not read forever.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kops.files import MemoryFiles, OsFiles
from kops.files.api import Mode
from kops.files.os_files import OsFile
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.report import RecoverReport
from kops.forensics.recover.run import recover
from kops.forensics.verify.run import verify
from kops.records import Batch, BatchBuilder, BytesSource, scan

PAGE = 4096
LOG = "0" * 20 + ".log"


class BadDisk(OsFiles):
    """A disk on which reading any byte of `bad` (pairs: start, end) of a log fails. `reads` and `failed` count the requests."""

    def __init__(self, *bad: tuple[int, int], name: str = LOG) -> None:
        super().__init__(read_only=True)
        self.bad = list(bad)
        self.name = name
        self.reads = self.failed = 0

    def open(self, path: Any, mode: Mode = "r") -> OsFile:
        file = super().open(path, mode)
        if path.endswith(self.name):
            original = file.read

            def read(position: int, size: int) -> bytes:
                self.reads += 1
                if any(position < end and position + size > start for start, end in self.bad):
                    self.failed += 1
                    raise OSError(errno.EIO, "Input/output error", path)
                return original(position, size)

            file.read = read  # type: ignore[method-assign]
        return file


def log_bytes(size: int, *, seed: int = 1, largest: int = 3000) -> bytes:
    """Return batches of different sizes with random bytes."""
    draw = random.Random(seed)
    parts: list[bytes] = []
    written = offset = 0
    while written < size:
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=1)
        for _ in range(draw.randint(1, 3)):
            builder.append(1_700_000_000_000 + offset, b"key", draw.randbytes(draw.randint(1, largest)))
            offset += 1
        parts.append(builder.build())
        written += len(parts[-1])
    return b"".join(parts)


def partition(tmp_path: Path, data: bytes, name: str = LOG) -> Path:
    folder = tmp_path / "orders-0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder


def batches(path: Path) -> list[bytes]:
    return [bytes(item.data()) for log in sorted(path.glob("*.log")) for item in each_batch(log.read_bytes())]


def each_batch(data: bytes) -> Iterator[Batch]:
    return (item for item in scan(BytesSource(data)) if isinstance(item, Batch))


def outside(data: bytes, *bad: tuple[int, int]) -> list[bytes]:
    """Return the batches that touch none of these ranges."""
    return [bytes(item.data()) for item in each_batch(data) if not any(item.position < end and item.end > start for start, end in bad)]


def zeroed(data: bytes, *bad: tuple[int, int]) -> bytes:
    for start, end in bad:
        data = data[:start] + bytes(min(end, len(data)) - start) + data[end:]
    return data


def told(report: RecoverReport) -> list[tuple[int, int]]:
    """Return the position and length of each damaged place."""
    return [(each["position"], each["length"]) for each in report.partitions[0].damaged]


SIZE = 3 << 20
LAST = (SIZE // PAGE + 1) * PAGE


@pytest.mark.parametrize(
    "bad",
    [
        [(0, PAGE)],
        [(SIZE // 2 // PAGE * PAGE, SIZE // 2 // PAGE * PAGE + PAGE)],
        [(-PAGE, 0)],  # the last page, counted from the end
        [(0, PAGE), (5 * PAGE, 6 * PAGE), (300 * PAGE, 302 * PAGE), (-PAGE, 0)],
        [(200 * PAGE, 500 * PAGE)],
        [(10 * PAGE, 10 * PAGE + 1)],
    ],
    ids=["first", "middle", "last", "several", "stretch", "byte"],
)
def test_only_what_touches_an_unreadable_page_is_lost(bad: list[tuple[int, int]], tmp_path: Path) -> None:
    data = log_bytes(SIZE)
    end = (len(data) - 1) // PAGE * PAGE
    bad = [(start, stop) if start >= 0 else (end, len(data)) for start, stop in bad]
    folder = partition(tmp_path, data)
    disk = BadDisk(*bad)
    report = recover([folder], tmp_path / "out", files=disk)
    pages = [(start, (stop + PAGE - 1) // PAGE * PAGE) for start, stop in bad]
    assert batches(tmp_path / "out" / "orders-0") == outside(data, *pages)
    assert report.lossy
    entry = report.partitions[0]
    assert "file-unreadable" in {each["code"] for each in entry.damaged}
    words = " ".join(each["reason"] for each in entry.damaged)
    for start, stop in pages:
        assert f"{start} to {min(stop, len(data)) - 1}" in words or any(
            each["position"] == start and each["reason"] == "Input/output error" for each in entry.damaged
        )
    # The result is the same as with zeros in those places, except for the messages and for losses that zeros do not show.
    other = recover([partition(tmp_path / "zeroed", zeroed(data, *pages))], tmp_path / "zeros")
    assert batches(tmp_path / "zeros" / "orders-0") == batches(tmp_path / "out" / "orders-0")
    assert told(report) == told(other)
    assert set(other.partitions[0].missing) <= set(entry.missing)
    assert disk.failed < 40 * len(bad)


@pytest.mark.once
def test_random_bad_pages(tmp_path: Path) -> None:
    for seed in range(12):
        draw = random.Random(seed)
        data = log_bytes(1 << 20, seed=seed, largest=draw.choice([50, 3000, 60_000]))
        starts = sorted({draw.randrange(len(data)) // PAGE * PAGE for _ in range(draw.randint(1, 12))})
        bad = [(start, min(start + PAGE, len(data))) for start in starts]
        folder = partition(tmp_path / str(seed), data)
        report = recover([folder], tmp_path / f"out-{seed}", files=BadDisk(*bad))
        saved = batches(tmp_path / f"out-{seed}" / "orders-0")
        # A batch of which only zeros could not be read is recovered, too: its checksum proves it.
        assert set(outside(data, *bad)) <= set(saved) <= set(outside(data))
        if any(0 < end - item.position < 16 for item in each_batch(data) for _, end in bad):
            continue  # zeros in place of an offset count as the offset, but unreadable bytes do not
        other = recover([partition(tmp_path / f"zeroed-{seed}", zeroed(data, *bad))], tmp_path / f"zeros-{seed}")
        assert saved == batches(tmp_path / f"zeros-{seed}" / "orders-0")
        assert told(report) == told(other)


def test_a_dead_disk_is_not_asked_for_every_page(tmp_path: Path) -> None:
    size = 64 << 20
    folder = tmp_path / "orders-0"
    folder.mkdir()
    with (folder / LOG).open("wb") as file:
        file.truncate(size)
    disk = BadDisk((0, size))
    report = recover([folder], tmp_path / "out", files=disk)
    assert [(each["code"], each["reason"]) for each in report.partitions[0].damaged] == [("file-unreadable", "Input/output error")]
    assert told(report) == [(0, size)]
    assert (report.partitions[0].lost, report.lossy) == ([(0, 0)], True)
    assert disk.reads < 2 * 64


def test_every_second_page_is_bounded(tmp_path: Path) -> None:
    """Good and bad pages in turn are the worst case."""
    size = 16 << 20
    path = tmp_path / LOG
    path.write_bytes(b"\x01" * size)
    disk = BadDisk(*((start, start + PAGE) for start in range(0, size, 2 * PAGE)))
    with PatientFiles(disk).open(str(path)) as file:
        for position in range(0, size, 1 << 20):
            assert len(file.read(position, 1 << 20)) == 1 << 20
    assert disk.failed < 2 * 1024 + 1024


@contextmanager
def errno_of(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == number


def test_a_place_that_becomes_unreadable_is_never_given_as_zeros(tmp_path: Path) -> None:
    data = log_bytes(64 << 10)
    path = str(partition(tmp_path, data) / LOG)
    disk = BadDisk((PAGE, 2 * PAGE))
    files = PatientFiles(disk)
    with files.open(path) as file:
        assert file.read(0, len(data) + 10) == zeroed(data, (PAGE, 2 * PAGE))
        assert files.unreadable(path, 0, len(data)) == [(PAGE, 2 * PAGE)]
        assert files.unreadable(path, PAGE + 5, PAGE + 9) == [(PAGE, 2 * PAGE)]
        files.sealed = True
        disk.bad.append((8 * PAGE, 9 * PAGE))
        assert file.read(0, 4 * PAGE) == zeroed(data, (PAGE, 2 * PAGE))[: 4 * PAGE]
        with errno_of(errno.EIO):
            file.read(4 * PAGE, 8 * PAGE)


def test_a_batch_whose_first_fields_are_unreadable_is_not_taken_for_one(tmp_path: Path) -> None:
    """The checksum does not cover the offset and the leader epoch. If zeros replaced them, it would still match."""
    builder = BatchBuilder(base_offset=901, partition_leader_epoch=1)
    builder.append(2, b"key", b"value")
    name = f"{900:020d}.log"
    folder = partition(tmp_path, b"x" * (PAGE - 8) + builder.build(), name)
    report = recover([folder], tmp_path / "out", files=BadDisk((0, PAGE), name=name))
    assert batches(tmp_path / "out" / "orders-0") == []
    assert report.partitions[0].lost == [(900, 900)]


def test_a_healthy_disk_is_read_as_before(tmp_path: Path) -> None:
    data = log_bytes(256 << 10)
    files = MemoryFiles()
    files.write_all("/a.log", data)
    with PatientFiles(files).open("/a.log") as file:
        assert file.read(0, len(data) + 1) == data
        assert file.read(len(data), 10) == b""


def test_verify_keeps_its_words(tmp_path: Path) -> None:
    folder = partition(tmp_path, log_bytes(64 << 10))
    found = verify([folder], files=BadDisk((PAGE, 2 * PAGE)))
    assert "file-unreadable" in {each.code for each in found.findings}
