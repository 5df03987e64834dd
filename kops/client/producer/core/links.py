"""The sender's interface to the connections, and a request that it wants sent.

Source: Kafka's KafkaClient, ClientRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kops.client.node import Node
    from kops.errors import ApiError
    from kops.protocol.connections.node_versions import FinalizedFeatures
    from kops.protocol.declaration import Message


class Links(Protocol):
    """The sender's interface to the connections."""

    def is_ready(self, node: Node) -> bool:
        """Whether a node is connected and has taken all bytes of earlier requests. Begins to connect if it is not connected."""

    def load(self, node: Node) -> int:
        """The number of requests in flight to a node."""

    def retry_ms(self, node: Node) -> float:
        """The time until a node may be tried again. Infinite if an event will come first."""

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        """The best node for a request that any node can answer, or None."""

    def is_failing(self, node: Node) -> bool:
        """Whether the last attempt to connect has failed."""

    def latest_version(self, node: Node, api_key: int) -> int:
        """The latest version of an API that a node knows, -1 if that is not known."""

    def features(self) -> FinalizedFeatures:
        """The latest finalized features that any node has reported."""


class Outgoing(NamedTuple):
    """A request to send. `answered(answer, now_ms)` is called exactly once, with the answer or an error."""

    node: Node
    message: Message
    answered: Callable[[Message | ApiError, float], None]
    versions: range | None = None
    expects_response: bool = True
