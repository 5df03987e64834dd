"""Calls to a cluster: chooses the broker, and retries until there is an answer or the time is up.

Source: Kafka's KafkaAdminClient (Call, NodeProvider, retries with back-off, default.api.timeout.ms), CommonClientConfigs. One difference is
intended: a server that never answers is reported after `UNREACHABLE_MS`, with its address. Kafka's clients wait a minute.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from kops.client.connection import Done
from kops.client.metadata import Metadata
from kops.client.network import NetworkClient
from kops.client.node import Node
from kops.client.settings import parse_addresses
from kops.errors import ApiError, KopsError, UnreachableError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.errors import Reaction, by_code, by_name

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kops.client.settings import ClientSettings
    from kops.protocol.declaration import Message
    from kops.protocol.messages import MetadataResponse

T = TypeVar("T")
UNREACHABLE_MS: Final = 8000
# If other brokers are alive, a dead leader is replaced after broker.session.timeout.ms (9 s by default).
LEADER_MS: Final = 20_000
WAITING_MS: Final = 2000  # the delay until `on_wait` is called
_LONGEST_TURN_MS: Final = 200
_CONTROLLER_ENDPOINTS: Final = 2


class To(Enum):
    """The recipient of a request that is not for a particular broker."""

    ANY = auto()
    CONTROLLER = auto()


def check(code: int, message: str | None = None) -> None:
    """Raise ApiError for an error code."""
    if code:
        error = by_code(code)
        raise ApiError(error.name, message or error.words)


def error_of(code: int, message: str | None = None) -> ApiError | None:
    """Return the ApiError for an item's error code, or None."""
    if not code:
        return None
    error = by_code(code)
    return ApiError(error.name, message or error.words)


class Call(Generic[T]):
    """One request and its outcome.

    `build(timeout_ms)` creates the request with the remaining time. `handle` turns the response into the outcome, or raises ApiError; a
    retriable error repeats the call. `to` is a broker's id or To. With `may_move`, the caller knows how to find another broker: a broker
    that does not answer fails the call with a retriable ApiError.
    """

    def __init__(
        self,
        name: str,
        to: To | int,
        build: Callable[[int], Message],
        handle: Callable[[Message], T],
        *,
        timeout_ms: int | None = None,
        versions: range | None = None,
        may_move: bool = False,
    ) -> None:
        self.name = name
        self.to = to
        self.may_move = may_move
        self.build = build
        self.handle = handle
        self.timeout_ms = timeout_ms
        self.versions = versions
        self.error: KopsError | None = None
        self.is_done = False
        self._value: T | None = None
        self.began_ms = 0.0
        self.deadline_ms = 0.0
        self.retry_ms = 0.0
        self.tries = 0
        self.node: Node | None = None  # while the request is in flight
        self.done: Done | None = None  # the callback for its answer
        self.answer: Message | ApiError | None = None
        self.last_error: ApiError | None = None
        self.failing_since_ms: float | None = None  # since when the node can't be reached, or is not in the metadata

    def succeed(self, value: T) -> None:
        """End the call with a value."""
        self._value = value
        self.is_done = True

    def fail(self, error: KopsError) -> None:
        """End the call with an error."""
        self.error = error
        self.is_done = True

    @property
    def value(self) -> T:
        """Return the result of `handle`. Raises the error of a failed call."""
        if self.error is not None:
            raise self.error
        return cast(T, self._value)


