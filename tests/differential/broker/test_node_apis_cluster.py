"""Clusters of three nodes, of kops and of Kafka: what a broker answers about partitions that only another broker leads or has, in every
version.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kops.protocol.declaration import Message
from kops.protocol.messages import (
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from kops.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsTopic
from kops.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic
from kops.protocol.messages.describe_producers_request import TopicRequest
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic, ReplicaState
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.protocol.messages.share_acknowledge_request import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from kops.protocol.messages.share_fetch_request import FetchPartition as ShareFetchPartition
from kops.protocol.messages.share_fetch_request import FetchTopic as ShareFetchTopic
from kops.records.build import BatchBuilder
from tests.differential.conftest import RealThree
from tests.support.kafka.two_brokers import Side, differences
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import PATIENCE_S, RawClient

Steps = Iterator[tuple[str, Any]]
TOPIC, ASKED, LEADER = "led", 1, 2
# The broker that is asked is a follower of partition 0, does not have partition 1, and leads partition 2.
REPLICAS = ([LEADER, ASKED], [LEADER, 3], [ASKED, LEADER])
ALL = range(len(REPLICAS))


class Asked(Side):
    """A cluster. Requests go to the broker `ASKED`, records to `LEADER`."""

    def __init__(self, name: str, nodes: KopsNodes) -> None:
        super().__init__(name, f"127.0.0.1:{nodes.ports[ASKED]}")
        self.leader = RawClient(f"127.0.0.1:{nodes.ports[LEADER]}")
        self.create(TOPIC, replicas=REPLICAS)
        for number in (0, 1):
            self._fill(number)
        deadline = time.monotonic() + PATIENCE_S
        while not self._has_all():
            assert time.monotonic() < deadline, f"{name}: the follower does not follow"
            time.sleep(0.02)

    def _fill(self, number: int) -> None:
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(number, batch())])])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response: Any = self.leader.ask(request, 9)
            if response.responses[0].partition_responses[0].error_code == 0:
                return
            assert time.monotonic() < deadline, response
            time.sleep(0.02)

    def _has_all(self) -> bool:
        """Return whether the follower knows that all replicas have its records."""
        found: Any = self.client.ask(fetch(self, 12, 0, replica_id=-2), 12)
        return bool(found.responses[0].partitions[0].high_watermark == 3)


def batch() -> bytes:
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    for number in range(3):
        builder.append(1_700_000_000_000 + number, b"k", b"v")
    return builder.build()


def produce(side: Side, version: int) -> Steps:
    for acks in (-1, 1):
        for number in ALL:
            partitions = [PartitionProduceData(number, batch())]
            topic = TopicProduceData("" if version >= 13 else TOPIC, side.ids[TOPIC], partitions)
            yield f"{number}, acks {acks}", side.ask(ProduceRequest(None, acks, 30_000, [topic]), version)


def fetch(side: Side, version: int, number: int, *, offset: int = 0, epoch: int = -1, replica_id: int = -1) -> FetchRequest:
    partitions = [FetchPartition(number, epoch, offset, partition_max_bytes=1000)]
    request = FetchRequest(topics=[FetchTopic("" if version >= 13 else TOPIC, side.ids[TOPIC], partitions)], max_bytes=10_000)
    if version >= 15:
        request.replica_state = ReplicaState(replica_id, -1)
    else:
        request.replica_id = replica_id
    return request


def fetches(side: Side, version: int) -> Steps:
    for number in (0, 1):
        for replica_id in (-1, -2, 3):
            for epoch in (-1, 0, 1):
                asked = fetch(side, version, number, epoch=epoch, replica_id=replica_id)
                yield f"{number}, epoch {epoch}, replica {replica_id}", side.ask(asked, version)
        yield f"{number}, behind the end", side.ask(fetch(side, version, number, offset=9), version)


def list_offsets(side: Side, version: int) -> Steps:
    def ask(number: int, timestamp: int, replica_id: int, epoch: int) -> Message:
        return ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(number, epoch, timestamp)])])

    for number in (0, 1):
        for timestamp in (-1, -2, -3, 1_700_000_000_001):
            for replica_id in (-1, -2, 3):
                label = f"{number}, timestamp {timestamp}, replica {replica_id}"
                yield label, side.ask(ask(number, timestamp, replica_id, -1), version)
        for epoch in (0, 1):
            yield f"{number}, epoch {epoch}", side.ask(ask(number, -1, -1, epoch), version)


def delete_records(side: Side, version: int) -> Steps:
    for number in (0, 1):
        topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(number, 1)])
        yield f"{number}", side.ask(DeleteRecordsRequest([topic], 1_000), version)


def leader_epochs(side: Side, version: int) -> Steps:
    for number in ALL:
        for current in (-1, 0, 1):
            for replica_id in (-1, 3) if version >= 3 else (-2,):
                topic = OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(number, current, 0)])
                label = f"{number}, epoch {current}, replica {replica_id}"
                yield label, side.ask(OffsetForLeaderEpochRequest(replica_id, [topic]), version)


def share_groups(side: Side, version: int) -> Steps:
    """Ask only about partitions 0 and 1. For a partition that this broker leads, it would ask the share coordinator,
    which makes its topic.
    """
    partitions = [ShareFetchPartition(number) for number in (0, 1)]
    request = ShareFetchRequest(f"g{version}", "m", 0, 10, 1, max_records=10, batch_size=10)
    request.topics = [ShareFetchTopic(side.ids[TOPIC], partitions)]
    yield "led elsewhere", side.ask(request, version)
    acknowledged = [AcknowledgePartition(number, [AcknowledgementBatch(0, 0, [1])]) for number in (0, 1)]
    topic = AcknowledgeTopic(side.ids[TOPIC], acknowledged)
    yield "acknowledged elsewhere", side.ask(ShareAcknowledgeRequest(f"g{version}", "m", 1, topics=[topic]), version)


def describe_producers(side: Side, version: int) -> Steps:
    yield "producers", side.ask(DescribeProducersRequest([TopicRequest(TOPIC, [0, 1])]), version)


def describe_log_dirs(side: Side, version: int) -> Steps:
    yield "replicas", side.ask(DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, [0, 1])]), version)


SCENARIOS = (
    (describe_producers, range(1)),
    (describe_log_dirs, DescribeLogDirsRequest.VERSIONS),
    (share_groups, ShareFetchRequest.VERSIONS),
    (produce, ProduceRequest.VERSIONS),
    (fetches, FetchRequest.VERSIONS),
    (list_offsets, ListOffsetsRequest.VERSIONS),
    (delete_records, DeleteRecordsRequest.VERSIONS),
    (leader_epochs, OffsetForLeaderEpochRequest.VERSIONS),
)


@pytest.mark.slow
def test_brokers_that_do_not_lead(kops_three: KopsNodes, real_three: RealThree) -> None:
    found = []
    sides = [Asked("kops", kops_three), Asked("kafka", real_three.nodes)]
    for steps, versions in SCENARIOS:
        for version in versions:
            kops, kafka = (list(steps(side, version)) for side in sides)
            found += [f"{steps.__name__}, version {version}: {each}" for each in differences(kops, kafka)]
    for side in sides:
        side.delete(TOPIC)
        side.client.close()
        side.leader.close()
    assert not found, "\n".join(["", *found])
