"""Internal topics are made when the cluster has enough brokers for them. Until then, clients get the error with which they try again.

Kafka: AutoTopicCreationManager, KafkaApis.getCoordinator.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from kops.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from kops.protocol.messages.create_partitions_request import CreatePartitionsAssignment, CreatePartitionsTopic
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.support.nodes.embedded_nodes import EmbeddedNodes
from tests.support.nodes.networking import PATIENCE_S
from tests.support.patience import until

NONE, COORDINATOR_NOT_AVAILABLE = 0, 15
GROUP, TRANSACTION, SHARE = 0, 1, 2
KEYS = {
    GROUP: [f"group-{number}" for number in range(8)],
    TRANSACTION: [f"id-{number}" for number in range(8)],
    SHARE: [f"group-{number}:AAAAAAAAAAAAAAAAAAAABQ:0" for number in range(8)],
}
COUNTS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
SETTINGS = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


def find(nodes: EmbeddedNodes, key_type: int) -> tuple[int, int]:
    """Return error code and node id of a coordinator."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
    (found,) = nodes.ask(1, request, FindCoordinatorResponse, 4).coordinators
    return found.error_code, found.node_id


def topics(nodes: EmbeddedNodes) -> dict[str, int]:
    """Return the replication factors of all topics."""
    found = nodes.ask(1, MetadataRequest(topics=None), MetadataResponse, 12).topics
    return {topic.name or "": len(topic.partitions[0].replica_nodes) for topic in found}


def led_by(nodes: EmbeddedNodes, topic: str) -> int:
    """Return how many partitions of a topic have a leader."""
    (found,) = nodes.ask(1, MetadataRequest([MetadataRequestTopic(name=topic)]), MetadataResponse, 12).topics
    return sum(one.leader_id > 0 for one in found.partitions)


def until_found(nodes: EmbeddedNodes, key_type: int) -> int:
    """Ask for a coordinator until there is one. Return its id."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        error, node_id = find(nodes, key_type)
        if error == NONE:
            return node_id
        assert error == COORDINATOR_NOT_AVAILABLE
        assert time.monotonic() < deadline


def commit(nodes: EmbeddedNodes, node_id: int) -> int:
    """Commit an offset as a consumer without a group's members. Return the error code."""
    topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)])
    answer = nodes.ask(node_id, OffsetCommitRequest(group_id="g", topics=[topic]), OffsetCommitResponse, 8)
    return answer.topics[0].partitions[0].error_code


@pytest.mark.parametrize(("key_type", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")])
def test_a_topic_is_made_when_enough_brokers_have_come(tmp_path: Path, key_type: int, topic: str) -> None:
    with EmbeddedNodes(tmp_path, 3, settings=SETTINGS, start=False) as nodes:
        nodes.format()
        for node_id in (1, 2):
            nodes.open(node_id)
        for node_id in (1, 2):
            nodes.wait_ready(node_id)
        assert [find(nodes, key_type) for _ in range(3)] == 3 * [(COORDINATOR_NOT_AVAILABLE, -1)]
        assert topics(nodes) == {}
        nodes.open(3)
        nodes.wait_ready(3)
        coordinator = until_found(nodes, key_type)
        assert topics(nodes) == {topic: 3}
        if key_type == GROUP:
            nodes.create_topic(1, "t")
            deadline = time.monotonic() + PATIENCE_S
            while commit(nodes, coordinator) != NONE:
                assert time.monotonic() < deadline


def test_more_partitions_of_a_coordinator_topic_count_after_a_restart(tmp_path: Path) -> None:
    """A broker counts the partitions when it starts (startup of GroupCoordinatorService, TransactionStateManager and
    ShareCoordinatorService). Until then, no key moves to another partition, so clients go on where they are."""
    settings = {f"{name}.num.partitions": 1 for name in COUNTS} | {f"{name}.replication.factor": 1 for name in COUNTS}
    with EmbeddedNodes(tmp_path, 2, settings=settings) as nodes:

        def found(key_type: int) -> set[tuple[int, int]]:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=KEYS[key_type])
            answer = nodes.ask(1, request, FindCoordinatorResponse, 6)
            return {(one.error_code, one.node_id) for one in answer.coordinators}

        def is_found(key_type: int) -> bool:
            return {error for error, _ in found(key_type)} == {NONE}

        leaders: dict[int, int] = {}
        for key_type in KEYS:
            until(partial(is_found, key_type))
            ((_, leaders[key_type]),) = found(key_type)
        topics = ("__consumer_offsets", "__transaction_state", "__share_group_state")
        added = [
            CreatePartitionsTopic(topic, 6, 5 * [CreatePartitionsAssignment([3 - leaders[key_type]])])
            for key_type, topic in enumerate(topics)
        ]
        answer = nodes.ask(1, CreatePartitionsRequest(added, 60_000), CreatePartitionsResponse, 3)
        assert [one.error_code for one in answer.results] == [NONE] * 3
        until(lambda: all(led_by(nodes, topic) >= 6 for topic in topics))
        assert {key_type: found(key_type) for key_type in KEYS} == {key_type: {(NONE, leaders[key_type])} for key_type in KEYS}

        at, name = leaders[TRANSACTION], KEYS[TRANSACTION][0]
        start = InitProducerIdRequest(name, 60_000)
        producer = until(lambda: nodes.ask(at, start, InitProducerIdResponse, 4), lambda answer: answer.error_code == NONE)
        for group_id in KEYS[GROUP]:
            request = AddOffsetsToTxnRequest(name, producer.producer_id, producer.producer_epoch, group_id)
            assert nodes.ask(at, request, AddOffsetsToTxnResponse, 3).error_code == NONE
        (state,) = nodes.ask(at, DescribeTransactionsRequest([name]), DescribeTransactionsResponse, 0).transaction_states
        assert [(topic.topic, topic.partitions) for topic in state.topics] == [("__consumer_offsets", [0])]
