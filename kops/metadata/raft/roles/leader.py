"""The leader of an epoch. It tracks the progress of every replica, the high watermark, whether a majority still follows, and pending
changes of voters.

The high watermark is the offset that a majority of the voters has reached. It grows only once this offset is after the epoch's first
record, so that records of earlier epochs are committed together with that record, not before. Source: Kafka's LeaderState,
AddVoterHandlerState, RemoveVoterHandlerState, KRaftVersionUpgrade (KIP-595, KIP-853).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kops.errors import ApiError
from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.accumulator import NEVER_MS, BatchAccumulator
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.voters.replica import NO_ENDPOINTS, Endpoints, ReplicaKey
from kops.metadata.raft.voters.settings import CATCH_UP_MS, OBSERVER_TIMEOUT_MS, QuorumSettings
from kops.metadata.raft.voters.voter_set import VoterNode, VoterSet

SNAPSHOT_VOTERS_OFFSET: Final = -1
"""The offset of a voter set with which the directory was formatted. The leader writes this set into the log."""


@dataclass(slots=True)
class ReplicaProgress:
    """What the leader knows about a replica. Times are in ms. If it has not fetched, they are -1 and `end_offset` is None."""

    key: ReplicaKey
    listeners: Endpoints = NO_ENDPOINTS
    end_offset: int | None = None
    last_fetch_ms: int = -1
    last_fetch_leader_end_offset: int = -1
    last_caught_up_ms: int = -1

    def on_fetch(self, offset: int, leader_end_offset: int | None, now_ms: int) -> None:
        """Handle a fetch at `offset`: the replica has durably stored everything before it."""
        if leader_end_offset is not None:
            if offset >= leader_end_offset:
                self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
            elif 0 < self.last_fetch_leader_end_offset <= offset:
                self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
            self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = offset


VoterChangeReply = Callable[[str, str | None], None]
"""Answers the request for a change: the name of an error (or NONE) and a message."""


@dataclass(slots=True)
class AddedVoter:
    """A voter that is being added. The leader first asks for its versions. Then the record at `last_offset` has to be committed."""

    key: ReplicaKey
    endpoints: Endpoints
    ack_when_committed: bool
    deadline_ms: int
    reply: VoterChangeReply
    last_offset: int | None = None
    is_answered: bool = False

    def answer(self, error: str, message: str | None = None) -> None:
        """Answer the request. Only the first call counts."""
        if not self.is_answered:
            self.is_answered = True
            self.reply(error, message)


@dataclass(slots=True)
class RemovedVoter:
    """A voter that is being removed, by the record at `last_offset`."""

    last_offset: int
    deadline_ms: int
    reply: VoterChangeReply


@dataclass(slots=True)
class LeaderState:
    """The leader's role, created by `QuorumState.transition_to_leader` at `now_ms`."""

    local_voter: VoterNode
    epoch: int
    epoch_start_offset: int
    voters_at_start: VoterSet
    offset_of_voters: int | None
    kraft_version: int
    granting_voters: frozenset[int]
    accumulator: BatchAccumulator
    settings: QuorumSettings
    now_ms: int
    high_watermark: int | None = None
    voters: dict[int, ReplicaProgress] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    added_voter: AddedVoter | None = None
    removed_voter: RemovedVoter | None = None
    is_resign_requested: bool = False
    volatile_voters: VoterSet | None = None
    """The directories, listeners and versions that voters have reported while kraft.version is 0. The upgrade to 1 writes them."""
    requested_kraft_version: int | None = None
    check_quorum_deadline_ms: int = 0
    begin_quorum_deadline_ms: int = 0
    fetched_voters: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.voters = {each.key.id: ReplicaProgress(each.key, each.listeners) for each in self.voters_at_start}
        self.check_quorum_deadline_ms = self.now_ms + self.settings.check_quorum_timeout_ms
        self.begin_quorum_deadline_ms = self.now_ms
        if self.kraft_version == 0:
            self.volatile_voters = self.voters_at_start.update_any_directory(self.local_voter)

    @property
    def local_id(self) -> int:
        """This node's id."""
        return self.local_voter.key.id

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.local_id, None, frozenset(self.voters))

    @property
    def leader_endpoints(self) -> Endpoints:
        return self.local_voter.listeners

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
        """Return False: a leader votes for nobody."""
        return False

    def append_start_of_epoch(self, now_ms: int) -> None:
        """Write the epoch's first batch: the leader, and also the voters if this node's own entry is outdated."""
        records = [control.leader_change(self.local_id, sorted(self.voters), sorted(self.granting_voters))]
        if self.kraft_version > 0:
            assert self.offset_of_voters is not None, f"kraft.version {self.kraft_version}, but no voters in the log or a snapshot"
            if self.offset_of_voters == SNAPSHOT_VOTERS_OFFSET or self.voters_at_start.needs_update(self.local_voter):
                updated = self.voters_at_start.update(self.local_voter)
                assert updated is not None, f"{self.local_voter} is not among {self.voters_at_start}"
                records += [control.kraft_version(self.kraft_version), control.voters(updated)]
        self.accumulator.append_control(records, now_ms)

    def append_voters(self, voters: VoterSet, now_ms: int) -> int:
        """Write a new voter set, and return its offset."""
        return self.accumulator.append_control([control.voters(voters)], now_ms)

    def upgrade_kraft_version(self, version: int, persisted: int, voters: VoterSet, now_ms: int, *, validate_only: bool) -> bool:
        """Write a higher kraft.version, with the currently known voters. Returns whether there was anything to do.

        Raises ApiError INVALID_UPDATE_VERSION for a downgrade, if another upgrade is in progress, or if a voter does not support the
        version.
        """
        if self.requested_kraft_version is not None or persisted == version:
            if self.requested_kraft_version in (None, version):
                return False
            pending = f"Version[kraftVersion=KRAFT_VERSION_{self.requested_kraft_version}]"
            reason = f"Invalid concurrent upgrade of kraft.version from version {pending} to KRAFT_VERSION_{version}"
            raise ApiError("INVALID_UPDATE_VERSION", reason)
        volatile = self.volatile_voters
        if persisted > version or volatile is None:
            reason = f"Invalid upgrade of kraft.version from version KRAFT_VERSION_{persisted} to KRAFT_VERSION_{version}"
            if persisted > version:
                reason += " because the new version is a downgrade"
            raise ApiError("INVALID_UPDATE_VERSION", reason)
        assert volatile.ids == voters.ids, f"{volatile} are not the voters {voters}"
        if not volatile.supports(version):
            reason = f"Invalid upgrade of kraft.version to KRAFT_VERSION_{version} because not all of the voters support it"
            raise ApiError("INVALID_UPDATE_VERSION", reason)
        assert all(key.directory_id is not None for key in volatile.keys), f"a voter of {volatile} without a directory id"
        if not validate_only:
            self.requested_kraft_version, self.volatile_voters = version, None
            records = [control.kraft_version(version)] + ([control.voters(volatile)] if volatile != voters else [])
            self.accumulator.append_control(records, now_ms)
        return True

    # Progress --------------------------------------------------------------------------------------------------------------------------

    def progress(self, key: ReplicaKey) -> ReplicaProgress | None:
        """Return the state of a replica, whether voter or observer."""
        state = self.voters.get(key.id)
        return state if state is not None and state.key.is_matched_by(key) else self.observers.get(key)

    def _progress_or_new(self, key: ReplicaKey) -> ReplicaProgress:
        found = self.progress(key)
        if found is None:
            found = self.observers[key] = ReplicaProgress(key)
        return found

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether the replica counts for the high watermark."""
        state = self.voters.get(key.id)
        return state is not None and state.key.is_matched_by(key)

    def update_local(self, end_offset: int) -> bool:
        """Record how far this node's own log is durable. Returns whether the high watermark has grown."""
        state = self._progress_or_new(self.local_voter.key)
        assert state.end_offset is None or state.end_offset <= end_offset, f"the leader's log shrank to {end_offset}"
        state.end_offset = end_offset
        return self._maybe_update_high_watermark()

    def update_replica(self, key: ReplicaKey, offset: int, now_ms: int) -> bool:
        """Handle a replica's fetch at `offset`. Returns whether the high watermark has grown."""
        if key.id < 0:
            return False
        assert key.id != self.local_id, f"{key} fetches from itself"
        self._progress_or_new(key).on_fetch(offset, self._progress_or_new(self.local_voter.key).end_offset, now_ms)
        self.on_voter_fetched(key, now_ms)
        return self.is_voter(key) and self._maybe_update_high_watermark()

    def update_voters(self, last_voters: VoterSet) -> bool:
        """Handle a new voter set in the log, which counts as soon as its record is there. Returns whether the high watermark has grown."""
        old, self.voters = self.voters, {}
        for voter in last_voters:
            known = old.pop(voter.key.id, None)
            if known is None or not known.key.is_matched_by(voter.key):
                known = self.observers.get(voter.key) or ReplicaProgress(voter.key)
            self.observers.pop(voter.key, None)
            known.key, known.listeners = voter.key, voter.listeners
            self.voters[voter.key.id] = known
        for left in old.values():
            left.listeners = NO_ENDPOINTS
            self.observers.setdefault(left.key, left)
        return self._maybe_update_high_watermark()

    def _by_descending_end(self) -> list[ReplicaProgress]:
        return sorted(
            self.voters.values(), key=lambda each: (-1 if each.end_offset is None else each.end_offset, -each.key.id), reverse=True
        )

    def _maybe_update_high_watermark(self) -> bool:
        candidate = self._by_descending_end()[len(self.voters) // 2].end_offset
        if candidate is None or candidate <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and candidate <= self.high_watermark:
            # It may be lower if the voters have changed, but committed records stay committed.
            return False
        self.high_watermark = candidate
        return True

    @property
    def successors(self) -> list[ReplicaKey]:
        """The other voters, most advanced first."""
        return [each.key for each in self._by_descending_end() if not each.key.is_matched_by(self.local_voter.key)]

    def active_observers(self, now_ms: int) -> list[ReplicaProgress]:
        """Return the observers that have fetched recently, and forget the others."""
        for key, state in list(self.observers.items()):
            if now_ms - state.last_fetch_ms >= OBSERVER_TIMEOUT_MS and key != self.local_voter.key:
                del self.observers[key]
        return list(self.observers.values())

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer has reached the log's end within the last hour."""
        state = self.observers.get(key)
        return state is not None and state.last_caught_up_ms > 0 and state.last_fetch_ms > max(0, now_ms - CATCH_UP_MS)

    # Deadlines -------------------------------------------------------------------------------------------------------------------------

    def on_voter_fetched(self, key: ReplicaKey, now_ms: int) -> None:
        """Record a request of a replica. When a majority of voters has sent one, the leader may continue for another period."""
        assert key.id != self.local_id, f"{key} fetches from itself"
        if self.is_voter(key):
            self.fetched_voters.add(key.id)
        majority = len(self.voters) // 2 + 1
        if len(self.fetched_voters) >= majority - (self.local_id in self.voters):
            self.fetched_voters.clear()
            self.check_quorum_deadline_ms = now_ms + self.settings.check_quorum_timeout_ms

    def ms_until_check_quorum(self, now_ms: int) -> int:
        """Return how long this leader may continue without requests from a majority."""
        return NEVER_MS if len(self.voters) == 1 else max(0, self.check_quorum_deadline_ms - now_ms)

    def voters_to_notify(self, now_ms: int) -> list[ReplicaKey]:
        """Return the voters that do not fetch. The leader must announce itself to them."""
        period = self.settings.begin_quorum_period_ms
        return [each.key for each in self.voters.values() if each.key.id != self.local_id and now_ms - each.last_fetch_ms >= period]

    def expire_voter_changes(self, now_ms: int) -> int:
        """Abandon changes that have taken too long. Returns the ms until the next one expires."""
        for change in (self.added_voter, self.removed_voter):
            if change is not None and change.deadline_ms <= now_ms:
                self.finish_added("REQUEST_TIMED_OUT") if isinstance(change, AddedVoter) else self.finish_removed("REQUEST_TIMED_OUT")
        return min(
            (change.deadline_ms - now_ms for change in (self.added_voter, self.removed_voter) if change is not None), default=NEVER_MS
        )

    def is_voter_change_pending(self, now_ms: int) -> bool:
        """Whether another change has to wait."""
        self.expire_voter_changes(now_ms)
        return self.added_voter is not None or self.removed_voter is not None

    def finish_added(self, error: str, message: str | None = None) -> None:
        """End the addition of a voter, successful or not."""
        change, self.added_voter = self.added_voter, None
        if change is not None:
            change.answer(error, message)

    def finish_removed(self, error: str, message: str | None = None) -> None:
        """End the removal of a voter, successful or not."""
        change, self.removed_voter = self.removed_voter, None
        if change is not None:
            change.reply(error, message)

    def close(self) -> None:
        """End the role, and answer all waiting requests."""
        self.finish_added("NOT_LEADER_OR_FOLLOWER")
        self.finish_removed("NOT_LEADER_OR_FOLLOWER")
