"""One cluster, two implementations: kops and Apache Kafka 4.3.0 as brokers of one controller, and as voters of one quorum."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from kops.broker.coordinators.group_coordinator import GROUP_TOPIC
from kops.broker.quorum.raft_log import METADATA_DIR
from kops.broker.share_state.coordinator import SHARE_TOPIC
from kops.config.values.java_hash import partition_of
from kops.coordinators.share.key import SharePartitionKey
from kops.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationResponse,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kops.protocol.messages import describe_quorum_request as quorum
from kops.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequestGroup
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.mixed_cluster import TIMEOUT_S, MixedCluster
from tests.support.kafka.oracle import Oracle
from tests.support.nodes import librdkafka as kafka
from tests.support.nodes.raw_client import RawClient
from tests.support.nodes.soaks.soaking import log_bytes
from tests.support.parts.controlling import creation, registration

pytestmark = pytest.mark.slow

KOPS, KAFKA = 2, 3


class Written:
    """The records that were acknowledged so far."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.rows: list[kafka.Row] = []

    def more(self, mark: str) -> None:
        """Write records that both replicas have."""
        sent = kafka.Acknowledged(self.cluster.bootstrap, **{"compression.type": "lz4"})
        sent.send(self.topic, 400, size=1000, mark=mark)
        sent.flush()
        self.rows += sent.rows[self.topic]

    def check(self) -> None:
        """Check that all records are there exactly once, and that both replicas have the same bytes."""
        assert kafka.read_all(self.cluster.bootstrap, self.topic) == sorted(self.rows)
        self.cluster.wait_for(self.topic, in_sync=(KOPS, KAFKA))
        self.cluster.check_replicas_equal(self.topic, 0, 1)


@pytest.mark.parametrize("controller", ["kops", "kafka"])
def test_brokers_of_both_kinds(controller: str, oracle: Oracle, tmp_path: Path) -> None:
    """Each broker leads one partition and follows the other. Each is killed while it leads, comes back, and leads again."""
    nodes = {1: (controller, "controller"), KOPS: ("kops", "broker"), KAFKA: ("kafka", "broker")}
    tools = KafkaTools(oracle)
    with MixedCluster(oracle, tmp_path, nodes, auto_leader_rebalance_enable="false") as cluster:
        topic = NewTopic("orders", 2, replica_assignment=[[KOPS, KAFKA], [KAFKA, KOPS]], config={"segment.bytes": "1048576"})
        client = kafka.admin(cluster.bootstrap)
        client.create_topics([topic], operation_timeout=60)["orders"].result(TIMEOUT_S)
        assert [leader for leader, _, _ in cluster.partitions("orders").values()] == [KOPS, KAFKA]
        written = Written(cluster, "orders")
        written.more("both-")
        written.check()
        for down, up in ((KOPS, KAFKA), (KAFKA, KOPS)):
            cluster.kill(down)
            cluster.wait_for("orders", leaders=(up,))
            written.more(f"without-{down}-")
            cluster.start(down)
            cluster.wait(down)
            cluster.wait_for("orders", in_sync=(KOPS, KAFKA))
            # It serves what it has fetched: it leads both partitions for a while.
            said = tools.run(
                "leader-election", "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions"
            )
            assert "Successfully completed leader election (PREFERRED)" in said
            cluster.wait_for("orders", leaders=(KOPS, KAFKA))
            written.more(f"with-{down}-")
            written.check()
        move(tools, cluster, [[KAFKA], [KOPS]])
        move(tools, cluster, [[KAFKA, KOPS], [KOPS, KAFKA]])
        written.more("moved-")
        written.check()


