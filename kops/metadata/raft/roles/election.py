"""What a node must not forget of an election: the epoch, who leads and whom it voted for. And the count of an election's votes.

Source: Kafka's ElectionState (kept in the file `quorum-state`) and EpochElection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kops.metadata.raft.voters.replica import NO_ID, ReplicaKey


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The contents of `quorum-state`. `voters` are written in its version 0 only (kraft.version 0)."""

    epoch: int
    leader_id: int | None = None
    voted_key: ReplicaKey | None = None
    voters: frozenset[int] = frozenset()

    def is_leader(self, node_id: int) -> bool:
        """Whether that node leads in this epoch."""
        return self.leader_id == node_id

    def is_voted_candidate(self, key: ReplicaKey) -> bool:
        """Whether the vote of this epoch went to that replica."""
        return self.voted_key is not None and self.voted_key.is_matched_by(key)

    @property
    def leader_id_or_none(self) -> int:
        """The leader's id, -1 if there is none: as messages and the file have it."""
        return NO_ID if self.leader_id is None else self.leader_id


class ElectionStore(Protocol):
    """Where an election state outlives the process: the file `quorum-state`."""

    def read(self) -> ElectionState | None:
        """What was written last; None if nothing was."""
        ...

    def write(self, election: ElectionState, data_version: int) -> None:
        """Make it durable, in version 0 or 1 of the file."""


class EpochElection:
    """The votes of one election. Each voter has granted, rejected or not answered."""

    def __init__(self, voters: Iterable[ReplicaKey]) -> None:
        self._keys = {key.id: key for key in voters}
        self._votes: dict[int, bool] = {}

    def record(self, voter_id: int, *, granted: bool) -> None:
        """A voter's answer. A node that is not a voter is an error of the caller."""
        assert voter_id in self._keys, f"{voter_id} is not a voter"
        self._votes[voter_id] = granted

    def is_voter(self, voter_id: int) -> bool:
        """Whether that node's vote counts."""
        return voter_id in self._keys

    def vote_of(self, voter_id: int) -> bool | None:
        """What a voter answered; None if it has not."""
        return self._votes.get(voter_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority granted."""
        return sum(self._votes.values()) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Whether a majority can't be reached any more."""
        return len(self._keys) - sum(not granted for granted in self._votes.values()) < self._majority

    @property
    def unrecorded(self) -> list[ReplicaKey]:
        """Voters that have not answered."""
        return [key for key in self._keys.values() if key.id not in self._votes]

    @property
    def granting(self) -> frozenset[int]:
        """Ids of the voters that granted."""
        return frozenset(voter for voter, granted in self._votes.items() if granted)

    @property
    def _majority(self) -> int:
        return len(self._keys) // 2 + 1
