"""kops's share consumer on Apache Kafka 4.3.0: all that it does on kops, also beside Kafka's own consumer in one group, and with
transactions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import kops
from kops.client.share.core.records import ShareRecord
from tests.network.client import test_share_consumer as on_kops
from tests.network.client.conftest import nothing_is_left
from tests.network.client.test_share_consumer import produce, take, topic
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.share_consumers import ShareConsumer as KafkasConsumer
from tests.support.kafka.programs.share_consumers import until
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes.share_groups import SHARE_SETTINGS, configure_share_group

__all__ = ["nothing_is_left", "topic"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    work = tmp_path_factory.mktemp("kafka")
    with RealBroker(oracle, work, log_dirs=[work / "logs"], settings=SHARE_SETTINGS) as broker:
        yield broker.bootstrap


class TestBlocking(on_kops.TestBlocking):
    """The same tests on Kafka."""


class TestAsyncio(on_kops.TestAsyncio):
    """The same tests on Kafka."""


def test_kafkas_consumer_in_the_same_group(oracle: Oracle, servers: str, topic: str) -> None:
    settings = {"bootstrap.servers": servers, "group.id": topic, "share.acknowledgement.mode": "explicit"}
    with kops.ShareConsumer(settings) as ours, KafkasConsumer(oracle, servers, topic, topic) as theirs:
        ours.subscribe([topic])
        records = take(ours, 5)
        for record in records:
            ours.acknowledge(record, kops.AcknowledgeType.RELEASE)
        assert list(ours.commit_sync().values()) == [None]
        found = until(theirs, bool)
        assert [one.seen[1:] for one in found] == [(number, str(number), 2) for number in range(5)]
        for one in found:
            theirs.acknowledge(one, "RELEASE" if one.offset == 3 else "ACCEPT")
        assert theirs.commit() == []
        (again,) = take(ours, 1)
        assert (again.offset, again.delivery_count) == (3, 3)
        ours.acknowledge(again)


def test_transactions(servers: str) -> None:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        producer.flush(60)
        ends(60)
    produce(servers, name, 1, first=9)
    configure_share_group(servers, name, {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"})
    with kops.ShareConsumer(bootstrap_servers=servers, group_id=name) as consumer:
        consumer.subscribe([name])
        found: list[ShareRecord] = take(consumer, 3)
        assert [(one.offset, one.value) for one in found] == [(0, b"0"), (4, b"2"), (6, b"9")]
        assert list(consumer.commit_sync().values()) == [None]
