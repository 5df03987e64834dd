"""Tracks the offset below which a partition of __share_group_state can be deleted. Source: ShareCoordinatorOffsetsManager."""

from __future__ import annotations

from typing import Final

from kops.coordinators.share.key import SharePartitionKey
from kops.timeline import Timeline, TimelineDict, TimelineValue

_NONE: Final = 2**63 - 1


class RedundantOffsets:
    """The offset of each share partition's last snapshot. Records before all of these are redundant."""

    def __init__(self, timeline: Timeline) -> None:
        self._offsets: TimelineDict[SharePartitionKey, int] = TimelineDict(timeline)
        self._last = TimelineValue(timeline, _NONE)

    def on_snapshot(self, key: SharePartitionKey, offset: int, *, is_tombstone: bool) -> None:
        """Record the offset of a snapshot or tombstone. After its tombstone, a deleted partition retains no records."""
        self._offsets[key] = offset
        last = min(self._offsets.values())
        if last != self._last.value:
            self._last.value = last
        if is_tombstone:
            del self._offsets[key]

    @property
    def last_redundant_offset(self) -> int | None:
        """Return the first offset that is still needed, or None if nothing can be deleted."""
        return None if self._last.value in (_NONE, 0) or self._last.value < 0 else self._last.value
