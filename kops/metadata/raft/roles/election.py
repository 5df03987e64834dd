"""The durable state of an election (epoch, leader and vote), and the count of an election's votes.

Source: Kafka's ElectionState (stored in the file `quorum-state`) and EpochElection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kops.metadata.raft.voters.replica import NO_ID, ReplicaKey


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The contents of `quorum-state`. `voters` are written only in its version 0 (kraft.version 0)."""

    epoch: int
    leader_id: int | None = None
    voted_key: ReplicaKey | None = None
    voters: frozenset[int] = frozenset()

    def is_leader(self, node_id: int) -> bool:
        """Whether that node leads in this epoch."""
        return self.leader_id == node_id

    def is_voted_candidate(self, key: ReplicaKey) -> bool:
        """Whether this node's vote in this epoch went to that replica."""
        return self.voted_key is not None and self.voted_key.is_matched_by(key)

    @property
    def leader_id_or_none(self) -> int:
        """The leader's id, or -1 if there is none, as in messages and in the file."""
        return NO_ID if self.leader_id is None else self.leader_id


class ElectionStore(Protocol):
    """The durable store of an election state: the file `quorum-state`."""

    def read(self) -> ElectionState | None:
        """Return the state that was last written, or None."""
        ...

    def write(self, election: ElectionState, data_version: int) -> None:
        """Make the state durable, in version 0 or 1 of the file."""


class EpochElection:
    """The votes of one election. Each voter has granted, rejected or not answered."""

    def __init__(self, voters: Iterable[ReplicaKey]) -> None:
        self._keys = {key.id: key for key in voters}
        self._votes: dict[int, bool] = {}

    def record(self, voter_id: int, *, granted: bool) -> None:
        """Record a voter's answer. Passing a node that is not a voter is a caller's bug."""
        assert voter_id in self._keys, f"{voter_id} is not a voter"
        self._votes[voter_id] = granted

    def is_voter(self, voter_id: int) -> bool:
        """Whether the node is a voter."""
        return voter_id in self._keys

    def vote_of(self, voter_id: int) -> bool | None:
        """Return a voter's answer, or None if it has not answered."""
        return self._votes.get(voter_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority has granted its vote."""
        return sum(self._votes.values()) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Whether a majority can't be reached any more."""
        return len(self._keys) - sum(not granted for granted in self._votes.values()) < self._majority

    @property
    def unrecorded(self) -> list[ReplicaKey]:
        """The voters that have not answered."""
        return [key for key in self._keys.values() if key.id not in self._votes]

    @property
    def granting(self) -> frozenset[int]:
        """The ids of the voters that have granted their vote."""
        return frozenset(voter for voter, granted in self._votes.items() if granted)

    @property
    def _majority(self) -> int:
        return len(self._keys) // 2 + 1
