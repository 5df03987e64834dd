"""Handles the passing of time: each role's requests, deadlines and transitions. Functions return the ms until the next call.

Source: Kafka's KafkaRaftClient (poll…).
"""

from __future__ import annotations

from functools import partial

from kops.metadata.raft.log.accumulator import NEVER_MS
from kops.metadata.raft.node import outgoing
from kops.metadata.raft.node.answers import leave_prospective
from kops.metadata.raft.node.core import RaftCore
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.roles.states import Candidate, Follower, Prospective, Resigned, Unattached
from kops.metadata.raft.voters.replica import ReplicaKey


def poll(core: RaftCore, now_ms: int) -> int:
    """Do one step of the node's current role."""
    state = core.quorum.state
    if isinstance(state, LeaderState):
        return _poll_leader(core, state, now_ms)
    if isinstance(state, Candidate | Prospective):
        return _poll_nominee(core, state, now_ms)
    if isinstance(state, Follower):
        return _poll_follower(core, state, now_ms)
    if isinstance(state, Unattached):
        return _poll_unattached(core, state, now_ms)
    assert isinstance(state, Resigned), f"{state} is not a role"
    return _poll_resigned(core, state, now_ms)


def _until_shutdown(core: RaftCore, now_ms: int) -> int:
    return NEVER_MS if core.shutdown_deadline_ms is None else max(0, core.shutdown_deadline_ms - now_ms)


def _poll_leader(core: RaftCore, state: LeaderState, now_ms: int) -> int:
    core.tell_leader_change()
    until_check = state.ms_until_check_quorum(now_ms)
    if core.shutdown_deadline_ms is not None or state.is_resign_requested or until_check == 0:
        core.become_resigned(now_ms)
        return 0
    until_change = state.expire_voter_changes(now_ms)
    append_batches(core, state, now_ms)
    until_drain = state.accumulator.ms_until_drain(now_ms)
    return min(until_check, until_change, until_drain, _notify_voters(core, state, now_ms))


def append_batches(core: RaftCore, state: LeaderState, now_ms: int) -> None:
    """Append the batches that are due, flush them, and send them to waiting replicas."""
    if state.accumulator.ms_until_drain(now_ms) > 0:
        return
    for batch in state.accumulator.drain():
        core.log.append_as_leader(batch.data, state.epoch)
        core.control.update()
    core.on_leader_appended(now_ms)


def _notify_voters(core: RaftCore, state: LeaderState, now_ms: int) -> int:
    if now_ms < state.begin_quorum_deadline_ms:
        return state.begin_quorum_deadline_ms - now_ms
    for voter in state.voters_to_notify(now_ms):
        core.send(core.voter_node(voter.id), partial(outgoing.begin_quorum_epoch, core, voter), now_ms)
    state.begin_quorum_deadline_ms = now_ms + core.settings.begin_quorum_period_ms
    return core.settings.begin_quorum_period_ms


def _poll_nominee(core: RaftCore, state: Candidate | Prospective, now_ms: int) -> int:
    if core.shutdown_deadline_ms is None and now_ms >= state.election_deadline_ms:
        if isinstance(state, Candidate):
            core.become_prospective(now_ms)
        else:
            leave_prospective(core, state, now_ms)
        return 0
    wait_ms = NEVER_MS
    if not state.votes.is_lost:
        for voter in state.votes.unrecorded:
            wait_ms = min(wait_ms, _ask_vote(core, voter, isinstance(state, Prospective), now_ms))
    if core.shutdown_deadline_ms is not None:
        return min(wait_ms, _until_shutdown(core, now_ms))
    return min(wait_ms, state.election_deadline_ms - now_ms)


def _ask_vote(core: RaftCore, voter: ReplicaKey, pre_vote: bool, now_ms: int) -> int:
    return core.send(core.voter_node(voter.id), lambda: outgoing.vote(core, voter, pre_vote=pre_vote), now_ms)[1]


def _poll_follower(core: RaftCore, state: Follower, now_ms: int) -> int:
    if core.shutdown_deadline_ms is not None:
        return 0
    if core.quorum.is_voter:
        if now_ms >= state.fetch_deadline_ms:
            core.become_prospective(now_ms)
            return 0
        wait_ms = _update_voter_or_fetch(core, state, now_ms)
    else:
        wait_ms = _join_or_fetch(core, state, now_ms)
    return min(wait_ms, max(0, state.fetch_deadline_ms - now_ms) or NEVER_MS)


