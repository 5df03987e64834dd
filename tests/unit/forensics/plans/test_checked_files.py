"""While a plan is made, what is known of a log belongs to its bytes, also where they are a part of a planned file."""

from __future__ import annotations

from collections import Counter

import pytest

from kops.files import File, Files, MemoryFiles, Mode
from kops.files.forwarding import ForwardingFile
from kops.forensics.heal.run import heal
from kops.forensics.plans import checked
from kops.forensics.plans.checked import CheckedFile, CheckedFiles
from kops.forensics.plans.plan import ComposedFile, Copy, Data, PlannedFiles, Put
from kops.records import BatchBuilder, scan_columns
from kops.records.build import empty_batch, write_batch
from kops.records.scanning.checked import CheckedRange
from kops.storage.segments.recovery import rebuild_indexes

LOG, OTHER = "/p-0/00000000000000000000.log", "/q-0/00000000000000000000.log"


def batch(number: int) -> bytes:
    return write_batch(bytes([number]) * 100, base_offset=number, last_offset=number, count=1)


SIZE = len(batch(0))


def known(file: File) -> list[CheckedRange]:
    assert isinstance(file, CheckedFile | ComposedFile) and file.checked is not None
    return file.checked.ranges


def read(files: CheckedFiles | PlannedFiles, path: str) -> list[CheckedRange]:
    with files.open(path) as file:
        for found in scan_columns(file):
            found.is_sound = True  # type: ignore[union-attr]
        return list(known(file))


def files_with(**logs: bytes) -> MemoryFiles:
    files = MemoryFiles()
    for path, data in ((LOG, logs["log"]), (OTHER, logs["other"])):
        files.mkdir(path[:4])
        files.write_all(path, data)
    return files


def test_a_file_that_changes_is_checked_anew() -> None:
    memory = files_with(log=batch(0) + batch(1), other=b"")
    files = CheckedFiles(memory)
    assert read(files, LOG) == [CheckedRange(0, 2 * SIZE, True)]
    with files.open(LOG) as file:
        assert known(file) == [CheckedRange(0, 2 * SIZE, True)]
    memory.write_all(LOG, batch(0) + batch(1) + batch(2))
    with files.open(LOG) as file:
        assert known(file) == []
    memory.write_all(LOG, batch(0) + batch(1))
    memory.set_mtime(LOG, 1_000)
    with files.open(LOG) as file:
        assert known(file) == []


def test_a_planned_log_is_known_where_its_parts_are() -> None:
    memory = files_with(log=batch(0) + bytes(SIZE) + batch(2) + batch(3), other=batch(1) + batch(9))
    files = CheckedFiles(memory)
    filling = empty_batch(base_offset=4, last_offset=5)
    parts = (Copy(LOG, 0, SIZE), Copy(OTHER, 0, SIZE), Copy(LOG, 2 * SIZE, 2 * SIZE), Data(filling))
    planned = PlannedFiles(files, [Put(LOG, "rewrite-log", "", False, parts)])
    with planned.open(LOG) as file:
        assert known(file) == []
    with files.open(LOG) as file:
        file.read(0, 1)
        list(scan_columns(file))
    assert read(files, OTHER) == [CheckedRange(0, 2 * SIZE, True)]
    with planned.open(LOG) as file:
        assert known(file) == [CheckedRange(0, SIZE, False), CheckedRange(SIZE, 2 * SIZE, True), CheckedRange(2 * SIZE, 4 * SIZE, False)]
        assert not file.checked.covers(file.size())  # type: ignore[attr-defined]
        list(scan_columns(file))
        assert file.checked.covers(file.size())  # type: ignore[attr-defined]


class CountingFile(ForwardingFile):
    """Counts the bytes that are read."""

    def __init__(self, base: File, bytes_read: Counter[str]) -> None:
        super().__init__(base)
        self._bytes_read = bytes_read

    def read(self, position: int, size: int) -> bytes:
        data = super().read(position, size)
        self._bytes_read[self.path] += len(data)
        return data


class CountingFiles(PlannedFiles):
    """Counts the bytes that are read of each log."""

    def __init__(self, base: Files) -> None:
        super().__init__(base)
        self.bytes_read: Counter[str] = Counter()

    def open(self, path: str, mode: Mode = "r") -> File:
        file = super().open(path, mode)
        return CountingFile(file, self.bytes_read) if path.endswith(".log") else file


def test_headers_are_kept_of_the_directories_that_are_named() -> None:
    counting = CountingFiles(files_with(log=batch(0) + batch(1), other=batch(1) + batch(2)))
    files = CheckedFiles(counting)
    files.keep(["/p-0"])
    for _ in range(3):
        read(files, LOG)
        read(files, OTHER)
    assert counting.bytes_read == {LOG: 2 * SIZE, OTHER: 6 * SIZE}


def test_kept_headers_make_room_for_those_of_other_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MOST_HEADERS", 3)
    memory = files_with(log=batch(0) + batch(1), other=batch(1) + batch(2))
    counting = CountingFiles(memory)
    files = CheckedFiles(counting)
    files.keep(["/p-0", "/q-0"])
    for path, times in ((LOG, 1), (LOG, 1), (OTHER, 1), (OTHER, 1), (LOG, 2), (LOG, 2)):
        read(files, path)
        assert counting.bytes_read[path] == times * 2 * SIZE
    memory.write_all(LOG, b"".join(map(batch, range(4))))
    for _ in range(2):  # There are more than there is room for.
        counting.bytes_read.clear()
        read(files, LOG)
        assert counting.bytes_read == {LOG: 4 * SIZE}


def test_the_plan_of_a_heal_reads_a_log_once() -> None:
    """The comparison, the list of the batches, the new indexes and the verification of the result use the headers of the first pass."""
    whole = []
    for number in range(400):
        builder = BatchBuilder(base_offset=number, partition_leader_epoch=0)
        builder.append(number, None, bytes(60_000))
        whole.append(builder.build())
    size = len(whole[0]) * len(whole)
    damaged = [*whole[:200], bytes(len(whole[0])), *whole[201:]]
    memory = MemoryFiles()
    for number, batches in enumerate((damaged, whole, whole)):
        folder = f"/broker-{number}/p-0"
        memory.mkdir(folder.removesuffix("/p-0"))
        memory.mkdir(folder)
        memory.write_all(f"{folder}/00000000000000000000.log", b"".join(batches))
        memory.write_all(f"{folder}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
        with memory.open(f"{folder}/00000000000000000000.log") as log:
            memory.write_all(f"{folder}/00000000000000000000.index", rebuild_indexes(log, 0).index)
    counting = CountingFiles(memory)
    report = heal(["/broker-0/p-0"], ["/broker-1/p-0", "/broker-2/p-0"], files=counting, index_interval=4096)
    assert [partition.filled for partition in report.partitions] == [[(200, 200, "/broker-1/p-0")]]
    assert {step.action for plan in report.repair.plans for step in plan.steps} >= {"rewrite-log", "rebuild-index", "rebuild-time-index"}
    own, one, two = (counting.bytes_read[f"/broker-{number}/p-0/00000000000000000000.log"] for number in range(3))
    assert own < 1.5 * size  # Each pass reads a window or two around the damage.
    assert two < 1.2 * size
    assert one < 1.4 * size  # It is compared, and read around what the damaged one lacks.
