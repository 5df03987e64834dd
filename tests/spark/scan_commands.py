"""Runs of `kops log …` and `kops scan …` in this process, the latter in the session of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kops.cli.main import main


class Ran:
    """The result of a run: exit code, stdout, stderr."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.text = out.decode()
        self.err = err.decode()

    @property
    def document(self) -> Any:
        """Stdout as a document of JSON."""
        return json.loads(self.text)

    @property
    def lines(self) -> list[Any]:
        """Stdout as lines of JSON."""
        return [json.loads(line) for line in self.text.splitlines()]


class Commands:
    """Runs commands: `commands("log", "offsets", …)`."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object) -> Ran:
        code = main([str(each) for each in arguments])
        found = self._captured.readouterr()
        return Ran(code, found.out, found.err)

    def same(self, name: str, *arguments: object) -> Ran:
        """Run `kops log NAME` and `kops scan NAME` and compare them. Return the run of `kops log`.

        Rows, messages about damage and exit code must be the same.
        """
        ours = self("log", name, "--format", "jsonl", *arguments)
        on_spark = self("scan", name, "--format", "jsonl", *arguments)
        assert on_spark.lines == ours.lines
        assert (on_spark.code, on_spark.err) == (ours.code, ours.err)
        return ours
