"""Work of one owner in the threads of its loop: begun in order, few at a time, and gone when the owner ends."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

Result = TypeVar("Result")

AT_ONCE: Final = 2
"""What waits for one disk is not done faster by more threads, and owners share the threads of a loop."""


class EndedError(OSError):
    """The owner has ended before the work was begun."""


class SideWork:
    """`in_thread(work, done)` runs `work` in a side thread and then `done` with its future on the loop, as `Loop.in_thread`."""

    def __init__(self, in_thread: Callable[[Callable[[], Any], Callable[[Future[Any]], object]], object]) -> None:
        self._in_thread = in_thread
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Future[Any]], object]]] = deque()
        self._begun_count = 0
        self._changed = Condition()
        self._is_over = False
        self._at_work_count = 0

    def add(self, work: Callable[[], Result], done: Callable[[Future[Result]], object]) -> None:
        """Have `work` done; `done` is not called once this has ended. On the loop."""
        if not self._is_over:
            self._waiting.append((work, done))
            self._begin()

    def _begin(self) -> None:
        while self._waiting and self._begun_count < AT_ONCE:
            self._begun_count += 1
            work, done = self._waiting.popleft()
            self._in_thread(lambda work=work: self._do(work), lambda future, done=done: self._done(future, done))  # type: ignore[misc]

    def _do(self, work: Callable[[], Result]) -> Result:
        with self._changed:
            if self._is_over:
                raise EndedError
            self._at_work_count += 1
        try:
            return work()
        finally:
            with self._changed:
                self._at_work_count -= 1
                self._changed.notify_all()

    def _done(self, future: Future[Any], done: Callable[[Future[Any]], object]) -> None:
        self._begun_count -= 1
        if not self._is_over:
            try:
                done(future)
            finally:
                self._begin()

    def end(self) -> None:
        """Begin nothing more and tell nothing more. On the loop."""
        with self._changed:
            self._is_over = True
        self._waiting.clear()

    def join(self, timeout_s: float | None = None) -> bool:
        """Behind `end`: wait until no thread is at work -> whether that came in time. In any thread."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._at_work_count, timeout_s)
