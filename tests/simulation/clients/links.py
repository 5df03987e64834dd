"""The library's cores in the simulated network: connections as the cores see them, and clients that drive a core.

A client is an `Actor`: its program is a script. Beside it, `turn` sends what the core wants sent, again and again, as a face of the library
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kops.broker.network.peer import Peer, PeerSettings
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.connections.node_versions import FinalizedFeatures, NodeVersions
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsRequest
from tests.simulation.coordinators.actors import Actor
from tests.simulation.node_client import BROKER_PORT

if TYPE_CHECKING:
    from tests.simulation.coordinators.world import CoordinatorWorld

REQUEST_TIMEOUT_MS = 2_500
BACKOFF_MS = 60.0
LONGEST_WAIT_MS = 1_000.0
FOREVER = float("inf")


class Request(Protocol):
    """What a core wants sent: the Outgoing of a producer or of a consumer."""

    @property
    def node(self) -> Node:
        """Where to."""

    @property
    def message(self) -> Message:
        """The request."""

    @property
    def answered(self) -> Callable[[Message | ApiError, float], None]:
        """What to call with the answer."""

    @property
    def versions(self) -> range | None:
        """The versions that may be used."""


class Link:
    """The connection to a node."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.load = 0
        self.is_opening = False
        self.failed_ms: float | None = None  # when the last request failed, None after an answer


class SimLinks:
    """What the cores ask of their connections (the Links of producer and consumer)."""

    def __init__(self, client: CoreClient) -> None:
        self._client = client
        self._links: dict[Node, Link] = {}

    def _link(self, node: Node) -> Link:
        found = self._links.get(node)
        if found is None:
            settings = PeerSettings(client_id=self._client.name, request_timeout_ms=REQUEST_TIMEOUT_MS)
            peer = Peer(self._client.loop, node.host, node.port, draw=self._client.chance.random, settings=settings)
            found = self._links[node] = Link(peer)
        return found

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.peer.close()

    def send(self, request: Request, timeout_ms: float | None, done: Callable[[Message | ApiError], None]) -> None:
        """Send a request."""
        link = self._link(request.node)
        link.load += 1

        def came(answer: Message | ApiError) -> None:
            link.load -= 1
            is_down = isinstance(answer, ApiError) and answer.name in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")
            link.failed_ms = self._client.now_ms() if is_down else None
            done(answer)

        limit = None if timeout_ms is None else int(timeout_ms)
        link.peer.send(request.message, came, versions=request.versions, timeout_ms=limit)

    def _open(self, node: Node, link: Link) -> None:
        if link.is_opening or self.is_backing_off(node):
            return
        link.is_opening = True

        def came(answer: Message | ApiError) -> None:
            link.is_opening = False
            link.failed_ms = self._client.now_ms() if isinstance(answer, ApiError) else None
            self._client.soon()

        link.peer.send(ApiVersionsRequest(), came)

    # what the cores ask

    def is_ready(self, node: Node) -> bool:
        """Whether a node takes a request at once. Begins to connect if it is not connected."""
        link = self._link(node)
        if not link.peer.is_ready:
            self._open(node, link)
        return link.peer.is_ready

    def load(self, node: Node) -> int:
        """The number of requests in flight to a node."""
        return self._link(node).load

    def is_backing_off(self, node: Node) -> bool:
        """Whether a node may not be tried yet."""
        return self._backoff_ms(node) > 0

    def _backoff_ms(self, node: Node) -> float:
        failed_ms = self._link(node).failed_ms
        return 0.0 if failed_ms is None else max(failed_ms + BACKOFF_MS - self._client.now_ms(), 0.0)

    def retry_ms(self, node: Node) -> float:
        """The time until a node may be tried again."""
        return self._backoff_ms(node) or FOREVER

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        """The best node for a request that any node can answer, or None."""
        usable = [node for node in nodes if not self.is_backing_off(node)]
        ready = [node for node in usable if self._link(node).peer.is_ready]
        if ready:
            return min(ready, key=self.load)
        return self._client.chance.choice(usable) if usable else None

    def is_failing(self, node: Node) -> bool:
        """Whether the last request has failed."""
        return self._link(node).failed_ms is not None

    def reason(self, node: Node) -> str:
        """Why a node can't be reached."""
        return "the simulation"

    def versions(self, node: Node) -> NodeVersions | None:
        """The API versions of a node while there is a connection."""
        peer = self._link(node).peer
        return peer.versions if peer.is_ready else None

    def latest_version(self, node: Node, api_key: int) -> int:
        """The latest version of an API that a node knows, -1 if that is not known."""
        found = self.versions(node)
        return -1 if found is None else found.known(api_key)

    def features(self) -> FinalizedFeatures:
        """The latest finalized features that any node has reported."""
        known = [one.peer.versions.finalized_features for one in self._links.values() if one.peer.versions is not None]
        return max(known, key=lambda one: one.epoch, default=FinalizedFeatures(-1, {}))


class CoreClient(Actor):
    """A client with a core of the library. A kind of client provides `core_turn`."""

    def __init__(self, world: CoordinatorWorld, name: str) -> None:
        super().__init__(world, name)
        self.loop = world.client.loop
        self.links = SimLinks(self)
        self.bootstrap = [(world.nodes[one].host.address, BROKER_PORT) for one in world.brokers]
        self._is_scheduled = False
        self._timer: Any = None

    def core_turn(self, now_ms: float) -> tuple[Iterable[Request], float]:
        """Return the requests to send now, and the time until the next turn."""
        raise AssertionError("a kind of client has its own")

    def asks(self, message: Message) -> None:
        """Look at a request. A kind of client may check it."""

    def hears(self, message: Message, answer: Message) -> None:
        """Look at the answer to a request. A kind of client may check it."""

    def misses(self, message: Message) -> None:
        """Take note of a request without an answer. The node may still handle it, even after later ones."""

    def now_ms(self) -> float:
        """The client's clock."""
        return self.loop.monotonic_ms()

    def vanish(self) -> None:
        """Let the client die."""
        super().vanish()
        self.links.close()
        if self._timer is not None:
            self._timer.cancel()

    def soon(self) -> None:
        """Let a turn follow."""
        if not self._is_scheduled and not self.is_gone:
            self._is_scheduled = True
            self.loop.call_soon(self._turn_soon)

    def _turn_soon(self) -> None:
        self._is_scheduled = False
        self.turn()

    def turn(self) -> None:
        """Send what is due, and plan the next turn."""
        if self.is_gone:
            return
        requests, wait_ms = self.core_turn(self.now_ms())
        is_any = False
        for request in requests:
            is_any = True
            self._send(request)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(1.0 if is_any else min(max(wait_ms, 1.0), LONGEST_WAIT_MS), self.turn)

    def send_all(self, requests: Iterable[Request]) -> None:
        """Send requests that come from no turn."""
        for request in requests:
            self._send(request)

    def _send(self, request: Request) -> None:
        what = type(request.message).__name__
        self.say(f"asks {request.node.address}: {what}")
        self.asks(request.message)

        def done(answer: Message | ApiError) -> None:
            if self.is_gone:
                return
            if isinstance(answer, ApiError):
                self.say(f"{what} to {request.node.address}: {answer}")
                self.misses(request.message)
            else:
                self.hears(request.message, answer)
            request.answered(answer, self.now_ms())
            self.soon()

        self.links.send(request, getattr(request, "timeout_ms", None), done)
