"""Shared code of the tests of the command line, which run it in this process or in a separate one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kops.cli.main import main
from kops.cli.running import tree
from tests.cli import probe

PROJECT = Path(__file__).resolve().parent.parent.parent


class Ran:
    """The result of a run: exit code, stdout (bytes), stderr (text)."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def text(self) -> str:
        """Return stdout as text."""
        return self.out.decode()


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the probe commands into the tree while a test runs."""
    groups = dict(tree.GROUPS)
    monkeypatch.setattr(tree, "COMMANDS", tree.COMMANDS + tuple(probe.register()))
    yield
    tree.GROUPS.clear()
    tree.GROUPS.update(groups)


@pytest.fixture
def kops(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    """Run the command line in this process."""

    def run(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capsysbinary.readouterr()
        return Ran(code, captured.out, captured.err.decode())

    return run


def kops_process(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
    """Run the command line with the probes in a separate process."""
    command = [sys.executable, "-m", "tests.cli.probe", *arguments]
    done = subprocess.run(command, cwd=PROJECT, input=stdin, capture_output=True, env=env, timeout=120, check=False)
    return Ran(done.returncode, done.stdout, done.stderr.decode())
