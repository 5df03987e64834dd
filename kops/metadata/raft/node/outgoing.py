"""The requests that a node sends to the other nodes of its quorum. Source: Kafka's RaftUtil and KafkaRaftClient (build…Request)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kops.metadata.raft.log.log import SnapshotSink, end_of
from kops.metadata.raft.node.actions import Message
from kops.metadata.raft.node.messages import PARTITION
from kops.metadata.raft.roles.quorum import KRAFT_VERSIONS
from kops.metadata.raft.roles.states import Resigned
from kops.metadata.raft.voters.replica import Endpoints, ReplicaKey
from kops.protocol import messages as wire
from kops.protocol.messages import (
    add_raft_voter_request,
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    fetch_request,
    fetch_snapshot_request,
    update_raft_voter_request,
    vote_request,
)

if TYPE_CHECKING:
    from kops.metadata.raft.node.core import RaftCore

_SOFTWARE: Final = "apache-kafka-java"
_SOFTWARE_VERSION: Final = "4.3.0"


def _listeners(kind: Any, endpoints: Endpoints) -> list[Any]:
    return [kind(name, host, port) for name, (host, port) in endpoints.items()]


def vote(core: RaftCore, voter: ReplicaKey, *, pre_vote: bool) -> Message:
    """Ask one voter for its vote."""
    end, own = end_of(core.log), core.quorum.local_key
    partition = vote_request.PartitionData(
        partition_index=PARTITION,
        replica_epoch=core.quorum.epoch,
        replica_id=own.id,
        replica_directory_id=own.directory_id_or_zero,
        voter_directory_id=voter.directory_id_or_zero,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    topics = [vote_request.TopicData(core.identity.topic, [partition])]
    return vote_request.VoteRequest(core.identity.cluster_id, voter.id, topics)


def begin_quorum_epoch(core: RaftCore, voter: ReplicaKey) -> Message:
    """Tell one voter that this node leads."""
    module = begin_quorum_epoch_request
    partition = module.PartitionData(PARTITION, voter.directory_id_or_zero, core.quorum.local_id_or_none, core.quorum.epoch)
    endpoints = _listeners(module.LeaderEndpoint, core.quorum.state.leader_endpoints)
    return module.BeginQuorumEpochRequest(
        core.identity.cluster_id, voter.id, [module.TopicData(core.identity.topic, [partition])], endpoints
    )


def end_quorum_epoch(core: RaftCore, state: Resigned) -> Message:
    """Tell a voter that this leader has resigned, and name its preferred successors."""
    module = end_quorum_epoch_request
    partition = module.PartitionData(
        partition_index=PARTITION,
        leader_id=core.quorum.local_id_or_none,
        leader_epoch=core.quorum.epoch,
        preferred_successors=[key.id for key in state.preferred_successors],
        preferred_candidates=[module.ReplicaInfo(key.id, key.directory_id_or_zero) for key in state.preferred_successors],
    )
    return module.EndQuorumEpochRequest(core.identity.cluster_id, [module.TopicData(core.identity.topic, [partition])])


def fetch(core: RaftCore) -> Message:
    """Fetch the log from the end of this node's log."""
    high_watermark = core.quorum.state.high_watermark
    partition = fetch_request.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=core.quorum.epoch,
        fetch_offset=core.log.end_offset,
        last_fetched_epoch=core.log.last_fetched_epoch,
        replica_directory_id=core.identity.directory_id,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    return fetch_request.FetchRequest(
        cluster_id=core.identity.cluster_id,
        replica_state=fetch_request.ReplicaState(core.quorum.local_id_or_none),
        max_wait_ms=core.settings.fetch_max_wait_ms,
        max_bytes=core.settings.fetch_max_size,
        topics=[fetch_request.FetchTopic(core.identity.topic, core.identity.topic_id, [partition])],
    )


def fetch_snapshot(core: RaftCore, snapshot: SnapshotSink) -> Message:
    """Fetch the next piece of a snapshot."""
    module = fetch_snapshot_request
    partition = module.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=core.quorum.epoch,
        snapshot_id=module.SnapshotId(end_offset=snapshot.snapshot_id.offset, epoch=snapshot.snapshot_id.epoch),
        position=snapshot.size,
        replica_directory_id=core.identity.directory_id,
    )
    return module.FetchSnapshotRequest(
        cluster_id=core.identity.cluster_id,
        replica_id=core.quorum.local_id_or_none,
        max_bytes=core.settings.fetch_snapshot_max_size,
        topics=[module.TopicSnapshot(core.identity.topic, [partition])],
    )


def api_versions() -> Message:
    """Ask for the versions that a new voter supports. The client name is that of Kafka's own client, so that the answer is the same."""
    return wire.ApiVersionsRequest(_SOFTWARE, _SOFTWARE_VERSION)


def add_voter(core: RaftCore) -> Message:
    """Ask to become a voter."""
    return wire.AddRaftVoterRequest(
        cluster_id=core.identity.cluster_id,
        timeout_ms=core.settings.request_timeout_ms,
        voter_id=core.quorum.local_id_or_none,
        voter_directory_id=core.identity.directory_id,
        listeners=_listeners(add_raft_voter_request.Listener, core.identity.listeners),
        ack_when_committed=False,
    )


def remove_voter(core: RaftCore, voter: ReplicaKey) -> Message:
    """Ask to remove a former directory of this node."""
    return wire.RemoveRaftVoterRequest(core.identity.cluster_id, voter.id, voter.directory_id_or_zero)


def update_voter(core: RaftCore) -> Message:
    """Tell the leader this voter's listeners and versions."""
    module = update_raft_voter_request
    return module.UpdateRaftVoterRequest(
        core.identity.cluster_id,
        core.quorum.epoch,
        core.quorum.local_id_or_none,
        core.identity.directory_id,
        _listeners(module.Listener, core.identity.listeners),
        module.KRaftVersionFeature(*KRAFT_VERSIONS),
    )
