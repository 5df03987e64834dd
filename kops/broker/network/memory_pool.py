"""A limit on the bytes of requests that are being received (Kafka MemoryPool, SimpleMemoryPool; `queued.max.request.bytes`).

As in Kafka, a request for memory is granted whole while anything is free, so the last one may exceed the limit by its own size.
The others wait and are served in order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiter:
    """A request for memory that waits."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int, granted: Callable[[], object]) -> None:
        self.size = size
        self.granted: Callable[[], object] | None = granted

    def cancel(self) -> None:
        """Stop waiting."""
        self.granted = None


class MemoryPool:
    """Counts bytes; it allocates nothing. A `size` of 0 or less means no limit."""

    __slots__ = ("_waiters", "available", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.available = size
        self._waiters: deque[Waiter] = deque()

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit."""
        return self.size > 0

    def try_allocate(self, size: int) -> bool:
        """Take `size` bytes. Returns False if none are left or others wait."""
        if self.is_bounded:
            self._drop_cancelled()
            if self._waiters or self.available <= 0:
                return False
            self.available -= size
        return True

    def wait(self, size: int, granted: Callable[[], object]) -> Waiter:
        """Wait for `size` bytes; `granted` is called when they are taken."""
        waiter = Waiter(size, granted)
        self._waiters.append(waiter)
        return waiter

    def release(self, size: int) -> None:
        """Return bytes, and serve waiting requests in order while anything is free."""
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
