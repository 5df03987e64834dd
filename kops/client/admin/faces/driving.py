"""What both faces share: the client with its connections, and the operations on their way.

Source: Kafka's KafkaAdminClient (constructor, AdminClientRunnable.processRequests).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from kops.client.admin.core.operation import Operation
from kops.client.client import Client
from kops.client.config.admin import admin_settings
from kops.client.errors import AdminClosedError
from kops.client.settings import ClientSettings

_numbers = itertools.count(1)
IDLE_MS = float("inf")


def new_client(given: Mapping[str, object]) -> Client:
    """Return a client for a program's settings. Raises UsageError."""
    values = admin_settings(given)
    names = {field.name for field in fields(ClientSettings)}
    plain = {name.replace(".", "_"): tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    known: Any = {name: value for name, value in plain.items() if name in names and value is not None}
    known["client_id"] = str(values["client.id"]) if "client.id" in given else f"adminclient-{next(_numbers)}"
    return Client(replace(ClientSettings.from_properties({}), **known), is_patient=True)


class Running:
    """The operations on their way. Only one thread may use it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.operations: list[Operation[Any]] = []

    def add(self, operation: Operation[Any]) -> None:
        """Begin an operation."""
        operation.start(self.client)
        if not operation.is_done:
            self.operations.append(operation)

    def turn(self) -> float:
        """Continue all operations. Returns the time in ms until the next turn, if no socket brings news before."""
        for operation in self.operations:
            operation.advance(self.client)
        if not self.operations:
            return IDLE_MS
        metadata_ms, error = self.client.refresh()
        if error is not None:
            for operation in self.operations:
                operation.fail(self.client, error)
        self.operations = [one for one in self.operations if not one.is_done]
        if not self.operations:
            return IDLE_MS
        return min(metadata_ms, *(self.client.wait_ms(operation.calls) for operation in self.operations))

    def has_news(self) -> bool:
        """Whether an answer has come that no operation has taken yet."""
        return any(call.answer is not None for operation in self.operations for call in operation.calls)

    def end(self) -> None:
        """Fail what is still on its way."""
        for operation in self.operations:
            operation.fail(self.client, AdminClosedError("the admin client was closed before the answer"))
        self.operations.clear()


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
