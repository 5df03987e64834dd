"""The quorum of controllers: describe it, add and remove voters.

Source: Kafka's KafkaAdminClient (describeMetadataQuorum, addRaftVoter, removeRaftVoter), QuorumInfo, RaftVoterEndpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import always, ask, deadline_ms, of_controller
from kops.client.admin.core.results import raise_error
from kops.client.admin.core.values import parse_uuid
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from kops.protocol.messages.add_raft_voter_request import Listener
from kops.protocol.messages.describe_quorum_request import PartitionData, TopicData

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message
    from kops.protocol.messages import describe_quorum_response

_TOPIC: Final = "__cluster_metadata"


class RaftVoterEndpoint(NamedTuple):
    """Where a controller listens."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A voter or an observer. Times are ms since the epoch, None if the leader does not know them."""

    replica_id: int
    replica_directory_id: str
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum. `nodes` has the endpoints of voters by node id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    nodes: dict[int, tuple[RaftVoterEndpoint, ...]]


def describe_metadata_quorum(client: Client, *, timeout: float | None = None) -> Steps[QuorumInfo]:
    """Describe the quorum, as its leader sees it."""
    is_current = of_controller(client, DescribeQuorumResponse, _codes)

    def handle(response: Message) -> DescribeQuorumResponse:
        found = is_current(response)
        for code, message in (
            (found.error_code, found.error_message),
            *((one.error_code, one.error_message) for one in _partitions(found)),
        ):
            if code:
                error = by_code(code)
                raise ApiError(error.name, message or error.words)  # a retriable one is asked again
        if len(_partitions(found)) != 1:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"the answer describes {len(_partitions(found))} partitions, not one")
        return found

    request = DescribeQuorumRequest(topics=[TopicData(topic_name=_TOPIC, partitions=[PartitionData(partition_index=0)])])
    deadline = deadline_ms(client, timeout)
    response = yield from ask(client, "describe quorum", Ask.BROKER_OR_CONTROLLER, always(request), handle, deadline)
    (partition,) = _partitions(response)
    return QuorumInfo(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(map(_state, partition.current_voters)),
        tuple(map(_state, partition.observers)),
        {node.node_id: tuple(RaftVoterEndpoint(one.name, one.host, one.port) for one in node.listeners) for node in response.nodes},
    )


def _partitions(response: DescribeQuorumResponse) -> list[describe_quorum_response.PartitionData]:
    return [partition for topic in response.topics for partition in topic.partitions]


def _codes(response: DescribeQuorumResponse) -> list[int]:
    return [response.error_code, *(one.error_code for one in _partitions(response))]


def _state(one: describe_quorum_response.ReplicaState) -> ReplicaState:
    return ReplicaState(
        one.replica_id,
        uuid_text(one.replica_directory_id),
        one.log_end_offset,
        one.last_fetch_timestamp if one.last_fetch_timestamp >= 0 else None,
        one.last_caught_up_timestamp if one.last_caught_up_timestamp >= 0 else None,
    )


def add_raft_voter(
    client: Client,
    voter_id: int,
    voter_directory_id: str,
    endpoints: Iterable[RaftVoterEndpoint],
    *,
    cluster_id: str | None = None,
    timeout: float | None = None,
) -> Steps[None]:
    """Make a controller that follows the quorum a voter. `cluster_id` guards against another cluster."""
    directory = parse_uuid(voter_directory_id)
    listeners = [Listener(name=one.listener, host=one.host, port=one.port) for one in endpoints]

    def build(timeout_ms: int) -> Message:
        return AddRaftVoterRequest(
            cluster_id=cluster_id, timeout_ms=timeout_ms, voter_id=voter_id, voter_directory_id=directory, listeners=listeners
        )

    handle = of_controller(client, AddRaftVoterResponse, lambda response: (response.error_code,))
    deadline = deadline_ms(client, timeout)
    response = yield from ask(client, "add voter", Ask.BROKER_OR_CONTROLLER, build, handle, deadline)
    raise_error(response.error_code, response.error_message)


def remove_raft_voter(
    client: Client, voter_id: int, voter_directory_id: str, *, cluster_id: str | None = None, timeout: float | None = None
) -> Steps[None]:
    """Remove a voter from the quorum."""
    request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=parse_uuid(voter_directory_id))
    handle = of_controller(client, RemoveRaftVoterResponse, lambda response: (response.error_code,))
    deadline = deadline_ms(client, timeout)
    response = yield from ask(client, "remove voter", Ask.BROKER_OR_CONTROLLER, always(request), handle, deadline)
    raise_error(response.error_code, response.error_message)
