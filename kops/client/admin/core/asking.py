"""Single calls: who is asked, until when, and how an answer becomes a value.

Source: Kafka's KafkaAdminClient (Call, the NodeProviders and what each supports of bootstrap.controllers, handleNotControllerError).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kops.client.admin.core.results import Results, kafka_error, missing
from kops.client.client import Call, Client, To
from kops.client.errors import KafkaError, error_named
from kops.client.settings import check_timeout
from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.protocol.declaration import Message

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
M = TypeVar("M", bound="Message")
_NOT_CONTROLLER: Final = 41
_NOT_LEADER: Final = 6


class Node(Enum):
    """Who is asked, if it is not a broker with a certain id. `BROKER`s are asked only by clients with `bootstrap.servers`."""

    BROKER = auto()  # the broker with the least load
    BROKER_OR_CONTROLLER = auto()  # that, or the active controller for a client with bootstrap.controllers
    CONTROLLER_OF_BROKERS = auto()  # what brokers name as the controller
    CONTROLLER = auto()  # that, or the active controller


def deadline_ms(client: Client, timeout: float | None) -> float:
    """Return the end of an operation that begins now. `timeout` is in seconds; None is `default.api.timeout.ms`."""
    check_timeout(timeout)
    return client.now_ms() + (client.settings.default_api_timeout_ms if timeout is None else timeout * 1000)


def call(
    client: Client,
    name: str,
    node: Node | int,
    build: Callable[[int], Message],
    handle: Callable[[Message], T],
    deadline: float,
    *,
    versions: range | None = None,
    asks_controllers: bool = False,
) -> Call[T]:
    """Return a call. `asks_controllers` tells that a node with a certain id may be a controller. Raises KafkaError if it is not possible.

    `handle` may raise a retriable ApiError: then the call is repeated.
    """
    if client.asks_controllers:
        asks_controllers = asks_controllers or node in (Node.BROKER_OR_CONTROLLER, Node.CONTROLLER)
        if not asks_controllers:
            text = f"{name}: controllers do not serve this, only brokers (bootstrap.servers)"
            raise error_named("UNSUPPORTED_ENDPOINT_TYPE", text)
    to: To | int
    if isinstance(node, int):
        to = node
    elif node is Node.BROKER or (node is Node.BROKER_OR_CONTROLLER and not client.asks_controllers):
        to = To.ANY
    else:
        to = To.CONTROLLER
    new = Call(name, to, build, handle, versions=versions)
    new.deadline_ms = deadline
    return new


def outcome_of(done: Call[Any]) -> Any:
    """Return the value of a call that is done, or its KafkaError."""
    return done.value if done.error is None else kafka_error(done.error)


def ask(
    client: Client,
    name: str,
    node: Node | int,
    build: Callable[[int], Message],
    handle: Callable[[Message], T],
    deadline: float,
    *,
    versions: range | None = None,
    asks_controllers: bool = False,
) -> Steps[T]:
    """Make one call, and return what `handle` makes of the answer. Raises KafkaError."""
    done = yield [call(client, name, node, build, handle, deadline, versions=versions, asks_controllers=asks_controllers)]
    if done.error is not None:
        raise kafka_error(done.error)
    value: T = done.value
    return value


def ask_all(calls: Mapping[K, Call[T]]) -> Steps[dict[K, T | KafkaError]]:
    """Make calls at the same time, and return the outcome of each."""
    fresh: Sequence[Call[Any]] = list(calls.values())
    for _ in calls:
        yield fresh
        fresh = []
    return {key: outcome_of(one) for key, one in calls.items()}


def is_a(kind: type[M]) -> Callable[[Message], M]:
    """Return a function that passes on an answer of this type."""

    def handle(response: Message) -> M:
        assert isinstance(response, kind)
        return response

    return handle


def of_controller(client: Client, kind: type[M], codes: Callable[[M], Iterable[int]]) -> Callable[[Message], M]:
    """Return the same for an answer of the controller. If one of its `codes` says that it is no longer the controller, ask again."""

    def handle(response: Message) -> M:
        assert isinstance(response, kind)
        for code in codes(response):
            if code == _NOT_CONTROLLER or (client.asks_controllers and code == _NOT_LEADER):
                raise ApiError("NOT_CONTROLLER", "another node is the controller")
        return response

    return handle


def in_order(what: str, keys: Iterable[K], outcomes: Mapping[K, V | KafkaError]) -> Results[K, V]:
    """Return the outcomes in the order of the request. A key that the response omits has an error."""
    return Results({key: outcomes[key] if key in outcomes else missing(what, key) for key in keys})


def by_topic(keys: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group partitions by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in keys:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def always(request: Message) -> Callable[[int], Message]:
    """Return a function that returns this request, however much time is left."""
    return lambda _: request
