"""Kafka 4.3.0's tools for groups, share groups and transactions print the same text on three nodes of kops as on three of Apache Kafka.

`tests/support/kafka/programs/group_scenarios.py` has the scenarios and keeps Apache Kafka's text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.group_scenarios import SCENARIOS, kept, told
from tests.support.kafka.programs.tool_texts import Scenario
from tests.support.nodes.kops_nodes import KopsNodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide separate nodes, because these get the topics of the coordinators. Other tests list the topics of the shared nodes."""
    with KopsNodes(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_group_tools(oracle: Oracle, nodes: KopsNodes, tmp_path: Path, name: str) -> None:
    scenario = Scenario(KafkaTools(oracle), nodes, tmp_path)
    SCENARIOS[name](scenario)
    ours, theirs = told(scenario), kept()[name]
    assert [command for command, _ in ours] == [command for command, _ in theirs]
    different = []
    for (command, found), (_, expected) in zip(ours, theirs, strict=True):
        different += [command, *difflib.unified_diff(expected, found, "real", "kops", lineterm="", n=0)] if found != expected else []
    assert not different, "\n".join(different)
