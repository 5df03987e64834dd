"""The coordinator of the group, as the consumer sees it: where it is, and calls that are repeated until they succeed.

Source: Kafka's AbstractCoordinator (lookupCoordinator, FindCoordinatorResponseHandler, markCoordinatorUnknown), CoordinatorRequestManager.
The coordinator has its own connection, because its requests must not wait for a fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kops.client.consumer.errors import as_kafka, error_named
from kops.client.consumer.parts.requests import FOREVER, Outcome, Outgoing
from kops.client.errors import KafkaError
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.connections.backoff import ExponentialBackoff
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_code
from kops.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.metadata import ConsumerMetadata
    from kops.client.consumer.parts.requests import Links
    from kops.protocol.declaration import Message

_GROUP: Final = 0
_FIND_VERSIONS: Final = range(4, 7)
_LAST_ID: Final = 0x7FFF_FFFF
MOVED: Final = frozenset(("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"))
_UNREACHABLE: Final = frozenset(("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"))


class Call:
    """A call to the coordinator. `handle(answer)` returns the value or raises KafkaError. With `retries`, a retriable one repeats it.

    After an answer with an error of `moved`, the coordinator is looked up again. `handle` may set `partial`: the value if there is no time
    for another attempt.
    """

    __slots__ = ("build", "deadline_ms", "failures", "handle", "moved", "outcome", "partial", "retries", "retry_ms", "versions")

    def __init__(
        self,
        build: Callable[[], Message],
        versions: range | None,
        handle: Callable[[Message], object],
        deadline_ms: float,
        *,
        retries: bool,
        moved: frozenset[str] = MOVED,
    ) -> None:
        self.build = build
        self.moved = moved
        self.versions = versions
        self.handle = handle
        self.deadline_ms = deadline_ms
        self.retries = retries
        self.outcome = Outcome()
        self.partial: object = None
        self.retry_ms = 0.0
        self.failures = 0


class Coordinator:
    """Finds the coordinator, and sends calls to it. `error` is one that no retry heals; the next `poll` raises it."""

    def __init__(self, options: ConsumerOptions, metadata: ConsumerMetadata, links: Links, draw: Callable[[], float]) -> None:
        self.node: Node | None = None
        self.error: KafkaError | None = None
        self.why = ""
        self.finds = 0  # counts the answers to FindCoordinator
        self._options = options
        self._metadata = metadata
        self._links = links
        self.backoff = ExponentialBackoff(options.retry_backoff_ms, options.retry_backoff_max_ms, draw)
        self._is_wanted = False
        self._is_finding = False
        self._failures = 0
        self._retry_ms = 0.0
        self._ready_ms = 0.0  # when a node may be tried; infinite while one is being connected
        self._waiting: list[Call] = []
        self._in_flight = 0

    @property
    def is_idle(self) -> bool:
        """Whether no call waits or is in flight."""
        return not self._waiting and not self._in_flight

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic, 0 if the metadata has none, or if the topic is no longer there."""
        cluster = self._metadata.cluster
        return ZERO_UUID if topic in cluster.topic_errors else cluster.topic_ids.get(topic, ZERO_UUID)

    def want(self) -> None:
        """Look for the coordinator if it is not known."""
        self._is_wanted = True

    def lose(self, why: str) -> None:
        """Forget the coordinator, because it does not answer or has moved."""
        self.node = None
        self.why = why

    def call(self, call: Call) -> Outcome:
        """Send a call as soon as the coordinator is known."""
        self._waiting.append(call)
        self._is_wanted = True
        return call.outcome

    def turn(self, now_ms: float) -> list[Outgoing]:
        """Return the requests to send now."""
        for call in [one for one in self._waiting if now_ms >= one.deadline_ms]:
            self._waiting.remove(call)
            text = f"no answer in time from the coordinator of group {self._options.group_id}"
            why = self.why or self._unreachable()
            call.outcome.fail(error_named("REQUEST_TIMED_OUT", f"{text}: {why}" if why else text))
        if self.node is None:
            return self._find(now_ms)
        due = [call for call in self._waiting if now_ms >= call.retry_ms]
        self._waiting = [call for call in self._waiting if now_ms < call.retry_ms]
        requests = []
        for call in due:
            try:
                requests.append(self._request(call, self.node))
            except KafkaError as error:
                call.outcome.fail(error)
        return requests

    def _unreachable(self) -> str:
        """Return why no node has answered."""
        if self.finds:
            return ""
        return "; ".join(f"{node.address}: {self._links.reason(node)}" for node in self._metadata.cluster.nodes.values())

    def wake_ms(self) -> float:
        """Return the time of the next retry."""
        times = [call.deadline_ms for call in self._waiting]
        if self.node is not None:
            times += [call.retry_ms for call in self._waiting]
        elif self._is_wanted and not self._is_finding:
            times.append(max(self._retry_ms, self._ready_ms))
        return min(times, default=FOREVER)

    # finding it

    def _find(self, now_ms: float) -> list[Outgoing]:
        self._ready_ms = 0.0
        if not self._is_wanted or self._is_finding or now_ms < self._retry_ms or self.error is not None:
            return []
        node = self._links.least_loaded(self._metadata.cluster.nodes.values())
        if node is None or not self._links.is_ready(node):
            self._ready_ms = now_ms + (self._options.retry_backoff_ms if node is None else self._links.retry_ms(node))
            return []
        self._is_finding = True
        message = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[str(self._options.group_id)])
        return [Outgoing(node, message, self._found, versions=_FIND_VERSIONS)]

    def _found(self, answer: Message | ApiError, now_ms: float) -> None:
        self._is_finding = False
        self.finds += 1
        error = as_kafka(answer) if isinstance(answer, ApiError) else None
        if isinstance(answer, FindCoordinatorResponse):
            (found,) = answer.coordinators
            name = by_code(found.error_code).name
            if name == "NONE":
                self.node = Node(_LAST_ID - found.node_id, found.host, found.port)
                self._failures, self._retry_ms, self.why = 0, 0.0, ""
                return
            error = error_named(name, f"group {self._options.group_id}: {found.error_message or by_code(found.error_code).words}")
        assert error is not None
        self.why = str(error)
        self._retry_ms = now_ms + self.backoff.delay_ms(self._failures)
        self._failures += 1
        if not _is_retriable(error):
            self.error = error
            self.fail_all(error)

    def take_error(self) -> KafkaError | None:
        """Return the error, once. After that, the coordinator is looked up again."""
        error, self.error = self.error, None
        return error

    def fail_all(self, error: KafkaError) -> None:
        """Fail all calls that wait."""
        calls, self._waiting = self._waiting, []
        for call in calls:
            call.outcome.fail(error)

    # calls

    def _request(self, call: Call, node: Node) -> Outgoing:
        message = call.build()
        self._in_flight += 1
        return Outgoing(node, message, lambda answer, now_ms: self._answered(call, answer, now_ms), versions=call.versions)

    def _answered(self, call: Call, answer: Message | ApiError, now_ms: float) -> None:
        self._in_flight -= 1
        call.partial = None
        try:
            if isinstance(answer, ApiError):
                raise as_kafka(answer)
            value = call.handle(answer)
        except KafkaError as error:
            if error.name in (_UNREACHABLE if isinstance(answer, ApiError) else call.moved):
                self.lose(str(error))
            self.why = str(error)
            if call.retries and _is_retriable(error) and not call.outcome.is_done:
                call.retry_ms = now_ms + self.backoff.delay_ms(call.failures)
                if call.partial is not None and call.retry_ms >= call.deadline_ms:
                    call.outcome.succeed(call.partial)
                    return
                call.failures += 1
                self._waiting.append(call)
            else:
                call.outcome.fail(error)
        else:
            call.outcome.succeed(value)

    def withdraw(self, outcomes: Iterable[Outcome]) -> None:
        """Drop the calls that wait and whose outcome nobody wants any more."""
        gone = {id(one) for one in outcomes}
        self._waiting = [call for call in self._waiting if id(call.outcome) not in gone]


def _is_retriable(error: KafkaError) -> bool:
    """Whether a call may succeed later. CORRUPT_MESSAGE ends only the reading of records."""
    return error.retriable or error.name == "CORRUPT_MESSAGE"
