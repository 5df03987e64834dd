"""Data APIs of a running kops node over a socket, oldest and newest versions, compared with the kept answers of a real Kafka node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka.two_brokers import Side, differences
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.requests.api_steps import CASES, KEPT, SETTINGS
from tests.support.requests.kept_answers import kept_answers


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """Provide a node that is broker and controller."""
    with KopsNodes(tmp_path_factory.mktemp("node"), 1, settings=SETTINGS) as nodes:
        found = Side("kops", nodes.bootstrap)
        yield found
        found.client.close()


@pytest.mark.parametrize("case", KEPT)
def test_answers(side: Side, case: str) -> None:
    steps, version = CASES[case]
    found = differences(steps(side, version), ((label, answer) for label, answer in kept_answers()[case]))
    assert not found, "\n".join(["", *found])
