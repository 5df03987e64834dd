"""Java's arithmetic and collections where Kafka's files depend on them: integers that wrap, HashMap's order of iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    """The order in which a `java.util.HashMap<Long, …>` is iterated, which is the order of producers in a snapshot file.

    Buckets in turn, within a bucket in order of insertion; the table doubles at three quarters full, or where a chain grows beyond
    eight in a table smaller than 64, and never shrinks. (Chains that have become trees, more than eight colliding ids in a larger table,
    keep the order of insertion here; Java may move their root to the front.)
    """

    __slots__ = ("_capacity",)

    def __init__(self) -> None:
        self._capacity = 16

    def added(self, keys: Mapping[int, object], key: int) -> None:
        """A new key was put; `keys` holds it already."""
        if self._capacity < _MIN_TREEIFY_CAPACITY and len(keys) > _TREEIFY_THRESHOLD:
            mask = self._capacity - 1
            bucket = _spread(key) & mask
            if sum(1 for other in keys if _spread(other) & mask == bucket) > _TREEIFY_THRESHOLD:
                self._capacity *= 2
        if len(keys) > self._capacity * 3 // 4:
            self._capacity *= 2

    def iterate(self, keys: Iterable[int]) -> list[int]:
        """`keys`, given in order of insertion, in the map's order."""
        mask = self._capacity - 1
        return sorted(keys, key=lambda key: _spread(key) & mask)


def _spread(key: int) -> int:
    bits = key & 0xFFFF_FFFF_FFFF_FFFF
    hashed = (bits ^ (bits >> 32)) & 0xFFFF_FFFF
    return hashed ^ (hashed >> 16)
