"""Tracks which nodes may get a request now: one request at a time to each, with a time-out, and a pause after a failure.

Source: Kafka's RequestManager. Bootstrap servers are tried in turn, beginning with a random one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kops.metadata.raft.voters.replica import Node


@dataclass(slots=True)
class _Connection:
    """A request in flight (`correlation_id`), or the pause after a failed one (None)."""

    correlation_id: int | None
    since_ms: int


class RequestManager:
    """The state of every connection, by node id. `draw(n)` returns one of 0 … n-1."""

    def __init__(self, bootstrap: Sequence[Node], retry_backoff_ms: int, request_timeout_ms: int, draw: Callable[[int], int]) -> None:
        self.bootstrap = list(bootstrap)
        self.retry_backoff_ms = retry_backoff_ms
        self.request_timeout_ms = request_timeout_ms
        self._draw = draw
        self._connections: dict[int, _Connection] = {}

    def _remaining(self, connection: _Connection, now_ms: int) -> int:
        """Return the time until the request times out or the pause ends, or 0 if that has already happened."""
        limit = self.retry_backoff_ms if connection.correlation_id is None else self.request_timeout_ms
        return max(0, connection.since_ms + limit - now_ms)

    def _drop_finished(self, now_ms: int) -> None:
        self._connections = {id: each for id, each in self._connections.items() if self._remaining(each, now_ms)}

    def has_any_in_flight(self, now_ms: int) -> bool:
        """Whether any answer is outstanding."""
        self._drop_finished(now_ms)
        return any(each.correlation_id is not None for each in self._connections.values())

    def ready_bootstrap(self, now_ms: int) -> Node | None:
        """Return a bootstrap server that may be asked, or None while any answer is outstanding."""
        if self.has_any_in_flight(now_ms):
            return None
        start = self._draw(len(self.bootstrap))
        turned = self.bootstrap[start:] + self.bootstrap[:start]
        return next((node for node in turned if self.is_ready(node, now_ms)), None)

    def backoff_before_bootstrap_ms(self, now_ms: int) -> int:
        """Return the time until a bootstrap server may be asked."""
        self._drop_finished(now_ms)
        for each in self._connections.values():
            if each.correlation_id is not None:
                return self._remaining(each, now_ms)
        if any(self.is_ready(node, now_ms) for node in self.bootstrap):
            return 0
        return min([self.retry_backoff_ms, *(self._remaining(each, now_ms) for each in self._connections.values())])

    def has_timed_out(self, node: Node, now_ms: int) -> bool:
        """Whether the answer of this node is overdue."""
        each = self._connections.get(node.id)
        return each is not None and each.correlation_id is not None and not self._remaining(each, now_ms)

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to this node. An overdue answer no longer blocks it."""
        each = self._connections.get(node.id)
        if each is None:
            return True
        if self._remaining(each, now_ms):
            return False
        del self._connections[node.id]
        return True

    def is_backing_off(self, node: Node, now_ms: int) -> bool:
        """Whether the last request failed a moment ago."""
        each = self._connections.get(node.id)
        return each is not None and each.correlation_id is None and self._remaining(each, now_ms) > 0

    def remaining_ms(self, node: Node, now_ms: int) -> int:
        """Return the time until the pause ends or the request times out, or 0 if there is neither."""
        each = self._connections.get(node.id)
        return 0 if each is None else self._remaining(each, now_ms)

    def is_expected(self, node: Node, correlation_id: int) -> bool:
        """Whether an answer with this id is expected from this node."""
        each = self._connections.get(node.id)
        return each is not None and each.correlation_id == correlation_id

    def on_sent(self, node: Node, correlation_id: int, now_ms: int) -> None:
        """Record that a request was sent."""
        self._connections[node.id] = _Connection(correlation_id, now_ms)

    def on_result(self, node: Node, correlation_id: int, now_ms: int, *, success: bool) -> None:
        """Handle the expected answer. A failure starts the pause. Any other answer is ignored."""
        if not self.is_expected(node, correlation_id):
            return
        if success:
            del self._connections[node.id]
        else:
            self._connections[node.id] = _Connection(None, now_ms)

    def reset(self, node: Node) -> None:
        """Forget the request to this node."""
        self._connections.pop(node.id, None)

    def reset_all(self) -> None:
        """Forget all requests, because a new role has begun."""
        self._connections.clear()
