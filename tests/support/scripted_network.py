"""The connections of a client, answered by a test: virtual time, and a function instead of the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from kops.client.client import Client
from kops.client.connection import Done
from kops.client.node import Node
from kops.client.settings import ClientSettings
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest, MetadataResponse
from kops.protocol.messages.describe_cluster_response import DescribeClusterBroker
from kops.protocol.messages.metadata_response import MetadataResponseBroker

Answer = Message | ApiError | None  # None: no answer
NODES = (1, 2, 3)


@dataclass(slots=True)
class _Sent:
    node: Node
    message: Message
    done: Done
    deadline_ms: float
    answer: Answer


class ScriptedNetwork:
    """The connections that a Client needs. `answer(node_id, message, versions)` answers. Without its answer a request times out.

    `log` has (node id, name of the request) of what was sent, without the client's own requests for the nodes.
    """

    def __init__(self, answer: Callable[[int, Message, range | None], Answer], *, controller: int = 1) -> None:
        self.now = 1000.0
        self.controller = controller
        self.log: list[tuple[int, str]] = []
        self.times: list[float] = []
        self.has_answer = True
        self._answer = answer
        self._sent: list[_Sent] = []

    def now_ms(self) -> float:
        return self.now

    def send(self, node: Node, message: Message, done: Done, *, timeout_ms: float | None = None, versions: range | None = None) -> None:
        found: Answer = self._nodes(message)
        if found is None:
            self.log.append((node.id, type(message).__name__.removesuffix("Request")))
            self.times.append(self.now)
            found = self._answer(node.id, message, versions)
        self._sent.append(_Sent(node, message, done, self.now + (30_000 if timeout_ms is None else timeout_ms), found))

    def _nodes(self, message: Message) -> Message | None:
        """Return the answer to the client's own requests for the nodes."""
        if isinstance(message, MetadataRequest) and message.topics == []:
            brokers = [MetadataResponseBroker(node_id=one, host="host", port=9000 + one) for one in NODES]
            return MetadataResponse(brokers=brokers, controller_id=self.controller, cluster_id="cluster")
        if isinstance(message, DescribeClusterRequest) and message.endpoint_type == 2:
            controllers = [DescribeClusterBroker(broker_id=one, host="host", port=9000 + one) for one in NODES]
            return DescribeClusterResponse(brokers=controllers, controller_id=self.controller, cluster_id="cluster")
        return None

    def poll(self, timeout_ms: float) -> None:
        ready = [one for one in self._sent if one.answer is not None]
        if not ready:
            self.now += max(timeout_ms, 1)
        for one in ready:
            self.now += 1
            self._sent.remove(one)
            assert one.answer is not None
            one.done(one.answer)
        for one in [one for one in self._sent if one.deadline_ms <= self.now]:
            self._sent.remove(one)
            one.done(ApiError("REQUEST_TIMED_OUT", "no answer"))

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        return min(nodes, key=lambda node: abs(node.id))

    def withdraw(self, node: Node, done: Done) -> bool:
        return False

    def is_slow(self, node: Node) -> bool:
        return False

    def is_failing(self, node: Node) -> bool:
        return False

    def has_answered(self, node: Node) -> bool:
        return True

    def failing_ms(self, node: Node) -> float:
        return 0

    def reason(self, node: Node) -> str:
        return "scripted"

    def forget(self, keep: Iterable[Node]) -> None:
        return None

    def close(self) -> None:
        self._sent.clear()


def scripted_client(network: ScriptedNetwork, **settings: Any) -> Client:
    """Return a patient client whose back-off has no jitter."""
    plain = replace(ClientSettings.from_properties({}), **{"bootstrap_servers": ("host:9001",), **settings})
    stand_in: Any = network
    return Client(plain, network=stand_in, draw=lambda: 0.5, is_patient=True)
