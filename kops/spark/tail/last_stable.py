"""The last stable offset of a log that is being written: the first offset of the oldest transaction that is open below the high watermark.

Sources: Kafka's `UnifiedLog.fetchLastStableOffset` and `ProducerStateManager` (`firstUnstableOffset`: a transaction whose marker is not
below the high watermark is open). No file has this offset. The producer snapshot of a segment has the transactions that are open at its
beginning. The rest is read once, as the log grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError
from kops.records import Batch, scan
from kops.records.record import control_type_id
from kops.storage.formats.producer_snapshot import read_producer_snapshot

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import Segment

ABORT: Final = 0
COMMIT: Final = 1


@dataclass(slots=True)
class _State:
    base_offset: int
    epochs: tuple[tuple[int, int], ...]
    position: int = 0
    first_offsets: dict[int, int] = field(default_factory=dict)


class LastStable:
    """Follows the transactions of many logs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._states: dict[str, _State] = {}

    def offset(self, path: str, segments: Sequence[Segment], epochs: tuple[tuple[int, int], ...], high_watermark: int) -> int:
        """Return the last stable offset of the log in the directory `path`. If its epochs have changed, it may have been cut and is read
        again."""
        state = self._states.get(path)
        if state is None or state.epochs != epochs or state.base_offset > segments[-1].base_offset:
            state = self._states[path] = self._begin(segments, epochs, high_watermark)
        for segment in segments:
            if segment.base_offset >= state.base_offset and segment.log is not None and not self._follow(state, segment, high_watermark):
                break
        return min(state.first_offsets.values(), default=high_watermark)

    def _begin(self, segments: Sequence[Segment], epochs: tuple[tuple[int, int], ...], high_watermark: int) -> _State:
        """At the last segment below the high watermark that has a readable snapshot, or at the first one."""
        for segment in reversed(segments):
            entry = segment.files.get("snapshot")
            if entry is None or segment.base_offset > high_watermark:
                continue
            try:
                producers = read_producer_snapshot(self._files.read_all(entry.path))
            except (DecodeError, FileNotFoundError):
                continue
            is_open = {each.producer_id: each.current_txn_first_offset for each in producers if each.current_txn_first_offset >= 0}
            return _State(segment.base_offset, epochs, 0, is_open)
        return _State(segments[0].base_offset, epochs)

    def _follow(self, state: _State, segment: Segment, high_watermark: int) -> bool:
        """Continue to read a segment. Returns whether to read the next one."""
        assert segment.log is not None
        if segment.base_offset != state.base_offset:
            state.base_offset, state.position = segment.base_offset, 0
        with self._files.open(segment.log.path) as file:
            for item in scan(file, state.position, check_crc=False):
                if not isinstance(item, Batch):
                    continue
                if item.base_offset >= high_watermark:
                    return False
                if not item.is_control and item.is_transactional:
                    state.first_offsets.setdefault(item.producer_id, item.base_offset)
                if item.last_offset >= high_watermark:
                    return False  # it is looked at again
                if item.is_control and markers(item):
                    state.first_offsets.pop(item.producer_id, None)
                state.position = item.position + item.size
        return True


def markers(batch: Batch) -> list[tuple[int, bool]]:
    """Yield the markers in a control batch: offset, and whether it commits. An unreadable one ends nothing."""
    try:
        kinds = [(record.offset, control_type_id(record.key)[1]) for record in batch.records()]
    except DecodeError:
        return []
    return [(offset, kind == COMMIT) for offset, kind in kinds if kind in (ABORT, COMMIT)]
