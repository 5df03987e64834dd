"""A loop whose time stands still until a test moves it."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kops.broker.network.events.loop import Loop, Timer


class ManualLoop(Loop):
    """The calls and timers of a loop, without sockets and threads. `advance` runs those that are due."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        """Return the time of the test's clock."""
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        """Return the time of the test's clock."""
        return self.time_ms

    def call_soon(self, run: Callable[[], object]) -> None:
        """Make a call at the next `advance`, or within the present one."""
        self._ready.append(run)

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Timer:
        """Make a call once the clock has moved this far."""
        timer = Timer(self, self.time_ms + max(delay_ms, 0), run)
        heapq.heappush(self._timers, (timer.due_ms, next(self._numbers), timer))
        return timer

    def forget_timer(self) -> None:
        """Do nothing: timers go when they are due."""

    def in_thread(self, work: Callable[[], Any], done: Callable[[Future[Any]], object]) -> None:
        """Do the work at once. `done` gets its future at the next `advance`. An error of the work fails the test."""
        future: Future[Any] = Future()
        future.set_result(work())
        self.call_soon(lambda: done(future))

    def advance(self, ms: float = 0) -> None:
        """Move the clock and run the calls that are due by then, in order."""
        end_ms = self.time_ms + ms
        while True:
            while self._ready:
                self._ready.popleft()()
            if not self._timers or self._timers[0][0] > end_ms:
                break
            timer = heapq.heappop(self._timers)[2]
            self.time_ms = max(self.time_ms, timer.due_ms)
            if timer.run is not None:
                timer.run()
        self.time_ms = end_ms

    @property
    def timer_count(self) -> int:
        """The number of timers that are still to be called."""
        return sum(timer.run is not None for _, _, timer in self._timers)
