"""Clients of the coordinators in `world`. Each runs scripts that send requests to nodes and wait, over connections of its own.

A script is a generator. It yields steps (`ask`, `pause`) and receives their results, so it reads like the program of a client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from kops.broker.network.peer import Peer, PeerSettings
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_code
from kops.protocol.messages import FindCoordinatorRequest
from tests.simulation.node_client import BROKER_PORT

if TYPE_CHECKING:
    from tests.simulation.coordinators.world import CoordinatorWorld

Step = Callable[[Callable[[Any], None]], None]
"""A step does something and then passes its result to the given callback, but never before the step itself has returned."""
Script = Generator[Step, Any, Any]
GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""
PATIENCE_MS = 4_000
AGAIN = {
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "NOT_LEADER_OR_FOLLOWER",
    "LEADER_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "KAFKA_STORAGE_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "UNSTABLE_OFFSET_COMMIT",
}
"""Errors after which a client tries again."""


class Actor:
    """A client whose scripts run until it vanishes."""

    def __init__(self, world: CoordinatorWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = world.clock.random
        self.is_gone = False
        self._loop = world.client.loop
        self._peers: dict[tuple[str, int], Peer] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def start(self, script: Script) -> None:
        """Start another script."""
        self._loop.call_soon(lambda: self._go_on(script, None))

    def vanish(self) -> None:
        """Let the client die. Requests that it has sent may still arrive, but nothing follows."""
        if not self.is_gone:
            self.say("is gone")
        self.is_gone = True
        for peer in self._peers.values():
            peer.close()

    def say(self, what: str) -> None:
        """Add a line to the trace."""
        self.world.tell(lambda: f"client {self.name}: {what}")

    def _go_on(self, script: Script, result: Any) -> None:
        if self.is_gone:
            return
        try:
            step = script.send(result)
        except StopIteration:
            return
        if self.is_gone:
            script.close()
            return
        step(lambda found: self._go_on(script, found))

    # steps ------------------------------------------------------------------------------------------------------------------------

    def pause(self, low_ms: float, high_ms: float) -> Step:
        """Return a step that waits for a random time in this range."""
        delay_ms = self.chance.uniform(low_ms, high_ms)
        return lambda done: void(self._loop.call_later(delay_ms, lambda: done(None)))

    def ask(self, node: int, message: Message, *, newest: int | None = None, patience_ms: int = PATIENCE_MS, lane: str = "") -> Step:
        """Return a step that sends a request to a node over the connection `lane`. Its result is the answer or an ApiError. `newest` limits
        the version of the request.
        """
        versions = None if newest is None else range(newest + 1)
        return lambda done: self._peer(node, lane).send(message, done, timeout_ms=patience_ms, versions=versions)

    def _peer(self, node: int, lane: str) -> Peer:
        peer = self._peers.get((lane, node))
        if peer is None:
            address = self.world.nodes[node].host.address
            settings = PeerSettings(client_id=self.name, request_timeout_ms=PATIENCE_MS)
            peer = self._peers[lane, node] = Peer(self._loop, address, BROKER_PORT, draw=self.chance.random, settings=settings)
        return peer

    # coordinators -----------------------------------------------------------------------------------------------------------------

    def find(self, kind: int, key: str) -> Script:
        """Return the node that coordinates a group or transactional id. Asks until a node is known."""
        while (kind, key) not in self._coordinators:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = yield self.ask(self.chance.choice(self.world.brokers), request, lane="find")
            if not isinstance(answer, ApiError) and not answer.coordinators[0].error_code:
                self._coordinators[kind, key] = answer.coordinators[0].node_id
            else:
                yield self.pause(50, 300)
        return self._coordinators[kind, key]

    def forget(self, kind: int, key: str) -> None:
        """Forget the coordinator, so that the next request looks for it again."""
        self._coordinators.pop((kind, key), None)

    def ask_coordinator(
        self, kind: int, key: str, message: Message, *, newest: int | None = None, patience_ms: int = PATIENCE_MS, lane: str = ""
    ) -> Script:
        """Send a request to a coordinator once, and return (node, answer). After an error, the next request looks for the coordinator
        again.
        """
        node = yield from self.find(kind, key)
        answer = yield self.ask(node, message, newest=newest, patience_ms=patience_ms, lane=lane)
        if isinstance(answer, ApiError):
            self.forget(kind, key)
        return node, answer


def void(_: object) -> None:
    """Ignore the argument."""


def error_name(code: int) -> str:
    """Return the name of an error code."""
    return by_code(code).name
