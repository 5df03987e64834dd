"""Sends the requests of transactions, one at a time. Meanwhile no batch is sent.

Source: Kafka's Sender (maybeSendAndPollTransactionalRequest, maybeFindCoordinatorAndRetry, awaitNodeReady). Kafka's thread sleeps before a
retry; here the request waits. A coordinator that can't be reached is looked up again after `retry.backoff.ms`, and not at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kops.client.errors import ClusterAuthorizationError, TransactionAbortedError, TransactionalIdAuthorizationError, error_named
from kops.client.producer.core.handlers import CoordinatorKind
from kops.client.producer.core.links import Outgoing
from kops.client.producer.core.states import State
from kops.errors import ApiError
from kops.protocol.messages import InitProducerIdRequest

if TYPE_CHECKING:
    from kops.client.errors import KafkaError
    from kops.client.node import Node
    from kops.client.producer.core.handlers import Handler
    from kops.client.producer.core.transactions import Transactions
    from kops.client.producer.options import ProducerOptions
    from kops.protocol.declaration import Message


class Ways(Protocol):
    """What the sender does for requests of transactions."""

    def can_take(self, node: Node, now_ms: float) -> bool:
        """Whether a node takes a request at once."""

    def is_failing(self, node: Node) -> bool:
        """Whether the last attempt to connect has failed."""

    def latest_version(self, node: Node, api_key: int) -> int:
        """The latest version of an API that a node knows, -1 if that is not known."""

    def any_node(self, now_ms: float) -> Node | None:
        """The best node for a request that any node can answer."""

    def retry_ms(self, node: Node | None, now_ms: float) -> float:
        """The time until a node may be tried again."""

    def throttled(self, node: Node, answer: Message, now_ms: float) -> None:
        """Leave a node alone for as long as its answer says."""

    def want_metadata(self) -> None:
        """Request all topics and nodes again."""

    @property
    def has_batches(self) -> bool:
        """Whether any batch is unfinished."""

    def abort(self, error: KafkaError) -> None:
        """Fail every unfinished batch."""

    def abort_undrained(self, error: KafkaError) -> None:
        """Fail the batches that were never sent."""


class Coordination:
    """The request that is next or in flight."""

    def __init__(self, options: ProducerOptions, transactions: Transactions, ways: Ways) -> None:
        self.is_in_flight = False
        self._options = options
        self._transactions = transactions
        self._ways = ways
        self._next: Handler | None = None  # taken from the queue, and not sent yet
        self._reach_by_ms = 0.0
        self._send_at_ms: float | None = None
        self._pause_until_ms = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight or waits for its node."""
        return not self.is_in_flight and self._next is None

    def turn(self, requests: list[Outgoing], now_ms: float) -> tuple[bool, float]:
        """Add the request that is due. Returns whether batches may be sent now, and the time until the next turn at the latest."""
        transactions = self._transactions
        transactions.resolve()
        if transactions.fatal_error is not None:
            self._give_up(transactions.fatal_error)
            return False, float("inf")
        error = transactions.last_error
        if transactions.state is State.ABORTABLE_ERROR and isinstance(error, TransactionalIdAuthorizationError | ClusterAuthorizationError):
            self._ways.abort(error)
            transactions.uninitialize(error)
            return False, float("inf")
        while not self.is_in_flight:
            if now_ms < self._pause_until_ms:
                return False, self._pause_until_ms - now_ms
            if self._next is None:
                self._take(now_ms)
            if self._next is None:
                return True, float("inf")
            wait_ms = self._advance(self._next, requests, now_ms)
            if wait_ms is not None:
                return False, wait_ms
        return False, float("inf")

    def _take(self, now_ms: float) -> None:
        transactions = self._transactions
        if transactions.state is State.ABORTABLE_ERROR and transactions.last_error is not None:
            self._ways.abort_undrained(transactions.last_error)
        elif transactions.state is State.ABORTING:
            self._ways.abort_undrained(TransactionAbortedError("the transaction was aborted before the record was sent"))
        self._next = transactions.take_request(has_batches=self._ways.has_batches)
        self._reach_by_ms = now_ms + self._options.request_timeout_ms
        self._send_at_ms = None

    def _advance(self, handler: Handler, requests: list[Outgoing], now_ms: float) -> float | None:
        """Bring a request to its node. Returns the time to wait, or None if there is another step at once."""
        transactions, ways = self._transactions, self._ways
        kind = handler.coordinator
        node = ways.any_node(now_ms) if kind is None else transactions.coordinators[kind]
        if node is None:
            self._put_back(handler)
            if kind is None:
                self._pause_until_ms = now_ms + self._options.retry_backoff_ms
            return None
        if not ways.can_take(node, now_ms):
            if not ways.is_failing(node) and now_ms < self._reach_by_ms:
                return min(ways.retry_ms(node, now_ms), self._reach_by_ms - now_ms)
            self._put_back(handler)
            self._pause_until_ms = now_ms + self._options.retry_backoff_ms
            if kind is None:
                ways.want_metadata()
            return None
        if kind is CoordinatorKind.TRANSACTION:
            transactions.reached_coordinator(ways.latest_version(node, InitProducerIdRequest.API_KEY))
        if self._send_at_ms is None:
            self._send_at_ms = now_ms + (handler.retry_ms if handler.is_retry else 0)
        if now_ms < self._send_at_ms:
            return self._send_at_ms - now_ms
        self._send(handler, node, requests)
        return None

    def _put_back(self, handler: Handler) -> None:
        self._next = None
        handler.find_and_retry()

    def _send(self, handler: Handler, node: Node, requests: list[Outgoing]) -> None:
        self._next = None
        self.is_in_flight = True
        requests.append(
            Outgoing(node, handler.message(), lambda answer, now_ms: self._answered(handler, node, answer, now_ms), handler.versions)
        )

    def _answered(self, handler: Handler, node: Node, answer: Message | ApiError, now_ms: float) -> None:
        self.is_in_flight = False
        if not isinstance(answer, ApiError):
            self._ways.throttled(node, answer, now_ms)
            handler.handle(answer)
        elif answer.name in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"):
            handler.find_and_retry()
        elif answer.name == "UNSUPPORTED_VERSION":
            handler.unsupported(error_named(answer.name, answer.message))
        else:
            handler.fatal(error_named(answer.name, answer.message))

    def _give_up(self, error: KafkaError) -> None:
        if self._next is not None:
            self._transactions.fail(self._next.result, error)
            self._next = None
        if self._ways.has_batches:
            self._ways.abort(error)
