"""Shared code of the tests of real clusters: directories whose processes are ended after the test, whatever happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kops.cluster.launch import clean_up, stop_supervisor, supervision
from kops.cluster.layout.directory import ClusterDirectory


@pytest.fixture
def new_directory(tmp_path: Path) -> Iterator[Callable[[str], ClusterDirectory]]:
    """A function that makes directories for clusters below `tmp_path`."""
    made: list[ClusterDirectory] = []

    def make(name: str = "data") -> ClusterDirectory:
        made.append(ClusterDirectory(str(tmp_path / name)))
        return made[-1]

    yield make
    for directory in made:
        running = supervision(directory)
        if running is not None:
            stop_supervisor(running, kill=True)
        clean_up(directory, kill=True)


@pytest.fixture
def directory(new_directory: Callable[[str], ClusterDirectory]) -> ClusterDirectory:
    """A directory for a cluster."""
    return new_directory("data")
