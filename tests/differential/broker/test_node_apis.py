"""A kops node and a real Kafka 4.3.0 node answer the same raw requests alike, in every version of each data API.

Ids, times, places and the wording of messages are masked (see `tests/support/kafka/two_brokers.py`). The requests are those of
`tests/support/requests/api_steps.py`. Kafka's answers to the oldest and the newest versions are kept in tests/golden, for the fast tests
(`tests/network/node/test_data_apis.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.kafka.two_brokers import Side, differences
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.requests.api_steps import CASES, KEPT, SETTINGS
from tests.support.requests.kept_answers import kept_answers
from tests.support.requests.share_fetch_steps import CASES as SHARE_CASES
from tests.support.requests.transaction_steps import CASES as TRANSACTION_CASES


@pytest.fixture(scope="module")
def both(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Provide a kops node and a Kafka node, each as a separate cluster."""
    work = tmp_path_factory.mktemp("both")
    with (
        KopsNodes(work / "kops", 1, settings=SETTINGS) as nodes,
        RealBroker(oracle, work / "kafka", log_dirs=[work / "kafka-logs"], settings=SETTINGS) as broker,
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
    if case in KEPT:
        assert kept_answers()[case] == [[label, answer] for label, answer in kafka]


@pytest.mark.slow
@pytest.mark.parametrize("case", TRANSACTION_CASES)
def test_transactions(both: tuple[Side, Side], case: str) -> None:
    """Transactions need a coordinator and several requests each, so their answers are not kept."""
    steps, version = TRANSACTION_CASES[case]
    kops, kafka = (list(steps(side, version)) for side in both)
    found = differences(kops, kafka)
    assert not found, "\n".join(["", *found])


@pytest.mark.slow
@pytest.mark.parametrize("case", SHARE_CASES)
def test_share_groups(both: tuple[Side, Side], case: str) -> None:
    """Members of share groups need a coordinator, too."""
    steps, version = SHARE_CASES[case]
    kops, kafka = (list(steps(side, version)) for side in both)
    found = differences(kops, kafka)
    assert not found, "\n".join(["", *found])
