"""The memory of a producer: the number of bytes that its batches may hold, and the requests that wait for more.

Source: Kafka's BufferPool. The bytes are only counted: Python frees a batch when it is done. As in Kafka, a request is granted at once if
possible. The others get freed memory in the order of arrival, possibly in parts.
"""

from __future__ import annotations

from collections import deque


class Waiter:
    """A request for memory that has to wait. `is_granted` becomes true when it has all its memory."""

    __slots__ = ("got", "is_granted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.got = 0
        self.is_granted = False


class MemoryPool:
    """`total` bytes, of which `available` are free."""

    __slots__ = ("available", "total", "waiters")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self.waiters: deque[Waiter] = deque()

    def request(self, size: int) -> Waiter:
        """Request memory. The request is granted at once if there is enough."""
        waiter = Waiter(size)
        if self.available >= size:
            self.available -= size
            waiter.got = size
            waiter.is_granted = True
        else:
            self.waiters.append(waiter)
            self._serve()
        return waiter

    def release(self, size: int) -> None:
        """Return memory to the pool, or to the first waiting requests."""
        self.available += size
        self._serve()

    def cancel(self, waiter: Waiter) -> None:
        """Cancel a request, and return the memory that it already has."""
        if not waiter.is_granted:
            self.waiters.remove(waiter)
        waiter.is_granted = False
        got, waiter.got = waiter.got, 0
        self.release(got)

    def _serve(self) -> None:
        while self.waiters and self.available:
            waiter = self.waiters[0]
            got = min(waiter.size - waiter.got, self.available)
            self.available -= got
            waiter.got += got
            if waiter.got < waiter.size:
                return
            waiter.is_granted = True
            self.waiters.popleft()
