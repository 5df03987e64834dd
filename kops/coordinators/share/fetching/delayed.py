"""A share fetch that may wait for records. Sources: DelayedShareFetch (without remote storage), ShareFetchUtils.processFetchResponse.

The shell parks the fetch. It calls `try_complete` when something has changed, and `complete` if that returns True or on time-out. While a
share partition is read for one fetch, its fetch lock keeps other fetches away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kops.coordinators.share.fetching.share_fetch import ShareFetch, error_result
from kops.coordinators.share.partition.acquired import AcquiredRange, slice_bounds
from kops.coordinators.share.partition.acquiring import AcquireRequest
from kops.coordinators.share.partition.share_partition import SharePartition
from kops.coordinators.share.responses import message_of
from kops.coordinators.share.sessions.dividing import max_bytes
from kops.coordinators.share.sessions.session import TopicIdPartition
from kops.errors import ApiError
from kops.protocol.messages.share_fetch_response import AcquiredRecords, PartitionData
from kops.protocol.structure import Records
from kops.records.batch import Batch
from kops.records.isolation import AbortedTransaction
from kops.records.log_offsets import LogOffsetMetadata

SharePartitions = Mapping[TopicIdPartition, SharePartition]
Offsets = Mapping[TopicIdPartition, int]


class LogRead(NamedTuple):
    """The result of reading a partition: batches as values and as bytes, and the position at which the read began."""

    error: ApiError | None = None
    batches: Sequence[Batch] = ()
    records: Records = b""
    start: LogOffsetMetadata | None = None
    aborted: Sequence[AbortedTransaction] = ()


class LogReader(Protocol):
    """The logs of this broker. All methods raise ApiError."""

    def read(self, wanted: Mapping[TopicIdPartition, tuple[int, int]]) -> Mapping[TopicIdPartition, LogRead]:
        """Read each partition from an offset, up to a number of bytes: `wanted` has (offset, max bytes)."""

    def end(self, part: TopicIdPartition) -> LogOffsetMetadata | None:
        """Return the end of what a share group may read, or None if its position in the log is unknown."""

    def earliest_offset(self, part: TopicIdPartition, leader_epoch: int) -> int:
        """Return the log start offset."""

    def slice(self, records: Records, position: int, size: int) -> Records:
        """Return a part of the records that were read."""


class DelayedShareFetch:
    """The fetch. `on_error` may remove a share partition. `on_released` gets the partitions that other fetches may read again."""

    def __init__(
        self,
        fetch: ShareFetch,
        partitions: SharePartitions,
        reader: LogReader,
        random_below: Callable[[int], int],
        on_error: Callable[[TopicIdPartition, ApiError], None],
        on_released: Callable[[Iterable[TopicIdPartition]], None],
    ) -> None:
        self.fetch = fetch
        self._partitions = partitions
        self._reader = reader
        self._random_below = random_below
        self._on_error = on_error
        self._on_released = on_released
        self._acquired: Offsets = {}
        self._reads: Mapping[TopicIdPartition, LogRead] = {}

    def try_complete(self) -> bool:
        """Whether the fetch can be completed now, because there is enough data or an error. If so, the fetch holds the locks."""
        acquired = self._lock_partitions()
        if not acquired:
            return False
        try:
            reads = self._read_unknown_places(acquired)
            for part, read in reads.items():
                if read.error is None:
                    self._partitions[part].update_fetch_position(acquired[part], read.start)
            if any(read.error is not None for read in reads.values()) or self._is_enough(acquired):
                self._acquired, self._reads = acquired, reads
                return True
        except ApiError:
            self._unlock(acquired)
            return True
        self._unlock(acquired)
        return False

    def complete(self) -> None:
        """Acquire the available records, and answer."""
        acquired = self._acquired or self._lock_partitions()
        if not acquired:
            self.fetch.complete({})
            return
        try:
            missing = {part: offset for part, offset in acquired.items() if part not in self._reads}
            reads = {**self._read(missing, len(acquired)), **self._reads} if missing else self._reads
            self.fetch.complete(self._results(acquired, reads))
        except ApiError as error:
            for part in acquired:
                self._on_error(part, error)
            self.fetch.fail(acquired, error)
        finally:
            self._unlock(acquired)
            self._on_released(acquired)

    def _lock_partitions(self) -> dict[TopicIdPartition, int]:
        """Lock the partitions from which records may be acquired. Returns them with the offsets at which to read."""
        found = {}
        for part, partition in self._partitions.items():
            if partition.maybe_acquire_fetch_lock(self):
                if partition.can_acquire:
                    found[part] = partition.next_fetch_offset
                else:
                    partition.release_fetch_lock(self)
        return found

    def _unlock(self, parts: Iterable[TopicIdPartition]) -> None:
        for part in parts:
            self._partitions[part].release_fetch_lock(self)

    def _read_unknown_places(self, acquired: Offsets) -> Mapping[TopicIdPartition, LogRead]:
        """Read the partitions whose offset has no known position in the log. The other reads can wait until there is enough data."""
        unknown = {part: offset for part, offset in acquired.items() if self._partitions[part].fetch_position(offset) is None}
        return self._read(unknown, len(acquired)) if unknown else {}

    def _read(self, offsets: Offsets, acquired_count: int) -> Mapping[TopicIdPartition, LogRead]:
        limits = max_bytes(self.fetch.max_bytes, list(offsets), acquired_count, self._random_below)
        wanted = {part: (offsets[part], limits[part]) for part in self.fetch.without_errors(offsets)}
        return self._reader.read(wanted) if wanted else {}

    def _is_enough(self, acquired: Offsets) -> bool:
        """Whether there are `min_bytes` to read, estimated from positions in the logs."""
        limits = max_bytes(self.fetch.max_bytes, list(acquired), len(acquired), self._random_below)
        size = 0
        for part, offset in acquired.items():
            try:
                end = self._reader.end(part)
            except ApiError as error:
                self.fetch.errors[part] = error
                self._on_error(part, error)
                continue
            start = self._partitions[part].fetch_position(offset)
            if end is None or not isinstance(start, LogOffsetMetadata):
                continue
            if start.message_offset > end.message_offset:
                return True  # the log was truncated
            if start.message_offset < end.message_offset:
                if start.on_older_segment(end):
                    return True
                if start.on_same_segment(end):
                    size += min(end.relative_position - start.relative_position, limits[part])
        return size >= self.fetch.min_bytes

    def _results(self, acquired: Offsets, reads: Mapping[TopicIdPartition, LogRead]) -> dict[TopicIdPartition, PartitionData]:
        results = {}
        left = self.fetch.max_fetch_records
        for part, read in reads.items():
            if read.error is not None:
                result = self._error_result(part, read.error)
                if result is not None:
                    results[part] = result
                continue
            request = AcquireRequest(
                self.fetch.member_id, self.fetch.is_record_limit, self.fetch.batch_size, left, acquired[part], read.batches
            )
            ranges, count = self._partitions[part].acquire(request, read.aborted)
            result = results[part] = PartitionData(part.partition, records=b"")
            if ranges:
                result.acquired_records = [AcquiredRecords(*each) for each in ranges]
                result.records = self._records(read, ranges)
                left -= count
        return results

    def _records(self, read: LogRead, ranges: Sequence[AcquiredRange]) -> Records:
        """Return the batches with acquired records. A single batch is returned as it was read, with the bytes read after it."""
        if len(read.batches) == 1:
            return read.records
        first, end = slice_bounds(read.batches, ranges)
        position = sum(batch.size for batch in read.batches[:first])
        return self._reader.slice(read.records, position, sum(batch.size for batch in read.batches[first:end]))

    def _error_result(self, part: TopicIdPartition, error: ApiError) -> PartitionData | None:
        """Return the result for an error, or None if the fetch has a new error. A moved log start is not an error: the member fetches
        again."""
        if error.name != "OFFSET_OUT_OF_RANGE":
            return error_result(part, ApiError(error.name, message_of(error.name)))
        partition = self._partitions[part]
        try:
            partition.on_log_start_offset(self._reader.earliest_offset(part, partition.leader_epoch))
        except ApiError as failure:
            self.fetch.errors[part] = failure
            self._on_error(part, failure)
            return None
        return PartitionData(part.partition, error_message="NONE", records=b"")
