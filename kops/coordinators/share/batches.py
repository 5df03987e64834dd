"""Ranges of offsets with the same delivery state, and the merging of two lists. Sources: PersisterStateBatch, PersisterStateBatchCombiner.

If ranges overlap, the one with the larger delivery count wins, or with equal counts the one with the larger state.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from kops.errors import ApiError

_MOST_MERGES: Final = 1000
"""The number of merges after which batches that end before they begin are rejected."""


class StateBatch(NamedTuple):
    """Offsets first to last, their delivery count and their state (see RecordState). The fields are in Kafka's order of comparison."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def delivery(self) -> tuple[int, int]:
        """The key that decides which of two overlapping batches wins: the count, then the state."""
        return self.delivery_count, self.delivery_state


def combine_batches(so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Merge two lists into one sorted list without overlaps, in which adjacent equal ranges are joined. Drop offsets below `start_offset`.

    A list with a single batch is returned unchanged. Batches that end before they begin may have no result: Kafka's combiner then merges
    for ever. Raises ApiError INVALID_REQUEST for them.
    """
    kept = _pruned([*so_far, *new], start_offset)
    if len(kept) < 2:
        return kept
    waiting = sorted(set(kept))  # a sorted list is a heap
    done: list[StateBatch] = []
    is_backwards = any(batch.first_offset > batch.last_offset for batch in waiting)
    seen: set[tuple[StateBatch, ...]] = set()
    earlier = _pop(waiting)
    while waiting:
        later = _pop(waiting)
        if not _is_mergeable(earlier, later):
            done.append(earlier)
            earlier = later
            continue
        if is_backwards:
            now = (earlier, later, *sorted(set(waiting)))
            if now in seen or len(seen) == _MOST_MERGES:
                raise ApiError("INVALID_REQUEST", "State batches that end before they begin can't be combined.")
            seen.add(now)
        for batch in _merged(earlier, later):
            heappush(waiting, batch)
        earlier = _pop(waiting)
    return [*done, earlier]


def _pruned(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset == -1:
        return list(batches)
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _pop(waiting: list[StateBatch]) -> StateBatch:
    """Remove the smallest batch from a heap. A batch that is there twice counts once."""
    batch = heappop(waiting)
    while waiting and waiting[0] == batch:
        heappop(waiting)
    return batch


def _is_mergeable(earlier: StateBatch, later: StateBatch) -> bool:
    """Whether two batches overlap, or are adjacent with the same state."""
    is_adjacent = later.first_offset == earlier.last_offset + 1
    return later.first_offset <= earlier.last_offset or (is_adjacent and later.delivery == earlier.delivery)


def _merged(earlier: StateBatch, later: StateBatch) -> list[StateBatch]:
    """Merge two overlapping batches, or two adjacent ones with the same state."""
    if later.delivery == earlier.delivery:
        return [earlier._replace(last_offset=max(earlier.last_offset, later.last_offset))]
    if later.delivery < earlier.delivery:
        rest = later._replace(first_offset=earlier.last_offset + 1)
        return [earlier, rest] if later.last_offset > earlier.last_offset else [earlier]
    found = [later]
    if earlier.first_offset < later.first_offset:
        found.append(earlier._replace(last_offset=later.first_offset - 1))
    if later.last_offset < earlier.last_offset:
        found.append(earlier._replace(first_offset=later.last_offset + 1))
    return found