def move(tools: KafkaTools, cluster: MixedCluster, replicas: list[list[int]]) -> None:
    """Reassign the partitions of `orders`, and wait until that is done."""
    plan = cluster.root / "plan.json"
    partitions = [{"topic": "orders", "partition": number, "replicas": to} for number, to in enumerate(replicas)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    where = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", plan)
    assert "Successfully started partition reassignments" in tools.run("reassign-partitions", *where, "--execute")
    deadline = time.monotonic() + TIMEOUT_S
    while "still in progress" in (said := tools.run("reassign-partitions", *where, "--verify")):
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    assert [one for _, one, _ in cluster.partitions("orders").values()] == replicas


def test_share_groups_with_state_on_both_kinds(oracle: Oracle, tmp_path: Path) -> None:
    """The group coordinator of either kind sets and reads offsets at share coordinators of both kinds."""
    nodes = {1: ("kops", "controller"), KOPS: ("kops", "broker"), KAFKA: ("kafka", "broker")}
    coordinated = {GROUP_TOPIC: "offsets_topic_num_partitions", SHARE_TOPIC: "share_coordinator_state_topic_num_partitions"}
    with MixedCluster(oracle, tmp_path, nodes, **dict.fromkeys(coordinated.values(), "2")) as cluster:
        topics = [NewTopic(name, 2, replica_assignment=[[KOPS, KAFKA], [KAFKA, KOPS]]) for name in coordinated]
        topics.append(NewTopic("shared", 8, replica_assignment=[[KOPS, KAFKA]] * 4 + [[KAFKA, KOPS]] * 4))
        admin = kafka.admin(cluster.bootstrap)
        for made in admin.create_topics(topics, operation_timeout=60).values():
            made.result(TIMEOUT_S)
        for number, node_id in enumerate((KOPS, KAFKA)):
            group = next(name for name in map(str, itertools.count()) if partition_of(name, 2) == number)
            with RawClient(f"127.0.0.1:{cluster.ports[node_id]}") as client:
                offsets = {partition: 10 * number + partition for partition in range(8)}
                parts = [AlterShareGroupOffsetsRequestPartition(partition, offset) for partition, offset in offsets.items()]
                altering = AlterShareGroupOffsetsRequest(group, [AlterShareGroupOffsetsRequestTopic("shared", parts)])
                deadline = time.monotonic() + TIMEOUT_S
                while errors := share_errors(client.ask(altering, 0)):
                    assert time.monotonic() < deadline, (node_id, errors)
                asked = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
                told = client.ask(asked, 1)
                assert isinstance(told, DescribeShareGroupOffsetsResponse)
                (topic,) = told.groups[0].topics
                assert {one.partition_index: one.start_offset for one in topic.partitions} == offsets
                keys = {SharePartitionKey(group, topic.topic_id, partition).state_partition(2) for partition in offsets}
                assert keys == {0, 1}, "both kinds have state of the group"
                deleted = client.ask(DeleteGroupsRequest([group]), 2)
                assert isinstance(deleted, DeleteGroupsResponse)
                assert [one.error_code for one in deleted.results] == [0]


def share_errors(answer: object) -> list[tuple[int, str | None]]:
    """Return the errors of AlterShareGroupOffsets."""
    assert isinstance(answer, AlterShareGroupOffsetsResponse)
    told = [(answer.error_code, answer.error_message)]
    told += [(one.error_code, one.error_message) for topic in answer.responses for one in topic.partitions]
    return [(code, text) for code, text in told if code]


def test_voters_of_both_kinds(oracle: Oracle, tmp_path: Path) -> None:
    """The leader is killed again and again. The next leader has everything, and a node that comes back gets everything."""
    whose = {1: "kops", 2: "kafka", 3: "kops"}
    with MixedCluster(oracle, tmp_path, {node_id: (kind, "controller") for node_id, kind in whose.items()}) as cluster:
        led = []
        for turn in range(12):
            leader = leader_of(cluster)
            led.append(whose[leader])
            with RawClient(f"127.0.0.1:{cluster.ports[leader]}") as client:
                registered = client.ask(registration(7), registration(7).VERSIONS[-1])
                assert isinstance(registered, BrokerRegistrationResponse)
                client.ask(BrokerHeartbeatRequest(7, registered.broker_epoch, current_metadata_offset=1 << 40), 2)
                answer = client.ask(creation(f"topic-{turn}", [7]), 7)
            assert isinstance(answer, CreateTopicsResponse)
            assert (answer.topics[0].name, answer.topics[0].error_code) == (f"topic-{turn}", 0), answer
            if len(set(led)) == 2 and turn > 2:
                break
            cluster.kill(leader)
            if turn > 1 and whose[leader] == "kops":
                # No longer leave it to chance: the other node of kops restarts, so the node of Kafka, which has been up all the time,
                # becomes the leader.
                again = next(node_id for node_id, kind in whose.items() if kind == "kops" and node_id != leader)
                cluster.kill(again)
                cluster.start(again)
                cluster.wait(again)
            leader_of(cluster, but=leader)
            cluster.start(leader)
            cluster.wait(leader)
        assert set(led) == {"kops", "kafka"}, led
        leader_of(cluster)
        names = [f"topic-{turn}".encode() for turn in range(len(led))]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            logs = sorted((log_bytes(cluster.log_dir(one) / METADATA_DIR) for one in whose), key=len)
            if all(name in log for name in names for log in logs):
                break
            assert time.monotonic() < deadline, [len(log) for log in logs]
            time.sleep(0.2)
    # A node that got the last no-op record late has a few bytes less.
    logs = sorted((log_bytes(cluster.log_dir(one) / METADATA_DIR) for one in whose), key=len)
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(logs))


def leader_of(cluster: MixedCluster, but: int | None = None) -> int:
    """Return a node that leads and reports that itself. Wait for it."""
    request = DescribeQuorumRequest([quorum.TopicData("__cluster_metadata", [quorum.PartitionData(0)])])
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for node_id in cluster.controllers:
            if node_id == but:
                continue
            try:
                with RawClient(f"127.0.0.1:{cluster.ports[node_id]}") as client:
                    answer = client.ask(request, 2)
            except ConnectionError:
                continue
            if isinstance(answer, DescribeQuorumResponse) and answer.error_code == 0 and answer.topics[0].partitions[0].error_code == 0:
                found: int = answer.topics[0].partitions[0].leader_id
                if found == node_id and answer.topics[0].partitions[0].high_watermark > 0:
                    return node_id
        time.sleep(0.1)
    raise AssertionError("nobody leads")
