"""The base of all parts of a Raft node: its log, its role and its transitions, its requests, and its listener.

Source: Kafka's KafkaRaftClient (transitions, maybeTransition, maybeHandleCommonResponse, updateListenersProgress, ListenerContext), its
ThresholdPurgatory and DefaultRequestSender. There is one listener. A program that needs several passes the calls on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kops.metadata.raft.log.accumulator import BatchAccumulator
from kops.metadata.raft.log.control_state import ControlState
from kops.metadata.raft.log.log import RaftLog, end_of
from kops.metadata.raft.node.actions import (
    Action,
    Committed,
    Identity,
    LeaderChanged,
    LoadSnapshot,
    Message,
    Request,
    Respond,
    SendRequest,
)
from kops.metadata.raft.node.requests import RequestManager
from kops.metadata.raft.roles.election import ElectionState, ElectionStore
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.roles.quorum import QuorumState
from kops.metadata.raft.roles.states import Candidate, Follower, Prospective, Resigned, Unattached
from kops.metadata.raft.voters.replica import Endpoints, LeaderAndEpoch, Node, ReplicaKey
from kops.metadata.raft.voters.settings import MAX_BATCH_SIZE
from kops.records import read_batches

_NOTHING_READ = -1


@dataclass(frozen=True, slots=True, eq=False)
class ParkedFetch:
    """A fetch for which there is nothing to return yet.

    It is answered when the log ends after `offset`. `response` is the answer at its deadline, `no_leader()` the answer when this node
    resigns.
    """

    request: Request
    offset: int
    deadline_ms: int
    response: Message
    complete: Callable[[int], Message]
    no_leader: Callable[[], Message]


class RaftCore:
    """The state of a node and its common operations. Collects actions in `actions`."""

    def __init__(self, identity: Identity, log: RaftLog, elections: ElectionStore, now_ms: int) -> None:
        self.identity = identity
        self.settings = identity.settings
        self.log = log
        self.elections = elections
        self.actions: list[Action] = []
        self.parked: list[ParkedFetch] = []
        self.shutdown_deadline_ms: int | None = None
        self.durable_offset = log.end_offset
        """Everything below this offset is on this node's disk, because the log was just loaded."""
        self._flushing_to: int | None = None
        self.is_finished = False
        self.control = ControlState(identity.static_voters, log)
        self.control.update()
        self.requests = RequestManager(identity.bootstrap, self.settings.retry_backoff_ms, self.settings.request_timeout_ms, identity.draw)
        self.quorum = QuorumState(
            identity.node_id, identity.directory_id, self.control, identity.listeners, self.settings, identity.draw, self._persist
        )
        self.quorum.initialize(elections.read(), end_of(log), now_ms)
        self._correlation_id = 0
        self._next_offset = _NOTHING_READ
        self._told_leader = LeaderAndEpoch(None, 0)

    def _persist(self, election: ElectionState) -> None:
        self.elections.write(election, self.control.kraft_version)

    @property
    def leader_state(self) -> LeaderState:
        """Return the leader's role, which the node has."""
        assert isinstance(self.quorum.state, LeaderState), f"{self.quorum.state} is not a leader"
        return self.quorum.state

    @property
    def follower_state(self) -> Follower:
        """Return the follower's role, which the node has."""
        assert isinstance(self.quorum.state, Follower), f"{self.quorum.state} is not a follower"
        return self.quorum.state

    @property
    def is_leader(self) -> bool:
        return isinstance(self.quorum.state, LeaderState)

    # Transitions ------------------------------------------------------------------------------------------------------------------------

    def become_prospective(self, now_ms: int) -> None:
        """Begin an election. A single voter is elected at once."""
        self.quorum.transition_to_prospective(now_ms)
        self.on_votes_counted(now_ms)
        if isinstance(self.quorum.state, Prospective):
            self.requests.reset_all()

    def become_candidate(self, now_ms: int) -> None:
        """Begin a new epoch as candidate."""
        self.quorum.transition_to_candidate(now_ms)
        self.tell_leader_change()
        self.on_votes_counted(now_ms)
        if isinstance(self.quorum.state, Candidate):
            self.requests.reset_all()

    def on_votes_counted(self, now_ms: int) -> None:
        """Become candidate or leader if there are enough votes."""
        state = self.quorum.state
        if isinstance(state, Prospective) and state.votes.is_won:
            self.become_candidate(now_ms)
        elif isinstance(state, Candidate) and state.votes.is_won:
            self._become_leader(now_ms)

    def _become_leader(self, now_ms: int) -> None:
        end_offset = self.log.end_offset
        accumulator = BatchAccumulator(self.quorum.epoch, end_offset, self.settings.append_linger_ms, timestamp=self.identity.timestamp)
        state = self.quorum.transition_to_leader(end_offset, accumulator, now_ms)
        self.log.initialize_leader_epoch(self.quorum.epoch)
        state.append_start_of_epoch(now_ms)
        self.requests.reset_all()

    def become_unattached(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Enter a later epoch without a reachable leader."""
        self.quorum.transition_to_unattached(epoch, leader_id, now_ms)
        self.tell_leader_change()
        self._leave_leadership()

    def become_resigned(self, now_ms: int) -> None:
        """Resign as leader."""
        self.quorum.transition_to_resigned(self.leader_state.successors, now_ms)
        self._leave_leadership()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        """Become a follower."""
        self.quorum.transition_to_follower(epoch, leader_id, endpoints, now_ms)
        self.tell_leader_change()
        self._leave_leadership()

    def _leave_leadership(self) -> None:
        self.requests.reset_all()
        parked, self.parked = self.parked, []
        for fetch in parked:
            self.respond(fetch.request, fetch.no_leader())

    def maybe_transition(self, leader_id: int | None, epoch: int, endpoints: Endpoints, now_ms: int) -> None:
        """Adopt another node's information about the leader if it is newer. Two leaders in one epoch violate KRaft's guarantee."""
        quorum = self.quorum
        if leader_id is not None and leader_id == quorum.local_id:
            # This node led, with the disk that it has lost. Kafka's node exits here until others have a later epoch.
            leader_id = None
        elif epoch == quorum.epoch and leader_id is not None and quorum.leader_id is not None:
            assert leader_id == quorum.leader_id, f"two leaders in epoch {epoch}: {leader_id} and {quorum.leader_id}"
        if epoch > quorum.epoch:
            if leader_id is not None and len(endpoints):
                self.become_follower(epoch, leader_id, endpoints, now_ms)
            else:
                # A node that knows the leader but not its address sends no endpoints. Kafka's node exits here.
                self.become_unattached(epoch, leader_id, now_ms)
        elif leader_id is not None and not self.is_leader and len(endpoints) > len(quorum.state.leader_endpoints):
            self.become_follower(epoch, leader_id, endpoints, now_ms)

    def handle_common(self, error: str, leader_id: int | None, epoch: int, endpoints: Endpoints, now_ms: int) -> bool | None:
        """Handle the common part of all responses. Returns whether the request succeeded, or None if the response needs more handling."""
        if leader_id is not None and not len(endpoints):
            endpoints = self.control.last_voters.listeners(leader_id)
        if epoch < self.quorum.epoch or error == "UNKNOWN_LEADER_EPOCH":
            return True
        if epoch > self.quorum.epoch or error in ("FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"):
            self.maybe_transition(leader_id, epoch, endpoints, now_ms)
            return True
        is_leaderless = self.quorum.leader_id is None or isinstance(self.quorum.state, Unattached)
        if leader_id not in (None, self.quorum.local_id) and is_leaderless and len(endpoints):
            assert leader_id is not None
            self.become_follower(epoch, leader_id, endpoints, now_ms)
            return None if error == "NONE" else True
        if error == "BROKER_NOT_AVAILABLE":
            return False
        if error == "INVALID_VOTER_KEY":
            return True
        assert error != "INVALID_REQUEST", "another node rejected a request of this node as invalid"
        return None

    # Requests and responses -------------------------------------------------------------------------------------------------------------

    def respond(self, request: Request, message: Message) -> None:
        """Answer a request."""
        self.actions.append(Respond(request.token, message))

    def send(self, node: Node, build: Callable[[], Message], now_ms: int) -> tuple[bool, int]:
        """Send a request unless one is in flight or has just failed. Returns (whether it was sent, ms to wait)."""
        if not self.requests.is_ready(node, now_ms):
            return False, self.requests.remaining_ms(node, now_ms)
        self._correlation_id += 1
        self.requests.on_sent(node, self._correlation_id, now_ms)
        self.actions.append(SendRequest(node, self._correlation_id, build()))
        return True, self.settings.request_timeout_ms

    def voter_node(self, voter_id: int) -> Node:
        """Return the address of a voter."""
        node = self.control.last_voters.node(voter_id, self.identity.listener)
        assert node is not None, f"no endpoint of voter {voter_id} for {self.identity.listener}"
        return node

    def check_leader_request(self, epoch: int) -> str:
        """Return the error for a request that only this epoch's leader can serve, or NONE."""
        if epoch < self.quorum.epoch:
            return "FENCED_LEADER_EPOCH"
        if epoch > self.quorum.epoch:
            return "UNKNOWN_LEADER_EPOCH"
        if not self.is_leader:
            return "NOT_LEADER_OR_FOLLOWER"
        return "NONE" if self.shutdown_deadline_ms is None else "BROKER_NOT_AVAILABLE"

    def check_voter_request(self, replica_id: int, epoch: int) -> str:
        """Return the error for a request of a voter to a voter, or NONE."""
        if epoch < self.quorum.epoch:
            return "FENCED_LEADER_EPOCH"
        return "INVALID_REQUEST" if replica_id < 0 else "NONE"

    def is_local_voter_key(self, voter: ReplicaKey | None) -> bool:
        """Whether a request is addressed to this node. Its receiver may be missing."""
        return voter is None or (voter.id == self.identity.node_id and voter.directory_id in (None, self.identity.directory_id))

    # The log's progress -----------------------------------------------------------------------------------------------------------------

    @property
    def is_flush_due(self) -> bool:
        """Whether the log has records that are not durable and have to be. A voter's fetch acknowledges everything before its offset."""
        return self.durable_offset < self.log.end_offset and (self.quorum.is_voter or self.identity.can_become_voter)

    def make_durable(self, now_ms: int) -> None:
        """Request a flush of the log up to its end. Records appended during a flush wait for the next one."""
        if self._flushing_to is None and self.is_flush_due:
            self._flushing_to = self.log.end_offset
            if self.log.start_flush():
                self.on_flushed(now_ms)

    def on_flushed(self, now_ms: int) -> None:
        """Handle the end of a flush: the flushed records are durable and count for the high watermark of a leader."""
        assert self._flushing_to is not None, "no flush is in progress"
        self.durable_offset, self._flushing_to = max(self.durable_offset, self._flushing_to), None
        if self.is_leader and self.leader_state.update_local(self.durable_offset):
            self.on_leader_high_watermark(now_ms)

    def on_log_cut(self) -> None:
        """Handle a log that was truncated or now begins after a snapshot. A flush in progress does not cover records that are appended from
        now on."""
        end_offset = self.log.end_offset
        self.durable_offset = min(self.durable_offset, end_offset)
        if self._flushing_to is not None:
            self._flushing_to = min(self._flushing_to, end_offset)

    def on_leader_appended(self, now_ms: int) -> None:
        """Handle growth of the leader's log. Replicas get the records at once; the leader's own copy counts when it is durable."""
        if self.leader_state.update_voters(self.control.last_voters):
            self.on_leader_high_watermark(now_ms)
        self.make_durable(now_ms)
        self._complete(now_ms, lambda fetch: fetch.offset < self.log.end_offset)

    def on_leader_high_watermark(self, now_ms: int) -> None:
        """Handle a new high watermark."""
        state = self.leader_state
        high_watermark = state.high_watermark
        assert high_watermark is not None
        self.log.update_high_watermark(high_watermark)
        added, removed = state.added_voter, state.removed_voter
        if added is not None and added.last_offset is not None and high_watermark > added.last_offset:
            state.finish_added("NONE")
        if removed is not None and high_watermark > removed.last_offset:
            state.finish_removed("NONE")
            if not self.control.last_voters.is_voter(state.local_voter.key):
                state.is_resign_requested = True
        self._complete(now_ms, lambda fetch: True)
        self.tell_committed(high_watermark)

    def update_follower_high_watermark(self, high_watermark: int) -> None:
        """Handle the leader's high watermark, limited to the end of this log."""
        known = min(self.log.end_offset, high_watermark)
        if self.follower_state.update_high_watermark(known):
            self.log.update_high_watermark(known)
            self.tell_committed(known)

    def _complete(self, now_ms: int, is_due: Callable[[ParkedFetch], bool]) -> None:
        due = [fetch for fetch in self.parked if is_due(fetch)]
        self.parked = [fetch for fetch in self.parked if fetch not in due]
        for fetch in due:
            self.respond(fetch.request, fetch.complete(now_ms))

    def expire_fetches(self, now_ms: int) -> None:
        """Answer the fetches that have waited long enough."""
        for fetch in [fetch for fetch in self.parked if fetch.deadline_ms <= now_ms]:
            self.parked.remove(fetch)
            self.respond(fetch.request, fetch.response)

    # The listener -----------------------------------------------------------------------------------------------------------------------

    def tell_committed(self, high_watermark: int) -> None:
        """Pass committed batches to the listener that it has not seen yet."""
        snapshot_id = self.log.latest_snapshot_id
        is_behind = self._next_offset == _NOTHING_READ or self._next_offset < self.log.start_offset
        if is_behind and self._next_offset < high_watermark and snapshot_id is not None:
            self._next_offset = snapshot_id.offset
            self.actions.append(LoadSnapshot(snapshot_id))
        elif self._next_offset == _NOTHING_READ:
            self._next_offset = 0
        assert self._next_offset >= self.log.start_offset, f"the log begins at {self.log.start_offset}, but there is no snapshot"
        while self._next_offset < high_watermark:
            batches = read_batches(self.log.read(self._next_offset, MAX_BATCH_SIZE, committed=True))
            assert batches, f"there is no batch at offset {self._next_offset} below the high watermark {high_watermark}"
            self.actions.append(Committed(batches))
            self._next_offset = batches[-1].last_offset + 1

    def tell_leader_change(self) -> None:
        """Tell the listener about a new leader."""
        state, told, now = self.quorum.state, self._told_leader, self.quorum.leader_and_epoch
        if isinstance(state, LeaderState) and self._next_offset <= state.epoch_start_offset:
            return
        if now.epoch > told.epoch or (now.epoch == told.epoch and now.leader_id is not None and told.leader_id is None):
            self._told_leader = now
            self.actions.append(LeaderChanged(now))

    def poll_listener(self) -> None:
        """Report all changes to the listener."""
        state = self.quorum.state
        if state.high_watermark is not None:
            self.tell_committed(state.high_watermark)
        if not isinstance(state, Resigned):
            self.tell_leader_change()
