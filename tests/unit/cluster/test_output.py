"""The merged output of all brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kops.cluster import output
from kops.cluster.layout.directory import ClusterDirectory


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    made = ClusterDirectory(str(tmp_path))
    os.makedirs(made.state_dir)
    return made


def write(directory: ClusterDirectory, node_id: int, text: str) -> None:
    with open(directory.output_path(node_id), "a") as file:
        file.write(text)


def test_lines_come_in_the_order_of_time_and_tracebacks_stay_whole(directory: ClusterDirectory) -> None:
    write(directory, 1, "[2026-01-01 00:00:00,100] INFO a\nTraceback\n  more\n[2026-01-01 00:00:00,300] INFO c\n")
    write(directory, 2, "[2026-01-01 00:00:00,200] INFO b\n")
    found = [(one.node_id, one.text[-6:]) for one in output.said(directory, [1, 2, 3])]
    assert found == [(1, "INFO a"), (1, "ceback"), (1, "  more"), (2, "INFO b"), (1, "INFO c")]
    assert output.said(directory, [3]) == []


def test_what_follows_comes_in_whole_lines(directory: ClusterDirectory) -> None:
    write(directory, 1, "before\n")
    steps = iter(("one\ntwo\nhal", "f\n", ""))
    positions = {1: os.path.getsize(directory.output_path(1))}
    lines, positions[1] = output.new_lines(directory.output_path(1), positions[1])
    assert lines == []
    write(directory, 1, next(steps))
    lines, positions[1] = output.new_lines(directory.output_path(1), positions[1])
    assert lines == ["one", "two"]
    write(directory, 1, next(steps))
    lines, positions[1] = output.new_lines(directory.output_path(1), positions[1])
    assert lines == ["half"]
    # A file that was made again is read from its beginning.
    os.unlink(directory.output_path(1))
    assert output.new_lines(directory.output_path(1), positions[1]) == ([], 0)


def test_the_last_lines(directory: ClusterDirectory) -> None:
    path = directory.output_path(1)
    assert directory.last_lines(path) == []
    write(directory, 1, "".join(f"line {number}\n" for number in range(20_000)))
    assert directory.last_lines(path, 2) == ["line 19998", "line 19999"]
