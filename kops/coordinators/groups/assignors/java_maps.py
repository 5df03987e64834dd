"""Sets and maps with Java's iteration order (HashMap, HashSet, and Kafka's TimelineHashMap).

The assignors process members and partitions in this order, so it affects their results. A bucket of a HashMap is in order of insertion:
`put` adds at its end, `computeIfAbsent`, `compute` and `merge` at its beginning. Buckets of more than eight keys, which Java turns into
trees, are also in order of insertion here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from kops.config.values.java_hash import string_hash

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Hash = Callable[[K], int]
_GOLDEN = -7046029254386353131


@lru_cache(maxsize=4096)
def uuid_hash(uuid: bytes) -> int:
    """Return Uuid.hashCode as an unsigned 32-bit number."""
    halves = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (halves >> 32 ^ halves) & 0xFFFF_FFFF


text_hash = lru_cache(maxsize=65536)(string_hash)
"""Return String.hashCode as an unsigned 32-bit number, cached for the ids and names in use."""


def number_hash(number: int) -> int:
    """Return Integer.hashCode of a non-negative number."""
    return number


def pair_hash(pair: tuple[bytes, int]) -> int:
    """Return the hashCode of Kafka's record TopicIdPartition as an unsigned 32-bit number."""
    return (31 * uuid_hash(pair[0]) + pair[1]) & 0xFFFF_FFFF


def topic_partition_hash(key: tuple[str, int]) -> int:
    """Return the hashCode of Kafka's TopicPartition as an unsigned 32-bit number."""
    return (31 * (31 + key[1]) + text_hash(key[0])) & 0xFFFF_FFFF


def table_size(capacity: int) -> int:
    """Return the number of buckets of a HashMap with this initial capacity."""
    return 1 << max(capacity - 1, 0).bit_length()


def capacity_for(count: int) -> int:
    """Return the initial capacity that Kafka chooses if it knows the number of keys."""
    return int(count / 0.75) + 1


def copy_capacity(count: int) -> int:
    """Return the initial capacity of a HashSet that is created from a collection."""
    return max(int(count / 0.75) + 1, 16)


class JavaSet(Generic[K]):
    """The keys of a HashMap, or a HashSet."""

    __slots__ = ("_bits", "_first", "_hash_of", "_last", "_places")

    def __init__(self, hash_of: Hash[K], keys: Iterable[K] = (), *, capacity: int = 16) -> None:
        self._hash_of = hash_of
        self._bits = table_size(capacity)
        self._places: dict[K, tuple[int, int]] = {}
        """For each key, its spread hash and its position in its bucket."""
        self._first = self._last = 0
        for key in keys:
            self.add(key)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[K]:
        mask = self._bits - 1
        places = self._places
        order = sorted((spread & mask, place, key) for key, (spread, place) in places.items())  # positions differ: keys are not compared
        return iter([key for _, _, key in order])

    def add(self, key: K) -> None:
        """Do HashMap.put or HashSet.add."""
        if key not in self._places:
            self._last += 1
            self._places[key] = (self._spread(key), self._last)
            self._grow()

    def add_first(self, key: K) -> None:
        """Do HashMap.computeIfAbsent, compute or merge."""
        self._grow()
        if key not in self._places:
            self._first -= 1
            self._places[key] = (self._spread(key), self._first)

    def discard(self, key: K) -> bool:
        """Do HashMap.remove. Returns whether the key was there."""
        return self._places.pop(key, None) is not None

    def _spread(self, key: K) -> int:
        code = self._hash_of(key)
        return code ^ code >> 16

    def _grow(self) -> None:
        while len(self._places) > self._bits * 3 // 4:
            self._bits *= 2


class JavaMap(JavaSet[K], Generic[K, V]):
    """A HashMap."""

    __slots__ = ("_values",)

    def __init__(self, hash_of: Hash[K], *, capacity: int = 16) -> None:
        super().__init__(hash_of, capacity=capacity)
        self._values: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.add(key)
        self._values[key] = value

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def compute_if_absent(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, creating it if necessary."""
        self.add_first(key)
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]

    def discard(self, key: K) -> bool:
        self._values.pop(key, None)
        return super().discard(key)

    def items(self) -> list[tuple[K, V]]:
        """Keys and values."""
        return [(key, self._values[key]) for key in self]

    def to_dict(self) -> dict[K, V]:
        """The values by key, in Java's order."""
        return dict(self.items())


def grouped(items: Iterable[V], place_of: Callable[[V], K], hash_of: Hash[K]) -> dict[K, list[V]]:
    """Return the items by place. The places are in the order of a HashMap that is filled with computeIfAbsent."""
    found: JavaMap[K, list[V]] = JavaMap(hash_of)
    for item in items:
        found.compute_if_absent(place_of(item), list).append(item)
    return found.to_dict()


def numbers_of_list(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return distinct numbers in the order of a HashSet that is created from a list."""
    found = list(dict.fromkeys(numbers))
    size = table_size(copy_capacity(len(found)))
    if max(found, default=0) < size:
        return tuple(sorted(found))
    mask = size - 1
    return tuple(sorted(found, key=lambda number: (number ^ number >> 16) & mask))


def put_ordered(values: Mapping[K, V], hash_of: Hash[K]) -> dict[K, V]:
    """Return the mapping in the order of a HashMap with these entries."""
    if len(values) < 2:
        return dict(values)
    return {key: values[key] for key in JavaSet(hash_of, values)}


def texts_of_list(texts: Iterable[str]) -> tuple[str, ...]:
    """Return distinct strings in the order of a HashSet that is created from a list."""
    listed = list(texts)
    return tuple(JavaSet(text_hash, listed, capacity=copy_capacity(len(listed)))) if len(listed) > 1 else tuple(listed)


class TimelineSlots:
    """The number of slots of a TimelineHashMap. It is two at first and never decreases."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 2

    def before_put(self, size: int) -> None:
        """Grow if needed before a key, new or existing, is put into a map of `size` keys."""
        if (size + 1) * 0.75 > self.count:
            self.count *= 2

    def ordered(self, keys: Iterable[K], hash_of: Hash[K]) -> list[K]:
        """Sort keys from insertion order into iteration order: by slot, and within a slot the newest first."""
        shift = 65 - self.count.bit_length()
        slots: dict[int, list[K]] = {}
        for key in keys:
            code = hash_of(key)
            signed = code - (1 << 32) if code >> 31 else code
            slots.setdefault((signed * _GOLDEN & 0xFFFF_FFFF_FFFF_FFFF) >> shift, []).append(key)
        return [key for slot in sorted(slots) for key in reversed(slots[slot])]
