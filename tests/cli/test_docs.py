"""What the documents show is true: Python examples run, command lines parse, every command is in the README."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kops
from kops import api
from kops.cli import tree
from kops.cli.options import build, words
from tests.cli.conftest import PROJECT
from tests.support import corpus


def test_the_examples_of_the_api_run(tmp_path: Path) -> None:
    names = {"brokers": corpus.load("cluster-4.3.0").root / "nodes", "work": tmp_path}
    result = doctest.testfile(str(PROJECT / "docs" / "api.md"), module_relative=False, globs=names, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0


def test_every_name_of_the_api_is_exported_and_documented() -> None:
    assert kops.__all__ == api.__all__
    assert sorted(api.__all__) == api.__all__
    for name in api.__all__:
        assert getattr(kops, name) is getattr(api, name)
        assert getattr(api, name).__doc__
    assert set(api.__all__) <= set(dir(kops))
    with pytest.raises(AttributeError, match="module 'kops' has no attribute 'nothing'"):
        _ = kops.nothing  # type: ignore[attr-defined]


def test_importing_kops_is_cheap() -> None:
    script = "import sys; before = set(sys.modules); import kops; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["__future__", "kops", "kops._compiled"]


def command_lines(document: str) -> list[str]:
    """The lines of a document that begin with `$ kops`."""
    text = (PROJECT / document).read_text()
    return [line.removeprefix("$ ") for line in re.findall(r"^\$ kops .*$", text, re.MULTILINE)]


def test_the_command_lines_of_the_readme_parse() -> None:
    lines = command_lines("README.md")
    assert lines
    for line in lines:
        arguments = words(line)
        entry = next((e for e in tree.COMMANDS if tuple(arguments[: len(e.path)]) == e.path), None)
        assert entry is not None, line
        with build(entry).make_context(entry.name, arguments[len(entry.path) :]):
            pass


@pytest.mark.parametrize("entry", tree.COMMANDS, ids=lambda entry: "-".join(entry.path))
def test_the_readme_names_every_command(entry: tree.Entry) -> None:
    assert f"`{entry.name}`" in (PROJECT / "README.md").read_text()