class Client:
    """A client of one cluster. Only one thread may use it."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        network: NetworkClient | None = None,
        draw: Callable[[], float] = random.random,
        is_patient: bool = False,
    ) -> None:
        self.settings = settings
        self.is_patient = is_patient  # whether calls wait to their deadline for a server that never answers, as Kafka's clients do
        self.asks_controllers = bool(settings.bootstrap_controllers)
        addresses = parse_addresses(settings.bootstrap_controllers or settings.bootstrap_servers or ("localhost",))
        self.network = network or NetworkClient(settings, draw=draw)
        self.metadata = Metadata(addresses, max_age_ms=settings.metadata_max_age_ms)
        self.backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, draw)
        self.draw = draw
        self._started_ms: float | None = None
        self._metadata_node: Node | None = None  # the node of the metadata request in flight
        self._metadata_failures = 0
        self._metadata_retry_ms = 0.0
        self._metadata_failing_since_ms: float | None = None
        self._metadata_error: ApiError | None = None
        self.on_wait: Callable[[str], object] = lambda text: None  # called with the reason of a wait, once for each text
        self._told: set[str] = set()
        self._quiet_until_ms = 0.0

    @property
    def _unreachable_ms(self) -> float:
        return float("inf") if self.is_patient else min(UNREACHABLE_MS, self.settings.default_api_timeout_ms)

    def now_ms(self) -> float:
        """The clock for deadlines."""
        return self.network.now_ms()

    def close(self) -> None:
        """Close all connections."""
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # calls

    def call(
        self,
        name: str,
        to: To | int,
        build: Callable[[int], Message],
        handle: Callable[[Message], T],
        *,
        timeout_ms: int | None = None,
        versions: range | None = None,
    ) -> T:
        """Run one call to its end. Raises ApiError, or UnreachableError if there is no answer in time."""
        call = Call(name, to, build, handle, timeout_ms=timeout_ms, versions=versions)
        self.run([call])
        return call.value

    def run(self, calls: Sequence[Call[T]]) -> None:
        """Run several calls at the same time to their end.

        Raises UnreachableError if no server answers at all. Any other error belongs to its call.
        """
        for call in calls:
            self.begin(call)
        while True:
            for call in calls:
                if not call.is_done:
                    self.advance(call)
            if all(call.is_done for call in calls):
                return
            self.wait(calls)

    def wait(self, calls: Sequence[Call[Any]]) -> None:
        """Run one turn until there may be news for calls that are on their way. Reports why the first of them waits for long."""
        waiting = next(call for call in calls if not call.is_done)
        if self.now_ms() - waiting.began_ms >= WAITING_MS:
            self.tell(self._why(waiting))
        self.turn(self.wait_ms(calls))

    def begin(self, call: Call[Any]) -> None:
        """Give a call its deadline, unless it already has one."""
        now_ms = self.now_ms()
        if self._started_ms is None:
            self._started_ms = now_ms
        call.began_ms = now_ms
        if not call.deadline_ms:
            call.deadline_ms = now_ms + (self.settings.default_api_timeout_ms if call.timeout_ms is None else call.timeout_ms)

    def withdraw(self, call: Call[Any]) -> None:
        """End a call whose outcome nobody wants any more. A request that was sent is answered, but nobody hears of it."""
        if call.node is not None and call.done is not None:
            self.network.withdraw(call.node, call.done)
        call.is_done = True

    def refresh(self) -> tuple[float, ApiError | None]:
        """Request metadata if it is due. Returns the time until it may be due again, and an error of the servers that ends all calls."""
        now_ms = self.now_ms()
        error, self._metadata_error = self._metadata_error, None
        self._refresh(now_ms)
        return self._metadata_wait_ms(now_ms), error

    def turn(self, timeout_ms: float) -> None:
        """Run one turn: request metadata if it is due, and process the connections.

        Raises UnreachableError if no server has ever answered, and ApiError if servers refuse to describe the cluster.
        """
        now_ms = self.now_ms()
        if self._started_ms is None:
            self._started_ms = now_ms
        self._refresh(now_ms)
        if not self.network.has_answer and now_ms - self._started_ms >= self._unreachable_ms:
            raise UnreachableError(self._unreachable_text())
        self.network.poll(min(timeout_ms, _LONGEST_TURN_MS, self._metadata_wait_ms(now_ms)))
        if self._metadata_error is not None:
            raise self._metadata_error

    def tell(self, text: str) -> None:
        """Report why the client waits. Each reason is reported once, one after the other."""
        now_ms = self.now_ms()
        if text and text not in self._told and now_ms >= self._quiet_until_ms:
            self._told.add(text)
            self._quiet_until_ms = now_ms + WAITING_MS
            self.on_wait(text)

    def _why(self, call: Call[T]) -> str:
        """Return why a call has no answer yet."""
        if not self.network.has_answer:
            return self._unreachable_text()
        if call.node is not None:
            return f"{call.name}: no answer from {call.node.address} yet"
        return "" if call.last_error is None else f"{call.name}: {call.last_error}"

    def wait_ms(self, calls: Sequence[Call[Any]]) -> float:
        """The time until one of these calls is due to be sent, or until it is worth a look again."""
        now_ms = self.now_ms()
        waiting = [call.retry_ms - now_ms for call in calls if not call.is_done and call.node is None and call.retry_ms > now_ms]
        return max(min(waiting, default=_LONGEST_TURN_MS), 0)

    def advance(self, call: Call[Any]) -> None:
        """Take the answer of a call that has one, send one that is due, and fail one whose time is up."""
        now_ms = self.now_ms()
        if call.answer is not None:
            self._answered(call, call.answer)
        if call.is_done:
            return
        if now_ms >= call.deadline_ms:
            call.fail(UnreachableError(self._too_late(call) if self.network.has_answer else self._unreachable_text()))
        elif call.node is not None and call.done is not None:
            if call.to is To.ANY and self._take_back(call.node, call.done):
                call.node = None
            elif call.may_move and self.network.is_slow(call.node) and self.network.withdraw(call.node, call.done):
                call.fail(ApiError("NETWORK_EXCEPTION", f"{call.node.address}: {self.network.reason(call.node)}"))
            elif not call.may_move:
                self._check_reachable(call, call.node)
        elif now_ms >= call.retry_ms:
            self._send(call, now_ms)

    def _too_late(self, call: Call[T]) -> str:
        reason = "" if call.last_error is None else f"; last: {call.last_error}"
        where = self.metadata.bootstrap_text if call.node is None else call.node.address
        return f"{call.name}: no answer in time from {where}{reason}"

    def _check_reachable(self, call: Call[T], node: Node) -> None:
        """Fail the call if its broker was never reached. Such a broker gets less time than one that has answered before."""
        if self.network.has_answer and self.network.failing_ms(node) >= self._unreachable_ms:
            call.fail(UnreachableError(f"broker {node.id} at {node.address} cannot be reached: {self.network.reason(node)}"))

    def ensure_reachable(self, node: Node, *, is_late: bool = False) -> None:
        """Raise UnreachableError for a leader that was never reached, if no other broker may take its place or there is no time left."""
        others = (other for other in self.metadata.nodes.values() if other.id != node.id)
        limit_ms = LEADER_MS if any(map(self.network.has_answered, others)) else UNREACHABLE_MS
        failing_ms = self.network.failing_ms(node)
        is_too_long = failing_ms >= min(limit_ms, self.settings.default_api_timeout_ms)
        if self.network.has_answer and (is_too_long or (is_late and failing_ms)):
            raise UnreachableError(f"broker {node.id} at {node.address} cannot be reached: {self.network.reason(node)}")

    def _check_there(self, call: Call[T], now_ms: float) -> None:
        """Fail the call if the cluster does not know its broker."""
        if isinstance(call.to, To) or self.metadata.is_bootstrap or call.to in self.metadata.nodes:
            return
        if call.may_move:
            call.fail(ApiError("NETWORK_EXCEPTION", f"the cluster has no broker {call.to}"))
            return
        if call.failing_since_ms is None:
            call.failing_since_ms = now_ms
        if now_ms - call.failing_since_ms >= self._unreachable_ms:
            reason = "" if call.last_error is None else f": {call.last_error}"
            call.fail(UnreachableError(f"the cluster has no broker {call.to}{reason}"))

    def _send(self, call: Call[T], now_ms: float) -> None:
        node = self._choose(call.to)
        if node is None:
            self._check_there(call, now_ms)
            return
        timeout_ms = min(call.deadline_ms - now_ms, self.settings.request_timeout_ms)

        def done(answer: Message | ApiError) -> None:
            call.answer = answer

        call.node, call.done = node, done
        self.network.send(node, call.build(int(timeout_ms)), done, timeout_ms=timeout_ms, versions=call.versions)

    def _take_back(self, node: Node, done: Done) -> bool:
        """Withdraw a request that a node has not accepted for a while if another node may be faster. Returns whether it was withdrawn."""
        if not self.network.is_slow(node):
            return False
        other = self.network.least_loaded(self.metadata.nodes.values())
        return other is not None and not self.network.is_slow(other) and self.network.withdraw(node, done)

    def _answered(self, call: Call[T], answer: Message | ApiError) -> None:
        node, call.node, call.answer = call.node, None, None
        if not isinstance(answer, ApiError):
            try:
                call.succeed(call.handle(answer))
                return
            except ApiError as error:
                answer = error
        kind = by_name(answer.name)
        call.last_error = answer
        call.tries += 1
        is_moved = call.may_move and kind.name in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")
        if not kind.retriable or call.tries > self.settings.retries or is_moved:
            call.fail(answer)
            return
        if kind.reaction is Reaction.METADATA or kind.name in ("NOT_CONTROLLER", "REQUEST_TIMED_OUT"):
            self.metadata.is_wanted = True
        if kind.name in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT") and call.failing_since_ms is None:
            call.failing_since_ms = self.now_ms()
        call.retry_ms = self.now_ms() + self.backoff.delay_ms(call.tries - 1)
        if node is not None:
            self._check_reachable(call, node)

    def _choose(self, to: To | int) -> Node | None:
        metadata = self.metadata
        if metadata.is_bootstrap or (metadata.is_wanted and to is not To.ANY):
            metadata.is_wanted = True
            return None
        if to is To.ANY:
            return self.network.least_loaded(metadata.nodes.values())
        node = metadata.nodes.get(metadata.controller_id if isinstance(to, To) else to)
        if node is None:
            metadata.is_wanted = True
        return node

    def _unreachable_text(self) -> str:
        nodes = self.metadata.nodes.values()
        return "; ".join(f"no answer from {node.address}: {self.network.reason(node)}" for node in nodes)

    # metadata

    def fetch_metadata(self, topics: Sequence[str] | None, *, auto_create: bool = False) -> MetadataResponse:
        """Request the metadata of topics, or of all (None), and store their leaders. Errors stay in the response."""
        from kops.protocol.messages import MetadataRequest, MetadataResponse
        from kops.protocol.messages.metadata_request import MetadataRequestTopic

        def build(_: int) -> Message:
            wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
            return MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)

        def handle(response: Message) -> MetadataResponse:
            assert isinstance(response, MetadataResponse)
            check(response.error_code)
            self.metadata.update(response, self.now_ms())
            return response

        return self.call("metadata", To.ANY, build, handle)

    def _refresh(self, now_ms: float) -> None:
        """Request the nodes if that is due and no request for them is in flight."""
        metadata = self.metadata
        if self._metadata_node is not None and self._take_back(self._metadata_node, self._metadata_came):
            self._metadata_node = None
        if self._metadata_node is not None or now_ms < self._metadata_retry_ms or not metadata.is_due(now_ms):
            return
        if self._metadata_failing_since_ms is None:
            self._metadata_failing_since_ms = now_ms
        may_rebootstrap = self.settings.metadata_recovery_strategy == "rebootstrap" and not metadata.is_bootstrap
        is_late = now_ms - self._metadata_failing_since_ms > self.settings.metadata_recovery_rebootstrap_trigger_ms
        if may_rebootstrap and (is_late or all(map(self.network.is_failing, metadata.nodes.values()))):
            metadata.rebootstrap()
            self._metadata_failing_since_ms = now_ms
        node = self.network.least_loaded(metadata.nodes.values())
        if node is not None:
            self._metadata_node = node
            self.network.send(node, self._metadata_request(), self._metadata_came)

    def _metadata_wait_ms(self, now_ms: float) -> float:
        """Return the time until nodes may be requested again, if they have to be."""
        if self._metadata_node is not None or not self.metadata.is_due(now_ms):
            return _LONGEST_TURN_MS
        return max(self._metadata_retry_ms - now_ms, self.settings.reconnect_backoff_ms, 1)

    def _metadata_request(self) -> Message:
        from kops.protocol.messages import DescribeClusterRequest, MetadataRequest

        if self.asks_controllers:
            return DescribeClusterRequest(endpoint_type=_CONTROLLER_ENDPOINTS, include_fenced_brokers=True)
        return MetadataRequest(topics=[], allow_auto_topic_creation=False)

    def _metadata_came(self, answer: Message | ApiError) -> None:
        from kops.protocol.messages import DescribeClusterResponse, MetadataResponse

        node, self._metadata_node = self._metadata_node, None
        now_ms = self.now_ms()
        error = answer if isinstance(answer, ApiError) else None
        if isinstance(answer, MetadataResponse | DescribeClusterResponse) and answer.error_code:
            error = ApiError(by_code(answer.error_code).name, by_code(answer.error_code).words)
        if error is not None:
            may_rebootstrap = self.settings.metadata_recovery_strategy == "rebootstrap"
            if error.name == "REBOOTSTRAP_REQUIRED" and may_rebootstrap:
                self.metadata.rebootstrap()
            elif not by_name(error.name).retriable:
                what = "controller" if self.asks_controllers else "broker"
                where = "" if node is None else f"{node.address} does not answer as a {what}: "
                self._metadata_error = ApiError(error.name, f"{where}{error}")
            self._metadata_failures += 1
            self._metadata_retry_ms = now_ms + self.backoff.delay_ms(self._metadata_failures - 1)
            return
        if isinstance(answer, MetadataResponse):
            self.metadata.update(answer, now_ms)
        elif isinstance(answer, DescribeClusterResponse):
            self.metadata.update_from_controllers(answer, now_ms)
        self._metadata_failures = 0
        self._metadata_failing_since_ms = None
        # A caller that misses something in the response asks again, but not at once.
        self._metadata_retry_ms = now_ms + self.settings.retry_backoff_ms
        self.network.forget(self.metadata.nodes.values())
