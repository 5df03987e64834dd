"""Side threads whose work and results a test releases one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kops.errors import KopsError

Done = Callable[[Future[Any]], object]


class SideThreads:
    """The `in_thread` of a loop. A job waits for `work`, and its result waits for `tell`."""

    def __init__(self) -> None:
        self.begun: deque[tuple[Callable[[], Any], Done]] = deque()
        self.ended: deque[tuple[Future[Any], Done]] = deque()

    def in_thread(self, work: Callable[[], Any], done: Done) -> None:
        """Queue a job, as in `Loop.in_thread`."""
        self.begun.append((work, done))

    def work(self) -> None:
        """Do the oldest job."""
        work, done = self.begun.popleft()
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except (KopsError, OSError) as error:
            future.set_exception(error)
        self.ended.append((future, done))

    def tell(self) -> None:
        """Report the oldest result."""
        future, done = self.ended.popleft()
        done(future)

    def run(self) -> None:
        """Do all jobs and report all results, including those of jobs that begin meanwhile."""
        while self.begun or self.ended:
            if self.begun:
                self.work()
            else:
                self.tell()
