"""A node with two log directories. Replicas move between them, and the controller, a restart and clients follow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kops.protocol.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ProduceRequest,
    ProduceResponse,
)
from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDir, AlterReplicaLogDirTopic
from kops.protocol.messages.create_topics_request import CreatableTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from tests.support.nodes.kops_nodes import TIMEOUT_S, KopsNodes
from tests.support.nodes.raw_client import RawClient
from tests.support.parts.managing import batch


def produce(client: RawClient) -> tuple[int, int]:
    """Produce three more records. Return (error code, base offset)."""
    data = [PartitionProduceData(0, batch(3, timestamp=time.time_ns() // 1_000_000))]
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="orders", partition_data=data)])
    client.send(request, 9)
    answer = client.receive()
    assert isinstance(answer, ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def places(client: RawClient) -> dict[str, bool]:
    """Return the directories that the replica is in, and whether each is a copy that moves."""
    client.send(DescribeLogDirsRequest(topics=None), 4)
    answer = client.receive()
    assert isinstance(answer, DescribeLogDirsResponse)
    return {
        each.log_dir: row.is_future_key
        for each in answer.results
        for topic in each.topics
        for row in topic.partitions
        if topic.name == "orders"
    }


@pytest.mark.slow
def test_a_replica_moves_to_another_directory(tmp_path: Path) -> None:
    first, second = str(tmp_path / "node-1"), str(tmp_path / "other")
    with KopsNodes(tmp_path, 1, settings={"log.dirs": f"{first},{second}"}) as nodes, RawClient(nodes.bootstrap) as client:
        client.send(CreateTopicsRequest([CreatableTopic("orders", 1, 1)], 30_000), 7)
        created = client.receive()
        assert isinstance(created, CreateTopicsResponse)
        assert created.topics[0].error_code == 0
        deadline = time.monotonic() + TIMEOUT_S
        while produce(client)[0]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (before,) = places(client)
        after = second if before == first else first
        client.send(AlterReplicaLogDirsRequest([AlterReplicaLogDir(after, [AlterReplicaLogDirTopic("orders", [0])])]), 2)
        altered = client.receive()
        assert isinstance(altered, AlterReplicaLogDirsResponse)
        assert altered.results[0].partitions[0].error_code == 0
        while places(client) != {after: False}:
            assert produce(client)[0] == 0
            assert time.monotonic() < deadline
            time.sleep(0.05)
        _, offset = produce(client)
        client.close()
        # The controller knows the new directory, so the broker leads the replica there after a restart.
        nodes.kill(1)
        nodes.start(1)
        nodes.wait(1)
        assert places(client) == {after: False}
        while (answer := produce(client))[0]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer == (0, offset + 3)
