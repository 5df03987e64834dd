"""The succession of roles of one node: which role may follow which, what must be durable, and how long each may last.

Source: Kafka's QuorumState. A transition that changes the contents of `quorum-state` is *durable*: it calls `persist` before the new role
begins, so that no message of the new role is sent before the state is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kops.metadata.raft.log.accumulator import BatchAccumulator
from kops.metadata.raft.log.control_state import ControlState
from kops.metadata.raft.roles.election import ElectionState, EpochElection
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.roles.states import Candidate, EpochState, Follower, Prospective, Resigned, Unattached
from kops.metadata.raft.voters.replica import NO_ID, Endpoints, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey
from kops.metadata.raft.voters.settings import QuorumSettings
from kops.metadata.raft.voters.voter_set import VoterNode

KRAFT_VERSIONS = (0, 1)
"""The lowest and the highest kraft.version that this node supports."""


class QuorumState:
    """The node's role. `draw(n)` returns one of 0 … n-1. `persist` makes an election state durable."""

    def __init__(
        self,
        local_id: int | None,
        directory_id: bytes,
        control: ControlState,
        listeners: Endpoints,
        settings: QuorumSettings,
        draw: Callable[[int], int],
        persist: Callable[[ElectionState], None],
    ) -> None:
        self.local_id = local_id
        self.directory_id = directory_id
        self._control = control
        self._listeners = listeners
        self._settings = settings
        self._draw = draw
        self._persist = persist
        self.state: EpochState

    def initialize(self, election: ElectionState | None, end: OffsetAndEpoch, now_ms: int) -> None:
        """Begin with the role that follows from the persisted state (None if there is none) and the end of the log."""
        voters = self._control.last_voters
        election = election or ElectionState(0, voters=voters.ids)
        deadline = now_ms + self._election_timeout_ms()
        self.state = Unattached(0, None, None, voters.ids, None, deadline)
        if election.epoch < end.epoch:
            self._become(Unattached(end.epoch, None, None, voters.ids, None, deadline))
        elif self.local_id is not None and election.is_leader(self.local_id):
            waiting = set(voters.ids - {self.local_id})
            self._become(Resigned(election.epoch, self.local_id, self._listeners, voters.ids, deadline, (), waiting))
        elif self.local_id is not None and election.is_voted_candidate(self.local_key) and voters.is_voter(self.local_key):
            self._become(Candidate(election.epoch, self.local_key, voters.ids, self._own_votes(), None, deadline))
        elif election.leader_id is not None and len(voters.listeners(election.leader_id)):
            self._become_follower(
                election.epoch, election.leader_id, voters.listeners(election.leader_id), election.voted_key, None, now_ms
            )
        else:
            self._become(Unattached(election.epoch, election.leader_id, election.voted_key, voters.ids, None, deadline))

    # Queries ----------------------------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def local_key(self) -> ReplicaKey:
        """This replica."""
        return ReplicaKey(self.local_id_or_none, self.directory_id)

    @property
    def local_voter(self) -> VoterNode:
        """This replica's entry for the voter set."""
        return VoterNode(self.local_key, self._listeners, *KRAFT_VERSIONS)

    @property
    def local_id_or_none(self) -> int:
        """This node's id, or -1 without one, as in messages."""
        return NO_ID if self.local_id is None else self.local_id

    @property
    def leader_id(self) -> int | None:
        """The leader, or None if it is not known."""
        return self.state.election.leader_id

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def is_voter(self) -> bool:
        """Whether this replica is one of the last voters, whether committed or not."""
        return self.local_id is not None and self._control.last_voters.is_voter(self.local_key)

    @property
    def is_only_voter(self) -> bool:
        return self.local_id is not None and self._control.last_voters.is_only_voter(self.local_key)

    @property
    def has_remote_leader(self) -> bool:
        return self.leader_id is not None and self.leader_id != self.local_id

    # Transitions ------------------------------------------------------------------------------------------------------------------------

    def transition_to_resigned(self, successors: Sequence[ReplicaKey], now_ms: int) -> None:
        """Resign: the leader gives up its role, but keeps its epoch."""
        assert isinstance(self.state, LeaderState), f"{self.state} resigns"
        voters = self._control.last_voters.ids
        deadline = now_ms + self._election_timeout_ms()
        own = self.state.local_id
        self._enter(Resigned(self.epoch, own, self._listeners, voters, deadline, tuple(successors), set(voters - {own})))

    def transition_to_unattached(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Enter a later epoch whose leader can't be reached, or the same epoch from Prospective."""
        state = self.state
        assert epoch > self.epoch or (epoch == self.epoch and isinstance(state, Prospective)), f"Unattached in {epoch} from {state}"
        deadline: int | None
        if not self.is_voter:
            deadline = None
        elif isinstance(state, Candidate | Unattached | Resigned) or (isinstance(state, Prospective) and not state.votes.is_lost):
            deadline = state.election_deadline_ms
        else:
            deadline = now_ms + self._election_timeout_ms()
        if deadline is None and self.is_voter:
            deadline = now_ms + self._election_timeout_ms()
        voted = state.election.voted_key if epoch == self.epoch else None
        self._become(Unattached(epoch, leader_id, voted, self._control.last_voters.ids, state.high_watermark, deadline))

    def add_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Give this epoch's vote to another replica, and restart the election time-out."""
        state = self.state
        assert isinstance(state, Unattached | Prospective) and state.voted_key is None, f"a vote of {state}"
        assert candidate.id != self.local_id, "a vote for this node itself"
        deadline = now_ms + self._election_timeout_ms()
        voters = self._control.last_voters.ids
        if isinstance(state, Unattached):
            self._become(Unattached(state.epoch, state.leader_id, candidate, voters, state.high_watermark, deadline))
        else:
            self._become(
                Prospective(
                    state.epoch,
                    state.leader_id,
                    state.leader_endpoints,
                    candidate,
                    voters,
                    self._own_votes(),
                    state.high_watermark,
                    deadline,
                )
            )

    def transition_to_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        """Follow the leader of this or a later epoch. Within an epoch, this may be repeated only if more of its endpoints are known."""
        state = self.state
        assert len(endpoints), f"no endpoint of leader {leader_id}"
        assert leader_id != self.local_id, "this node follows itself"
        assert epoch >= self.epoch, f"a follower of epoch {epoch} from {state}"
        if epoch == self.epoch:
            assert not isinstance(state, LeaderState), f"a follower in epoch {epoch} from {state}"
            assert not isinstance(state, Follower) or len(state.leader_endpoints) < len(endpoints), f"{state} follows again"
        voted = state.election.voted_key if epoch == self.epoch else None
        self._become_follower(epoch, leader_id, endpoints, voted, state.high_watermark, now_ms)

    def transition_to_prospective(self, now_ms: int) -> None:
        """Become Prospective, to ask whether this node would win an election."""
        state = self.state
        assert self.is_voter, f"{self.local_key} is not a voter of {self._control.last_voters}"
        assert not isinstance(state, LeaderState | Prospective), f"Prospective from {state}"
        self._enter(
            Prospective(
                state.epoch,
                self.leader_id,
                state.leader_endpoints,
                state.election.voted_key,
                self._control.last_voters.ids,
                self._own_votes(),
                state.high_watermark,
                now_ms + self._election_timeout_ms(),
            )
        )

    def transition_to_candidate(self, now_ms: int) -> None:
        """Begin a new epoch with a vote for this node."""
        assert self.is_voter and isinstance(self.state, Prospective), f"Candidate from {self.state}"
        deadline = now_ms + self._election_timeout_ms()
        voters = self._control.last_voters.ids
        self._become(Candidate(self.epoch + 1, self.local_key, voters, self._own_votes(), self.state.high_watermark, deadline))

    def transition_to_leader(self, epoch_start_offset: int, accumulator: BatchAccumulator, now_ms: int) -> LeaderState:
        """Become leader after a won election."""
        assert self.is_voter and isinstance(self.state, Candidate) and self.state.votes.is_won, f"Leader from {self.state}"
        leader = LeaderState(
            self.local_voter,
            self.epoch,
            epoch_start_offset,
            self._control.last_voters,
            self._control.last_voters_offset,
            self._control.kraft_version,
            self.state.votes.granting,
            accumulator,
            self._settings,
            now_ms,
        )
        self._become(leader)
        return leader

    def _become_follower(
        self, epoch: int, leader_id: int, endpoints: Endpoints, voted: ReplicaKey | None, high_watermark: int | None, now_ms: int
    ) -> None:
        timeout = self._settings.fetch_timeout_ms
        voters = self._control.last_voters.ids
        deadline = now_ms + timeout
        self._become(Follower(epoch, leader_id, endpoints, voted, voters, high_watermark, timeout, deadline, deadline))

    def _become(self, state: EpochState) -> None:
        self._persist(state.election)
        self._enter(state)

    def _enter(self, state: EpochState) -> None:
        left = self.state
        if isinstance(left, LeaderState):
            left.close()
        if isinstance(left, Follower) and left.fetching_snapshot is not None:
            left.fetching_snapshot.close()
        self.state = state

    def _own_votes(self) -> EpochElection:
        votes = EpochElection(self._control.last_voters.keys)
        if self.is_voter:
            votes.record(self.local_id_or_none, granted=True)
        return votes

    def _election_timeout_ms(self) -> int:
        timeout = self._settings.election_timeout_ms
        return timeout + self._draw(timeout) if timeout else 0
