"""Handles the responses to this node's own requests: counts votes, appends to or truncates the log, and stores snapshots.

Source: Kafka's KafkaRaftClient (handle…Response). Each function returns whether the request succeeded. A failure delays the next one.
"""

from __future__ import annotations

from contextlib import suppress

from kops.errors import DecodeError
from kops.metadata.raft.log.log import truncate_to_end
from kops.metadata.raft.node import messages
from kops.metadata.raft.node.actions import Message
from kops.metadata.raft.node.core import RaftCore
from kops.metadata.raft.roles.states import Candidate, Prospective, Resigned
from kops.metadata.raft.voters.replica import Node, OffsetAndEpoch


def _common(core: RaftCore, leader: messages.LeaderSaid, now_ms: int) -> bool | None:
    return core.handle_common(leader.error, leader.leader_id, leader.epoch, leader.endpoints, now_ms)


def on_vote(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle a voter's answer."""
    error = messages.error_name(message.error_code)
    if error == "UNSUPPORTED_VERSION" and isinstance(core.quorum.state, Prospective):
        # The voter does not know pre-votes, so ask for a real vote.
        core.become_candidate(now_ms)
        return True
    if error != "NONE" or not messages.is_for_log(core, message):
        return False
    handled = _common(core, said := messages.leader_said(core, message), now_ms)
    if handled is not None:
        return handled
    if said.error != "NONE":
        return False
    state = core.quorum.state
    if isinstance(state, Prospective | Candidate) and state.votes.is_voter(source.id):
        granted = message.topics[0].partitions[0].vote_granted
        assert isinstance(state, Prospective) or state.votes.vote_of(source.id) in (None, granted), f"{source.id} voted twice"
        state.votes.record(source.id, granted=granted)
        core.on_votes_counted(now_ms)
        if isinstance(state, Prospective) and core.quorum.state is state and state.votes.is_lost:
            leave_prospective(core, state, now_ms)
    return True


def leave_prospective(core: RaftCore, state: Prospective, now_ms: int) -> None:
    """Handle a lost pre-vote: return to the known leader, if any."""
    if state.leader_id is not None and len(state.leader_endpoints):
        core.become_follower(state.epoch, state.leader_id, state.leader_endpoints, now_ms)
    else:
        core.become_unattached(state.epoch, state.leader_id, now_ms)


def on_begin_quorum_epoch(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle the answer of a voter that now knows the leader."""
    if message.error_code or not messages.is_for_log(core, message):
        return False
    handled = _common(core, said := messages.leader_said(core, message), now_ms)
    return said.error == "NONE" if handled is None else handled


def on_end_quorum_epoch(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle the answer of a voter that now knows that nobody leads."""
    if isinstance(core.quorum.state, Resigned):
        if messages.error_name(message.error_code) == "BROKER_NOT_AVAILABLE":
            core.quorum.state.unreachable.add(source.id)
        else:
            core.quorum.state.unreachable.discard(source.id)
    if message.error_code or not messages.is_for_log(core, message):
        return False
    handled = _common(core, said := messages.leader_said(core, message), now_ms)
    if handled is not None:
        return handled
    if said.error == "NONE" and isinstance(core.quorum.state, Resigned):
        core.quorum.state.unacknowledged.discard(source.id)
    return said.error == "NONE"


def on_fetch(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle a fetched part of the log, a request to truncate it, or the id of a snapshot to fetch instead."""
    if message.error_code or not messages.is_for_log(core, message):
        return False
    handled = _common(core, said := messages.leader_said(core, message), now_ms)
    if handled is not None:
        return handled
    if said.error != "NONE":
        return False
    partition = message.responses[0].partitions[0]
    state = core.follower_state
    if partition.diverging_epoch.epoch >= 0:
        end = OffsetAndEpoch(offset=partition.diverging_epoch.end_offset, epoch=partition.diverging_epoch.epoch)
        assert state.high_watermark is None or end.offset >= state.high_watermark, f"a truncation at {end} below {state.high_watermark}"
        core.control.truncate_new_entries(truncate_to_end(core.log, end))
        core.on_log_cut()
    elif partition.snapshot_id.epoch >= 0 or partition.snapshot_id.end_offset >= 0:
        if partition.snapshot_id.epoch < 0 or partition.snapshot_id.end_offset < 0:
            return False
        snapshot_id = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
        if state.fetching_snapshot is not None:
            state.fetching_snapshot.close()
        state.fetching_snapshot = core.log.create_snapshot(snapshot_id)
    else:
        _append(core, bytes(partition.records or b""))
        if partition.high_watermark >= 0:
            core.update_follower_high_watermark(partition.high_watermark)
    state.on_successful_fetch(now_ms)
    return True


def _append(core: RaftCore, records: bytes) -> None:
    if not records:
        return
    # As in Kafka, the next fetch asks for it again.
    with suppress(DecodeError):
        core.log.append_as_follower(records, core.quorum.epoch)
    core.control.update()


def on_fetch_snapshot(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle a piece of a snapshot. After the last piece, the log begins after the snapshot."""
    if message.error_code or len(message.topics) != 1 or not messages.is_for_log(core, message):
        return False
    handled = _common(core, said := messages.leader_said(core, message), now_ms)
    if handled is not None:
        return handled
    partition = message.topics[0].partitions[0]
    state = core.follower_state
    if said.error == "SNAPSHOT_NOT_FOUND" or (
        said.error == "NONE" and min(partition.snapshot_id.end_offset, partition.snapshot_id.epoch) < 0
    ):
        if state.fetching_snapshot is not None:
            state.fetching_snapshot.close()
        state.fetching_snapshot = None
        state.on_successful_fetch(now_ms)
        return True
    if said.error != "NONE":
        return False
    snapshot = state.fetching_snapshot
    assert snapshot is not None, "a piece of a snapshot that was not requested"
    asked = (snapshot.snapshot_id.offset, snapshot.snapshot_id.epoch, snapshot.size)
    got = (partition.snapshot_id.end_offset, partition.snapshot_id.epoch, partition.position)
    assert asked == got, f"a piece of snapshot {got}, but {asked} was requested"
    snapshot.append(bytes(partition.unaligned_records or b""))
    if snapshot.size == partition.size:
        snapshot.freeze()
        state.fetching_snapshot = None
        truncated = core.log.truncate_to_latest_snapshot()
        assert truncated, f"snapshot {snapshot.snapshot_id} does not end after the log, which ends at {core.log.end_offset}"
        # The whole log is contained in the snapshot, which is durable.
        core.durable_offset = core.log.end_offset
        core.on_log_cut()
        core.control.update()
        core.update_follower_high_watermark(core.log.high_watermark)
    state.on_successful_fetch(now_ms)
    return True


def on_update_voter(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle the answer of the leader that now knows this voter's endpoints and versions, or its error."""
    handled = _common(core, said := messages.update_voter_said(core, message), now_ms)
    if handled is not None:
        return handled
    if said.error not in ("NONE", "UNSUPPORTED_VERSION"):
        return False
    core.follower_state.has_updated_leader = True
    core.follower_state.on_successful_fetch(now_ms)
    return True


def on_add_voter(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle the answer to this node's request to become a voter."""
    if messages.error_name(message.error_code) not in ("NONE", "REQUEST_TIMED_OUT", "DUPLICATE_VOTER"):
        return False
    core.follower_state.reset_update_voter(now_ms)
    return True


def on_remove_voter(core: RaftCore, source: Node, message: Message, now_ms: int) -> bool:
    """Handle the answer to this node's request to remove its former directory from the voters."""
    if messages.error_name(message.error_code) not in ("NONE", "REQUEST_TIMED_OUT", "VOTER_NOT_FOUND"):
        return False
    core.follower_state.reset_update_voter(now_ms)
    return True
