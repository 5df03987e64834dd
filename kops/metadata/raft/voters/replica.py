"""Who is who in a quorum: replicas, their addresses by listener, and positions in the log as an epoch and an offset.

Source: Kafka's ReplicaKey, Endpoints, Node and OffsetAndEpoch (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

NO_ID: Final = -1
NO_DIRECTORY_ID: Final = bytes(16)


class Address(NamedTuple):
    """Where a listener is reached."""

    host: str
    port: int


class Node(NamedTuple):
    """A place that requests are sent to. Bootstrap servers, whose ids are not known, have the ids -2, -3, …"""

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
        """As messages have it: 16 zero bytes where the directory is not known."""
        return cls(id, None if directory_id == NO_DIRECTORY_ID else bytes(directory_id))

    @property
    def directory_id_or_zero(self) -> bytes:
        """The directory's id as messages have it."""
        return NO_DIRECTORY_ID if self.directory_id is None else self.directory_id

    def is_matched_by(self, other: ReplicaKey) -> bool:
        """Whether `other` may be this replica: a directory id that is not known here matches every one."""
        return self.id == other.id and (self.directory_id is None or self.directory_id == other.directory_id)

    def __str__(self) -> str:
        return f"{self.id}-{'?' if self.directory_id is None else self.directory_id.hex()}"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class OffsetAndEpoch:
    """An end of a log and the epoch of the record before it; ordered as votes compare logs, by the epoch first."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Who leads in an epoch; None if that is not known."""

    leader_id: int | None
    epoch: int


class NamedEndpoint(Protocol):
    """An endpoint as every message of the quorum has it."""

    name: str
    host: str
    port: int


class Endpoints:
    """Addresses by listener name (upper case, as ListenerName.normalised has it), in the order they were given."""

    __slots__ = ("_by_listener",)

    def __init__(self, by_listener: dict[str, Address] | None = None) -> None:
        self._by_listener = dict(by_listener or {})

    @classmethod
    def of(cls, listener: str, host: str, port: int) -> Endpoints:
        """One listener's address."""
        return cls({listener.upper(): Address(host, port)})

    @classmethod
    def read(cls, endpoints: Iterable[NamedEndpoint]) -> Endpoints:
        """The endpoints of a request or of a voters record."""
        return cls({each.name.upper(): Address(each.host, each.port) for each in endpoints})

    def address(self, listener: str) -> Address | None:
        """Where `listener` is reached, None if it is not among them."""
        return self._by_listener.get(listener.upper())

    def items(self) -> Iterator[tuple[str, Address]]:
        """(listener, address) of each."""
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
