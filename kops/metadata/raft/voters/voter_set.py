"""The voters of a quorum, as an immutable value: adding, removing and updating a voter returns a new set.

Source: Kafka's VoterSet (KIP-853). A set from `controller.quorum.voters` has no directory ids and supports only kraft.version 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kops.metadata.raft.voters.replica import NO_ENDPOINTS, Address, Endpoints, Node, ReplicaKey


@dataclass(frozen=True, slots=True)
class VoterNode:
    """A voter: its key, its endpoints, and the range of kraft.version that it supports (both ends inclusive)."""

    key: ReplicaKey
    listeners: Endpoints
    min_version: int = 0
    max_version: int = 0

    def supports(self, kraft_version: int) -> bool:
        """Whether the voter supports this kraft.version."""
        return self.min_version <= kraft_version <= self.max_version


class VoterSet:
    """The voters by id, in ascending order."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[VoterNode] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)}

    @classmethod
    def static(cls, listener: str, addresses: Mapping[int, Address]) -> VoterSet:
        """Return the voters of `controller.quorum.voters`."""
        return cls(VoterNode(ReplicaKey(id), Endpoints({listener.upper(): address})) for id, address in addresses.items())

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(key) for key in self.keys)})"

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all voters."""
        return frozenset(self._voters)

    @property
    def keys(self) -> list[ReplicaKey]:
        """The keys of all voters, by ascending id."""
        return [voter.key for voter in self]

    def get(self, voter_id: int) -> VoterNode | None:
        """Return the voter with this id."""
        return self._voters.get(voter_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica is a voter. A voter whose directory id is unknown is identified by its id."""
        voter = self._voters.get(key.id)
        return voter is not None and voter.key.is_matched_by(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica is the only voter."""
        return len(self) == 1 and self.is_voter(key)

    def listeners(self, voter_id: int) -> Endpoints:
        """Return the endpoints of a voter, or none if it is not a voter."""
        voter = self._voters.get(voter_id)
        return NO_ENDPOINTS if voter is None else voter.listeners

    def node(self, voter_id: int, listener: str) -> Node | None:
        """Return the address of a voter on this listener."""
        address = self.listeners(voter_id).address(listener)
        return None if address is None else Node(voter_id, *address)

    def needs_update(self, voter: VoterNode) -> bool:
        """Whether `voter` is in the set with other listeners, versions or directory."""
        known = self._voters.get(voter.key.id)
        return known is not None and known.key.is_matched_by(voter.key) and known != voter

    def add(self, voter: VoterNode) -> VoterSet | None:
        """Return the set with one more voter, or None if its id is taken."""
        return None if voter.key.id in self._voters else VoterSet((*self, voter))

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without this replica, or None if it is not a voter or is the last one."""
        voter = self._voters.get(key.id)
        if voter is None or voter.key != key or len(self) == 1:
            return None
        return VoterSet(each for each in self if each.key.id != key.id)

    def update(self, voter: VoterNode) -> VoterSet | None:
        """Return the set with new data of a voter, or None if that replica is not a voter."""
        return self.update_any_directory(voter) if self.is_voter(voter.key) else None

    def update_any_directory(self, voter: VoterNode) -> VoterSet | None:
        """Update a voter as `update` does, whatever directory it had."""
        if voter.key.id not in self._voters:
            return None
        return VoterSet(voter if each.key.id == voter.key.id else each for each in self)

    def supports(self, kraft_version: int) -> bool:
        """Whether all voters support this kraft.version."""
        return all(voter.supports(kraft_version) for voter in self)


NO_VOTERS: Final = VoterSet()
