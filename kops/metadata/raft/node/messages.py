"""Builds and reads the messages of a quorum, each with one topic and one partition. This module makes no decisions.

Source: Kafka's RaftUtil, and the checks with which KafkaRaftClient begins to handle every request and response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.metadata.raft.log.log import EndKind, SnapshotSource, ValidatedEnd
from kops.metadata.raft.node.actions import Message, Request
from kops.metadata.raft.voters.replica import NO_ENDPOINTS, Address, Endpoints, ReplicaKey
from kops.protocol import messages as wire
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import (
    begin_quorum_epoch_response,
    describe_quorum_response,
    end_quorum_epoch_response,
    fetch_snapshot_response,
    update_raft_voter_response,
    vote_response,
)
from kops.protocol.messages import (
    fetch_response as fetch_response_message,
)

if TYPE_CHECKING:
    from kops.metadata.raft.node.core import RaftCore
    from kops.metadata.raft.roles.leader import ReplicaProgress

PARTITION: Final = 0
KRAFT_VERSION_FEATURE: Final = "kraft.version"
_FETCH_WITH_ENDPOINTS: Final = 17
_RESPONSES: Final[dict[str, Any]] = {
    "VoteRequest": vote_response,
    "BeginQuorumEpochRequest": begin_quorum_epoch_response,
    "EndQuorumEpochRequest": end_quorum_epoch_response,
}


class LeaderSaid(NamedTuple):
    """The common part of a response: the partition's error, the leader and its epoch."""

    error: str
    leader_id: int | None
    epoch: int
    endpoints: Endpoints


def error_name(code: int) -> str:
    """Return the name of an error code."""
    return by_code(code).name


def error_code(name: str) -> int:
    """Return the code of an error."""
    return by_name(name).code


def error_response(request: Message, error: str) -> Message:
    """Return the substitute for a missing response (BROKER_NOT_AVAILABLE, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION …)."""
    return _response_class(request)(error_code=error_code(error))


def _response_class(request: Message) -> type[Any]:
    found: type[Any] = getattr(wire, type(request).__name__.removesuffix("Request") + "Response")
    return found


# Reading requests and responses ---------------------------------------------------------------------------------------------------------


def cluster_error(core: RaftCore, message: Message) -> str:
    """Return INCONSISTENT_CLUSTER_ID for a request to another cluster, or NONE."""
    return "NONE" if message.cluster_id in (None, core.identity.cluster_id) else "INCONSISTENT_CLUSTER_ID"


def is_for_log(core: RaftCore, message: Message) -> bool:
    """Whether a request or response is about this log only."""
    topics = message.responses if hasattr(message, "responses") else message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return False
    topic, partition = topics[0], topics[0].partitions[0]
    if hasattr(topic, "topic_id"):
        if topic.topic_id != core.identity.topic_id:
            return False
    elif (topic.topic_name if hasattr(topic, "topic_name") else topic.name) != core.identity.topic:
        return False
    for name in ("partition_index", "partition", "index"):
        if hasattr(partition, name):
            return bool(getattr(partition, name) == PARTITION)
    return False


def refuse_cluster_or_topic(core: RaftCore, message: Message) -> Message | None:
    """Return the error response to a request from another cluster or about another log, or None for an acceptable request."""
    error = cluster_error(core, message)
    if error == "NONE" and not is_for_log(core, message):
        error = "INVALID_REQUEST"
    return None if error == "NONE" else error_response(message, error)


def refuse_voter_request(core: RaftCore, message: Message) -> tuple[str, str | None] | None:
    """Return why this node can't change the voters (an error and a message), or None if it can."""
    if cluster_error(core, message) != "NONE":
        reason = f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{core.identity.cluster_id}"'
        return "INCONSISTENT_CLUSTER_ID", reason
    error = core.check_leader_request(core.quorum.epoch)
    return None if error == "NONE" else (error, None)


def receiver_of(message: Message, partition: Any) -> ReplicaKey | None:
    """Return the replica to which a Vote or BeginQuorumEpoch is addressed, or None if an older node does not name it."""
    return None if message.voter_id < 0 else ReplicaKey.read(message.voter_id, partition.voter_directory_id)


def fetching_replica(message: Message) -> ReplicaKey:
    """Return the replica that fetches."""
    replica_id = message.replica_id if message.replica_id != -1 else message.replica_state.replica_id
    return ReplicaKey.read(replica_id, message.topics[0].partitions[0].replica_directory_id)


