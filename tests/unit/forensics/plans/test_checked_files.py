"""While a plan is made, what is known of a log belongs to its bytes, also where they are a part of a planned file."""

from __future__ import annotations

from kops.files import File, MemoryFiles
from kops.forensics.plans.checked import CheckedFile, CheckedFiles
from kops.forensics.plans.plan import ComposedFile, Copy, Data, PlannedFiles, Put
from kops.records import scan_columns
from kops.records.build import empty_batch, write_batch
from kops.records.scanning.checked import CheckedRange

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
