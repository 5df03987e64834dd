"""The in-flight records of a share partition, from its start offset, before which all records are done, to its end offset.

Source: SharePartition (`cachedState` and the offsets around it). After a change of leader some of these records may be unknown: the new
leader knows only persisted states, not records that were merely acquired. The gap window is the range in which it looks for such records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.partition.in_flight import NO_MEMBER, AcquisitionLocks, InFlightBatch, InFlightState
from kops.coordinators.share.partition.offset_map import OffsetMap
from kops.coordinators.share.partition.record_state import RecordState

_STATES: Final = frozenset(RecordState)


class GapWindow(NamedTuple):
    """The range, from `start_offset` to `end_offset`, that may have records unknown to the persister."""

    end_offset: int
    start_offset: int


class _Done(NamedTuple):
    """The last offset up to which all records are done (-1: none), and how many of them count as done."""

    last_offset: int
    record_count: int


class InFlightCache:
    """The in-flight batches by first offset."""

    def __init__(self, locks: AcquisitionLocks) -> None:
        self._locks = locks
        self.batches: OffsetMap[InFlightBatch] = OffsetMap()
        self.start_offset = 0
        self.end_offset = 0
        self.gap: GapWindow | None = None
        self.must_search = False
        """Whether the next offset to fetch must be searched, because records have become available again."""
        self.delivery_complete_count = 0
        """The number of records at and above the start offset that are done."""

    @property
    def is_gap_open(self) -> bool:
        """Whether gaps may have records: nothing after the persisted states has been fetched yet."""
        return self.gap is not None and self.gap.end_offset == self.end_offset

    @property
    def in_flight_count(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    def begin(self, start_offset: int, state_batches: Iterable[StateBatch]) -> bool:
        """Begin with the persisted state. Returns False if it is inconsistent."""
        self.start_offset = start_offset
        gap_start = -1
        previous = start_offset - 1
        for batch in state_batches:
            if not start_offset <= batch.first_offset <= batch.last_offset or batch.delivery_state not in _STATES:
                return False
            if gap_start == -1 and batch.first_offset > previous + 1:
                gap_start = previous + 1
            previous = batch.last_offset
            state = RecordState(batch.delivery_state)
            self.add(InFlightBatch(batch.first_offset, batch.last_offset, InFlightState(state, batch.delivery_count, NO_MEMBER)))
            if state.is_terminal:
                self.delivery_complete_count += batch.last_offset - batch.first_offset + 1
        if not self.batches:
            self.end_offset = start_offset
            return True
        self.must_search = True
        self.end_offset = self.batches.last.last_offset
        if gap_start != -1:
            self.gap = GapWindow(self.end_offset, gap_start)
        self.move_start_offset()
        return True

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch in flight."""
        self.batches[batch.first_offset] = batch

    def cut(self, *offsets: int) -> None:
        """Cut a wide batch that contains one of these offsets, or the start offset, in two. They have the same state.

        Requests can name any offsets as the state of a share partition. Kafka gives each of them a state of its own as soon as some of
        them differ. Here, only the part that is really read or acknowledged gets them.
        """
        for offset in (self.start_offset, *offsets):
            floor = self.batches.floor(offset)
            if floor is None:
                continue
            batch = floor[1]
            if batch.is_wide and batch.first_offset < offset <= batch.last_offset:
                self.add(batch.cut(offset, self._locks))

    def in_flight_within(self, first_offset: int, last_offset: int) -> int:
        """Return how many of these offsets are at or above the start offset."""
        return last_offset - max(self.start_offset, first_offset) + 1 if last_offset >= self.start_offset else 0

    def starts_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether the start offset has moved to one of these offsets other than the first."""
        return first_offset < self.start_offset <= last_offset

    def next_fetch_offset(self) -> int:
        """Return the offset at which to read: that of the first available record, or the end."""
        if not self.batches or self.start_offset > self.batches.last.last_offset:
            self.must_search = False
            return self.end_offset
        found = self._first_available() if self.must_search else None
        if found is None:
            self.must_search = False
            return self.end_offset + 1
        return found

    def narrow_gap(self, offset: int) -> None:
        """Record that everything below this offset has been fetched."""
        if self.gap is not None:
            is_open = self.gap.end_offset == self.end_offset and offset <= self.gap.end_offset
            self.gap = self.gap._replace(start_offset=offset) if is_open else None

    def archive(
        self, first_offset: int, end_offset: int, batches: Sequence[InFlightBatch], state: RecordState, *, counts_as_done: bool = True
    ) -> bool:
        """Archive the records with this state in a range (end exclusive). Returns whether there were any."""
        any_archived = False
        for batch in batches:
            if batch.first_offset >= end_offset:
                break
            if batch.whole is not None:
                if batch.whole.state is not state:
                    continue
                if batch.is_within(first_offset, end_offset - 1):
                    batch.whole.archive()
                    self.delivery_complete_count += batch.count if counts_as_done else 0
                    any_archived = True
                    continue
                batch.split(self._locks)
            for _, record in batch.states(first_offset, end_offset - 1):
                if record.state is state:
                    record.archive()
                    self.delivery_complete_count += counts_as_done
                    any_archived = True
        return any_archived

    def archive_stale(self, fetch_offset: int, base_offset: int) -> None:
        """Archive the records between two offsets, which compaction has removed: a fetch found none of them."""
        if not self.batches or fetch_offset >= base_offset:
            return
        self.cut(fetch_offset, base_offset)
        floor = self.batches.floor(fetch_offset)
        first = floor[0] if floor is not None and floor[1].last_offset >= fetch_offset else fetch_offset
        if self.archive(fetch_offset, base_offset, self.batches.between(first, base_offset - 1), RecordState.AVAILABLE):
            self.must_search = True

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Handle a moved log start. Acquired records stay acquired until their lock expires. The next write tells the persister."""
        if log_start_offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            return
        self.cut(log_start_offset)
        removed = self._done_before(log_start_offset)
        if self.archive(self.start_offset, log_start_offset, list(self.batches), RecordState.AVAILABLE, counts_as_done=False):
            self.must_search = True
        self.start_offset = log_start_offset
        self.delivery_complete_count -= removed
        self.end_offset = max(self.end_offset, self.start_offset)

    def move_start_offset(self) -> bool:
        """Move the start offset past records that are done, and drop completed batches. Returns whether there were such records."""
        if not self._is_start_done():
            return False
        done = self._done()
        if done.last_offset == -1:
            return False
        last_offset = self.batches.last.last_offset
        if done.last_offset == last_offset:
            self.start_offset = self.end_offset = _as_long(last_offset + 1)
            self.batches.clear()
            self.delivery_complete_count = 0
            return True
        floor = self.batches.floor(done.last_offset)
        assert floor is not None
        key, batch = floor
        if done.last_offset == batch.last_offset:
            following = self.batches.higher(done.last_offset)
            assert following is not None
            self.start_offset = max(self.start_offset, following)
            if self.gap is not None and self.is_gap_open:
                self.start_offset = min(self.gap.start_offset, self.start_offset)
            removed: int | None = key
        else:
            self.start_offset = max(self.start_offset, done.last_offset + 1)
            removed = None if key == self.batches.first_offset else self.batches.lower(key)
        self.delivery_complete_count -= done.record_count
        if removed is not None:
            self.batches.remove_up_to(removed)
        return True

    def _first_available(self) -> int | None:
        gap_start = self.gap.start_offset if self.gap is not None and self.is_gap_open else None
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            if batch.whole is not None:
                if batch.whole.is_available:
                    return batch.first_offset
                continue
            for offset, state in batch.states():
                if state.is_available:
                    return offset
        return None

    def _is_start_done(self) -> bool:
        floor = self.batches.floor(self.start_offset)
        if floor is None:
            return False  # nothing is in flight, or a gap begins here
        state = floor[1].state_at(self.start_offset)
        # None: the start offset is in a gap of the log. Kafka throws a NullPointerException here, which has no visible effect.
        return state is not None and not state.is_changing and state.state.is_terminal

    def _done(self) -> _Done:
        last_offset, count = -1, 0
        gap_start = self.gap.start_offset if self.gap is not None and self.is_gap_open else None
        for batch in self.batches:
            if gap_start is not None and batch.last_offset >= gap_start:
                break
            if batch.whole is not None:
                if batch.whole.is_changing or not batch.whole.state.is_terminal:
                    break
                last_offset = batch.last_offset
                count += self.in_flight_within(batch.first_offset, batch.last_offset)
                continue
            for offset, state in batch.states():
                if state.is_changing or not state.state.is_terminal:
                    return _Done(last_offset, count)
                last_offset = offset
                count += offset >= self.start_offset
        return _Done(last_offset, count)

    def _done_before(self, log_start_offset: int) -> int:
        """Return how many records that count as done are below the new log start."""
        count = 0
        for batch in self.batches:
            if batch.first_offset >= log_start_offset:
                break
            if batch.whole is None:
                states = batch.states(self.start_offset, log_start_offset - 1)
                count += sum(state.state.is_terminal for _, state in states)
            elif batch.whole.state.is_terminal:
                last = min(log_start_offset - 1, batch.last_offset)
                count += max(0, last - max(self.start_offset, batch.first_offset) + 1)
        return count


def _as_long(offset: int) -> int:
    """Return an offset as Java's `long`: the one after the largest is the smallest."""
    return (offset + 2**63) % 2**64 - 2**63
