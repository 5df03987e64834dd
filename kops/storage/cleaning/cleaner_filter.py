"""The batches that compaction leaves (Kafka Cleaner.cleanInto's RecordFilter, MemoryRecords.filterTo; KIP-534 delete horizons).

A v2 batch that keeps all its records stays unchanged, unless the retention time of a tombstone or marker begins here. Then it is rewritten
with the delete horizon as its base timestamp. A batch that lost some records is rewritten with its base offset, last offset and producer
fields. A batch that lost all records stays as a header if a producer's state depends on it. v0 and v1 become v2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kops.errors import DecodeError
from kops.records.batch import BATCH_OVERHEAD, CODEC_MASK, DELETE_HORIZON_MASK, Batch
from kops.records.build import BatchBuilder, empty_batch, write_batch
from kops.records.compression import Compressor
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME
from kops.records.windows import RecordWindows, Window, why_unreadable
from kops.storage.cleaning import _hot_clean as hot
from kops.storage.failures.load_errors import ILLEGAL_STATE, LoadError, illegal_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kops.records.record import Record
    from kops.storage.cleaning.cleaned_transactions import CleanedTransactions
    from kops.storage.cleaning.cleaner_stats import CleanerStats

Run = tuple[bytes, list[int]]
"""(bytes, begin and end of each stretch of records in them)."""
_KEPT_ATTRIBUTES = 0x3F
"""Codec, timestamp type, transactional and control. A rewritten batch keeps no other attribute."""


class LastRecord(NamedTuple):
    """The log's last entry of an active producer: its last data offset (None: the last entry is a marker) and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class Retention(NamedTuple):
    """The decision about a whole batch: whether it is removed or filtered, and whether its header stays if no record does."""

    is_deleted: bool
    keeps_header: bool
    discards_records: bool
    is_marker_of_empty_txn: bool


@dataclass(slots=True)
class Filtered:
    """The output: bytes and the batches in them, and the largest offset among the records (-1: nothing stays)."""

    parts: list[bytes | memoryview] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    max_offset: int = -1

    def add(self, batch: Batch, max_offset: int) -> None:
        """Add a batch unchanged."""
        if batch.max_timestamp != -1 and batch.last_offset < 0:
            illegal_argument(f"shallowOffset undefined for maximum timestamp {batch.max_timestamp}")
        if max_offset < 0:
            illegal_argument("maxOffset undefined")
        self.parts.append(batch.data())
        self.batches.append(batch)
        self.max_offset = max(self.max_offset, max_offset)

    def data(self) -> bytes:
        """The complete output."""
        return b"".join(self.parts)


@dataclass(slots=True)
class BatchFilter:
    """Filters the batches of one source segment, in order.

    `now_ms` is the time of the round. `keeps_legacy_tombstones` applies to v0 and v1, which have no delete horizon. `end_offset` is the
    offset after the round's last batch, whose header stays. Raises DecodeError if a batch can't be read, and LoadError for a batch that
    Kafka rejects.
    """

    offsets: hot.OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    stats: CleanerStats
    now_ms: int
    delete_retention_ms: int
    keeps_legacy_tombstones: bool
    end_offset: int

    def take(self, batch: Batch, out: Filtered) -> None:
        """Add what remains of a batch to `out`."""
        if batch.magic > 1 and batch.size < BATCH_OVERHEAD:
            raise DecodeError(f"a batch of {batch.size} bytes", code="bad-length", position=batch.position)
        retention = self.retention(batch)
        self.stats.bytes_read += batch.size
        if retention.is_deleted:
            return
        before = len(out.batches)
        retained = self._filter(batch, retention, out)
        if not retained and retention.keeps_header:
            if batch.magic < 2:
                raise LoadError("Empty batches are only supported for magic v2 and above", exception=ILLEGAL_STATE)
            out.add(Batch(_header(batch)), batch.last_offset)
        if len(out.batches) > before:
            self.stats.messages_written += retained
            self.stats.bytes_written += out.batches[-1].size

    def retention(self, batch: Batch) -> Retention:
        """Decide about the whole batch, and pass it to the transactions."""
        if batch.is_control:
            is_marker_of_empty_txn = self.transactions.on_control_batch(batch)
            horizon = batch.delete_horizon_ms
            discards = is_marker_of_empty_txn and horizon is not None and horizon <= self.now_ms
        else:
            is_marker_of_empty_txn = False
            discards = self.transactions.on_batch(batch)
        keeps = batch.next_offset == self.end_offset or (batch.has_producer_id and self._is_last_of_producer(batch))
        return Retention(discards and not keeps, keeps, discards, is_marker_of_empty_txn)

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self.last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _filter(self, batch: Batch, retention: Retention, out: Filtered) -> int:
        """Add the remaining records to `out`, and return their number."""
        if batch.magic < 2:
            return self._filter_legacy(batch, retention.discards_records, out)
        count = batch.count or 0
        if count < 0:
            raise DecodeError(f"the batch claims {count} records", code="bad-records", position=batch.position)
        runs: list[Run] = []
        retained, max_offset, has_tombstone = 0, -1, False
        windows = RecordWindows(batch, holds="keys")
        for window in windows if count or not batch.compressed else ():
            found = self._choose(batch, window, retention, runs)
            retained += found[0]
            max_offset = max(max_offset, found[1])
            has_tombstone = has_tombstone or found[2]
        self.stats.messages_read += count
        if not retained:
            return 0
        horizon = batch.delete_horizon_ms
        begins_grace = horizon is None and (has_tombstone or retention.is_marker_of_empty_txn)
        if retained == count and not begins_grace:
            out.add(batch, batch.last_offset)
            return retained
        new_horizon = self.now_ms + self.delete_retention_ms if begins_grace else -1 if horizon is None else horizon
        if windows.is_streamed:
            rewritten: Iterable[Run] = self._runs_again(batch, retention)
        else:
            rewritten = runs
        out.add(Batch(_rebuilt(batch, rewritten, retained, new_horizon)), max_offset)
        return retained

    def _choose(self, batch: Batch, window: Window, retention: Retention, runs: list[Run]) -> tuple[int, int, bool]:
        """Return (number of retained records in a window, their largest offset, whether one has no value). `runs` gets the records."""
        data, start, end, count = window
        horizon = batch.delete_horizon_ms
        which = hot.NONE if retention.discards_records else hot.ALL if batch.is_control else hot.BY_KEY
        keeps_tombstones = horizon is None or self.now_ms < horizon
        span = batch.next_offset - batch.base_offset
        places: list[int] = []
        stop, retained, max_offset, has_tombstone, invalid = hot.choose(
            self.offsets, data, start, end, count, batch.base_offset, span, which, keeps_tombstones, places
        )
        check_records_read(batch, data, stop, end)
        self.stats.invalid_messages_read += invalid
        if places:
            runs[:] = [(data, places)]
        return retained, max_offset, has_tombstone

    def _runs_again(self, batch: Batch, retention: Retention) -> Iterator[Run]:
        """Yield the retained records of a batch that is too large for memory, by decompressing it a second time."""
        invalid = self.stats.invalid_messages_read
        for window in RecordWindows(batch):
            runs: list[Run] = []
            self._choose(batch, window, retention, runs)
            yield from runs
        self.stats.invalid_messages_read = invalid

    def _filter_legacy(self, batch: Batch, discards_records: bool, out: Filtered) -> int:
        first: Record | None = None
        retained, max_offset, has_tombstone = 0, -1, False
        for record in batch.iterate():
            self.stats.messages_read += 1
            if not discards_records and self._stays(record):
                first = first or record
                retained += 1
                max_offset = max(max_offset, record.offset)
                has_tombstone = has_tombstone or record.value is None
        if first is not None:
            horizon_ms = self.now_ms + self.delete_retention_ms if has_tombstone else None
            invalid = self.stats.invalid_messages_read
            out.add(Batch(_converted(batch, first.offset, filter(self._stays, batch.iterate()), horizon_ms)), max_offset)
            self.stats.invalid_messages_read = invalid
        return retained

    def _stays(self, record: Record) -> bool:
        if record.offset > self.offsets.latest_offset:
            return True
        if record.key is None:
            self.stats.invalid_messages_read += 1
            return False
        return (record.value is not None or self.keeps_legacy_tombstones) and record.offset >= self.offsets.get(record.key)


