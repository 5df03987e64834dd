"""A value that comes later, without threads (Java's CompletableFuture, as far as coordinators need it)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kops.errors import KopsError

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    """A value or an error that comes once. Who waits is called when it comes, in the order in which they began to wait."""

    __slots__ = ("_callbacks", "_error", "_is_done", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[T | None, KopsError | None], object]] = []
        self._is_done = False
        self._value: T | None = None
        self._error: KopsError | None = None

    @classmethod
    def of(cls, value: T) -> Promise[T]:
        """One that is kept already."""
        promise: Promise[T] = cls()
        promise.complete(value)
        return promise

    @classmethod
    def failed(cls, error: KopsError) -> Promise[T]:
        """One that has failed already."""
        promise: Promise[T] = cls()
        promise.fail(error)
        return promise

    @property
    def is_done(self) -> bool:
        """Whether it was kept or has failed."""
        return self._is_done

    def result(self) -> T:
        """The value; raises the error. Only when it is done."""
        assert self._is_done, "not done yet"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def complete(self, value: T) -> bool:
        """Keep it. Returns False if it is done already."""
        return self._end(value, None)

    def fail(self, error: KopsError) -> bool:
        """End it with an error. Returns False if it is done already."""
        return self._end(None, error)

    def when_done(self, callback: Callable[[T | None, KopsError | None], object]) -> None:
        """Call `callback(value, error)` when it is done, or now if it is."""
        if self._is_done:
            callback(self._value, self._error)
        else:
            self._callbacks.append(callback)

    def then(self, change: Callable[[T], U]) -> Promise[U]:
        """The promise of a changed value. An error stays as it is, and a KopsError of `change` becomes the error."""
        changed: Promise[U] = Promise()

        def done(value: T | None, error: KopsError | None) -> None:
            if error is not None:
                changed.fail(error)
                return
            try:
                new = change(value)  # type: ignore[arg-type]
            except KopsError as raised:
                changed.fail(raised)
            else:
                changed.complete(new)

        self.when_done(done)
        return changed

    def _end(self, value: T | None, error: KopsError | None) -> bool:
        if self._is_done:
            return False
        self._is_done = True
        self._value, self._error = value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value, error)
        return True
