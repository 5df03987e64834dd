"""What the parts of the consumer's core share: requests to send, outcomes of calls, and what they ask of the connections.

Source: Kafka's ConsumerNetworkClient (UnsentRequest), RequestFuture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.errors import ApiError
    from kops.protocol.connections.node_versions import NodeVersions
    from kops.protocol.declaration import Message

FOREVER: Final = float("inf")


class Outgoing(NamedTuple):
    """A request to send. `answered(answer, now_ms)` is called exactly once, with the answer or an error."""

    node: Node
    message: Message
    answered: Callable[[Message | ApiError, float], None]
    versions: range | None = None
    timeout_ms: float | None = None


class Links(Protocol):
    """What the core asks the connections."""

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        """Return the best node for a request, or None."""

    def is_ready(self, node: Node) -> bool:
        """Whether a node takes a request at once. Begins to connect if it is not connected."""

    def is_failing(self, node: Node) -> bool:
        """Whether the last attempt to connect has failed."""

    def reason(self, node: Node) -> str:
        """Return why a node can't be reached."""

    def is_backing_off(self, node: Node) -> bool:
        """Whether a node may not be tried yet."""

    def retry_ms(self, node: Node) -> float:
        """Return the time until a node may be tried again."""

    def versions(self, node: Node) -> NodeVersions | None:
        """Return the API versions of a node while there is a connection."""


class Outcome:
    """The outcome of a call: a value or an error, once it is known. `then` is called at that time."""

    __slots__ = ("_then", "error", "is_done", "value")

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None
        self._then: Callable[[Outcome], object] | None = None

    def then(self, callback: Callable[[Outcome], object]) -> None:
        """Call back when the outcome is known, or at once."""
        if self.is_done:
            callback(self)
        else:
            self._then = callback

    def succeed(self, value: Any = None) -> None:
        """Set the value, unless there is an outcome."""
        if not self.is_done:
            self.is_done, self.value = True, value
            self._tell()

    def fail(self, error: Exception) -> None:
        """Set the error, unless there is an outcome."""
        if not self.is_done:
            self.is_done, self.error = True, error
            self._tell()

    def _tell(self) -> None:
        if self._then is not None:
            callback, self._then = self._then, None
            callback(self)

    def result(self) -> Any:
        """Return the value or raise the error of an outcome that is known."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        return self.value
