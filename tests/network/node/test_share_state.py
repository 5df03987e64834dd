"""Offsets of share groups on nodes of kops: a cluster without share groups, and a share coordinator that dies during a request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.protocol.errors import by_code
from kops.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kops.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kops.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreatableTopic
from kops.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequestGroup
from kops.protocol.messages.read_share_group_state_summary_request import PartitionData, ReadStateSummaryData
from kops.protocol.messages.update_features_request import FeatureUpdateKey
from tests.support.nodes.embedded_nodes import EmbeddedNodes

GROUP, TOPIC = "g", "t"
ASSIGNMENTS = {"__consumer_offsets": (1, 2, 3), "__share_group_state": (2, 3, 1), TOPIC: (3, 1, 2)}
SETTINGS = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "offsets.topic.replication.factor": 3,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.num.partitions": 1,
}
DOWNGRADE, UPGRADE = 2, 1


def alter(nodes: EmbeddedNodes, node_id: int, offset: int) -> str:
    """Set the group's start offset. Return the error."""
    topic = AlterShareGroupOffsetsRequestTopic(TOPIC, [AlterShareGroupOffsetsRequestPartition(0, offset)])
    answer = nodes.ask(node_id, AlterShareGroupOffsetsRequest(GROUP, [topic]), AlterShareGroupOffsetsResponse)
    errors = [answer.error_code, *(one.error_code for topic in answer.responses for one in topic.partitions)]
    return by_code(next((code for code in errors if code), 0)).name


def start_offset(nodes: EmbeddedNodes, node_id: int) -> int:
    """Return the offset at which the group continues."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, None)])
    (group,) = nodes.ask(node_id, request, DescribeShareGroupOffsetsResponse).groups
    assert group.error_code == 0, group.error_message
    return group.topics[0].partitions[0].start_offset


def eventually(nodes: EmbeddedNodes, ask: Callable[[], str]) -> None:
    """Repeat a request until there is no error, because the coordinators' partitions have to be loaded first."""
    found: list[str] = []
    for _ in range(100):
        found.append(ask())
        if found[-1] == "NONE":
            return
    raise AssertionError(found)


def test_a_cluster_without_share_groups_says_so(tmp_path: Path) -> None:
    with EmbeddedNodes(tmp_path) as nodes:

        def set_level(level: int, kind: int) -> None:
            request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("share.version", level, upgrade_type=kind)])
            assert nodes.ask(1, request, UpdateFeaturesResponse).error_code == 0
            broker = nodes.nodes[1].running.broker
            assert broker is not None
            cache = broker.parts.cache
            nodes.wait_for(lambda: cache.image.features.levels.get("share.version", 0) == level)

        set_level(0, DOWNGRADE)
        unsupported = [
            nodes.ask(1, ShareGroupHeartbeatRequest(GROUP, "m", 0, None, [TOPIC]), ShareGroupHeartbeatResponse).error_code,
            nodes.ask(1, ShareGroupDescribeRequest([GROUP]), ShareGroupDescribeResponse).groups[0].error_code,
            nodes.ask(1, AlterShareGroupOffsetsRequest(GROUP), AlterShareGroupOffsetsResponse).error_code,
            nodes.ask(1, DeleteShareGroupOffsetsRequest(GROUP), DeleteShareGroupOffsetsResponse).error_code,
            nodes.ask(
                1,
                DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, None)]),
                DescribeShareGroupOffsetsResponse,
            )
            .groups[0]
            .error_code,
        ]
        assert [by_code(code).name for code in unsupported] == ["UNSUPPORTED_VERSION"] * 5
        # Brokers may still request the state.
        data = ReadStateSummaryData(bytes(15) + b"\1", [PartitionData(0, 0)])
        summary = nodes.ask(1, ReadShareGroupStateSummaryRequest(GROUP, [data]), ReadShareGroupStateSummaryResponse)
        assert by_code(summary.results[0].partitions[0].error_code).name == "NOT_COORDINATOR"
        set_level(1, UPGRADE)
        answer = nodes.ask(1, ShareGroupHeartbeatRequest(GROUP, "m", 0, None, None), ShareGroupHeartbeatResponse)
        assert by_code(answer.error_code).name == "INVALID_REQUEST"


@pytest.mark.slow
def test_a_share_coordinator_dies_under_a_request(tmp_path: Path) -> None:
    """The persister looks for the next coordinator until there is one."""
    with EmbeddedNodes(tmp_path, 3, settings=SETTINGS) as nodes:
        made: list[Any] = [
            CreatableTopic(name, -1, -1, [CreatableReplicaAssignment(0, list(replicas))]) for name, replicas in ASSIGNMENTS.items()
        ]
        answer = nodes.ask(1, CreateTopicsRequest(made, 60_000), CreateTopicsResponse)
        assert [topic.error_code for topic in answer.topics] == [0, 0, 0], answer
        for name in ASSIGNMENTS:
            nodes.wait_for_isr(name, {1, 2, 3})
        eventually(nodes, lambda: alter(nodes, 1, 5))
        assert start_offset(nodes, 1) == 5
        nodes.kill(2)
        assert alter(nodes, 1, 7) == "NONE"
        assert start_offset(nodes, 1) == 7
        assert nodes.partition(1, "__share_group_state").leader_id in (1, 3)
