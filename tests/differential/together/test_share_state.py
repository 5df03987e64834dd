"""Share groups and their state on one directory: written by kops, read and written by Apache Kafka 4.3.0, and read by kops again.

Each owner is killed with `kill -9`. On kops, the log of the state is cut before the last snapshots, and deleted topics lose their state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kops.protocol.messages import (
    DescribeShareGroupOffsetsRequest,
    ListOffsetsRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ShareGroupDescribeRequest,
    WriteShareGroupStateRequest,
)
from kops.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequestGroup
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.read_share_group_state_request import PartitionData as ReadPartition
from kops.protocol.messages.read_share_group_state_request import ReadStateData
from kops.protocol.messages.read_share_group_state_summary_request import PartitionData as SummaryPartition
from kops.protocol.messages.read_share_group_state_summary_request import ReadStateSummaryData
from kops.protocol.messages.write_share_group_state_request import PartitionData as WritePartition
from kops.protocol.messages.write_share_group_state_request import StateBatch, WriteStateData
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.share_scenarios import ShareMember
from tests.support.kafka.real_broker import RealCluster
from tests.support.kafka.two_brokers import Side
from tests.support.nodes.kops_nodes import KopsNodes
from tests.support.nodes.raw_client import plain
from tests.support.patience import until

GROUP, TOPIC, STATE = "g", "t", "__share_group_state"
SETTINGS = {
    # A killed node may come back soon.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
    "share.coordinator.state.topic.prune.interval.ms": 200,
    "share.coordinator.cold.partition.snapshot.interval.ms": 300,
}
EARLIEST = -2


class State:
    """Requests to the running node."""

    def __init__(self, bootstrap: str) -> None:
        self.side = Side("node", bootstrap)
        self.topic_id = b""

    def ask(self, message: Any, version: int) -> Any:
        return plain(self.side.client.ask(message, version))

    def write(self, partition: int, offset: int, *batches: tuple[int, int, int, int]) -> None:
        data = WritePartition(partition, -1, 1, offset, 2, [StateBatch(*each) for each in batches])
        answer = self.ask(WriteShareGroupStateRequest(GROUP, [WriteStateData(self.topic_id, [data])]), 1)
        assert [one["error_code"] for one in answer["results"][0]["partitions"]] == [0], answer

    def summary(self) -> Any:
        data = ReadStateSummaryData(self.topic_id, [SummaryPartition(number, 1) for number in range(2)])
        return self.ask(ReadShareGroupStateSummaryRequest(GROUP, [data]), 1)["results"]

    def view(self) -> Any:
        """Return the group, its offsets and its state, when the coordinators have loaded."""
        until(self.summary, lambda results: all(one["error_code"] == 0 for one in results[0]["partitions"]))
        read = ReadShareGroupStateRequest(GROUP, [ReadStateData(self.topic_id, [ReadPartition(number, 1) for number in range(2)])])
        wanted = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, None)])
        described = until(
            lambda: self.ask(ShareGroupDescribeRequest([GROUP]), 1), lambda answer: answer["groups"][0]["error_code"] in (0, 69)
        )
        # A read saves the reader's leader epoch, so it comes first.
        return self.ask(read, 0), described, self.ask(wanted, 1), self.summary()

    def log_start(self) -> int:
        asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(STATE, [ListOffsetsPartition(0, -1, EARLIEST)])])
        return int(self.ask(asked, 6)["topics"][0]["partitions"][0]["offset"])


@pytest.mark.slow
def test_kops_and_kafka_go_on_with_each_others_share_groups(oracle: Oracle, tmp_path: Path) -> None:
    nodes = KopsNodes(tmp_path, 1, settings=SETTINGS)
    real = RealCluster(oracle, tmp_path / "run", [nodes.prepare(1)])
    state = State(nodes.bootstrap)
    with nodes:
        state.side.create(TOPIC, partitions=2)
        state.topic_id = state.side.ids[TOPIC]
        member = ShareMember(nodes, GROUP)
        member.join(TOPIC)
        for offset in range(5):
            state.write(0, offset, (offset, offset + 3, 0, 1))
        state.write(1, 0, (7, 9, 2, 1))
        # Partition 1 was written only once, so its writes cause no snapshot. It gets one because it is cold.
        start = until(state.log_start, lambda offset: offset > 7)
        member.leave()
        by_kops = state.view()
        nodes.kill(1)
    state.side.client.close()

    real.start()
    try:
        assert state.view() == by_kops
        assert state.log_start() >= start
        for offset in range(5, 12):
            state.write(0, offset, (offset, offset + 1, 2, 2))
        by_kafka = state.view()
    finally:
        real.kill()
    assert by_kafka != by_kops
    state.side.client.close()

    with nodes:
        assert state.view() == by_kafka
        state.side.delete(TOPIC)
        gone = until(state.summary, lambda results: results[0]["partitions"][0]["error_code"] == 3)
        assert [one["start_offset"] for one in gone[0]["partitions"]] == [0, 0]
        offsets = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, None)])
        assert state.ask(offsets, 1)["groups"][0]["topics"] == []
