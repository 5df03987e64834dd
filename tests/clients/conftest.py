"""Three nodes of kops, a process each, that real clients talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nodes.kops_nodes import KopsNodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """A cluster for one module's tests."""
    with KopsNodes(tmp_path_factory.mktemp("nodes"), settings={"log.segment.bytes": 1_048_576}) as nodes:
        yield nodes
