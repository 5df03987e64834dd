"""Below which offset a partition of __share_group_state can be deleted. Source: ShareCoordinatorOffsetsManager."""

from __future__ import annotations

from typing import Final

from kops.coordinators.share.key import SharePartitionKey
from kops.timeline import Timeline, TimelineDict, TimelineValue

_NONE: Final = 2**63 - 1


class RedundantOffsets:
    """The offset of each share partition's last snapshot. What is before all of them is not needed any more."""

    def __init__(self, timeline: Timeline) -> None:
        self._offsets: TimelineDict[SharePartitionKey, int] = TimelineDict(timeline)
        self._last = TimelineValue(timeline, _NONE)

    def on_snapshot(self, key: SharePartitionKey, offset: int, *, is_tombstone: bool) -> None:
        """A snapshot or a tombstone has this offset. A deleted partition holds nothing back behind its tombstone."""
        self._offsets[key] = offset
        last = min(self._offsets.values())
        if last != self._last.value:
            self._last.value = last
        if is_tombstone:
            del self._offsets[key]

    @property
    def last_redundant_offset(self) -> int | None:
        """The first offset that is needed; None if there is nothing to delete before it."""
        return None if self._last.value in (_NONE, 0) or self._last.value < 0 else self._last.value
