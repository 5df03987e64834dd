"""Operations: generators that yield calls and are continued with each call that is done. A driver supplies time and connections.

Source: Kafka's KafkaAdminClient.AdminClientRunnable (pending calls, calls in flight, time-outs, an end of all calls at close).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar, cast

from kops.client.admin.core.results import kafka_error
from kops.client.client import Call, Client
from kops.errors import ApiError, KopsError, UnreachableError

R = TypeVar("R")
# An operation yields the calls that it starts, and receives one call that is done. It goes on until none is left.
Steps = Generator[Sequence[Call[Any]], Call[Any], R]


class Operation(Generic[R]):
    """An operation on its way. `advance` continues it, until `is_done`."""

    __slots__ = ("_error", "_steps", "_value", "calls", "is_done", "when_done")

    def __init__(self, steps: Steps[R]) -> None:
        self._steps = steps
        self._value: R | None = None
        self._error: BaseException | None = None
        self.calls: list[Call[Any]] = []
        self.is_done = False
        self.when_done: Callable[[Operation[R]], object] = lambda _: None

    @property
    def error(self) -> BaseException | None:
        """The error of an operation that failed."""
        return self._error

    @property
    def value(self) -> R:
        """The operation's result. Raises its error."""
        if self._error is not None:
            raise self._error
        return cast(R, self._value)

    def start(self, client: Client) -> None:
        """Begin the first calls."""
        self._guarded(client, lambda: self._resume(client, None))

    def advance(self, client: Client) -> None:
        """Send what is due, take what was answered, and go on with the calls that are done."""
        self._guarded(client, lambda: self._advance(client))

    def _guarded(self, client: Client, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - whoever waits for this operation gets it, and all others go on
            self.fail(client, error)

    def _advance(self, client: Client) -> None:
        is_new = True
        while is_new and not self.is_done:
            for call in self.calls:
                client.advance(call)
            done = [call for call in self.calls if call.is_done]
            is_new = bool(done)
            for call in done:
                if not self.is_done:
                    self.calls.remove(call)
                    self._resume(client, call)

    def fail(self, client: Client, error: BaseException) -> None:
        """End the operation with an error, also one that nobody waits for any more."""
        if self.is_done:
            return
        self._steps.close()
        for call in self.calls:
            client.withdraw(call)
        self.calls.clear()
        is_known = isinstance(error, ApiError) or (client.is_patient and isinstance(error, UnreachableError))
        self._error = kafka_error(error) if is_known and isinstance(error, KopsError) else error
        self._finish()

    def _resume(self, client: Client, call: Call[Any] | None) -> None:
        try:
            fresh = next(self._steps) if call is None else self._steps.send(call)
        except StopIteration as end:
            self._value = end.value
            self._finish()
        else:
            for one in fresh:
                client.begin(one)
            self.calls += fresh
            assert self.calls, "an operation waits for nothing"

    def _finish(self) -> None:
        self.is_done = True
        self.when_done(self)


def execute(client: Client, steps: Steps[R]) -> R:
    """Run an operation to its end in the caller's thread. Raises its error, and UnreachableError if no server answers at all."""
    operation = Operation(steps)
    operation.start(client)
    while not operation.is_done:
        operation.advance(client)
        if not operation.is_done:
            client.wait(operation.calls)
    return operation.value
