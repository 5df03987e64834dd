"""Three nodes of Apache Kafka and three of kops, shared by tests that leave them as they were: all nodes up, no topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealCluster
from tests.support.nodes.kops_nodes import KopsNodes

SETTINGS = {
    "log.segment.bytes": 1_048_576,
    "log.retention.ms": -1,
    "auto.leader.rebalance.enable": "false",  # Kafka would do so every five minutes, in the middle of a test
}


@dataclass(frozen=True, slots=True)
class RealThree:
    """The nodes' ports and directories, and their processes."""

    nodes: KopsNodes
    cluster: RealCluster


@pytest.fixture(scope="session")
def kops_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide three nodes of kops."""
    with KopsNodes(tmp_path_factory.mktemp("kops"), settings=SETTINGS) as nodes:
        yield nodes


@contextmanager
def start_real(oracle: Oracle, work: Path, more: Mapping[str, object] | None = None) -> Iterator[RealThree]:
    """Start three nodes of Apache Kafka, on directories that kops has formatted."""
    nodes = KopsNodes(work, settings={**SETTINGS, **(more or {})})
    cluster = RealCluster(oracle, nodes.work / "run", [nodes.prepare(node_id) for node_id in nodes.ids]).start()
    yield RealThree(nodes, cluster)
    cluster.kill()  # after a stop request, the last ones would wait for a quorum


@pytest.fixture(scope="session")
def real_three(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealThree]:
    """Provide three nodes of Apache Kafka."""
    with start_real(oracle, tmp_path_factory.mktemp("real")) as three:
        yield three
