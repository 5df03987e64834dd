"""A value that is set later, without threads (the part of Java's CompletableFuture that coordinators need)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from kops.errors import KopsError

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    """A value or an error that is set once. Callbacks are then called in the order in which they were added."""

    __slots__ = ("_callback", "_error", "_further", "_is_done", "_value")

    def __init__(self) -> None:
        self._callback: Callable[[T | None, KopsError | None], object] | None = None
        # Hardly any promise has more than one callback, and a list for each is work for the garbage collector.
        self._further: list[Callable[[T | None, KopsError | None], object]] | None = None
        self._is_done = False
        self._value: T | None = None
        self._error: KopsError | None = None

    @classmethod
    def of(cls, value: T) -> Promise[T]:
        """Return a promise that already has its value."""
        promise: Promise[T] = cls()
        promise.complete(value)
        return promise

    @classmethod
    def failed(cls, error: KopsError) -> Promise[T]:
        """Return a promise that has already failed."""
        promise: Promise[T] = cls()
        promise.fail(error)
        return promise

    @property
    def is_done(self) -> bool:
        """Whether the promise has a value or an error."""
        return self._is_done

    def result(self) -> T:
        """Return the value or raise the error. Call it only if the promise is done."""
        assert self._is_done, "not done yet"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def complete(self, value: T) -> bool:
        """Set the value. Returns False if the promise is already done."""
        return self._end(value, None)

    def fail(self, error: KopsError) -> bool:
        """Set an error. Returns False if the promise is already done."""
        return self._end(None, error)

    def when_done(self, callback: Callable[[T | None, KopsError | None], object]) -> None:
        """Call `callback(value, error)` when the promise is done, or now if it already is."""
        if self._is_done:
            callback(self._value, self._error)
        elif self._callback is None:
            self._callback = callback
        elif self._further is None:
            self._further = [callback]
        else:
            self._further.append(callback)

    def then(self, change: Callable[[T], U]) -> Promise[U]:
        """Return a promise of `change(value)`. An error is passed on; a KopsError of `change` becomes the error (thenApply)."""
        changed: Promise[U] = Promise()
        self.when_done(lambda _value, _error: changed._keep(lambda: change(self.result())))
        return changed

    def then_promise(self, ask: Callable[[T], Promise[U]]) -> Promise[U]:
        """Return a promise of the result of `ask(value)`, which is a promise itself. Errors are as for `then` (thenCompose)."""
        whole: Promise[U] = Promise()

        def asked(promise: Promise[U] | None, error: KopsError | None) -> None:
            if promise is None:
                assert error is not None
                whole.fail(error)
            else:
                promise.when_done(lambda _value, _error: whole._keep(promise.result))

        self.then(ask).when_done(asked)
        return whole

    def or_else(self, value_of: Callable[[KopsError], T]) -> Promise[T]:
        """Return a promise of the same value, or of `value_of(error)`. A KopsError that it raises becomes the error (exceptionally)."""
        if self._is_done and self._error is None:
            return self  # Nothing changes, as for nearly all heartbeats.
        told: _Recovered[T] = _Recovered(value_of)
        self.when_done(told.settle)
        return told

    def _keep(self, get: Callable[[], T]) -> None:
        """Complete with the result of `get`, or fail with the KopsError that it raises."""
        try:
            value = get()
        except KopsError as error:
            self.fail(error)
        else:
            self.complete(value)

    def _end(self, value: T | None, error: KopsError | None) -> bool:
        if self._is_done:
            return False
        self._is_done = True
        self._value, self._error = value, error
        callback, further = self._callback, self._further
        self._callback = self._further = None
        if callback is not None:
            callback(value, error)
        if further is not None:
            for each in further:
                each(value, error)
        return True


class _Recovered(Promise[T]):
    """The promise that `or_else` returns."""

    __slots__ = ("_value_of",)

    def __init__(self, value_of: Callable[[KopsError], T]) -> None:
        super().__init__()
        self._value_of = value_of

    def settle(self, value: T | None, error: KopsError | None) -> None:
        """Take the outcome of the other promise."""
        if error is None:
            self._end(value, None)
            return
        try:  # without a closure, which compiled code would also make when there is no error
            answer = self._value_of(error)
        except KopsError as failure:
            self.fail(failure)
        else:
            self.complete(answer)


def all_of(promises: Iterable[Promise[Any]]) -> Promise[None]:
    """Return a promise that is done when all are done. If some failed, it then fails with the first error (CompletableFuture.allOf)."""
    waiting = list(promises)
    whole: Promise[None] = Promise()
    left = len(waiting)
    first: KopsError | None = None

    def done(_: object, error: KopsError | None) -> None:
        nonlocal left, first
        left -= 1
        first = first or error
        if left:
            return
        if first is not None:
            whole.fail(first)
        else:
            whole.complete(None)

    if not waiting:
        whole.complete(None)
    for promise in waiting:
        promise.when_done(done)
    return whole
