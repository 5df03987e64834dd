"""The roles of a node that is not the leader. Each has its epoch, its deadlines, and its answer to a vote request.

Unattached (no leader known, or none that can be reached), Prospective (asks whether it would be elected, KIP-996), Candidate, Follower,
Resigned (was the leader). Deadlines are in ms of the caller's clock. Source: Kafka's UnattachedState, ProspectiveState, CandidateState,
FollowerState, ResignedState.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kops.metadata.raft.log.log import SnapshotSink
from kops.metadata.raft.roles.election import ElectionState, EpochElection
from kops.metadata.raft.voters.replica import NO_ENDPOINTS, Endpoints, Node, ReplicaKey


class EpochState(Protocol):
    """The common part of all roles."""

    @property
    def epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int | None: ...

    @property
    def leader_endpoints(self) -> Endpoints: ...

    @property
    def election(self) -> ElectionState: ...

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        """Whether `candidate` gets our vote, or would get it (`pre_vote`). `is_up_to_date` says whether its log is at least as long as
        ours."""
        ...


def _leaderless_vote(
    leader_id: int | None, voted_key: ReplicaKey | None, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool
) -> bool:
    if pre_vote:
        return is_up_to_date
    if voted_key is not None:
        return voted_key.is_matched_by(candidate)
    return leader_id is None and is_up_to_date


@dataclass(slots=True)
class Unattached:
    """Knows no leader that it can reach. `election_deadline_ms` is None for an observer."""

    epoch: int
    leader_id: int | None
    voted_key: ReplicaKey | None
    voters: frozenset[int]
    high_watermark: int | None
    election_deadline_ms: int | None
    leader_endpoints: Endpoints = NO_ENDPOINTS

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted_key, self.voters)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        return _leaderless_vote(self.leader_id, self.voted_key, candidate, is_up_to_date=is_up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Prospective:
    """Asks the voters whether they would elect it, without a new epoch, so that a node that was cut off for a while disturbs nobody."""

    epoch: int
    leader_id: int | None
    leader_endpoints: Endpoints
    voted_key: ReplicaKey | None
    voters: frozenset[int]
    votes: EpochElection
    high_watermark: int | None
    election_deadline_ms: int

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted_key, self.voters)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        return _leaderless_vote(self.leader_id, self.voted_key, candidate, is_up_to_date=is_up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Candidate:
    """Has voted for itself in a new epoch."""

    epoch: int
    local_key: ReplicaKey
    voters: frozenset[int]
    votes: EpochElection
    high_watermark: int | None
    election_deadline_ms: int
    leader_endpoints: Endpoints = NO_ENDPOINTS

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, None, self.local_key, self.voters)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and is_up_to_date


@dataclass(slots=True)
class Follower:
    """Fetches from a leader as long as this answers before `fetch_deadline_ms`."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voted_key: ReplicaKey | None
    voters: frozenset[int]
    high_watermark: int | None
    fetch_timeout_ms: int
    fetch_deadline_ms: int
    update_voter_deadline_ms: int
    has_fetched: bool = False
    has_updated_leader: bool = False
    fetching_snapshot: SnapshotSink | None = None

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted_key, self.voters)

    def leader_node(self, listener: str) -> Node:
        """Return the leader's address."""
        address = self.leader_endpoints.address(listener)
        assert address is not None, f"no endpoint of leader {self.leader_id} for {listener}"
        return Node(self.leader_id, *address)

    def on_successful_fetch(self, now_ms: int) -> None:
        """Record that the leader has answered."""
        self.fetch_deadline_ms = now_ms + self.fetch_timeout_ms
        self.has_fetched = True

    def reset_update_voter(self, now_ms: int) -> None:
        """Delay the next request about this node's place among the voters by another period."""
        self.update_voter_deadline_ms = now_ms + self.fetch_timeout_ms

    def update_high_watermark(self, offset: int) -> bool:
        """Update the high watermark, which never shrinks. Returns whether it has grown."""
        assert self.high_watermark is None or offset >= self.high_watermark, f"high watermark {self.high_watermark} → {offset}"
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and is_up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned:
    """The former leader of this epoch. It informs the voters and waits for the next leader. `unreachable` are the voters that are not yet
    informed."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voters: frozenset[int]
    election_deadline_ms: int
    preferred_successors: Sequence[ReplicaKey]
    unacknowledged: set[int] = field(default_factory=set)
    high_watermark: int | None = None
    unreachable: set[int] = field(default_factory=set)

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, None, self.voters)

    @property
    def is_last(self) -> bool:
        """Whether so many voters can't be reached that no leader can be elected, with or without this node."""
        return 2 * (len(self.voters) - len(self.unreachable)) <= len(self.voters)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and is_up_to_date