def check_records_read(batch: Batch, data: bytes, stop: int, end: int) -> None:
    """Raise DecodeError if a hot loop ended at -2 - position of a record, or before the end."""
    if stop < 0:
        raise DecodeError(why_unreadable(data, -2 - stop, end, 0), code="bad-records", position=batch.position)
    if stop != end:
        reason = f"{end - stop} bytes are left after the {batch.count} records that the batch claims"
        raise DecodeError(reason, code="bad-records", position=batch.position)


def _header(batch: Batch) -> bytes:
    return empty_batch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        timestamp=batch.max_timestamp,
        timestamp_type=batch.timestamp_type,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control,
    )


def _rebuilt(batch: Batch, runs: Iterable[Run], count: int, horizon_ms: int) -> bytes:
    """Build a v2 batch of the records in `runs`. `horizon_ms` is -1 for none."""
    if batch.is_transactional and batch.producer_id == -1:
        illegal_argument("Cannot write transactional messages without a valid producer ID")
    if batch.producer_id != -1 and batch.producer_epoch == -1:
        illegal_argument("Invalid negative producer epoch")
    if batch.producer_id != -1 and batch.base_sequence < 0 and not batch.is_control:
        illegal_argument("Invalid negative sequence number used")
    fixed = batch.timestamp_type == LOG_APPEND_TIME
    timestamp = batch.max_timestamp if fixed else batch.base_timestamp
    base, largest, last = horizon_ms, -1, hot.NO_OFFSET
    compressor = Compressor(batch.attributes & CODEC_MASK)
    try:
        for data, places in runs:
            parts: list[bytes] = []
            base, latest, last = hot.rewrite(data, places, timestamp, fixed, base, parts, last)
            largest = max(largest, latest)
            compressor.write(b"".join(parts))
    except ValueError as error:
        illegal_argument(str(error))
    return write_batch(
        compressor.finish(),
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=count,
        attributes=batch.attributes & _KEPT_ATTRIBUTES | (DELETE_HORIZON_MASK if horizon_ms >= 0 else 0),
        base_timestamp=base,
        max_timestamp=batch.max_timestamp if fixed else largest,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
    )


def _converted(batch: Batch, base_offset: int, records: Iterable[Record], horizon_ms: int | None) -> bytes:
    """Build a v2 batch of the records of a v0 or v1 batch."""
    fixed = batch.timestamp_type == LOG_APPEND_TIME
    builder = BatchBuilder(
        codec=batch.attributes & CODEC_MASK,
        base_offset=base_offset,
        timestamp_type=LOG_APPEND_TIME if fixed else CREATE_TIME,
        log_append_time=batch.max_timestamp if fixed else -1,
        delete_horizon_ms=horizon_ms,
    )
    try:
        for record in records:
            builder.append(record.timestamp, record.key, record.value, offset=record.offset)
    except ValueError as error:
        illegal_argument(str(error))
    return builder.build()
