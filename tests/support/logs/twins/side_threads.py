"""Side threads that a test lets work and tell, one thing at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kops.errors import KopsError

Done = Callable[[Future[Any]], object]


class SideThreads:
    """`in_thread` is that of a loop. What it is given waits for `work`, and its end for `tell`."""

    def __init__(self) -> None:
        self.begun: deque[tuple[Callable[[], Any], Done]] = deque()
        self.ended: deque[tuple[Future[Any], Done]] = deque()

    def in_thread(self, work: Callable[[], Any], done: Done) -> None:
        """As `Loop.in_thread`."""
        self.begun.append((work, done))

    def work(self) -> None:
        """What was begun first is done."""
        work, done = self.begun.popleft()
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except (KopsError, OSError) as error:
            future.set_exception(error)
        self.ended.append((future, done))

    def tell(self) -> None:
        """What was done first is told."""
        future, done = self.ended.popleft()
        done(future)

    def run(self) -> None:
        """All is done and told, also what begins meanwhile."""
        while self.begun or self.ended:
            if self.begun:
                self.work()
            else:
                self.tell()
