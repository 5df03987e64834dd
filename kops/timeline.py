"""State that can go back to an earlier offset, so that replayed records that were not committed can be undone.

The controller and the coordinators stand on it. Kafka keeps several versions of its maps (SnapshotRegistry, TimelineHashMap,
TimelineObject). Here every change is noted with the old value. Going back undoes the notes, and committing drops them. What is committed
can be read beside what was replayed. All values are immutable, or have state of this kind themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
_ABSENT: Final[Any] = object()


class Timeline:
    """The notes of the changes to all state made with it; `offset` is that of the record being replayed."""

    __slots__ = ("_changes", "is_settled", "offset")

    def __init__(self) -> None:
        self.offset = -1
        self.is_settled = False
        """Whether changes are committed when they are made, as those of a log that is read again: nothing is noted."""
        self._changes: deque[tuple[int, TimelineDict[Any, Any], Any, Any]] = deque()

    def note(self, changed: TimelineDict[Any, Any], key: object, before: object) -> None:
        """`changed[key]` was `before`."""
        self._changes.append((self.offset, changed, key, before))

    def forget_up_to(self, offset: int) -> None:
        """The changes by records up to this offset are committed: they stay."""
        changes = self._changes
        while changes and changes[0][0] <= offset:
            _, changed, key, _ = changes.popleft()
            changed._settle(key)

    def revert_to(self, offset: int) -> None:
        """Undo what records behind this offset changed."""
        changes = self._changes
        while changes and changes[-1][0] > offset:
            _, changed, key, before = changes.pop()
            changed._undo(key, before)
        self.offset = offset


class TimelineDict(MutableMapping[K, V]):
    """A dict whose changes are noted. Its own methods show the present; those that begin with `committed` leave out what may be undone."""

    __slots__ = ("_dirty", "_timeline", "_values")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._values: dict[K, V] = {}
        self._dirty: dict[K, deque[V]] = {}
        """For each key with changes that may be undone: the values before them, oldest first."""

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        if not self._timeline.is_settled:
            self._note(key, self._values.get(key, _ABSENT))
        self._values[key] = value

    def __delitem__(self, key: K) -> None:
        self._note(key, self._values[key])
        del self._values[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    # MutableMapping has these, too. A dict's are several times as fast.

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """The present value of a key, or `default`."""
        return self._values.get(key, default)

    def keys(self) -> KeysView[K]:
        """The present keys."""
        return self._values.keys()

    def values(self) -> ValuesView[V]:
        """The present values."""
        return self._values.values()

    def items(self) -> ItemsView[K, V]:
        """The present keys and values."""
        return self._values.items()

    def committed(self, key: K, default: V | None = None) -> V | None:
        """The committed value of a key, or `default`."""
        before = self._dirty.get(key)
        value = self._values.get(key, _ABSENT) if before is None else before[0]
        return default if value is _ABSENT else value

    def committed_items(self) -> Iterator[tuple[K, V]]:
        """The committed keys and values: those that never changed since first. The dict must not change meanwhile."""
        dirty = self._dirty
        for key, value in self._values.items():
            if key not in dirty:
                yield key, value
        for key, before in dirty.items():
            if before[0] is not _ABSENT:
                yield key, before[0]

    def _note(self, key: K, before: V) -> None:
        if self._timeline.is_settled:
            return
        self._timeline.note(self, key, before)
        self._dirty.setdefault(key, deque()).append(before)

    def _settle(self, key: K) -> None:
        before = self._dirty[key]
        before.popleft()
        if not before:
            del self._dirty[key]

    def _undo(self, key: K, before: V) -> None:
        noted = self._dirty[key]
        noted.pop()
        if not noted:
            del self._dirty[key]
        if before is _ABSENT:
            del self._values[key]
        else:
            self._values[key] = before


class TimelineValue(Generic[V]):
    """One value whose changes are noted."""

    __slots__ = ("_held",)

    def __init__(self, timeline: Timeline, value: V) -> None:
        self._held: TimelineDict[None, V] = TimelineDict(timeline)
        self._held._values[None] = value  # as it was before any record

    @property
    def value(self) -> V:
        """The present value."""
        return self._held[None]

    @value.setter
    def value(self, value: V) -> None:
        self._held[None] = value

    @property
    def committed(self) -> V:
        """The committed value."""
        value: Any = self._held.committed(None)
        return value  # type: ignore[no-any-return]
