"""A bound on the bytes of requests that are being received (Kafka MemoryPool, SimpleMemoryPool; `queued.max.request.bytes`).

As in Kafka the last one that is let in may go over the bound by its own size: who asks gets all it asks for as long as anything is free.
Who gets nothing waits in line, and nobody who comes later is served before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiter:
    """A place in the line. `cancel` leaves it."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int, granted: Callable[[], object]) -> None:
        self.size = size
        self.granted: Callable[[], object] | None = granted

    def cancel(self) -> None:
        """Nothing is to be granted any more."""
        self.granted = None


class MemoryPool:
    """Counts bytes; the memory itself is Python's. A `size` that is not above 0 means no bound."""

    __slots__ = ("_waiters", "available", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.available = size
        self._waiters: deque[Waiter] = deque()

    @property
    def is_bounded(self) -> bool:
        """Whether it counts at all."""
        return self.size > 0

    def try_allocate(self, size: int) -> bool:
        """Take `size` bytes, or False where there are none left or others wait for them."""
        if self.is_bounded:
            self._drop_cancelled()
            if self._waiters or self.available <= 0:
                return False
            self.available -= size
        return True

    def wait(self, size: int, granted: Callable[[], object]) -> Waiter:
        """Stand in line for `size` bytes; `granted` is called once they are taken."""
        waiter = Waiter(size, granted)
        self._waiters.append(waiter)
        return waiter

    def release(self, size: int) -> None:
        """Give bytes back; those who wait are served in their order as long as anything is free."""
        if not self.is_bounded:
            return
        self.available += size
        while self._waiters and self.available > 0:
            waiter = self._waiters.popleft()
            if waiter.granted is not None:
                self.available -= waiter.size
                waiter.granted()

    def _drop_cancelled(self) -> None:
        while self._waiters and self._waiters[0].granted is None:
            self._waiters.popleft()
