"""Internal topics are made when the cluster has enough brokers for them. Until then, clients get the error with which they try again.

Kafka: AutoTopicCreationManager, KafkaApis.getCoordinator.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kops.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.support.nodes.embedded_nodes import EmbeddedNodes
from tests.support.nodes.networking import PATIENCE_S

NONE, COORDINATOR_NOT_AVAILABLE = 0, 15
GROUP, TRANSACTION = 0, 1
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
