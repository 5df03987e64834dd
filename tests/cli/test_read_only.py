"""No inspection command ever opens its input for writing."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.cli import tree
from tests.cli.conftest import Ran
from tests.support import corpus

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.utime", "os.link", "os.symlink", "os.chown")

# Command line below `kops log`, `{}` for the input, `{out}` for a folder to write into.
INSPECTIONS: dict[str, tuple[str, ...]] = {
    "log dump": ("log", "dump", "--print-data-log", "{}"),
    "log ls": ("log", "ls", "{}"),
    "log verify": ("log", "verify", "--level", "full", "{}"),
    "log forecast": ("log", "forecast", "{}"),
    "log index check": ("log", "index", "check", "{}"),
    "log index diff": ("log", "index", "diff", "{}"),
    "log index rebuild": ("log", "index", "rebuild", "-n", "{}"),
    "log repair": ("log", "repair", "-n", "{}"),
    "log recover": ("log", "recover", "{}", "--out", "{out}"),
}
NOT_HERE = {
    "scan verify": "needs Java; the tests of Spark look after it",
    "doctor": "has no input",
    "completion": "has no input",
}


class Watch:
    """Remembers what is opened for writing, or changed, below a directory. An audit hook stays for ever, so there is one for all tests."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter for each file that is opened."""
        if self.root is None:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & WRITING)
            if writes and self.inside(path):
                self.seen.append(f"open {os.fsdecode(path)}")
        elif event in CHANGING and any(self.inside(argument) for argument in arguments[:2]):
            self.seen.append(f"{event} {arguments[0]}")

    def inside(self, path: object) -> bool:
        """Whether it is the input, or below it."""
        if not isinstance(path, str | bytes | os.PathLike) or self.root is None:
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.root)


@pytest.fixture(scope="module")
def watch() -> Watch:
    """The one hook."""
    return Watch()


def state(root: Path) -> Iterator[tuple[str, int, int, str]]:
    """Everything that may not change: names, sizes, times, contents."""
    for path in sorted(root.rglob("*")):
        stat = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        yield path.relative_to(root).as_posix(), stat.st_size if path.is_file() else 0, stat.st_mtime_ns, digest


def test_every_command_is_looked_after() -> None:
    """A new command has to say here how it is called, or why not."""
    assert {" ".join(entry.path) for entry in tree.COMMANDS} == set(INSPECTIONS) | set(NOT_HERE)


@pytest.mark.parametrize("case_id", ["damage-4.3.0-index-truncated-odd", "damage-4.3.0-torn-tail", "damage-4.3.0-leftover-swap"])
@pytest.mark.parametrize("command", sorted(INSPECTIONS))
def test_nothing_is_written(command: str, case_id: str, kops: Callable[..., Ran], watch: Watch, tmp_path: Path) -> None:
    """Neither opened for writing nor changed, whatever there is to mend."""
    root = corpus.load(case_id).copy(tmp_path / "kafka", "before")
    before = list(state(tmp_path / "kafka"))
    arguments = [part.format(root, out=tmp_path / "out") for part in INSPECTIONS[command]]
    watch.seen.clear()
    watch.root = str(tmp_path / "kafka")
    try:
        ran = kops(*arguments)
    finally:
        watch.root = None
    assert ran.code & 8 == 0, ran.err
    assert ran.out or ran.err
    assert watch.seen == []
    assert list(state(tmp_path / "kafka")) == before


def test_the_watch_sees_writing(watch: Watch, tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    watch.seen.clear()
    watch.root = str(tmp_path)
    try:
        (tmp_path / "a").write_text("x")
        os.close(os.open(tmp_path / "b", os.O_RDWR | os.O_CREAT))
        os.rename(tmp_path / "b", tmp_path / "c")
    finally:
        watch.root = None
    assert [line.split()[0] for line in watch.seen] == ["open", "open", "os.rename"]
