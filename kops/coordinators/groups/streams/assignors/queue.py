"""A priority queue that returns equal entries in the order of java.util.PriorityQueue: a binary heap with Java's algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """The queue. `weight` must not change while an entry is in it."""

    def __init__(self, weight: Callable[[T], float], entries: Iterable[T] = ()) -> None:
        self._weight = weight
        self._heap: list[T] = []
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: T) -> None:
        """Add an entry."""
        heap, weight = self._heap, self._weight(entry)
        heap.append(entry)
        place = len(heap) - 1
        while place > 0:
            parent = (place - 1) >> 1
            if weight >= self._weight(heap[parent]):
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = entry

    def poll(self) -> T | None:
        """Remove and return the entry with the smallest weight, or None if the queue is empty."""
        heap = self._heap
        if not heap:
            return None
        first, last = heap[0], heap.pop()
        if heap:
            self._sift_down(last)
        return first

    def _sift_down(self, entry: T) -> None:
        heap, weight = self._heap, self._weight(entry)
        place, half = 0, len(heap) >> 1
        while place < half:
            child = 2 * place + 1
            if child + 1 < len(heap) and self._weight(heap[child]) > self._weight(heap[child + 1]):
                child += 1
            if weight <= self._weight(heap[child]):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = entry
