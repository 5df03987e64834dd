"""Chooses a record's partition: by the hash of its key, or, without a key, the same partition for a while.

Source: Kafka's Utils.murmur2, BuiltInPartitioner (KIP-480, KIP-794).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """Return the 32 bits of Kafka's hash as an unsigned number (Java's int is its two's complement)."""
    size = len(data)
    value = _SEED ^ size
    whole = size & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _M & _MASK
        word ^= word >> 24
        value = (value * _M & _MASK) ^ (word * _M & _MASK)
    if whole < size:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & _POSITIVE) % partition_count


class BuiltInPartitioner:
    """Kafka's partitioner of records without a key, for one topic. It is sticky, and adapts to the number of batches that wait for each
    partition.

    `draw` returns numbers from 0 up to below 2**31. `available()` are the partitions with a leader, `count()` is the number of all.
    """

    __slots__ = ("_available", "_count", "_draw", "_loads", "_produced", "_size", "partition")

    def __init__(self, size: int, draw: Callable[[], int], available: Callable[[], Sequence[int]], count: Callable[[], int]) -> None:
        self._size = max(size, 1)
        self._draw = draw
        self._available = available
        self._count = count
        self._loads: tuple[list[int], list[int]] | None = None  # cumulative frequencies, partitions
        self._produced = 0
        self.partition: int | None = None

    def current(self) -> int:
        """Return the partition of the next record."""
        if self.partition is None:
            self.partition = self._next()
        return self.partition

    def produced(self, size: int, *, may_switch: bool) -> bool:
        """Count bytes for the current partition. Returns whether the current partition has changed.

        It changes after a batch size if the batch is full, so that no small batch is left, or in any case after twice as much.
        """
        self._produced += size
        if not ((self._produced >= self._size and may_switch) or self._produced >= 2 * self._size):
            return False
        before, self.partition, self._produced = self.partition, self._next(), 0
        return before != self.partition

    @property
    def room(self) -> int:
        """The number of bytes after which the partition changes in any case."""
        return 2 * self._size - self._produced

    def load(self, queue_sizes: list[int] | None, partitions: list[int], count: int) -> None:
        """Set the number of waiting batches of each available partition, out of `count` partitions that were examined."""
        self._loads = None
        if queue_sizes is None or not queue_sizes or count < 2:
            return
        most = max(queue_sizes) + 1
        if len(queue_sizes) == count and most - 1 == min(queue_sizes):
            return
        self._loads = list(accumulate([most - size for size in queue_sizes])), partitions

    @property
    def range_end(self) -> int | None:
        """The end of the random numbers that choose by load, or None if all partitions are equally likely."""
        return None if self._loads is None else self._loads[0][-1]

    def _next(self) -> int:
        number = self._draw()
        if self._loads is None:
            available = self._available()
            return available[number % len(available)] if available else number % self._count()
        sums, partitions = self._loads
        return partitions[bisect_right(sums, number % sums[-1])]


class RoundRobinPartitioner:
    """One partition after the other, also for records with keys (Kafka's RoundRobinPartitioner)."""

    __slots__ = ("_counters",)

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, available: Sequence[int], count: int) -> int:
        """Return the partition of the next record."""
        number = self._counters.get(topic, 0)
        self._counters[topic] = number + 1 & _POSITIVE
        return available[number % len(available)] if available else number % count
