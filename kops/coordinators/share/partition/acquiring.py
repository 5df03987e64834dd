"""Decides which of the fetched records a member acquires. Source: SharePartition.acquire.

A member acquires whole batches, unless it limits the number of records (record-limit mode). Records that were delivered often come in
smaller and smaller numbers. The last delivery is of a single record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kops.coordinators.share.partition.acquired import NOTHING, Acquired, AcquiredRange, joined
from kops.coordinators.share.partition.cache import InFlightCache
from kops.coordinators.share.partition.in_flight import MOST_RECORDS, NO_MEMBER, AcquisitionLocks, InFlightBatch, InFlightState
from kops.coordinators.share.partition.record_state import RecordState
from kops.coordinators.share.partition.settings import SharePartitionSettings, throttle_limit
from kops.errors import ApiError
from kops.records.batch import Batch

ACQUIRED = RecordState.ACQUIRED


class AcquireRequest(NamedTuple):
    """The member, the limits of its request, and the batches that were read from the log at `fetch_offset`.

    In `is_record_limit` mode `max_fetch_records` is a hard limit. `batch_size` is the size of the ranges in the response.
    """

    member_id: str
    is_record_limit: bool
    batch_size: int
    max_fetch_records: int
    fetch_offset: int
    batches: Sequence[Batch]


def acquire(cache: InFlightCache, locks: AcquisitionLocks, settings: SharePartitionSettings, request: AcquireRequest) -> Acquired:
    """Acquire available records. Raises ApiError where Kafka throws: compaction has removed records before a full window."""
    if request.max_fetch_records <= 0 or not request.batches or request.batches[-1].last_offset < cache.start_offset:
        return NOTHING
    return _Acquisition(cache, locks, settings, request).run()


class _Acquisition:
    """The acquisition for one fetch."""

    def __init__(self, cache: InFlightCache, locks: AcquisitionLocks, settings: SharePartitionSettings, request: AcquireRequest) -> None:
        self._cache = cache
        self._locks = locks
        self._request = request
        self._max_delivery_count = settings.max_delivery_count
        self._throttle_limit = throttle_limit(self._max_delivery_count)
        self._first_offset = request.batches[0].base_offset
        self._last_offset = request.batches[-1].last_offset
        self._max_records = self._limited(settings.max_in_flight_records)
        self._ranges: list[AcquiredRange] = []
        self._count = 0

    @property
    def _remaining(self) -> int:
        return self._max_records - self._count

    def run(self) -> Acquired:
        """Acquire the records."""
        if self._max_records <= 0:
            return NOTHING
        cache = self._cache
        cache.archive_stale(self._request.fetch_offset, self._first_offset)
        cache.cut(self._first_offset, self._last_offset + 1)
        base_offset = self._aligned_base_offset()
        first_offset = min(self._first_offset, base_offset)
        if first_offset > self._last_offset:
            raise ApiError("UNKNOWN_SERVER_ERROR", "inconsistent range")
        overlapping = cache.batches.between(first_offset, self._last_offset)
        if not overlapping:
            return self._new(base_offset, self._last_offset, self._max_records)
        last_known = overlapping[-1].last_offset
        self._take_known(overlapping, base_offset)
        if self._remaining > 0 and last_known < self._last_offset:
            self._add(self._new(last_known + 1, self._last_offset, self._remaining))
        if self._ranges:
            cache.narrow_gap(self._ranges[-1].last_offset + 1)
        return Acquired(self._ranges, self._count)

    def _limited(self, max_in_flight_records: int) -> int:
        """Return how many records may be acquired. If the window is full, only records within it may be."""
        cache, request = self._cache, self._request
        free = min(request.max_fetch_records, max_in_flight_records - cache.in_flight_count)
        if free <= 0 and request.fetch_offset <= cache.end_offset:
            free = min(request.max_fetch_records, cache.end_offset - request.fetch_offset + 1)
            free = min(free, MOST_RECORDS) if request.is_record_limit else free
            self._last_offset = min(self._last_offset, cache.end_offset)
        return free

    def _aligned_base_offset(self) -> int:
        """Return the first fetched offset, or the first offset of the known batch that contains it."""
        floor = self._cache.batches.floor(self._first_offset)
        if floor is None:
            return max(self._first_offset, self._cache.start_offset)
        return floor[0] if floor[1].last_offset >= self._first_offset else self._first_offset

    def _take_known(self, overlapping: Sequence[InFlightBatch], base_offset: int) -> None:
        """Acquire the available records of known batches, and the records in the gaps between them."""
        gap_start = base_offset
        for batch in overlapping:
            if self._remaining <= 0:
                return
            if self._cache.is_gap_open:
                if gap_start < batch.first_offset:
                    self._add(self._new(gap_start, batch.first_offset - 1, self._remaining))
                gap_start = batch.last_offset + 1
                if self._remaining <= 0:
                    return
            is_throttled = self._is_throttled(batch)
            if is_throttled and self._count > 0:
                self._max_records = 0  # the next fetch gets the rest
                return
            is_part = not batch.is_within(self._first_offset, self._last_offset)
            is_part = is_part or (self._request.is_record_limit and batch.count > self._remaining)
            if batch.whole is not None and not batch.whole.is_available:
                continue
            if is_part or batch.whole is None or is_throttled:
                count = self._take_records(batch)
                self._count += count
                if is_throttled and count > 0:
                    self._max_records = 0
                    return
            else:
                self._take_whole(batch, batch.whole)

    def _take_whole(self, batch: InFlightBatch, state: InFlightState) -> None:
        if not state.update(ACQUIRED, self._max_delivery_count, self._request.member_id, is_delivery=True):
            return
        state.set_lock(self._locks.lock(self._request.member_id, batch.first_offset, batch.last_offset))
        self._ranges.append(AcquiredRange(batch.first_offset, batch.last_offset, state.delivery_count))
        self._count += batch.count

    def _take_records(self, batch: InFlightBatch) -> int:
        """Acquire records one by one. Returns their number."""
        self._cache.cut(batch.first_offset + min(self._remaining, MOST_RECORDS))
        split = batch.split(self._locks)
        taken: list[AcquiredRange] = []
        limit = 0
        maximum = self._max_delivery_count
        for offset, state in batch.states(self._first_offset, self._last_offset):
            if not state.is_available:
                continue
            if taken and maximum > 2 and state.delivery_count == maximum - 1:
                break  # its last delivery: the next fetch delivers it alone
            if state.delivery_count >= self._throttle_limit and not limit:
                limit = max(1, len(split) >> (state.delivery_count - self._throttle_limit + 1))
            if not state.update(ACQUIRED, maximum, self._request.member_id, is_delivery=True):
                continue
            state.set_lock(self._locks.lock(self._request.member_id, offset, offset))
            taken.append(AcquiredRange(offset, offset, state.delivery_count))
            if maximum > 2 and state.delivery_count == maximum:
                break
            if (self._request.is_record_limit and len(taken) == self._remaining) or len(taken) == limit:
                break
        self._ranges += joined(taken)
        return len(taken)

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        if batch.whole is not None:
            return batch.whole.is_available and batch.whole.delivery_count >= self._throttle_limit
        states = batch.states(self._first_offset, self._last_offset)
        return any(state.is_available and state.delivery_count >= self._throttle_limit for _, state in states)

    def _add(self, acquired: Acquired) -> None:
        self._ranges += acquired.ranges
        self._count += acquired.offset_count

    def _new(self, first_offset: int, last_offset: int, max_records: int) -> Acquired:
        """Acquire records that were not in flight, up to the end of the batch that contains the last wanted record."""
        cache = self._cache
        if not cache.batches:
            first_offset = max(first_offset, cache.end_offset)
        end = last_offset
        if max_records < end - first_offset + 1:
            end = self._end_of_batch_at(first_offset + max_records - 1)
            if cache.is_gap_open:
                end = min(end, last_offset)
        ranges = self._added(first_offset, end, max_records)
        if cache.batches.first_offset == first_offset:
            cache.start_offset = first_offset
        cache.end_offset = max(cache.end_offset, end)
        last = ranges[0].last_offset if self._request.is_record_limit else end
        cache.narrow_gap(last + 1)
        return Acquired(ranges, last - first_offset + 1)

    def _added(self, first_offset: int, last_offset: int, max_records: int) -> list[AcquiredRange]:
        """Add new batches to the cache. Returns the acquired ranges."""
        member_id = self._request.member_id
        if self._request.is_record_limit and last_offset - first_offset + 1 > max_records:
            batch = InFlightBatch(first_offset, last_offset, InFlightState(ACQUIRED, 1, member_id))
            if batch.is_wide:
                rest = batch.cut(first_offset + max_records, self._locks)
                rest.whole = InFlightState(RecordState.AVAILABLE, 0, NO_MEMBER)
                self._cache.add(rest)
            batch.split_at(first_offset + max_records - 1, self._locks)
            self._cache.must_search = True
            self._cache.add(batch)
            return [AcquiredRange(first_offset, first_offset + max_records - 1, 1)]
        ranges = self._in_batch_size(first_offset, last_offset)
        for each in ranges:
            lock = self._locks.lock(member_id, each.first_offset, each.last_offset)
            self._cache.add(InFlightBatch(each.first_offset, each.last_offset, InFlightState(ACQUIRED, 1, member_id, lock)))
        return ranges

    def _in_batch_size(self, first_offset: int, last_offset: int) -> list[AcquiredRange]:
        """Return ranges of about the wanted size that end at the ends of fetched batches."""
        size = self._request.batch_size
        ranges = []
        if not self._request.is_record_limit and last_offset - first_offset + 1 > size:
            for batch in self._request.batches:
                if batch.base_offset > last_offset:
                    break
                if batch.base_offset - first_offset >= size:
                    ranges.append(AcquiredRange(first_offset, batch.base_offset - 1, 1))
                    first_offset = batch.base_offset
        return [*ranges, AcquiredRange(first_offset, last_offset, 1)]

    def _end_of_batch_at(self, offset: int) -> int:
        """Return the last offset of the fetched batch that contains `offset`, or `offset` if no batch does."""
        before = None
        for batch in self._request.batches:
            if batch.base_offset > offset:
                break
            before = batch
        return before.last_offset if before is not None and offset <= before.last_offset else offset
