"""The state of a client's connection to one node: its requests, its socket, and how its attempts went. `kops.client.network` drives it.

Source: Kafka's ClusterConnectionStates.NodeConnectionState, InFlightRequests.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.connections.backoff import ConnectionAttempts
from kops.protocol.connections.connection import ClientConnection
from kops.protocol.connections.node_versions import NodeVersions
from kops.protocol.declaration import Message

NEVER: Final = float("inf")
Done = Callable[["Message | ApiError"], object]


class State(Enum):
    """How far a connection is."""

    DISCONNECTED = auto()
    CONNECTING = auto()
    CHECKING_VERSIONS = auto()
    READY = auto()


class Request:
    """A request that waits for a connection, or for its answer. `message` is None once it is written."""

    __slots__ = ("deadline_ms", "done", "expects_response", "message", "versions")

    def __init__(self, message: Message, done: Done, deadline_ms: float, versions: range | None, expects_response: bool) -> None:
        self.message: Message | None = message
        self.done = done
        self.deadline_ms = deadline_ms
        self.versions = versions
        self.expects_response = expects_response


class Connection:
    """The connection to a node. `failing_since_ms` is when it first failed after its last answer (or ever), and `reason` is why."""

    def __init__(self, node: Node, attempts: ConnectionAttempts, now_ms: float) -> None:
        self.node = node
        self.attempts = attempts
        self.state = State.DISCONNECTED
        self.sock: socket.socket | None = None
        self.protocol = ClientConnection()
        self.versions: NodeVersions | None = None
        self.addresses: list[tuple[int, tuple[str, int]]] = []
        self.waiting: deque[Request] = deque()
        self.in_flight: deque[Request] = deque()
        self.outbox: deque[memoryview] = deque()
        self.events = 0  # what the selector reports of its socket
        self.setup_deadline_ms = 0.0
        self.used_ms = now_ms
        self.tried_ms = 0.0
        self.failed_attempts = 0  # since it last answered
        self.failing_since_ms: float | None = None
        self.has_answered = False
        self.is_open = False
        self.is_reserved = False  # whether another thread than that of `poll` waits for its socket
        self.throttled_until_ms = 0.0  # until then, no request is sent (KIP-219)
        self.reason = "no answer"

    def deadline_ms(self, now_ms: float, idle_limit_ms: float) -> float:
        """Return the time at which its first request, or the connection itself, may be too late."""
        requests_ms = min((one.deadline_ms for one in (*self.in_flight, *self.waiting)), default=NEVER)
        if self.state in (State.CONNECTING, State.CHECKING_VERSIONS):
            return min(requests_ms, self.setup_deadline_ms)
        if self.state is not State.READY:
            return requests_ms
        idle_ms = now_ms + idle_limit_ms if requests_ms < NEVER else self.used_ms + idle_limit_ms
        return min(requests_ms, idle_ms + 1)

    def is_idle(self, now_ms: float, idle_limit_ms: float) -> bool:
        """Whether it has not been used for longer than the limit."""
        is_unused = self.state is State.READY and not self.in_flight and not self.waiting
        return is_unused and now_ms - self.used_ms > idle_limit_ms
