"""A file that several threads replace: the newest contents remain."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from kops.files import MemoryFiles
from kops.files.faulty import FaultyFiles
from kops.storage.background.replaced_file import ReplacedFile
from tests.support.nodes.slow_files import Gate, SlowFiles

PATH = "/logs/checkpoint"
PATIENCE_S = 60


def memory() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir("/logs")
    return files


def test_older_contents_never_take_the_place_of_newer_ones() -> None:
    files = memory()
    file = ReplacedFile(files, PATH)
    first, second, third = (file.next(data) for data in (b"first", b"second", b"third"))
    second()
    assert files.read_all(PATH) == b"second"
    first()
    assert files.read_all(PATH) == b"second"
    third()
    second()
    assert files.read_all(PATH) == b"third"


def test_the_same_contents_are_written_once() -> None:
    files = FaultyFiles(memory())
    write = ReplacedFile(files, PATH).next(b"data")
    write()
    count = len(files.operations)
    write()
    assert len(files.operations) == count > 0


def test_a_write_that_failed_may_be_tried_again() -> None:
    files = FaultyFiles(memory(), at=1, error=errno.ENOSPC)
    write = ReplacedFile(files, PATH).next(b"data")
    with pytest.raises(OSError, match="space"):
        write()
    write()
    assert files.read_all(PATH) == b"data"


def test_a_newer_write_waits_for_an_older_one_that_is_at_it(tmp_path: Path) -> None:
    gate = Gate(lambda path: path.endswith(".tmp"))
    file = ReplacedFile(SlowFiles(gate), str(tmp_path / "checkpoint"))
    older, newer = file.next(b"older"), file.next(b"newer")
    gate.shut()
    try:
        threads = [threading.Thread(target=older)]
        threads[0].start()
        assert gate.reached.wait(PATIENCE_S)
        threads.append(threading.Thread(target=newer))
        threads[1].start()
        threads[1].join(0.05)
        assert threads[1].is_alive()
        assert not (tmp_path / "checkpoint").exists()
    finally:
        gate.open()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (tmp_path / "checkpoint").read_bytes() == b"newer"
