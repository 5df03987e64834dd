"""The requests of other nodes: votes, the leader's notices, fetches of the log and of snapshots, the description of the quorum.

Source: Kafka's KafkaRaftClient (handle…Request), RaftUtil; KIP-595, KIP-630, KIP-996. Each function answers one request against the node's
state, or parks it.
"""

from __future__ import annotations

from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID, EndKind, ValidatedEnd, end_of, validate_end
from kops.metadata.raft.node import messages
from kops.metadata.raft.node.actions import Message, Request
from kops.metadata.raft.node.core import ParkedFetch, RaftCore
from kops.metadata.raft.roles.states import Follower, Prospective, Unattached
from kops.metadata.raft.voters.replica import Endpoints, OffsetAndEpoch, ReplicaKey


def handle_vote(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Handle a vote request: whether this node votes for another one, or would do so (pre-vote)."""
    message = request.message
    refused = messages.refuse_cluster_or_topic(core, message)
    if refused is not None:
        return refused
    partition = message.topics[0].partitions[0]
    epoch, pre_vote = partition.replica_epoch, partition.pre_vote
    is_illegal = partition.last_offset_epoch > epoch if pre_vote else partition.last_offset_epoch >= epoch
    if partition.last_offset < 0 or partition.last_offset_epoch < 0 or is_illegal:
        return messages.quorum_response(core, request, "INVALID_REQUEST")
    error = core.check_voter_request(partition.replica_id, epoch)
    if error != "NONE":
        return messages.quorum_response(core, request, error)
    if epoch > core.quorum.epoch:
        core.become_unattached(epoch, None, now_ms)
    if not core.is_local_voter_key(messages.receiver_of(message, partition)):
        return messages.quorum_response(core, request, "INVALID_VOTER_KEY")
    candidate = ReplicaKey.read(partition.replica_id, partition.replica_directory_id)
    end = OffsetAndEpoch(offset=partition.last_offset, epoch=partition.last_offset_epoch)
    granted = core.quorum.state.can_grant_vote(candidate, is_up_to_date=end >= end_of(core.log), pre_vote=pre_vote)
    state = core.quorum.state
    if granted and not pre_vote and isinstance(state, Unattached | Prospective) and state.voted_key is None:
        core.quorum.add_vote(candidate, now_ms)
    return messages.quorum_response(core, request, "NONE", vote_granted=granted)


def _follow_sender(core: RaftCore, request: Request, now_ms: int) -> Message | None:
    """Do the common part of BeginQuorumEpoch and EndQuorumEpoch: check the request, and follow its sender. Returns a message if it is
    rejected."""
    message = request.message
    refused = messages.refuse_cluster_or_topic(core, message)
    if refused is not None:
        return refused
    partition = message.topics[0].partitions[0]
    error = core.check_voter_request(partition.leader_id, partition.leader_epoch)
    if error != "NONE":
        return messages.quorum_response(core, request, error)
    endpoints = Endpoints.read(message.leader_endpoints)
    if not len(endpoints):
        endpoints = core.control.last_voters.listeners(partition.leader_id)
    core.maybe_transition(partition.leader_id, partition.leader_epoch, endpoints, now_ms)
    return None


def handle_begin_quorum_epoch(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Handle a leader's announcement."""
    refused = _follow_sender(core, request, now_ms)
    if refused is not None:
        return refused
    partition = request.message.topics[0].partitions[0]
    known = core.is_local_voter_key(messages.receiver_of(request.message, partition))
    return messages.quorum_response(core, request, "NONE" if known else "INVALID_VOTER_KEY")


def handle_end_quorum_epoch(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Handle the resignation of a leader. The voters that it prefers wait the least."""
    refused = _follow_sender(core, request, now_ms)
    if refused is not None:
        return refused
    partition = request.message.topics[0].partitions[0]
    state = core.quorum.state
    if isinstance(state, Follower) and state.leader_id == partition.leader_id:
        preferred = messages.preferred_candidates(partition)
        position = next((i for i, key in enumerate(preferred) if key.is_matched_by(core.quorum.local_key)), len(preferred))
        state.fetch_deadline_ms = now_ms + election_backoff_ms(position, len(preferred), core.settings.election_backoff_max_ms)
    return messages.quorum_response(core, request, "NONE")


def election_backoff_ms(position: int, count: int, longest_ms: int) -> int:
    """Return the waiting time of the successor at `position` of `count`: the first one does not wait, each later one waits longer."""
    if position == 0:
        return 0
    if position >= count:
        return longest_ms
    return min(longest_ms, longest_ms >> (count - 1) << (position - 1))


def handle_fetch(core: RaftCore, request: Request, now_ms: int) -> Message | None:
    """Handle a replica's fetch of the log from its end. Returns None if it has to wait for records."""
    message = request.message
    refused = messages.refuse_cluster_or_topic(core, message)
    if refused is not None:
        return refused
    partition = message.topics[0].partitions[0]
    epoch = partition.last_fetched_epoch
    if message.max_wait_ms < 0 or partition.fetch_offset < 0 or epoch < 0 or epoch > partition.current_leader_epoch:
        return messages.fetch_response(core, request, "INVALID_REQUEST")
    response = _try_fetch(core, request, now_ms)
    given = response.responses[0].partitions[0]
    if (
        given.error_code != 0
        or len(given.records or b"") > 0
        or message.max_wait_ms == 0
        or given.diverging_epoch.end_offset != -1
        or given.diverging_epoch.epoch != -1
        or given.snapshot_id.end_offset != -1
        or given.snapshot_id.epoch != -1
        or partition.high_watermark < given.high_watermark
    ):
        return response
    deadline_ms = now_ms + message.max_wait_ms
    core.parked.append(
        ParkedFetch(
            request,
            partition.fetch_offset,
            deadline_ms,
            response,
            complete=lambda later_ms: _try_fetch(core, request, later_ms),
            no_leader=lambda: messages.fetch_response(core, request, "NOT_LEADER_OR_FOLLOWER"),
        )
    )
    return None


def _try_fetch(core: RaftCore, request: Request, now_ms: int) -> Message:
    partition = request.message.topics[0].partitions[0]
    error = core.check_leader_request(partition.current_leader_epoch)
    if error != "NONE":
        return messages.fetch_response(core, request, error)
    log, state = core.log, core.leader_state
    offset, latest = partition.fetch_offset, log.latest_snapshot_id
    if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT_ID:
        end = ValidatedEnd(EndKind.SNAPSHOT, latest)
    else:
        end = validate_end(log, offset, partition.last_fetched_epoch)
    records = b""
    if end.kind is EndKind.VALID:
        records = log.read(offset, request.message.max_bytes, committed=False)
        if state.update_replica(messages.fetching_replica(request.message), offset, now_ms):
            core.on_leader_high_watermark(now_ms)
    return messages.fetch_response(core, request, "NONE", records=records, end=end, high_watermark=state.high_watermark)


def handle_fetch_snapshot(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Handle a replica's fetch of a piece of a snapshot."""
    message = request.message
    refused = messages.refuse_snapshot_fetch(core, request)
    if refused is not None:
        return refused
    partition = message.topics[0].partitions[0]
    error = core.check_leader_request(partition.current_leader_epoch)
    if error != "NONE":
        return messages.snapshot_response(core, request, error)
    snapshot_id = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
    snapshot = None if snapshot_id == BOOTSTRAP_SNAPSHOT_ID else core.log.read_snapshot(snapshot_id)
    if snapshot is None:
        return messages.snapshot_response(core, request, "SNAPSHOT_NOT_FOUND")
    if not 0 <= partition.position < snapshot.size:
        return messages.snapshot_response(core, request, "POSITION_OUT_OF_RANGE")
    data = snapshot.read(partition.position, min(message.max_bytes, snapshot.size))
    core.leader_state.on_voter_fetched(ReplicaKey.read(message.replica_id, partition.replica_directory_id), now_ms)
    return messages.snapshot_response(core, request, "NONE", snapshot=snapshot, position=partition.position, data=data)


def handle_describe_quorum(core: RaftCore, request: Request, now_ms: int) -> Message:
    """Describe all replicas as the leader sees them."""
    if not messages.is_for_log(core, request.message):
        return messages.describe_quorum_error(core, request, "UNKNOWN_TOPIC_OR_PARTITION")
    if not core.is_leader:
        return messages.describe_quorum_error(core, request, "NOT_LEADER_OR_FOLLOWER")
    return messages.describe_quorum_response_of(core, request, now_ms)
