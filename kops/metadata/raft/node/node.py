"""A node of the quorum: requests, responses and the time in, actions out. It has no clock, random numbers, socket or file of its own.

It writes to its log and its election store synchronously, so that nothing is sent before it is durable. Both are interfaces. Every call
returns actions, which the caller carries out in order, and sets `wake_up_ms`, the latest time for the next `poll`. Source: Kafka's
KafkaRaftClient (poll, prepareAppend, resign, shutdown, createSnapshot, upgradeKRaftVersion).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kops.errors import ApiError
from kops.metadata.raft.log.log import RaftLog
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.node import answers, polling, serving, voter_changes
from kops.metadata.raft.node.actions import Action, Identity, Message, Request, ShutDown
from kops.metadata.raft.node.core import RaftCore
from kops.metadata.raft.roles.election import ElectionStore
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.roles.states import EpochState, Follower, Resigned, Unattached
from kops.metadata.raft.voters.replica import LeaderAndEpoch, Node, OffsetAndEpoch
from kops.metadata.raft.voters.settings import CLEAN_PERIOD_MS
from kops.metadata.raft.voters.voter_set import VoterSet

_REQUESTS: Final[dict[str, Callable[[RaftCore, Request, int], Message | None]]] = {
    "VoteRequest": serving.handle_vote,
    "BeginQuorumEpochRequest": serving.handle_begin_quorum_epoch,
    "EndQuorumEpochRequest": serving.handle_end_quorum_epoch,
    "FetchRequest": serving.handle_fetch,
    "FetchSnapshotRequest": serving.handle_fetch_snapshot,
    "DescribeQuorumRequest": serving.handle_describe_quorum,
    "AddRaftVoterRequest": voter_changes.handle_add_voter,
    "RemoveRaftVoterRequest": voter_changes.handle_remove_voter,
    "UpdateRaftVoterRequest": voter_changes.handle_update_voter,
}
_RESPONSES: Final[dict[str, Callable[[RaftCore, Node, Message, int], bool]]] = {
    "VoteResponse": answers.on_vote,
    "BeginQuorumEpochResponse": answers.on_begin_quorum_epoch,
    "EndQuorumEpochResponse": answers.on_end_quorum_epoch,
    "FetchResponse": answers.on_fetch,
    "FetchSnapshotResponse": answers.on_fetch_snapshot,
    "ApiVersionsResponse": voter_changes.on_api_versions,
    "UpdateRaftVoterResponse": answers.on_update_voter,
    "AddRaftVoterResponse": answers.on_add_voter,
    "RemoveRaftVoterResponse": answers.on_remove_voter,
}
_MOST_POLLS: Final = 8
"""The maximum number of transitions at one moment: enough for a single voter to go from follower to leader."""


class RaftNode:
    """One replica of the log. Call `start` first."""

    def __init__(self, identity: Identity, log: RaftLog, elections: ElectionStore, now_ms: int) -> None:
        self._core = RaftCore(identity, log, elections, now_ms)
        self._next_clean_ms = now_ms + CLEAN_PERIOD_MS
        self.wake_up_ms = now_ms

    # Queries ----------------------------------------------------------------------------------------------------------------------------

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader, as far as this node knows."""
        return self._core.quorum.leader_and_epoch

    @property
    def state(self) -> EpochState:
        """The role, for inspection."""
        return self._core.quorum.state

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self._core.is_leader

    @property
    def high_watermark(self) -> int | None:
        """Everything below is committed. None if this node does not know the high watermark yet."""
        return self._core.quorum.state.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The last voters, whether committed or not."""
        return self._core.control.last_voters

    @property
    def kraft_version(self) -> int:
        """The kraft.version, including an upgrade in progress."""
        state = self._core.quorum.state
        requested = state.requested_kraft_version if isinstance(state, LeaderState) else None
        return self._core.control.kraft_version if requested is None else requested

    # Time, requests, responses ----------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Action]:
        """Start the node. A single voter elects itself, and a former candidate asks again. In a quorum that never had a leader, the voter
        with the lowest id asks for votes at once, and the others wait as usual. (In Kafka, all wait for an election time-out.)"""
        core = self._core
        is_alone = core.quorum.is_only_voter and isinstance(core.quorum.state, Unattached | Follower | Resigned)
        if is_alone or (self._is_new and core.quorum.is_voter and core.identity.node_id == min(core.control.last_voters.ids)):
            core.become_prospective(now_ms)
        else:
            core.on_votes_counted(now_ms)
        return self.poll(now_ms)

    def poll(self, now_ms: int) -> list[Action]:
        """Handle the passing of time."""
        core = self._core
        if self._is_shut_down(now_ms):
            return self._taken()
        core.expire_fetches(now_ms)
        core.make_durable(now_ms)
        wait_ms = 0
        for _ in range(_MOST_POLLS):
            wait_ms = polling.poll(core, now_ms)
            if wait_ms or core.is_finished:
                break
        if now_ms >= self._next_clean_ms:
            latest = core.log.latest_snapshot_id
            # After a restart the high watermark is unknown until a leader reports it. Kafka's node fails if it cleans before that.
            if latest is not None and latest.offset <= core.log.high_watermark:
                core.log.maybe_clean(core.identity.timestamp(now_ms))
            self._next_clean_ms = now_ms + CLEAN_PERIOD_MS
        core.poll_listener()
        deadlines = [fetch.deadline_ms for fetch in core.parked]
        self.wake_up_ms = min(now_ms + max(1, wait_ms), self._next_clean_ms, *deadlines)
        return self._taken()

    def on_request(self, request: Request, now_ms: int) -> list[Action]:
        """Handle a request of another node. Its response is among the actions, now or later."""
        handler = _REQUESTS.get(type(request.message).__name__)
        assert handler is not None, f"{type(request.message).__name__} is not a request of the quorum"
        response = handler(self._core, request, now_ms)
        if response is not None:
            self._core.respond(request, response)
        return self.poll(now_ms)

    def on_response(self, node: Node, correlation_id: int, message: Message, now_ms: int) -> list[Action]:
        """Handle the response to a request, or `messages.error_response`. A response that is no longer expected is ignored."""
        requests = self._core.requests
        if requests.is_expected(node, correlation_id):
            success = _RESPONSES[type(message).__name__](self._core, node, message, now_ms)
            requests.on_result(node, correlation_id, now_ms, success=success)
        return self.poll(now_ms)

    def on_flushed(self, now_ms: int) -> list[Action]:
        """Handle the end of the flush that `RaftLog.start_flush` began."""
        self._core.on_flushed(now_ms)
        return self.poll(now_ms)

    # Calls of the controller ------------------------------------------------------------------------------------------------------------

    def prepare_append(self, epoch: int, records: Sequence[bytes], now_ms: int) -> int:
        """Prepare the values of metadata records that stay together, and return the last one's offset. They are held back until
        `schedule_append`.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER, and the errors of `BatchAccumulator.append`.
        """
        return self._leader("Append").accumulator.append(epoch, records, now_ms, delay_drain=True)

    def schedule_append(self, now_ms: int) -> list[Action]:
        """Release the prepared records. Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        self._leader("Flush").accumulator.allow_drain()
        return self.poll(now_ms)

    def resign(self, epoch: int, now_ms: int) -> list[Action]:
        """Stop leading. Does nothing if `epoch` is over."""
        state = self._core.quorum.state
        assert epoch <= state.epoch, f"resigns from epoch {epoch} in epoch {state.epoch}"
        if isinstance(state, LeaderState) and state.epoch == epoch:
            state.is_resign_requested = True
        return self.poll(now_ms)

    def shut_down(self, timeout_ms: int, now_ms: int) -> list[Action]:
        """Stop cleanly: a leader resigns and waits until another one leads. `ShutDown` is the last action."""
        self._core.shutdown_deadline_ms = now_ms + timeout_ms
        return self.poll(now_ms)

    def upgrade_kraft_version(self, epoch: int, version: int, now_ms: int, *, validate_only: bool = False) -> list[Action]:
        """Write a higher kraft.version. Raises ApiError NOT_LEADER_OR_FOLLOWER, INVALID_UPDATE_VERSION."""
        state = self._leader("Upgrade kraft version")
        if epoch < state.epoch:
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"Epoch {epoch} is stale. Current leader epoch is {state.epoch}")
        assert epoch == state.epoch, f"an upgrade of epoch {epoch} in epoch {state.epoch}"
        control = self._core.control
        state.upgrade_kraft_version(version, control.kraft_version, control.last_voters, now_ms, validate_only=validate_only)
        return self.poll(now_ms)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int, now_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of everything below `snapshot_id.offset`, which is committed. Returns None if it exists or the log begins after
        it."""
        core = self._core
        assert snapshot_id.offset <= core.log.high_watermark, f"snapshot {snapshot_id} above the high watermark {core.log.high_watermark}"
        if snapshot_id.offset < core.log.start_offset:
            return None
        sink = core.log.create_snapshot(snapshot_id)
        if sink is None:
            return None
        last_offset = snapshot_id.offset - 1
        version, voters = core.control.kraft_version_at(last_offset), core.control.voters_at(last_offset)
        frozen = core.control.truncate_old_entries
        return SnapshotWriter(sink, last_contained_log_timestamp, version, voters, core.identity.timestamp(now_ms), on_frozen=frozen)

    @property
    def _is_new(self) -> bool:
        """Whether this node has never voted or written anything."""
        state = self._core.quorum.state
        return isinstance(state, Unattached) and state.epoch == 0 and self._core.log.end_offset == 0

    def _leader(self, what: str) -> LeaderState:
        state = self._core.quorum.state
        if not isinstance(state, LeaderState):
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"{what} failed because the replica is not the current leader")
        return state

    def _is_shut_down(self, now_ms: int) -> bool:
        core = self._core
        deadline_ms = core.shutdown_deadline_ms
        if deadline_ms is None or core.is_finished:
            return core.is_finished
        quorum = core.quorum
        is_done = not quorum.is_voter or quorum.is_only_voter or quorum.has_remote_leader
        # Kafka waits for its time-out even if no other node could lead, as when a whole cluster stops.
        is_done = is_done or (isinstance(quorum.state, Resigned) and quorum.state.is_last)
        if is_done or now_ms >= deadline_ms:
            core.is_finished = True
            core.actions.append(ShutDown(not is_done))
        return core.is_finished

    def _taken(self) -> list[Action]:
        actions, self._core.actions = self._core.actions, []
        return actions
