"""Raw requests of transactions to a kops node and to a real Kafka 4.3.0 node, in every version: the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.kafka.two_brokers import Side, differences
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.requests.transaction_steps import CASES


@pytest.fixture(scope="module")
def both(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """A kops node and a Kafka node, each a cluster of its own."""
    work = tmp_path_factory.mktemp("both")
    settings = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
    with (
        KopsNodes(work / "kops", 1, settings=settings) as nodes,
        RealBroker(oracle, work / "kafka", log_dirs=[work / "kafka-logs"], settings=settings) as broker,
    ):
        sides = Side("kops", nodes.bootstrap), Side("kafka", broker.bootstrap)
        yield sides
        for side in sides:
            side.client.close()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_answers(both: tuple[Side, Side], case: str) -> None:
    steps, version = CASES[case]
    kops, kafka = (list(steps(side, version)) for side in both)
    found = differences(kops, kafka)
    assert not found, "\n".join(["", *found])
