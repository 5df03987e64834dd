"""The memory of a producer: how many bytes its batches may hold, and who waits for more.

Source: Kafka's BufferPool. The bytes are counted, not recycled: Python frees a batch when it is done. As in Kafka, a request that can be
served at once is, and the others get freed memory in the order in which they came, also in parts.
"""

from __future__ import annotations

from collections import deque


class Waiter:
    """A request for memory that has to wait. `is_granted` becomes true when it has all of it."""

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
        """Ask for memory. The waiter is granted at once if there is enough."""
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
        """Give memory back, to the first waiters if there are any."""
        self.available += size
        self._serve()

    def cancel(self, waiter: Waiter) -> None:
        """Give up a request, and give back what it has got."""
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
