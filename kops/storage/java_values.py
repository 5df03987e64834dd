"""Java's arithmetic and collections where Kafka's files depend on them: integers that wrap, HashMap's order of iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)
_MIN_TREEIFY_CAPACITY = 64
_TREEIFY_THRESHOLD = 8


def to_long(value: int) -> int:
    """An integer wrapped to 64 bits, as Java's long arithmetic does."""
    if LONG_MIN <= value <= LONG_MAX:
        return value
    return (value - LONG_MIN) % 2**64 + LONG_MIN


def to_int(value: int) -> int:
    """An integer cut to its low 32 bits, as `(int)` does."""
    return (value + 2**31) % 2**32 - 2**31


class HashOrder:
    """The keys of a `java.util.HashMap<Long, …>` in the order of its iteration: the order of producers in a snapshot file.

    Buckets in turn. `put` adds at a bucket's end, `compute_if_absent` at its beginning and doubles the table one call later. A table
    smaller than 64 doubles, too, where a bucket gets too long; in a larger one that bucket becomes a tree in Java, whose order is not
    followed here (more than eight ids of 64 that agree in their low bits).
    """

    __slots__ = ("_count", "_table")

    def __init__(self) -> None:
        self._table: list[list[int]] = [[] for _ in range(16)]
        self._count = 0

    def _bucket(self, key: int) -> list[int]:
        return self._table[_spread(key) & (len(self._table) - 1)]

    def put(self, key: int) -> None:
        """HashMap.put of a key that is not in it."""
        bucket = self._bucket(key)
        bucket.append(key)
        if len(bucket) > _TREEIFY_THRESHOLD and len(self._table) < _MIN_TREEIFY_CAPACITY:
            self._resize()
        self._count += 1
        if self._is_full:
            self._resize()

    def before_compute_if_absent(self) -> None:
        """What HashMap.computeIfAbsent does whether the key is there or not."""
        if self._is_full:
            self._resize()

    def compute_if_absent(self, key: int) -> None:
        """The rest of it for a key that is not in the map."""
        bucket = self._bucket(key)
        bucket.insert(0, key)
        if len(bucket) >= _TREEIFY_THRESHOLD and len(self._table) < _MIN_TREEIFY_CAPACITY:
            self._resize()
        self._count += 1

    def remove(self, key: int) -> None:
        """HashMap.remove of a key that is in it."""
        self._bucket(key).remove(key)
        self._count -= 1

    def clear(self) -> None:
        """HashMap.clear: the table keeps its size."""
        for bucket in self._table:
            bucket.clear()
        self._count = 0

    def __iter__(self) -> Iterator[int]:
        for bucket in self._table:
            yield from bucket

    @property
    def _is_full(self) -> bool:
        return self._count > len(self._table) * 3 // 4

    def _resize(self) -> None:
        keys = list(self)
        self._table = [[] for _ in range(2 * len(self._table))]
        for key in keys:
            self._bucket(key).append(key)


def _spread(key: int) -> int:
    bits = key & 0xFFFF_FFFF_FFFF_FFFF
    hashed = (bits ^ (bits >> 32)) & 0xFFFF_FFFF
    return hashed ^ (hashed >> 16)
