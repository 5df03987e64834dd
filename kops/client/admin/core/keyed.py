"""Requests for keys that different brokers serve: look up the broker of each key, ask all brokers at once, begin again where a key moved.

Source: Kafka's AdminApiDriver, AdminApiHandler (ApiResult), AdminApiLookupStrategy (LookupResult). One difference is intended: a look-up
that found nothing is repeated after a pause, as an answer is. Kafka repeats it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kops.client.admin.core.asking import Node, always, call
from kops.client.admin.core.results import Results, kafka_error
from kops.client.client import WAITING_MS
from kops.client.errors import KafkaError, error_named
from kops.errors import ApiError, UnreachableError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Call, Client
    from kops.protocol.declaration import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_GONE = "NETWORK_EXCEPTION"
_MOVED = (_GONE, "REQUEST_TIMED_OUT")
_TOLD = 3  # reasons of a wait


@dataclass(slots=True)
class Found(Generic[K]):
    """What a look-up found: the broker of a key, or an error. Keys in neither are looked up again; `later` may say why."""

    brokers: dict[K, int] = field(default_factory=dict)
    failed: dict[K, KafkaError] = field(default_factory=dict)
    later: dict[K, KafkaError] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome(Generic[K, V]):
    """What an answer says: the value of a key, an error, or that its broker has to be looked up again. The others are asked again;
    `later` may say why."""

    completed: dict[K, V] = field(default_factory=dict)
    failed: dict[K, KafkaError] = field(default_factory=dict)
    unmapped: list[K] = field(default_factory=list)
    later: dict[K, KafkaError] = field(default_factory=dict)


class Lookup(Protocol[K]):
    """How to find the broker of a key."""

    def fixed(self, key: K) -> int | None:
        """The broker of a key for which no look-up is needed."""

    def batches(self, keys: list[K]) -> list[list[K]]:
        """The keys of each request."""

    def build(self, keys: list[K]) -> Message:
        """The request for these keys."""

    def handle(self, keys: list[K], response: Message) -> Found[K]:
        """What the answer says."""

    def unsupported(self, keys: list[K], error: KafkaError) -> dict[K, KafkaError]:
        """The keys that fail because a broker is too old. The others are looked up again, in another way."""

    @property
    def versions(self) -> range | None:
        """The versions of the request that may be used."""


class Handler(Protocol[K, V]):
    """What is asked of the brokers."""

    name: str
    lookup: Lookup[K]
    versions: range | None

    def build(self, keys: list[K]) -> tuple[list[K], Callable[[int], Message]]:
        """The keys of the next request to a broker, and that request for a time in ms."""

    def handle(self, broker: int, keys: list[K], response: Message) -> Outcome[K, V]:
        """What the answer says."""

    def unsupported(self, keys: list[K], error: KafkaError) -> dict[K, KafkaError]:
        """The keys that fail because a broker is too old. The others are asked again, in another way."""


@dataclass(slots=True)
class _Scope(Generic[K]):
    """The keys that wait for one broker, or for a look-up (`broker` is None)."""

    broker: int | None
    keys: dict[K, None] = field(default_factory=dict)
    asked: list[K] = field(default_factory=list)
    call: Call[Any] | None = None
    tries: int = 0
    retry_ms: float = 0.0


class _Driver(Generic[K, V]):
    def __init__(self, client: Client, handler: Handler[K, V], keys: Iterable[K], deadline: float) -> None:
        self._client = client
        self._handler = handler
        self._deadline = deadline
        self.wanted = list(dict.fromkeys(keys))
        self.outcomes: dict[K, V | KafkaError] = {}
        self._reasons: dict[K, KafkaError] = {}  # the last error of each key that is not done
        self._gone: int | None = None  # the last broker that did not answer
        self._began_ms = client.now_ms()
        self._lookups: list[_Scope[K]] = []
        self._brokers: dict[int, _Scope[K]] = {}
        self._place(self.wanted)

    def _place(self, keys: Iterable[K]) -> None:
        """Let keys wait for their broker, or for a look-up."""
        lost = []
        for key in keys:
            broker = self._handler.lookup.fixed(key)
            if broker is None:
                lost.append(key)
            else:
                self._map(key, broker)
        if lost:
            scope = next((one for one in self._lookups if one.call is None), None)
            if scope is None:
                scope = _Scope(None)
                self._lookups.append(scope)
            scope.keys.update(dict.fromkeys(lost))

    def _map(self, key: K, broker: int) -> None:
        self._brokers.setdefault(broker, _Scope(broker)).keys[key] = None

    def due(self) -> list[Call[Any]]:
        """Return the calls that can be made now: one to each broker, and those that look up."""
        calls = []
        for scope in list(self._lookups):
            if scope.call is None and scope.keys:
                calls += self._look_up(scope)
        for scope in self._brokers.values():
            if scope.call is None and scope.keys:
                calls.append(self._ask(scope))
        return calls

    def _look_up(self, scope: _Scope[K]) -> list[Call[Any]]:
        lookup = self._handler.lookup
        self._lookups.remove(scope)
        calls = []
        for batch in lookup.batches(list(scope.keys)):
            one: _Scope[K] = _Scope(None, dict.fromkeys(batch), batch, tries=scope.tries, retry_ms=scope.retry_ms)
            self._begin(one, Node.BROKER, always(lookup.build(batch)), lookup.versions)
            self._lookups.append(one)
            assert one.call is not None
            calls.append(one.call)
        return calls

    def _ask(self, scope: _Scope[K]) -> Call[Any]:
        assert scope.broker is not None
        scope.asked, build = self._handler.build(list(scope.keys))
        self._begin(scope, scope.broker, build, self._handler.versions)
        assert scope.call is not None
        return scope.call

    def _begin(self, scope: _Scope[K], node: Node | int, build: Callable[[int], Message], versions: range | None) -> None:
        new = call(self._client, self._handler.name, node, build, lambda response: response, self._deadline, versions=versions)
        # A command asks a broker that it has chosen itself for less time than one that another may replace.
        new.may_move = isinstance(node, int) and (self._client.is_patient or self._handler.lookup.fixed(scope.asked[0]) is None)
        new.retry_ms = scope.retry_ms
        scope.call = new
        scope.tries += 1

    def done(self, one: Call[Any]) -> None:
        """Take what a call brought."""
        scope = next(scope for scope in (*self._lookups, *self._brokers.values()) if scope.call is one)
        scope.call = None
        scope.retry_ms = self._client.now_ms() + self._client.backoff.delay_ms(scope.tries - 1)
        if scope.broker is None:
            self._lookups.remove(scope)
            self._looked_up(scope, one)
        else:
            self._answered(scope, scope.broker, one)

    def _looked_up(self, scope: _Scope[K], one: Call[Any]) -> None:
        keys, found = scope.asked, Found[K]()
        if one.error is None:
            found = self._handler.lookup.handle(keys, one.value)
            self._reasons |= found.later
        elif isinstance(one.error, UnreachableError):
            if self._gone is not None:
                self._check_reachable(self._gone, is_late=True)
            found.failed = self._too_late(keys, one.error)
        else:
            error = kafka_error(one.error)
            is_old = error.name == "UNSUPPORTED_VERSION"
            found.failed = self._handler.lookup.unsupported(keys, error) if is_old else dict.fromkeys(keys, error)
            if is_old:
                scope.retry_ms = 0.0
        self.outcomes.update(found.failed)
        for key, broker in found.brokers.items():
            self._map(key, broker)
        scope.keys = {key: None for key in keys if key not in found.failed and key not in found.brokers}
        if scope.keys:
            self._lookups.append(scope)
            self._tell()

    def _too_late(self, keys: Sequence[K], error: UnreachableError) -> dict[K, KafkaError]:
        """Return the errors of keys whose time is up: with the last reason, if there is one.

        A client that is not patient gets that reason itself. Raises the error itself for such a client if a node can't be reached.
        """
        late = kafka_error(error)
        if not self._client.is_patient:
            if all(key not in self._reasons or self._reasons[key].name == _GONE for key in keys):
                raise error
            return {key: self._reasons.get(key, late) for key in keys}
        return {key: error_named(late.name, f"{late}; last: {self._reasons[key]}") if key in self._reasons else late for key in keys}

    def _tell(self) -> None:
        """Report why some keys take longer."""
        if self._reasons and self._client.now_ms() - self._began_ms >= WAITING_MS:
            told = list(dict.fromkeys(_told(key, reason) for key, reason in self._reasons.items() if key not in self.outcomes))
            self._client.tell("; ".join(told[:_TOLD]) + ("; …" if len(told) > _TOLD else ""))

    def _check_reachable(self, broker: int, *, is_late: bool) -> None:
        """Raise UnreachableError for a command whose broker has not answered for long enough."""
        node = self._client.metadata.nodes.get(broker)
        if node is not None and not self._client.is_patient:
            self._client.ensure_reachable(node, is_late=is_late)

    def _answered(self, scope: _Scope[K], broker: int, one: Call[Any]) -> None:
        keys, outcome = scope.asked, Outcome[K, V]()
        if one.error is None:
            outcome = self._handler.handle(broker, keys, one.value)
        elif isinstance(one.error, UnreachableError):
            self._check_reachable(broker, is_late=True)
            outcome.failed = self._too_late(keys, one.error)
        elif isinstance(one.error, ApiError) and one.error.name in _MOVED:
            self._gone = broker
            self._check_reachable(broker, is_late=False)
            outcome.unmapped = list(keys)  # another broker may serve them now
            outcome.later = dict.fromkeys(keys, kafka_error(one.error))
        else:
            error = kafka_error(one.error)
            is_old = error.name == "UNSUPPORTED_VERSION"
            outcome.failed = self._handler.unsupported(keys, error) if is_old else dict.fromkeys(keys, error)
        self.outcomes.update(outcome.completed)
        self.outcomes.update(outcome.failed)
        for key in (*outcome.completed, *outcome.failed, *outcome.unmapped):
            scope.keys.pop(key, None)
        self._place(outcome.unmapped)
        self._reasons |= outcome.later
        if len(self.outcomes) < len(self.wanted):
            self._tell()


def _told(key: object, reason: KafkaError) -> str:
    """Return why a key waits. Groups share their reasons, so only partitions are named."""
    return f"{key.topic}-{key.partition}: {reason}" if isinstance(key, TopicPartition) else str(reason)


def keyed(client: Client, handler: Handler[K, V], keys: Iterable[K], deadline: float) -> Steps[Results[K, V]]:
    """Ask the broker of each key, and return the outcome of each. Raises KafkaError if the client can't ask brokers at all."""
    driver = _Driver(client, handler, keys, deadline)
    fresh: Sequence[Call[Any]] = driver.due()
    while len(driver.outcomes) < len(driver.wanted):
        done = yield fresh
        driver.done(done)
        fresh = driver.due()
    return Results({key: driver.outcomes[key] for key in driver.wanted})