def _update_voter_or_fetch(core: RaftCore, state: Follower, now_ms: int) -> int:
    if now_ms < state.update_voter_deadline_ms:
        return _fetch(core, state, now_ms)
    if core.control.kraft_version > 0:
        is_due = core.control.last_voters.needs_update(core.quorum.local_voter)
    else:
        is_due = not state.has_updated_leader
    if not is_due:
        state.reset_update_voter(now_ms)
        return _fetch(core, state, now_ms)
    sent, wait_ms = core.send(state.leader_node(core.identity.listener), lambda: outgoing.update_voter(core), now_ms)
    if sent:
        state.reset_update_voter(now_ms)
    return wait_ms


def _join_or_fetch(core: RaftCore, state: Follower, now_ms: int) -> int:
    may_join = core.control.kraft_version > 0 and core.identity.can_become_voter and core.settings.auto_join
    if not may_join or now_ms < state.update_voter_deadline_ms:
        return _fetch(core, state, now_ms)
    former = core.control.last_voters.get(core.quorum.local_id_or_none)
    leader = state.leader_node(core.identity.listener)
    if former is not None:
        sent, wait_ms = core.send(leader, lambda: outgoing.remove_voter(core, former.key), now_ms)
    else:
        sent, wait_ms = core.send(leader, lambda: outgoing.add_voter(core), now_ms)
    if sent:
        state.reset_update_voter(now_ms)
    return wait_ms


def _fetch(core: RaftCore, state: Follower, now_ms: int) -> int:
    """Fetch from the leader. While it can't be reached, fetch from a bootstrap server, which may know another leader."""
    leader = state.leader_node(core.identity.listener)
    if core.requests.has_timed_out(leader, now_ms):
        core.requests.reset(leader)
        return _fetch_from_bootstrap(core, now_ms)
    if core.requests.is_backing_off(leader, now_ms):
        return _fetch_from_bootstrap(core, now_ms)
    if core.requests.has_any_in_flight(now_ms):
        return core.requests.backoff_before_bootstrap_ms(now_ms)
    if core.is_flush_due:
        return NEVER_MS
    snapshot = state.fetching_snapshot
    if snapshot is not None:
        return core.send(leader, lambda: outgoing.fetch_snapshot(core, snapshot), now_ms)[1]
    return core.send(leader, lambda: outgoing.fetch(core), now_ms)[1]


def _fetch_from_bootstrap(core: RaftCore, now_ms: int) -> int:
    if core.is_flush_due:
        return NEVER_MS
    node = core.requests.ready_bootstrap(now_ms)
    if node is None:
        return core.requests.backoff_before_bootstrap_ms(now_ms)
    return core.send(node, lambda: outgoing.fetch(core), now_ms)[1]


def _poll_unattached(core: RaftCore, state: Unattached, now_ms: int) -> int:
    deadline_ms = state.election_deadline_ms
    if core.quorum.is_voter:
        if core.shutdown_deadline_ms is not None:
            return _until_shutdown(core, now_ms)
        if deadline_ms is not None and now_ms >= deadline_ms:
            core.become_prospective(now_ms)
            return 0
    wait_ms = _fetch_from_bootstrap(core, now_ms)
    return wait_ms if deadline_ms is None or now_ms >= deadline_ms else min(wait_ms, deadline_ms - now_ms)


def _poll_resigned(core: RaftCore, state: Resigned, now_ms: int) -> int:
    wait_ms = NEVER_MS
    voters = core.control.last_voters
    for voter_id in sorted(state.unacknowledged & voters.ids):
        wait_ms = min(wait_ms, core.send(core.voter_node(voter_id), lambda: outgoing.end_quorum_epoch(core, state), now_ms)[1])
    if core.shutdown_deadline_ms is not None:
        return min(wait_ms, _until_shutdown(core, now_ms))
    if now_ms >= state.election_deadline_ms:
        core.become_unattached(core.quorum.epoch + 1, None, now_ms)
        return 0
    return min(wait_ms, state.election_deadline_ms - now_ms)
