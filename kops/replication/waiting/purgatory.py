"""Requests that wait for a change of a key or for a time-out (Kafka DelayedOperation, DelayedOperationPurgatory, SystemTimer).

One timer serves all purgatories of a broker. A parked operation costs an entry in one heap, and an entry in a list for each key that it
watches. Answered operations are removed from both in bulk, so the cost depends only on the operations that still wait.
"""

from __future__ import annotations

import heapq
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

PURGE_INTERVAL: Final = 1000
_number_of: Final = attrgetter("number")


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation:
    """An operation that completes once: when `try_complete` succeeds, or `delay_ms` after it was parked."""

    __slots__ = ("_on_end", "delay_ms", "is_completed", "number")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.is_completed = False
        self.number = 0
        """Its number in the order of parking."""
        self._on_end: Callable[[], None] | None = None

    def try_complete(self) -> bool:
        """Complete the operation if it is ready (`force_complete`). Returns whether this call completed it."""
        raise TypeError(f"{type(self).__name__} does not say when it is complete")

    def try_complete_for(self, key: Hashable) -> bool:
        """Do the same as `try_complete` after a change of one of the watched keys."""
        return self.try_complete()

    def on_complete(self) -> None:
        """Answer the operation. Called once."""
        raise TypeError(f"{type(self).__name__} does not say what it answers")

    def on_expiration(self) -> None:
        """Handle a time-out. Called after `on_complete`."""

    def force_complete(self) -> bool:
        """Complete the operation in its current state. Returns False if it was already complete."""
        if not self.cancel():
            return False
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """Drop the operation. Returns False if it was already complete."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._on_end is not None:
            self._on_end()
            self._on_end = None
        return True

    def park(self, on_end: Callable[[], None]) -> None:
        """Let the operation wait. `on_end` is called when it completes or is dropped."""
        self._on_end = on_end


class OperationTimer:
    """The time-outs of all parked operations, in ms of the given clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._heap: list[tuple[int, int, DelayedOperation]] = []
        self._number = 0
        self._done = 0

    def __len__(self) -> int:
        return len(self._heap) - self._done

    def add(self, operation: DelayedOperation) -> int:
        """Let the operation time out after its delay, and return the time of that."""
        self._number += 1
        operation.number = self._number
        due_ms = self._now_ms() + max(operation.delay_ms, 0)
        heapq.heappush(self._heap, (due_ms, self._number, operation))
        return due_ms

    def forget_one(self) -> None:
        """Count a completed operation. Entries are removed many at a time."""
        self._done += 1
        if self._done > PURGE_INTERVAL and self._done > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if not entry[2].is_completed]
            heapq.heapify(self._heap)
            self._done = 0

    @property
    def next_due_ms(self) -> int | None:
        """The time at which `run_due` has something to do, or None if nothing waits."""
        while self._heap and self._heap[0][2].is_completed:
            heapq.heappop(self._heap)
            self._done -= 1
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> int:
        """Complete the operations that are due, and return their number."""
        now_ms = self._now_ms()
        count = 0
        while (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            operation = self._heap[0][2]
            operation.force_complete()
            operation.on_expiration()
            count += 1
        return count


T = TypeVar("T", bound=DelayedOperation)


class DelayedOperationPurgatory(Generic[T]):
    """Parked operations of one kind, by the keys they watch."""

    def __init__(self, timer: OperationTimer) -> None:
        self._timer = timer
        self._watchers: dict[Hashable, list[T]] = {}
        self._purge_at = PURGE_INTERVAL
        self.watched_count = 0
        """Entries under all keys (PurgatorySize). An operation counts under each of its keys until its entries are removed."""
        self.delayed_count = 0
        """The number of waiting operations (NumDelayedOperations)."""

    def try_complete_else_watch(self, operation: T, keys: Sequence[Hashable]) -> bool:
        """Complete the operation at once, or park it under its keys. Returns whether it is complete."""
        if operation.try_complete():
            return True
        self.watch(operation, keys)
        return False

    def watch(self, operation: T, keys: Sequence[Hashable]) -> None:
        """Park an operation that is not complete yet. Without `keys`, it waits only for its time-out, until `watch_also` adds a key."""
        for key in keys:
            self._watchers.setdefault(key, []).append(operation)
        self.watched_count += len(keys)
        if self.watched_count > self._purge_at:
            for key in list(self._watchers):
                self._purge(key)
            self._purge_at = 2 * self.watched_count + PURGE_INTERVAL
        self.delayed_count += 1
        operation.park(self._on_end)
        self._timer.add(operation)

    def watch_also(self, operation: T, key: Hashable) -> None:
        """Let a parked operation watch one more key."""
        self._watchers.setdefault(key, []).append(operation)
        self.watched_count += 1

    def _on_end(self) -> None:
        self.delayed_count -= 1
        self._timer.forget_one()

    def check_and_complete(self, key: Hashable) -> int:
        """Check the operations that watch `key`, and return how many are complete now."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        # A completion may call this again or park another operation, so the list stays as it is until all are checked. An operation may
        # have been parked early and begun to watch the key late.
        for operation in sorted(watchers, key=_number_of) if len(watchers) > 1 else (watchers[0],):
            if not operation.is_completed and operation.try_complete_for(key):
                completed += 1
        self._purge(key)
        return completed

    def _purge(self, key: Hashable) -> None:
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        waiting = [operation for operation in watchers if not operation.is_completed]
        self.watched_count -= len(watchers) - len(waiting)
        if waiting:
            self._watchers[key] = waiting
        else:
            del self._watchers[key]
