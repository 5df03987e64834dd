"""Three nodes of kops, each a process of its own, for real clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nodes.kops_nodes import KopsNodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide a cluster for the tests of one module."""
    with KopsNodes(tmp_path_factory.mktemp("nodes"), settings={"log.segment.bytes": 1_048_576}) as nodes:
        yield nodes
