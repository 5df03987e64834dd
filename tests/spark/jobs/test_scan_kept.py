"""`kops scan verify --state DIR`: a later scan reads only what changed, and its verdict is the same."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kops.errors import UsageError
from kops.files.any_files import AnyFiles
from kops.forensics.verify.partition import SegmentTask
from kops.forensics.verify.run import VerifyReport, verify
from kops.spark import kept as module
from kops.spark.kept import Kept, replace_file
from kops.spark.packed import squeeze
from tests.spark.scan_commands import Commands
from tests.spark.source.test_pushdown import CountedFile
from tests.support import corpus

LEVELS = ("quick", "crc", "deep", "full")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Provide a log directory with damage, last changed a minute ago."""
    root = tmp_path / "data"
    shutil.copytree(corpus.load("damage-4.3.0-two-flips").root / "before", root)
    for name in ("damage-4.3.0-index-garbage-old", "v2-4.3.0-codec-none"):
        case = corpus.load(name).root
        for number, partition in enumerate(path for path in sorted((case / ("before" if "damage" in name else "data")).iterdir())):
            if partition.is_dir():
                shutil.copytree(partition, root / f"{name.replace('.', '-')}-{number}")
    settle(root)
    return root


def settle(root: Path) -> None:
    """Set the times of all files to a minute ago."""
    for path in root.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)


class Here:
    """A stand-in for Spark that runs tasks in this process one by one. It records what they and the driver read of `.log` files."""

    defaultParallelism = 2  # noqa: N815 - Spark's name
    appName = "kops scan"  # noqa: N815 - Spark's name

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sparkContext = self
        self.read: dict[str, list[int]] = {}
        self.items: list[Any] = []
        self.properties: dict[str, str | None] = {}
        for name in ("driver_files", "task_files"):
            monkeypatch.setattr(f"kops.spark.jobs.verify.{name}", lambda: CountedLogs(self.read))

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value

    def parallelize(self, items: Iterable[Any], _: int) -> Here:
        self.items = list(items)
        return self

    def map(self, function: Callable[[Any], Any]) -> Here:
        return self.flatMap(lambda item: [function(item)])

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> Here:  # noqa: N802 - Spark's name
        self.items = [answer for item in self.items for answer in function(item)]
        return self

    def collect(self) -> list[Any]:
        return self.items


class Twice(Here):
    """A stand-in for Spark that runs each task twice, and takes the second answer."""

    answers = 0

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> Here:  # noqa: N802 - Spark's name
        for item in self.items:
            self.answers += len(list(function(item)))
        return super().flatMap(function)


class CountedLogs:
    """The file system with a count of the bytes that are read from each `.log`."""

    def __init__(self, read: dict[str, list[int]]) -> None:
        self._files = AnyFiles()
        self._read = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str) -> Any:
        file = self._files.open(path)
        return CountedFile(file, self._read.setdefault(path, [])) if path.endswith(".log") else file


def scan(here: Here, data: Path, level: str, state: Path) -> tuple[VerifyReport, Kept, dict[str, int]]:
    """Scan with a state. Return the report, the state, and the bytes that were read from each `.log`."""
    from kops.spark.jobs.verify import scan_verify

    here.read.clear()
    state_of_level = Kept(str(state), level, paths=[str(data)])
    report = scan_verify(here, [str(data)], level, kept=state_of_level, group_segments=1)
    assert report.to_json() == verify([str(data)], level).to_json()
    return report, state_of_level, {path: sum(sizes) for path, sizes in here.read.items() if sum(sizes)}


