"""Immutable maps that share their unchanged parts.

Kafka uses pcollections' HashTreePMap for topics and copies all other maps. In Python, a look-up in a tree would cost ten times as much as
one in a dict. So a map here is a tuple of small dicts. A look-up selects a dict. A change copies the tuple and the dicts that it touches.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

_SHARD_SIZE: Final = 64
_GROWTH: Final = 8


class SharedMap(Mapping[K, V]):
    """A map that never changes. Keys are texts, bytes, integers, None, or tuples of these; None cannot be a value.

    The order of iteration depends on the keys and on the map's history, never on the process.
    """

    __slots__ = ("_shards", "_size", "get")

    if TYPE_CHECKING:

        @overload
        def get(self, key: K, /) -> V | None: ...
        @overload
        def get(self, key: K, default: V | T, /) -> V | T: ...
        def get(self, key: K, default: Any = None, /) -> Any:
            """Return the value of a key, or the default. In a small map it is the method of its only dict."""

    def __init__(self, values: Mapping[K, V] | None = None) -> None:
        filled = dict(values or {})
        self._keep((filled,) if len(filled) <= _SHARD_SIZE else _spread(filled), len(filled))

    def _keep(self, shards: tuple[dict[K, V], ...], size: int) -> None:
        self._shards = shards
        self._size = size
        self.get = shards[0].get if len(shards) == 1 else partial(_find, shards)  # type: ignore[method-assign, assignment]

    def __getitem__(self, key: K) -> V:
        shards = self._shards
        return shards[_place(key) & (len(shards) - 1) if len(shards) > 1 else 0][key]

    def __contains__(self, key: object) -> bool:
        return self.get(cast("K", key)) is not None

    def __iter__(self) -> Iterator[K]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"

    def changed(self, changes: Mapping[K, V | None]) -> SharedMap[K, V]:
        """Return the map with these values. A key whose value is None is removed."""
        if not changes:
            return self
        shards = list(self._shards)
        mask = len(shards) - 1
        copied: set[int] = set()
        size = self._size
        for key, value in changes.items():
            index = _place(key) & mask if mask else 0
            if index not in copied:
                copied.add(index)
                shards[index] = shards[index].copy()
            shard = shards[index]
            size -= len(shard)
            if value is None:
                shard.pop(key, None)
            else:
                shard[key] = value
            size += len(shard)
        if size > _SHARD_SIZE * len(shards):
            return SharedMap({key: value for shard in shards for key, value in shard.items()})
        made: SharedMap[K, V] = SharedMap()
        made._keep(tuple(shards), size)
        return made


def _find(shards: tuple[dict[K, V], ...], key: K, default: Any = None, /) -> Any:
    """`get` of a map with several shards."""
    return shards[_place(key) & (len(shards) - 1)].get(key, default)


def _spread(values: dict[K, V]) -> tuple[dict[K, V], ...]:
    count = 1
    while count * _SHARD_SIZE < len(values) * 2:
        count *= _GROWTH
    shards: tuple[dict[K, V], ...] = tuple({} for _ in range(count))
    for key, value in values.items():
        shards[_place(key) & (count - 1)][key] = value
    return shards


def _place(key: Any) -> int:
    # hash() of strings differs from process to process, and so would the order of iteration.
    kind = type(key)
    if kind is str:
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if kind is int:
        return cast("int", key)
    if kind is bytes:
        return int.from_bytes(key[-4:], "big")
    if isinstance(key, tuple):
        return sum(31**index * _place(part) for index, part in enumerate(key))
    return 0
