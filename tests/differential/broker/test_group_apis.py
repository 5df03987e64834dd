"""A kops node and a real Kafka 4.3.0 node answer the same raw requests about groups of all kinds alike, in every version.

Ids are masked, and for most groups the wording of messages (see `tests/support/kafka/two_brokers.py`). The requests are those of
`group_steps.py`, `share_steps.py`, `streams_steps.py` and `transaction_steps.py` in
`tests/support/requests`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.kafka.two_brokers import Side, differences
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.requests import group_steps, share_steps, streams_steps, transaction_steps

CASES = {**group_steps.CASES, **share_steps.CASES, **streams_steps.CASES, **transaction_steps.OFFSET_CASES}


@pytest.fixture(scope="module")
def both(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Provide a kops node and a Kafka node, each as a separate cluster."""
    work = tmp_path_factory.mktemp("both")
    with (
        KopsNodes(work / "kops", 1) as nodes,
        RealBroker(oracle, work / "kafka", log_dirs=[work / "kafka-logs"]) as broker,
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
