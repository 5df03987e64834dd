"""Kafka's own share consumers on three nodes of kops. The leader of a partition is killed, and another node delivers its records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.share_consumers import ShareConsumer, configure_group, until
from tests.support.nodes.kops_nodes import KopsNodes

PATIENCE_S = 60
SETTINGS = {
    "offsets.topic.replication.factor": 3,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KopsNodes]:
    """Provide three nodes, each of which may coordinate."""
    with KopsNodes(tmp_path_factory.mktemp("nodes"), settings=SETTINGS) as nodes:
        yield nodes


def leader_of(nodes: KopsNodes, topic: str) -> int:
    """Return the node that leads the only partition."""
    found = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0}).list_topics(topic, PATIENCE_S)
    return int(found.topics[topic].partitions[0].leader)


def test_a_leader_is_killed(oracle: Oracle, nodes: KopsNodes) -> None:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(PATIENCE_S)
    oracle.produce(nodes.bootstrap, name, 0, [(None, b"%d" % number) for number in range(6)])
    configure_group(oracle, nodes.bootstrap, name, {"share.auto.offset.reset": "earliest"})
    member = ShareConsumer(oracle, nodes.bootstrap, name, name)
    try:
        found = until(member, bool)
        assert [each.seen for each in found] == [(0, number, str(number), 1) for number in range(6)]
        for each, kind in zip(found, ("ACCEPT", "RELEASE", "REJECT"), strict=False):
            member.acknowledge(each, kind)
        for each in found[3:]:
            member.acknowledge(each, "RELEASE")
        assert member.commit() == []
        again = until(member, bool)
        assert [each.seen[1::2] for each in again] == [(1, 2), (3, 2), (4, 2), (5, 2)]
        killed = leader_of(nodes, name)
        nodes.kill(killed)
        # The new leader reads the state. Released records were delivered once, and later acquisitions are not known.
        for each in again:
            member.acknowledge(each, "ACCEPT")
        assert member.commit() == ["UnknownServerException"]  # the client's error for a broker that has gone
        later = until(member, bool)
        assert [each.seen[1::2] for each in later] == [(1, 2), (3, 2), (4, 2), (5, 2)]
        for each in later:
            member.acknowledge(each, "ACCEPT")
        assert member.commit() == []
        assert leader_of(nodes, name) != killed
        nodes.start(killed)
        nodes.wait(killed)
        oracle.produce(nodes.bootstrap, name, 0, [(None, b"last")])
        (last,) = until(member, bool)
        assert last.seen == (0, 6, "last", 1)
        member.acknowledge(last, "ACCEPT")
        assert member.commit() == []
    finally:
        member.abandon()  # Kafka's client would wait half a minute for the session with the killed node