def preferred_candidates(partition: Any) -> list[ReplicaKey]:
    """Return the preferred successors, best first. An older node sends only ids."""
    if partition.preferred_candidates:
        return [ReplicaKey.read(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    return [ReplicaKey(id) for id in partition.preferred_successors]


def leader_said(core: RaftCore, message: Message) -> LeaderSaid:
    """Return the common part of a response to Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch or FetchSnapshot."""
    topics = message.responses if hasattr(message, "responses") else message.topics
    partition = topics[0].partitions[0]
    leader = partition.current_leader if hasattr(partition, "current_leader") else partition
    leader_id = leader.leader_id if leader.leader_id >= 0 else None
    found = next((each for each in message.node_endpoints if each.node_id == leader_id), None)
    endpoints = NO_ENDPOINTS if found is None else Endpoints.of(core.identity.listener, found.host, found.port)
    if leader_id is not None and not len(endpoints):
        endpoints = core.control.last_voters.listeners(leader_id)
    return LeaderSaid(error_name(partition.error_code), leader_id, leader.leader_epoch, endpoints)


def update_voter_said(core: RaftCore, message: Message) -> LeaderSaid:
    """Return the common part of a response to UpdateRaftVoter."""
    leader = message.current_leader
    leader_id = leader.leader_id if leader.leader_id >= 0 else None
    is_known = leader_id is not None and leader.host
    endpoints = Endpoints.of(core.identity.listener, leader.host, leader.port) if is_known else NO_ENDPOINTS
    return LeaderSaid(error_name(message.error_code), leader_id, leader.leader_epoch, endpoints)


def supported_kraft_versions(message: Message) -> tuple[int, int] | None:
    """Return the range of kraft.version in an ApiVersions response."""
    found = next((each for each in message.supported_features if each.name == KRAFT_VERSION_FEATURE), None)
    return None if found is None else (found.min_version, found.max_version)


# Responses ------------------------------------------------------------------------------------------------------------------------------


def _leader_address(core: RaftCore, listener: str) -> Address | None:
    return core.quorum.state.leader_endpoints.address(listener) if core.quorum.leader_id is not None else None


def _node_endpoints(core: RaftCore, request: Request, module: Any, since_version: int) -> list[Any]:
    address = _leader_address(core, request.listener)
    if request.api_version < since_version or address is None:
        return []
    return [module.NodeEndpoint(node_id=core.quorum.leader_id, host=address.host, port=address.port)]


def quorum_response(core: RaftCore, request: Request, error: str, *, vote_granted: bool | None = None) -> Message:
    """Return the response to Vote, BeginQuorumEpoch or EndQuorumEpoch."""
    module = _RESPONSES[type(request.message).__name__]
    partition = module.PartitionData(
        partition_index=PARTITION,
        error_code=error_code(error),
        leader_id=core.quorum.state.election.leader_id_or_none,
        leader_epoch=core.quorum.epoch,
    )
    if vote_granted is not None:
        partition.vote_granted = vote_granted
    return _response_class(request.message)(
        topics=[module.TopicData(topic_name=core.identity.topic, partitions=[partition])],
        node_endpoints=_node_endpoints(core, request, module, 1),
    )


def fetch_response(
    core: RaftCore,
    request: Request,
    error: str,
    *,
    records: bytes = b"",
    end: ValidatedEnd | None = None,
    high_watermark: int | None = None,
) -> Message:
    """Return the response to Fetch: records, the point where the follower's log diverges, or the snapshot to fetch."""
    module = fetch_response_message
    partition = module.PartitionData(
        partition_index=PARTITION,
        error_code=error_code(error),
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=core.log.start_offset,
        current_leader=module.LeaderIdAndEpoch(core.quorum.state.election.leader_id_or_none, core.quorum.epoch),
        records=records,
    )
    if end is not None and end.kind is EndKind.DIVERGING:
        partition.diverging_epoch = module.EpochEndOffset(epoch=end.end.epoch, end_offset=end.end.offset)
    elif end is not None and end.kind is EndKind.SNAPSHOT:
        partition.snapshot_id = module.SnapshotId(epoch=end.end.epoch, end_offset=end.end.offset)
    topic = module.FetchableTopicResponse(topic=core.identity.topic, topic_id=core.identity.topic_id, partitions=[partition])
    endpoints = _node_endpoints(core, request, module, _FETCH_WITH_ENDPOINTS)
    return module.FetchResponse(responses=[topic], node_endpoints=endpoints)


def refuse_snapshot_fetch(core: RaftCore, request: Request) -> Message | None:
    """Return the error response to a FetchSnapshot from another cluster or about another log, which it names."""
    message = request.message
    if cluster_error(core, message) != "NONE":
        return error_response(message, cluster_error(core, message))
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        return error_response(message, "INVALID_REQUEST")
    if is_for_log(core, message):
        return None
    topic = message.topics[0]
    module = fetch_snapshot_response
    error = error_code("UNKNOWN_TOPIC_OR_PARTITION")
    partition = module.PartitionSnapshot(index=topic.partitions[0].partition, error_code=error, unaligned_records=b"")
    return module.FetchSnapshotResponse(topics=[module.TopicSnapshot(name=topic.name, partitions=[partition])])


def snapshot_response(
    core: RaftCore, request: Request, error: str, *, snapshot: SnapshotSource | None = None, position: int = 0, data: bytes = b""
) -> Message:
    """Return the response to FetchSnapshot, with a piece of the snapshot."""
    module = fetch_snapshot_response
    partition = module.PartitionSnapshot(
        index=PARTITION,
        error_code=error_code(error),
        current_leader=module.LeaderIdAndEpoch(core.quorum.state.election.leader_id_or_none, core.quorum.epoch),
        unaligned_records=data,
    )
    if snapshot is not None:
        partition.snapshot_id = module.SnapshotId(end_offset=snapshot.snapshot_id.offset, epoch=snapshot.snapshot_id.epoch)
        partition.size, partition.position = snapshot.size, position
    topic = module.TopicSnapshot(name=core.identity.topic, partitions=[partition])
    return module.FetchSnapshotResponse(topics=[topic], node_endpoints=_node_endpoints(core, request, module, 1))


def describe_quorum_error(core: RaftCore, request: Request, error: str) -> Message:
    """Return the error response to a DescribeQuorum, for each requested partition or for the log."""
    module = describe_quorum_response
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.message.topics]
    row = by_name(error)
    topics = [
        module.TopicData(
            topic_name=name,
            partitions=[module.PartitionData(partition_index=index, error_code=row.code, error_message=row.words) for index in indexes],
        )
        for name, indexes in asked
    ]
    return module.DescribeQuorumResponse(topics=topics)


def describe_quorum_response_of(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Return the response to DescribeQuorum: all replicas that the leader knows."""
    module, state, version = describe_quorum_response, core.leader_state, request.api_version

    def timestamp(of_ms: int) -> int:
        return of_ms if of_ms < 0 else core.identity.timestamp(of_ms)

    def shown(each: ReplicaProgress) -> Any:
        is_local = each.key.id == state.local_id
        # Kafka counts the leader's records before it flushes them. Here a follower may have them before they are durable on the leader.
        end_offset = core.log.end_offset if is_local else each.end_offset
        return module.ReplicaState(
            replica_id=each.key.id,
            replica_directory_id=each.key.directory_id_or_zero if version >= 2 else bytes(16),
            log_end_offset=-1 if end_offset is None else end_offset,
            last_fetch_timestamp=timestamp(now_ms if is_local else each.last_fetch_ms),
            last_caught_up_timestamp=timestamp(now_ms if is_local else each.last_caught_up_ms),
        )

    partition = module.PartitionData(
        partition_index=PARTITION,
        leader_id=state.local_id,
        leader_epoch=state.epoch,
        high_watermark=-1 if state.high_watermark is None else state.high_watermark,
        current_voters=[shown(each) for each in state.voters.values()],
        observers=[shown(each) for each in state.active_observers(now_ms)],
    )
    response = module.DescribeQuorumResponse(topics=[module.TopicData(topic_name=core.identity.topic, partitions=[partition])])
    if version >= 2:
        response.nodes = [
            module.Node(each.key.id, [module.Listener(name, host, port) for name, (host, port) in each.listeners.items()])
            for each in state.voters.values()
        ]
    return response


def add_voter_response(error: str, reason: str | None = None) -> Message:
    """Return the response to AddRaftVoter."""
    row = by_name(error)
    return wire.AddRaftVoterResponse(error_code=row.code, error_message=row.words if reason is None and row.code else reason)


def remove_voter_response(error: str, reason: str | None = None) -> Message:
    """Return the response to RemoveRaftVoter."""
    row = by_name(error)
    return wire.RemoveRaftVoterResponse(error_code=row.code, error_message=row.words if reason is None and row.code else reason)


def update_voter_response(core: RaftCore, request: Request, error: str) -> Message:
    """Return the response to UpdateRaftVoter."""
    leader = update_raft_voter_response.CurrentLeader(core.quorum.state.election.leader_id_or_none, core.quorum.epoch)
    address = _leader_address(core, request.listener)
    if address is not None:
        leader.host, leader.port = address
    return update_raft_voter_response.UpdateRaftVoterResponse(error_code=error_code(error), current_leader=leader)
