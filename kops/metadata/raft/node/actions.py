"""The actions that a Raft node requests, in order, and its inputs.

Everything that has to be durable before an action is durable when the action is returned, because the node has already written it to its
log and election store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kops.metadata.raft.voters.replica import Endpoints, LeaderAndEpoch, Node, OffsetAndEpoch
from kops.metadata.raft.voters.settings import QuorumSettings, same_clock
from kops.metadata.raft.voters.voter_set import VoterSet
from kops.records import Batch

# A request or response of the quorum: a message of kops.protocol.messages.
Message = Any


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a node. `node_id` is None for an observer without an id. `listener` is the name of the listener that the quorum uses.

    `bootstrap` are the nodes that are asked for the leader. `topic_id` is that of the metadata topic. `draw(n)` returns one of 0 … n-1.
    `timestamp` converts a `now_ms` of the node to wall-clock time. The node's own clock should be monotonic.
    """

    node_id: int | None
    directory_id: bytes
    cluster_id: str
    topic: str
    topic_id: bytes
    listener: str
    listeners: Endpoints
    static_voters: VoterSet
    bootstrap: Sequence[Node]
    can_become_voter: bool
    settings: QuorumSettings
    draw: Callable[[int], int]
    timestamp: Callable[[int], int] = same_clock


@dataclass(frozen=True, slots=True)
class Request:
    """A received request. `token` belongs to the caller and is returned with the response."""

    token: Any
    message: Message
    api_version: int
    listener: str


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request. Its response (or `messages.error_response`) is passed to `RaftNode.on_response` with the same node and id."""

    node: Node
    correlation_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a request."""

    token: Any
    message: Message


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """There is a new epoch, or its leader has become known. The leader itself gets this when it has all records that were committed
    earlier."""

    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Replace the state with this snapshot's. The following batches begin at its offset."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Committed:
    """Newly committed batches, including control batches, in the order of the log and without a gap."""

    batches: list[Batch]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The node has stopped. With `timed_out`, it still had something to do."""

    timed_out: bool


Action = SendRequest | Respond | LeaderChanged | LoadSnapshot | Committed | ShutDown
