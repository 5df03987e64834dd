"""`verify` finds names that end a broker's start, and `repair` moves them away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kops.config.topic import TopicConfig
from kops.files import OsFiles, OverlayFiles
from kops.forensics.repair.run import repair
from kops.forensics.verify.run import verify
from kops.records import BatchBuilder
from kops.storage.failures.load_errors import LoadError
from kops.storage.start.loader import load_partition

BAD = (
    ".log",
    "foo.log",
    "foo.index",
    ".timeindex",
    "x.txnindex",
    "foo.snapshot",
    ".snapshot",
    "foo.cleaned",
    "foo.log.swap",
    f"{10**20}.log",
)
HARMLESS = ("note.txt", "foo.log.deleted", "foo.snapshot.deleted", "foo.checkpoint", "README.log.txt")


def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, b"key", b"value")
    (directory / f"{0:020d}.log").write_bytes(builder.build())
    load_partition(OsFiles(), str(directory), TopicConfig(), clean_shutdown=False, now_ms=0).close()
    return directory


def loads(directory: Path) -> bool:
    try:
        load_partition(OverlayFiles(OsFiles(read_only=True)), str(directory), TopicConfig(), clean_shutdown=True, now_ms=0)
    except LoadError:
        return False
    return True


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_ends_a_start_is_an_error_and_is_moved_away(tmp_path: Path, name: str) -> None:
    directory = partition(tmp_path)
    (directory / name).write_bytes(b"")
    assert not loads(directory)
    problems = [found for found in verify([directory], level="quick").findings if found.is_problem]
    assert [(found.code, found.file) for found in problems] == [("file-name-invalid", str(directory / name))]
    repair([directory], mode="all")
    assert loads(directory) and not verify([directory], level="full").has_problems


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_no_problem(tmp_path: Path, name: str) -> None:
    directory = partition(tmp_path)
    (directory / name).write_bytes(b"")
    assert loads(directory) and not verify([directory], level="full").has_problems


def test_an_index_that_came_since_the_look_at_the_folder_is_not_missing(tmp_path: Path) -> None:
    """A running broker makes a segment's indexes when it first writes to them."""
    directory = partition(tmp_path)
    late = {directory / f"{0:020d}.{kind}" for kind in ("index", "timeindex")}

    class Growing(OsFiles):
        def list(self, path: Any) -> list[str]:
            return [name for name in super().list(path) if directory / name not in late]

    assert {path.name for path in late} <= set(OsFiles().list(str(directory)))
    assert not verify([directory], level="full", files=Growing(read_only=True)).has_problems
    for path in late:
        path.unlink()
    found = verify([directory], level="full", files=Growing(read_only=True)).findings
    assert {each.code for each in found if each.is_problem} == {"index-missing", "time-index-missing"}
