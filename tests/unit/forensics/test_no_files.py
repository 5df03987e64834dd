"""Directories and pipes with the names of Kafka's files: `LogLoader` ignores anything but regular files (`File.isFile`), and a repair
replaces a directory with the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.errors import KopsError
from kops.files import OsFiles
from kops.forensics.forecast.run import ForecastOptions, forecast
from kops.forensics.plans.journal import rollback
from kops.forensics.repair.run import repair
from kops.forensics.verify.run import verify
from tests.support import corpus


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    log_dir = corpus.load("v2-4.3.0-codec-none").copy(tmp_path / "log", "data")
    return next(path for path in sorted(log_dir.iterdir()) if path.is_dir())


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_start_passes_over_what_is_no_segment(partition: Path, make: Callable[[Path], None]) -> None:
    def told() -> object:
        return forecast(OsFiles(read_only=True), [str(partition)], ForecastOptions(now_ms=0)).partitions

    expected = told()
    make(partition / "00000000000000009999.log")
    assert told() == expected


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "00000000000000000126.index", "00000000000000000126.timeindex"])
def test_a_directory_in_a_files_place_is_taken_away_and_given_back(partition: Path, name: str) -> None:
    place = partition / name
    content = place.read_bytes()
    place.unlink()
    place.mkdir()
    (place / "somebody's").write_bytes(b"own")
    report = repair([partition], mode="all")
    assert report.fixed
    assert place.read_bytes() == content
    assert not verify([partition], "full").has_problems
    (journal,) = report.journals
    rollback(OsFiles(), journal)
    assert (place / "somebody's").read_bytes() == b"own"


def test_a_rollback_without_a_backup_touches_nothing(partition: Path) -> None:
    indexes = [path for path in sorted(partition.glob("*.index")) if path.stat().st_size]
    for index in indexes:
        index.write_bytes(b"\xff" * 8)
    (journal,) = repair([partition], mode="all").journals
    mended = {path: path.read_bytes() for path in partition.iterdir()}
    lost = Path(journal.backup(0))
    lost.unlink()
    with pytest.raises(KopsError, match=re.escape(f"{lost}: the backup of {indexes[0]} is gone")):
        rollback(OsFiles(), journal)
    assert {path: path.read_bytes() for path in partition.iterdir()} == mended
    rollback(OsFiles(), journal, force=True)
    assert [path.read_bytes() == b"\xff" * 8 for path in indexes] == [False, *[True] * (len(indexes) - 1)]
