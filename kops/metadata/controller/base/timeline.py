"""State that can go back to an earlier offset, so that the controller can undo replayed records that were not committed.

Kafka keeps several versions of its maps (SnapshotRegistry, TimelineHashMap). Here every change is noted with the old value. Going back
undoes the notes, and committing drops them. All values are immutable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_ABSENT: Final[Any] = object()


class Timeline:
    """The notes of the changes to all maps made with it; `offset` is that of the record being replayed."""

    __slots__ = ("_changes", "offset")

    def __init__(self) -> None:
        self.offset = -1
        self._changes: deque[tuple[int, dict[Any, Any], Any, Any]] = deque()

    def note(self, values: dict[Any, Any], key: object, before: object) -> None:
        """`values[key]` was `before`."""
        self._changes.append((self.offset, values, key, before))

    def forget_up_to(self, offset: int) -> None:
        """The changes by records up to this offset stay."""
        while self._changes and self._changes[0][0] <= offset:
            self._changes.popleft()

    def revert_to(self, offset: int) -> None:
        """Undo what records behind this offset changed."""
        while self._changes and self._changes[-1][0] > offset:
            _, values, key, before = self._changes.pop()
            if before is _ABSENT:
                del values[key]
            else:
                values[key] = before
        self.offset = offset


class TimelineDict(MutableMapping[K, V]):
    """A dict whose changes are noted."""

    __slots__ = ("_timeline", "_values")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._values: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._timeline.note(self._values, key, self._values.get(key, _ABSENT))
        self._values[key] = value

    def __delitem__(self, key: K) -> None:
        self._timeline.note(self._values, key, self._values[key])
        del self._values[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values
