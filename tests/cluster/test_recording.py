"""The cluster in the tour and the recording in the README show what the commands print."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.cli.main import main
from kops.cli.running.options import words
from kops.cluster.layout.directory import ClusterDirectory
from tests.cli.conftest import PROJECT
from tests.cli.documents.test_docs import as_shown
from tools import make_recording


def masked(text: str) -> str:
    """Return the text without numbers and answers that differ from run to run: process ids, ports, seconds, the leading node."""
    return re.sub(r"\b(yes|no)\b", "?", re.sub(r"\d+(\.\d+)?", "1", text))


@pytest.mark.slow
def test_the_cluster_of_the_tour(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    new_directory: Callable[[str], ClusterDirectory],
) -> None:
    monkeypatch.chdir(tmp_path)
    new_directory("kops-data")
    (block,) = re.findall(r"^```sh-session\n(.*?)^```$", (PROJECT / "docs" / "tour.md").read_text(), re.MULTILINE | re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        assert main(words(line)) == 0
        printed = capfd.readouterr()
        assert as_shown(masked(shown), masked(printed.err + printed.out)), f"{line}\n{printed.err}{printed.out}"


@pytest.mark.slow
def test_the_recording_of_the_readme_is_what_the_commands_print() -> None:
    assert make_recording.differences() == [], "run: make recording"


def test_a_recording_has_its_lines_in_order_and_is_small() -> None:
    picture = make_recording.RECORDING.read_text()
    shown = make_recording.shown_in(picture)
    assert [line.removeprefix("$ ") for line in shown if line.startswith("$ ")] == [command for command, _ in make_recording.SESSION]
    assert len(picture) < 100_000
