"""Collects a leader's records in batches before they are appended. A batch is complete after a pause or when it is full.

Prepared records are released only by `allow_drain`, so the controller can hold back records that belong together. Batches have format v2
and are uncompressed. All their records have the time of the first one. Source: Kafka's BatchAccumulator and BatchBuilder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kops.errors import ApiError
from kops.metadata.raft.log.control_records import ControlRecord, control_batch
from kops.metadata.raft.voters.settings import MAX_BATCH_COUNT, MAX_BATCH_SIZE, same_clock
from kops.records.batch import BATCH_OVERHEAD
from kops.records.build import write_batch, write_record

NEVER_MS: Final = 1 << 62
"""Later than any real time."""


class CompletedBatch(NamedTuple):
    """A batch that is ready to be appended. It ends before `end_offset`."""

    base_offset: int
    end_offset: int
    data: bytes


class BatchAccumulator:
    """The batches of one epoch's leader, beginning at `base_offset`. Sizes are in bytes. `timestamp` is that of `Identity`."""

    def __init__(
        self,
        epoch: int,
        base_offset: int,
        linger_ms: int,
        *,
        max_size: int = MAX_BATCH_SIZE,
        timestamp: Callable[[int], int] = same_clock,
    ) -> None:
        self.epoch = epoch
        self.next_offset = base_offset
        self._linger_ms = linger_ms
        self._max_size = max_size
        self._timestamp = timestamp
        self._completed: deque[CompletedBatch] = deque()
        self._records: list[bytes] = []
        self._size = 0
        self._append_time_ms = 0
        self._linger_deadline_ms = NEVER_MS
        self._drain_offset = NEVER_MS
        self._is_cut = False

    def append(self, epoch: int, records: Sequence[bytes], now_ms: int, *, delay_drain: bool = False) -> int:
        """Add records that stay together in one batch, and return the offset of the last one.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER for an earlier epoch, RECORD_LIST_TOO_LARGE for more than a batch holds,
        THROTTLING_QUOTA_EXCEEDED if too many batches wait to be appended.
        """
        if epoch < self.epoch:
            raise ApiError("NOT_LEADER_OR_FOLLOWER", f"Append failed because epoch {epoch} is stale. Current leader epoch is {self.epoch}")
        assert epoch == self.epoch, f"an append of epoch {epoch} in epoch {self.epoch}"
        assert records, "an append without records"
        if len(self._completed) >= MAX_BATCH_COUNT:
            raise ApiError("THROTTLING_QUOTA_EXCEEDED", f"{len(self._completed)} batches already wait to be appended")
        written = self._write(records)
        if self._size + sum(map(len, written)) > self._max_size:
            self._complete()
            written = self._write(records)
            size = BATCH_OVERHEAD + sum(map(len, written))
            if size > self._max_size:
                raise ApiError("RECORD_LIST_TOO_LARGE", f"The records take {size} bytes, a batch holds {self._max_size}")
        if not self._records:
            self._append_time_ms, self._size = self._timestamp(now_ms), BATCH_OVERHEAD
        if delay_drain and self._drain_offset == NEVER_MS:
            self._drain_offset = self.next_offset
        self._records += written
        self._size += sum(map(len, written))
        if self._linger_deadline_ms == NEVER_MS:
            self._linger_deadline_ms = now_ms + self._linger_ms
        self.next_offset += len(records)
        return self.next_offset - 1

    def _write(self, records: Sequence[bytes]) -> list[bytes]:
        first = len(self._records)
        return [write_record(first + index, 0, None, value) for index, value in enumerate(records)]

    def append_control(self, records: Sequence[ControlRecord], now_ms: int) -> int:
        """Add a control batch after all appended records, and return the offset of its last record."""
        self.force_drain()
        data = control_batch(records, base_offset=self.next_offset, epoch=self.epoch, now_ms=self._timestamp(now_ms))
        self._completed.append(CompletedBatch(self.next_offset, self.next_offset + len(records), data))
        self.next_offset += len(records)
        return self.next_offset - 1

    def force_drain(self) -> None:
        """Complete the current batch without waiting for the pause."""
        self._cut()
        self._is_cut = True

    def allow_drain(self) -> None:
        """Release the records that are held back."""
        self._drain_offset = NEVER_MS

    def ms_until_drain(self, now_ms: int) -> int:
        """Return the time until there is something to append, or at least NEVER_MS if nothing is waiting."""
        if self._completed and self._completed[0].end_offset <= self._drain_offset:
            return 0
        return max(0, self._linger_deadline_ms - now_ms)

    def drain(self) -> list[CompletedBatch]:
        """Return the batches that are due, in order. Records that are held back stay."""
        if not self._is_cut:
            self._cut()
        self._is_cut = False
        drained = []
        while self._completed and self._completed[0].end_offset <= self._drain_offset:
            drained.append(self._completed.popleft())
        return drained

    @property
    def is_empty(self) -> bool:
        """Whether no record is in an incomplete batch."""
        return self._linger_deadline_ms == NEVER_MS

    def _cut(self) -> None:
        self._complete()
        self._linger_deadline_ms = NEVER_MS

    def _complete(self) -> None:
        if not self._records:
            return
        count = len(self._records)
        base_offset = self.next_offset - count
        data = write_batch(
            b"".join(self._records),
            base_offset=base_offset,
            last_offset=self.next_offset - 1,
            count=count,
            base_timestamp=self._append_time_ms,
            max_timestamp=self._append_time_ms,
            partition_leader_epoch=self.epoch,
        )
        self._completed.append(CompletedBatch(base_offset, self.next_offset, data))
        self._records, self._size = [], 0
