"""The replicas of a quorum, their addresses by listener, and positions in the log as an epoch and an offset.

Source: Kafka's ReplicaKey, Endpoints, Node and OffsetAndEpoch (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

NO_ID: Final = -1
NO_DIRECTORY_ID: Final = bytes(16)


class Address(NamedTuple):
    """The address of a listener."""

    host: str
    port: int


class Node(NamedTuple):
    """A node that receives requests. Bootstrap servers, whose ids are not known, have the ids -2, -3, … …"""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica of the log: the node's id and the id of the directory that holds its copy (16 bytes; None if it is not known)."""

    id: int
    directory_id: bytes | None = None

    @classmethod
    def read(cls, id: int, directory_id: bytes) -> ReplicaKey:
        """Return the replica of a message, which has 16 zero bytes for an unknown directory."""
        return cls(id, None if directory_id == NO_DIRECTORY_ID else bytes(directory_id))

    @property
    def directory_id_or_zero(self) -> bytes:
        """The directory's id, as in messages."""
        return NO_DIRECTORY_ID if self.directory_id is None else self.directory_id

    def is_matched_by(self, other: ReplicaKey) -> bool:
        """Whether `other` may be this replica. If this directory id is unknown, it matches any."""
        return self.id == other.id and (self.directory_id is None or self.directory_id == other.directory_id)

    def __str__(self) -> str:
        return f"{self.id}-{'?' if self.directory_id is None else self.directory_id.hex()}"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class OffsetAndEpoch:
    """An end of a log and the epoch of the record before it. The order is that of votes: by epoch first."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """An epoch and its leader, or None if it is not known."""

    leader_id: int | None
    epoch: int


class NamedEndpoint(Protocol):
    """An endpoint, as in all messages of the quorum."""

    name: str
    host: str
    port: int


class Endpoints:
    """Addresses by listener name (in upper case, as ListenerName.normalised), in the given order."""

    __slots__ = ("_by_listener",)

    def __init__(self, by_listener: dict[str, Address] | None = None) -> None:
        self._by_listener = dict(by_listener or {})

    @classmethod
    def of(cls, listener: str, host: str, port: int) -> Endpoints:
        """Return the endpoints with one listener's address."""
        return cls({listener.upper(): Address(host, port)})

    @classmethod
    def read(cls, endpoints: Iterable[NamedEndpoint]) -> Endpoints:
        """Return the endpoints of a request or of a voters record."""
        return cls({each.name.upper(): Address(each.host, each.port) for each in endpoints})

    def address(self, listener: str) -> Address | None:
        """Return the address of `listener`, or None if it is not among the endpoints."""
        return self._by_listener.get(listener.upper())

    def items(self) -> Iterator[tuple[str, Address]]:
        """Return (listener, address) of each endpoint."""
        return iter(self._by_listener.items())

    def __len__(self) -> int:
        return len(self._by_listener)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Endpoints) and self._by_listener == other._by_listener

    def __hash__(self) -> int:
        return hash(frozenset(self._by_listener.items()))

    def __repr__(self) -> str:
        return f"Endpoints({self._by_listener})"


NO_ENDPOINTS: Final = Endpoints()
