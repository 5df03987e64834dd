"""State that can be reverted to an earlier offset, so that replayed records can be undone if they are not committed.

The controller and the coordinators use it. Kafka keeps several versions of its maps (SnapshotRegistry, TimelineHashMap,
TimelineObject). kops records the old value with every change. Reverting restores the old values, and committing drops them. Committed
values can be read as well as current ones. All values are immutable, or use a timeline themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic, Self, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
_ABSENT: Final[Any] = object()


class Timeline:
    """The uncommitted changes of all state created with it. `offset` is that of the record being replayed."""

    __slots__ = ("_changes", "is_settled", "offset")

    def __init__(self) -> None:
        self.offset = -1
        self.is_settled = False
        """Whether changes are already committed when they are made, as while a log is loaded. Old values are then not kept."""
        self._changes: deque[tuple[int, TimelineDict[Any, Any], Any, Any]] = deque()

    def note(self, changed: TimelineDict[Any, Any], key: object, before: object) -> None:
        """Record that `changed[key]` was `before`."""
        self._changes.append((self.offset, changed, key, before))

    def forget_up_to(self, offset: int) -> None:
        """Drop the old values of changes by records up to this offset: they are committed."""
        changes = self._changes
        while changes and changes[0][0] <= offset:
            _, changed, key, _ = changes.popleft()
            changed._settle(key)

    def revert_to(self, offset: int) -> None:
        """Undo the changes by records after this offset."""
        changes = self._changes
        while changes and changes[-1][0] > offset:
            _, changed, key, before = changes.pop()
            changed._undo(key, before)
        self.offset = offset


class TimelineDict(dict[K, V]):
    """A dict whose changes can be undone. The dict's methods use current values; methods that begin with `committed` use committed ones.

    It is a subclass of dict, not a wrapper: coordinators read far more than they write, and reads are as fast as those of a dict.
    """

    __slots__ = ("_dirty", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self._dirty: dict[K, deque[V]] = {}
        """For each key with uncommitted changes, the earlier values, oldest first."""

    def __setitem__(self, key: K, value: V) -> None:
        if not self._timeline.is_settled:
            self._note(key, self.get(key, _ABSENT))
        _put(self, key, value)

    def __delitem__(self, key: K) -> None:
        self._note(key, self[key])
        super().__delitem__(key)

    # The methods of dict with these names would not record the changes.

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V | D, /) -> V | D: ...
    def pop(self, key: K, default: Any = _ABSENT, /) -> Any:
        """Remove a key and return its value, or `default`. Raises KeyError if it is missing and there is no default."""
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            if default is _ABSENT:
                raise KeyError(key)
            return default
        del self[key]
        return value

    def popitem(self) -> tuple[K, V]:
        """Remove and return the newest item. Raises KeyError if the dict is empty."""
        key = next(reversed(self), _ABSENT)
        if key is _ABSENT:
            raise KeyError("the dict is empty")
        return key, self.pop(key)

    def setdefault(self, key: K, default: Any = None, /) -> Any:
        """Return the value of a key. If it is missing, set it to `default`."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all keys."""
        for key in list(self):
            del self[key]

    def update(self, *others: Any, **named: V) -> None:
        """Set the keys of another mapping, or of pairs."""
        for key, value in dict(*others, **named).items():
            self[key] = value

    def __ior__(self, other: Any, /) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def committed(self, key: K, default: V | None = None) -> V | None:
        """Return the committed value of a key, or `default`."""
        before = self._dirty.get(key)
        value = self.get(key, _ABSENT) if before is None else before[0]
        return default if value is _ABSENT else value

    def committed_items(self) -> Iterator[tuple[K, V]]:
        """Iterate over the committed keys and values, unchanged ones first. The dict must not change meanwhile."""
        dirty = self._dirty
        for key, value in self.items():
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
            super().__delitem__(key)
        else:
            _put(self, key, before)


_put: Final[Any] = dict.__setitem__  # Without recording the change.


class TimelineValue(Generic[V]):
    """One value whose changes can be undone."""

    __slots__ = ("_held",)

    def __init__(self, timeline: Timeline, value: V) -> None:
        self._held: TimelineDict[None, V] = TimelineDict(timeline)
        _put(self._held, None, value)  # The value before any record.

    @property
    def value(self) -> V:
        """The current value."""
        return self._held[None]

    @value.setter
    def value(self, value: V) -> None:
        self._held[None] = value

    @property
    def committed(self) -> V:
        """The committed value."""
        value: Any = self._held.committed(None)
        return value  # type: ignore[no-any-return]
