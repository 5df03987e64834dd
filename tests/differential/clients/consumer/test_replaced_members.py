"""A static member is replaced between the two rebalances of the cooperative protocol. Java's consumers on Apache Kafka 4.3.0 and on kops
leave a partition without an owner until the next rebalance, and so do those of kops; see `tests/simulation/clients/orphans.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kops
from tests.differential.clients.consumer.test_consumer_programs import CONFIG
from tests.support.kafka.both.consumer_programs import replaced_member
from tests.support.kafka.both.pinned import PinnedJvm
from tests.support.kafka.both.sides import JavaSide, OursSide, see
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    work = tmp_path_factory.mktemp("kafka")
    with RealBroker(oracle, work, log_dirs=[work / "logs"], settings=CONFIG) as broker:
        yield broker.bootstrap


def test_a_partition_without_an_owner(real: str, pinned: PinnedJvm) -> None:
    theirs = see(JavaSide(real, "classic", pinned), replaced_member)
    assert theirs[-2:] == [("nobody's", [0, 1], 0), ("everybody's", [0, 1])]
    with kops.Cluster(1, config=CONFIG) as cluster:
        assert see(JavaSide(cluster.bootstrap_servers, "classic", pinned), replaced_member) == theirs
        assert see(OursSide(cluster.bootstrap_servers, "classic"), replaced_member) == theirs
    assert see(OursSide(real, "classic"), replaced_member) == theirs