@pytest.mark.parametrize("level", LEVELS)
def test_a_second_scan_reads_only_what_changed(level: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(monkeypatch)
    report, kept, read = scan(here, data, level, tmp_path / "state")
    logs = {str(path): path.stat().st_size for path in data.rglob("*.log")}
    assert (kept.reused, kept.read, kept.bytes_read) == (0, len(logs), sum(logs.values()))
    assert report.findings and len(logs) > 2
    assert set(read) == {path for path, size in logs.items() if size}

    _, kept, read = scan(here, data, level, tmp_path / "state")
    assert (kept.reused, kept.read, read) == (len(logs), 0, {})

    changed = max(logs, key=lambda path: logs[path])
    with open(changed, "r+b") as file:
        file.seek(logs[changed] // 2)
        file.write(b"\xff" * 8)
    _, kept, read = scan(here, data, level, tmp_path / "state")
    assert (kept.read, set(read)) == (1, {changed})
    os.utime(changed, (1e9, 1e9))
    scan(here, data, level, tmp_path / "state")
    with open(changed, "r+b") as file:
        file.write(b"\xfe" * 8)
    os.utime(changed, (1e9, 1e9))  # the same size, time of modification and inode
    assert scan(here, data, level, tmp_path / "state")[1].read == 1
    assert scan(here, data, level, tmp_path / "state")[1].read == 0

    with open(changed, "ab") as file:
        file.write(b"\0" * 100)
    report, kept, read = scan(here, data, level, tmp_path / "state")
    assert set(read) == {changed}
    assert (kept.read, kept.reused, kept.bytes_read) == (1, len(logs) - 1, logs[changed] + 100)
    _, kept, _ = scan(here, data, level, tmp_path / "state")
    assert kept.read == 1, "a file that was changed a moment ago may change again within the same tick of the clock"


def test_a_state_that_does_not_fit_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(str(path), b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            replace_file(str(path), bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.filename == str(path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_an_index_counts_too(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(monkeypatch)
    scan(here, data, "full", tmp_path / "state")
    index = next(path for path in sorted(data.rglob("*.index")) if path.stat().st_size)
    index.write_bytes(b"\xff" * index.stat().st_size)
    _, kept, read = scan(here, data, "full", tmp_path / "state")
    assert (kept.read, set(read)) == (1, {str(index.with_suffix(".log"))})


def test_levels_and_other_paths_keep_their_own_results(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, state = Here(monkeypatch), tmp_path / "state"
    scan(here, data, "crc", state)
    assert scan(here, data, "quick", state)[1].reused == 0
    other = tmp_path / "other"
    shutil.copytree(data, other)
    settle(other)
    assert scan(here, other, "crc", state)[1].reused == 0
    assert scan(here, data, "crc", state)[1].read == 0
    shutil.rmtree(other)
    scan(here, data, "crc", state)
    assert str(other).encode() not in zlib.decompress((state / "verify-crc.kops-state").read_bytes().partition(b"\n")[2])


def test_a_state_of_another_kops_or_a_damaged_one_is_not_used(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, state = Here(monkeypatch), tmp_path / "state"
    scan(here, data, "crc", state)
    file = state / "verify-crc.kops-state"
    whole = file.read_bytes()
    digest = module.code_digest().encode()
    for changed, words in (
        (whole[:-1], "damaged (its digest is wrong)"),
        (whole.replace(digest, b"0" * 64), "from another version of kops"),
        (whole.replace(module.FORMAT.encode(), b"kops.scan-state/v1"), "from another version of kops"),
        (whole.replace(b'"level": "crc"', b'"level": "deep"'), "belongs to another scan"),
    ):
        file.write_bytes(changed)
        kept = Kept(str(state), "crc")
        assert words in kept.warning and kept.warning.startswith(str(file))
        assert not scan(here, data, "crc", state)[1].reused
        assert scan(here, data, "crc", state)[1].reused
    assert sorted(path.name for path in state.iterdir()) == [file.name]


def test_a_pickle_that_names_other_things_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "evil"),))

    def kept(value: object) -> Kept:
        body = zlib.compress(pickle.dumps({"/a": value}))
        header = {"format": module.FORMAT, "job": "verify", "level": "crc", "code": module.code_digest(), "sha256": module._digest(body)}
        (tmp_path / "verify-crc.kops-state").write_bytes(json.dumps(header).encode() + b"\n" + body)
        return Kept(str(tmp_path), "crc")

    assert "damaged (it names posix.mkdir)" in kept(Evil()).warning
    assert "damaged (the result of /a is none)" in kept(b"").warning
    within = kept((module._look_of((None, None, None)), squeeze(Evil())))
    assert not within.warning and within.known(SegmentTask("/a", 0, 0)) is None
    assert "damaged (it names posix.mkdir)" in within.warning
    assert not (tmp_path / "evil").exists()


def test_a_directory_that_can_not_be_used(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "verify-crc.kops-state").write_text("my notes")
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "meta.properties").write_text("version=1\n")
    for folder, words in (
        (data / "t-0", "is scanned"),
        (tmp_path / "file", "File exists"),
        (tmp_path / "mine", "not a state file of kops scan"),
        (tmp_path / "broker" / "x", "is inside the log directory"),
    ):
        with pytest.raises(UsageError, match=words):
            Kept(str(folder), "crc", paths=[str(data)])
    assert (tmp_path / "mine" / "verify-crc.kops-state").read_text() == "my notes"
    assert not (tmp_path / "broker" / "x").exists()


def test_the_command(commands: Commands, data: Path, tmp_path: Path) -> None:
    arguments = ("scan", "verify", "--state", tmp_path / "state", "--format", "json", data)
    ours = commands("log", "verify", "--format", "json", data)
    for words in ("0 segments unchanged since an earlier scan, ", ", 0 read (0 bytes)"):
        ran = commands(*arguments)
        assert (ran.code, ran.text) == (ours.code, ours.text)
        assert words in ran.err
    assert commands("scan", "verify", "--state", data / "x", data).code == 16
    assert commands("scan", "verify", "--state", tmp_path / "state", "--level", "x", data).code == 16
    assert not (tmp_path / "state" / "verify-x.kops-state").exists()
