"""The actions that a Raft node requests, in this order, and its inputs.

What has to be durable before an action is durable when the action is returned: the node has written it to its log and its election store.
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
    """Who a node is. `node_id` is None for an observer without one; `listener` is the name of the listener that the quorum talks over.

    `bootstrap` are the nodes to ask for the leader. `topic_id` is that of the metadata topic. `draw(n)` returns one of 0 … n-1.
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
    """A request that came in. `token` is the caller's, and comes back with the response."""

    token: Any
    message: Message
    api_version: int
    listener: str


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request; its response (or `messages.error_response`) is given to `RaftNode.on_response` with the same node and id."""

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
    before."""

    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Forget the state and take this snapshot's; batches that follow begin at its offset."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Committed:
    """Batches that are committed now, control batches among them, in the log's order and without a gap."""

    batches: list[Batch]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The node has nothing left to do; `timed_out` where it had."""

    timed_out: bool


Action = SendRequest | Respond | LeaderChanged | LoadSnapshot | Committed | ShutDown
