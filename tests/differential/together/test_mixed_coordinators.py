"""A coordinator moves from kops to Apache Kafka and back, by an election and by a kill, with groups and transactions in flight."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.mixed_cluster import TIMEOUT_S, MixedCluster
from tests.support.kafka.oracle import Oracle
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.soaks.in_flight import COORDINATORS, EVENTS, LEDGER, TASKS, InFlight

pytestmark = pytest.mark.slow

KOPS, KAFKA = 2, 3
COMPACT = {"cleanup.policy": "compact"}
KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def test_coordinators_move_from_one_kind_to_the_other(oracle: Oracle, tmp_path: Path) -> None:
    """Kafka is killed while it coordinates transactions, and kops while it coordinates groups. Each is elected again when it is back."""
    nodes = {1: ("kops", "controller"), KOPS: ("kops", "broker"), KAFKA: ("kafka", "broker")}
    with MixedCluster(oracle, tmp_path, nodes, auto_leader_rebalance_enable="false", **COORDINATORS) as cluster:
        topics = [
            NewTopic(OFFSETS, 1, replica_assignment=[[KOPS, KAFKA]], config=COMPACT),
            NewTopic(TRANSACTIONS, 1, replica_assignment=[[KAFKA, KOPS]], config=COMPACT),
            NewTopic(EVENTS, 2, replica_assignment=[[KOPS, KAFKA], [KAFKA, KOPS]]),
            NewTopic(LEDGER, 1, replica_assignment=[[KOPS, KAFKA]]),
            NewTopic(TASKS, 1, replica_assignment=[[KOPS, KAFKA]]),
            NewTopic("__share_group_state", 1, replica_assignment=[[KOPS, KAFKA]], config=KEEP),
        ]
        client = kafka.admin(cluster.bootstrap)
        for future in client.create_topics(topics, operation_timeout=60).values():
            future.result(TIMEOUT_S)
        flight = InFlight(oracle, cluster.bootstrap)
        for topic, down, up in ((TRANSACTIONS, KAFKA, KOPS), (OFFSETS, KOPS, KAFKA)):
            flight.open(f"before-{down}-is-killed")
            cluster.kill(down)
            cluster.wait_for(topic, leaders=[up])
            flight.finish()
            come_back(cluster, down)
            flight.open(f"before-{down}-is-elected")
            elect(oracle, cluster)
            cluster.wait_for(topic, leaders=[down])
            flight.finish()
        flight.end()


def come_back(cluster: MixedCluster, node_id: int) -> None:
    """Start a node, and wait until it is in sync with the other one."""
    cluster.start(node_id)
    cluster.wait(node_id)
    for name in (OFFSETS, TRANSACTIONS, "__share_group_state", EVENTS, LEDGER, TASKS):
        cluster.wait_for(name, in_sync=[KOPS, KAFKA])


def elect(oracle: Oracle, cluster: MixedCluster) -> None:
    """Let the first replicas lead."""
    where = ("--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in KafkaTools(oracle).run("leader-election", *where)
