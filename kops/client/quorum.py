"""The controller quorum as its leader describes it. Source: Kafka's KafkaAdminClient.describeMetadataQuorum, MetadataQuorumCommand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.client.client import Client, To, check
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.json_text import uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.protocol.declaration import Message
    from kops.protocol.messages.describe_quorum_response import ReplicaState

METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer. Times are ms, None if the leader does not know them. `directory_id` is None in a static quorum."""

    node_id: int
    directory_id: str | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum. `endpoints` maps node ids to [(listener, host, port)] of the voters whose endpoints are known."""

    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, list[tuple[str, str, int]]] = field(default_factory=dict)

    @property
    def leader_end_offset(self) -> int:
        """The end offset of the leader's log."""
        return next((one.log_end_offset for one in self.voters if one.node_id == self.leader_id), 0)

    @property
    def max_follower_lag(self) -> int:
        """The number of records that the slowest voter is behind the leader."""
        return max((self.leader_end_offset - one.log_end_offset for one in self.voters), default=0)

    @property
    def max_follower_lag_time_ms(self) -> int | None:
        """How long ago the slowest voter had last caught up with the leader, or None if that is unknown."""
        leader = next((one for one in self.voters if one.node_id == self.leader_id), None)
        slowest = min(self.voters, key=lambda one: one.log_end_offset, default=None)
        if slowest is leader:
            return 0
        if leader is None or slowest is None or None in (leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp):
            return None
        return (leader.last_caught_up_timestamp or 0) - (slowest.last_caught_up_timestamp or 0)


def describe_quorum(client: Client) -> QuorumInfo:
    """Describe the quorum through any broker, which asks the leader. Raises ApiError."""
    from kops.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
    from kops.protocol.messages.describe_quorum_request import PartitionData, TopicData

    def build(_: int) -> Message:
        return DescribeQuorumRequest(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])])

    def handle(response: Message) -> QuorumInfo:
        assert isinstance(response, DescribeQuorumResponse)
        check(response.error_code, response.error_message)
        (topic,) = response.topics
        (partition,) = topic.partitions
        check(partition.error_code, partition.error_message)
        return QuorumInfo(
            client.metadata.cluster_id,
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            _replicas(partition.current_voters),
            _replicas(partition.observers),
            {node.node_id: [(one.name, one.host, one.port) for one in node.listeners] for node in response.nodes},
        )

    return client.call("describe quorum", To.CONTROLLER if client.asks_controllers else To.ANY, build, handle)


def _replicas(states: Iterable[ReplicaState]) -> list[QuorumReplica]:
    return [
        QuorumReplica(
            one.replica_id,
            None if one.replica_directory_id == ZERO_UUID else uuid_text(one.replica_directory_id),
            one.log_end_offset,
            one.last_fetch_timestamp if one.last_fetch_timestamp >= 0 else None,
            one.last_caught_up_timestamp if one.last_caught_up_timestamp >= 0 else None,
        )
        for one in states
    ]
