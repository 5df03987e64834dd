"""What both faces share: the client with its connections, and the operations on their way.

Source: Kafka's KafkaAdminClient (constructor, AdminClientRunnable.processRequests).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from kops.client.admin.core.operation import Operation
from kops.client.client import Client
from kops.client.config.admin import admin_settings
from kops.client.connection import Done
from kops.client.errors import AdminClosedError
from kops.client.metrics.network import NetworkMetrics
from kops.client.metrics.sensors import Metrics
from kops.client.network import NetworkClient
from kops.client.settings import ClientSettings, parse_addresses
from kops.errors import ApiError

if TYPE_CHECKING:
    from kops.client.faces.pushing import Pusher
    from kops.client.node import Node
    from kops.protocol.declaration import Message

_numbers = itertools.count(1)
IDLE_MS = float("inf")


class MeasuredNetwork(NetworkClient):
    """Connections that record the latency of each node."""

    def __init__(self, settings: ClientSettings, metrics: NetworkMetrics) -> None:
        super().__init__(settings, metrics=metrics)
        self._measured = metrics
        self._waiting: dict[Done, Done] = {}

    def send(
        self,
        node: Node,
        message: Message,
        done: Done,
        *,
        versions: range | None = None,
        timeout_ms: float | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request, and record how long its answer takes."""
        sent_ms = self.now_ms()

        def measured(answer: Message | ApiError) -> None:
            self._waiting.pop(done, None)
            if not isinstance(answer, ApiError):
                now_ms = self.now_ms()
                self._measured.node(node.id).latency.record(now_ms - sent_ms, now_ms)
            done(answer)

        self._waiting[done] = measured
        super().send(node, message, measured, versions=versions, timeout_ms=timeout_ms, expects_response=expects_response)

    def withdraw(self, node: Node, done: Done) -> bool:
        """Withdraw the request with this `done`. Returns False if it was already sent."""
        is_withdrawn = super().withdraw(node, self._waiting.get(done, done))
        if is_withdrawn:
            self._waiting.pop(done, None)
        return is_withdrawn


def new_running(given: Mapping[str, object]) -> tuple[Running, Metrics]:
    """Return the operations of a client with a program's settings, and its metrics. Raises UsageError."""
    values = admin_settings(given)
    names = {field.name for field in fields(ClientSettings)}
    plain = {name.replace(".", "_"): tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    known: Any = {name: value for name, value in plain.items() if name in names and value is not None}
    known["client_id"] = str(values["client.id"]) if "client.id" in given else f"adminclient-{next(_numbers)}"
    settings = replace(ClientSettings.from_properties({}), **known)
    parse_addresses(settings.bootstrap_servers or settings.bootstrap_controllers)
    samples: Any = values["metrics.num.samples"]
    window_ms: Any = values["metrics.sample.window.ms"]
    metrics = Metrics(settings.client_id, samples, window_ms)
    client = Client(settings, network=MeasuredNetwork(settings, NetworkMetrics(metrics, "admin-client")), is_patient=True)
    running = Running(client)
    if values["enable.metrics.push"]:
        running.push(values, metrics)
    return running, metrics


class Running:
    """The operations on their way. Only one thread may use it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.operations: list[Operation[Any]] = []
        self.pusher: Pusher | None = None
        self._was_pushed = False  # whether an answer to a push has come since the last turn

    def push(self, values: Mapping[str, Any], metrics: Metrics) -> None:
        """Push metrics to brokers that ask for them, as long as there are turns (KIP-714)."""
        from kops.client.faces.pushing import Pusher  # the default is to push nothing

        self.pusher = Pusher(values, metrics, self.client.network, self._nodes, dict, self._pushed, keeps_own=False)

    def _nodes(self) -> Iterable[Node]:
        return self.client.metadata.nodes.values()

    def _pushed(self) -> None:
        self._was_pushed = True

    def add(self, operation: Operation[Any]) -> None:
        """Begin an operation."""
        operation.start(self.client)
        if not operation.is_done:
            self.operations.append(operation)

    def turn(self) -> float:
        """Continue all operations. Returns the time in ms until the next turn, if no socket brings news before."""
        self._was_pushed = False
        for operation in self.operations:
            operation.advance(self.client)
        push_ms = IDLE_MS if self.pusher is None else self.pusher.turn()
        if not self.operations:
            return push_ms
        metadata_ms, error = self.client.refresh()
        if error is not None:
            for operation in self.operations:
                operation.fail(self.client, error)
        self.operations = [one for one in self.operations if not one.is_done]
        if not self.operations:
            return push_ms
        return min(metadata_ms, push_ms, *(self.client.wait_ms(operation.calls) for operation in self.operations))

    def has_news(self) -> bool:
        """Whether an answer has come that no operation has taken yet."""
        return self._was_pushed or any(call.answer is not None for operation in self.operations for call in operation.calls)

    def end(self, patience_ms: float = 0) -> None:
        """Fail what is still on its way, and push metrics for the last time: after earlier answers if they come within `patience_ms`."""
        for operation in self.operations:
            operation.fail(self.client, AdminClosedError("the admin client was closed before the answer"))
        self.operations.clear()
        if self.pusher is not None:
            self.pusher.finish(patience_ms)


def as_method(method: Callable[..., Any], function: Callable[..., Any], *, is_async: bool) -> None:
    """Give a method the name, the description and the signature of its operation, so that `help` shows them."""
    method.__name__ = function.__name__
    method.__qualname__ = f"Admin.{function.__name__}"
    method.__doc__ = function.__doc__
    signature = inspect.signature(function)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "client"]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    steps = str(signature.return_annotation)
    result = steps.removeprefix("Steps[").removesuffix("]")
    shown = signature.replace(parameters=[own, *parameters], return_annotation=f"Coroutine[Any, Any, {result}]" if is_async else result)
    method.__signature__ = shown  # type: ignore[attr-defined]
