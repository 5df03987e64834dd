"""Groups and transactions are in flight when all nodes stop: Apache Kafka continues with what kops has left on disk, and vice versa."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import NewTopic

from kops.client.coordinators.transactions import abort_in_partition, find_hanging
from kops.cluster.questions import client_of
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.mixed_cluster import TIMEOUT_S, MixedCluster
from tests.support.kafka.oracle import Oracle
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.soaks.in_flight import COORDINATORS, EVENTS, LEDGER, TASKS, InFlight
from tests.support.nodes.soaks.soaking import CLEAN_EXITS
from tests.support.patience import until

pytestmark = pytest.mark.slow

FIRST, SECOND = 1, 2
COMPACT = {"cleanup.policy": "compact"}
KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}
AWAY = "away"
"""A topic that must have both nodes. While one is down its leader takes no marker, so a transaction that wrote to it stays prepared."""
SETTINGS = {**COORDINATORS, "broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500"}


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "killed"])
def test_groups_and_transactions_go_on(oracle: Oracle, tmp_path: Path, kill: bool) -> None:
    nodes = {FIRST: ("kops", "broker,controller"), SECOND: ("kops", "broker")}
    with MixedCluster(oracle, tmp_path, nodes, **SETTINGS) as cluster:
        client = kafka.admin(cluster.bootstrap)
        topics = [
            NewTopic("__consumer_offsets", 1, replica_assignment=[[FIRST]], config=COMPACT),
            NewTopic("__transaction_state", 1, replica_assignment=[[FIRST]], config=COMPACT),
            NewTopic(EVENTS, 2, replica_assignment=[[FIRST], [FIRST]]),
            NewTopic(LEDGER, 1, replica_assignment=[[FIRST]]),
            NewTopic(TASKS, 1, replica_assignment=[[FIRST]]),
            NewTopic("__share_group_state", 1, replica_assignment=[[FIRST]], config=KEEP),
            NewTopic(AWAY, 1, replica_assignment=[[FIRST, SECOND]], config={"min.insync.replicas": "2"}),
        ]
        for future in client.create_topics(topics, operation_timeout=60).values():
            future.result(TIMEOUT_S)
        flight = InFlight(oracle, cluster.bootstrap)
        for whose in ("kops", "kafka"):
            flight.open(f"by-{whose}")
            flight.prepare(AWAY, lambda: take_away(cluster))
            states = [flight.state(name) for name in ("good", "bad", "fenced", "left")]
            if kill:
                cluster.kill(FIRST)
            else:
                assert cluster.stop(FIRST) in CLEAN_EXITS, cluster.output(FIRST)[-3000:]
            for node_id in nodes:
                cluster.turn(node_id)
                cluster.start(node_id)
            for node_id in nodes:
                cluster.wait(node_id)
            cluster.wait_for(AWAY, in_sync=[FIRST, SECOND])
            flight.check_held()
            assert [flight.state(name) for name in ("good", "bad", "fenced", "left")] == states
            until(lambda: flight.state("preparing").startswith("CompleteCommit"), told=lambda: flight.state("preparing"))
            # While Kafka coordinated, the leader of a partition was unknown, unless Kafka was killed while it had one.
            check_marker(flight, kafka_may_lose_it=whose == "kops" or not kill)
            flight.finish()
        flight.end()


def take_away(cluster: MixedCluster) -> None:
    """Kill the second node, and wait until that is known."""
    cluster.kill(SECOND)
    cluster.wait_for(AWAY, in_sync=[FIRST])


def check_marker(flight: InFlight, *, kafka_may_lose_it: bool) -> None:
    """Check that the partition that was unavailable got the marker. If Kafka has lost the marker, the transaction is found as hanging, and
    is aborted.

    Apache Kafka 4.3.0 completes a transaction without the partitions whose leader it does not know (TransactionMarkerChannelManager).
    """

    def ends() -> list[int]:
        return [flight.end_offset(level, AWAY) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)]

    stable, whole = ends()
    if kafka_may_lose_it and stable < whole:
        with client_of(flight.bootstrap, timeout_ms=30_000) as client:
            [hanging], errors = find_hanging(client, [TopicPartition(AWAY, 0)], now_ms=int(time.time() * 1000), longer_than_ms=-1)
            assert not errors
            assert hanging.txn_start_offset == stable
            abort_in_partition(client, hanging.key, hanging.producer_id, hanging.producer_epoch, hanging.coordinator_epoch)
        stable, whole = ends()
    assert stable == whole
