"""Runs the work of one owner in the side threads of its loop, in order and a few items at a time. No work starts after its owner has
ended."""

from __future__ import annotations

import itertools
from collections import deque
from concurrent.futures import Future
from functools import partial
from threading import Condition
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

AT_ONCE: Final = 2
"""More threads do not make one disk faster, and several owners share the threads of a loop."""


class EndedError(OSError):
    """The owner ended before the work had started."""


class SideWork:
    """`in_thread(work, done)` runs `work` in a side thread and then calls `done` with its future on the loop, as `Loop.in_thread` does."""

    def __init__(self, in_thread: Callable[[Callable[[], Any], Callable[[Future[Any]], object]], object]) -> None:
        self._in_thread = in_thread
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Future[Any]], object]]] = deque()
        self._begun_count = 0
        self._changed = Condition()
        self._is_over = False
        self._at_work_count = 0
        self._numbers = itertools.count()
        self._failed: dict[int, tuple[Callable[[Future[Any]], object], Exception]] = {}

    def add(self, work: Callable[[], Result], done: Callable[[Future[Result]], object]) -> None:
        """Queue `work`. After `end`, `done` is not called. Call this on the loop."""
        if not self._is_over:
            self._waiting.append((work, done))
            self._begin()

    def _begin(self) -> None:
        while self._waiting and self._begun_count < AT_ONCE:
            self._begun_count += 1
            work, done = self._waiting.popleft()
            number = next(self._numbers)
            self._in_thread(partial(self._do, number, work, done), partial(self._done, number, done))

    def _do(self, number: int, work: Callable[[], Result], done: Callable[[Future[Result]], object]) -> Result:
        with self._changed:
            if self._is_over:
                raise EndedError
            self._at_work_count += 1
        try:
            return work()
        except (KopsError, OSError) as error:
            with self._changed:
                self._failed[number] = done, error
            raise
        finally:
            with self._changed:
                self._at_work_count -= 1
                self._changed.notify_all()

    def _done(self, number: int, done: Callable[[Future[Any]], object], future: Future[Any]) -> None:
        self._begun_count -= 1
        if not self._is_over:
            with self._changed:
                self._failed.pop(number, None)
            try:
                done(future)
            finally:
                self._begin()

    def end(self) -> None:
        """Start no more work and call `done` no more. Call this on the loop."""
        with self._changed:
            self._is_over = True
        self._waiting.clear()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until no thread is working, and return whether that happened in time. Call this after `end`, in any thread."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._at_work_count, timeout_s)

    def tell_failures(self) -> None:
        """Call `done` for all work that failed and was not reported before `end`. Call this after `join`, in the thread that closes the
        owner.

        The operating system reports a failed sync only once. A later sync of the same file succeeds although the data is not on disk.
        """
        failed, self._failed = self._failed, {}
        for _, (done, error) in sorted(failed.items()):
            future: Future[Any] = Future()
            future.set_exception(error)
            done(future)
