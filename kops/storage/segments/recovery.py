"""The pass over a segment that rebuilds its indexes, leader epochs and producers (the loop of Kafka's LogSegment.recover).

An index entry is due if more than `index.interval.bytes` lie between a batch and the batch of the last entry. Appends follow the same rule,
so for a leader of 3.9 or 4.x the rebuilt indexes equal the broker's byte for byte. With each entry, the time index gets the largest
timestamp so far. It gets that timestamp again at the end, as when a segment is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kops.config.values.java import INT_MAX, to_long
from kops.files import MemoryFiles
from kops.records.batch import HEADER_V2, LOG_OVERHEAD, Batch
from kops.records.scanning.columns import read_headers
from kops.storage.failures.load_errors import CorruptRecordError, InvalidRecordError, LoadError
from kops.storage.producers.state import ProducerState
from kops.storage.segment_files.file_records import LogView, ensure_valid
from kops.storage.segment_files.index_bytes import DEFAULT_INDEX_INTERVAL_BYTES
from kops.storage.segment_files.index_entries import TimestampOffset
from kops.storage.segment_files.mapped_index import MappedOffsetIndex, MappedTimeIndex
from kops.storage.segment_files.paths import INDEX, TIME_INDEX, TXN_INDEX, segment_path
from kops.storage.segment_files.transaction_index import AbortedTxn, TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kops.records import ByteSource
    from kops.records.scanning.checked import Checked
    from kops.records.scanning.columns import Columns, Row
    from kops.storage.segments.epoch_cache import LeaderEpochFileCache

DEFAULT_MAX_INDEX_SIZE = 10 * 1024 * 1024
_WINDOW = 1 << 20
_FIRST_WINDOW = 1 << 12
_ANY_MAGIC = 127


class Indexes(NamedTuple):
    """The three indexes of a segment."""

    offsets: MappedOffsetIndex
    times: MappedTimeIndex
    transactions: TransactionIndex


class Pass:
    """A pass over a segment's batches, from its beginning to the first invalid batch.

    Afterwards, `valid_bytes` is the position where it ended, `damage` the reason (None at the end of the file), and `largest` the largest
    timestamp.
    """

    def __init__(
        self,
        log: LogView,
        base_offset: int,
        indexes: Indexes,
        index_interval_bytes: int,
        producers: ProducerState,
        epochs: LeaderEpochFileCache | None,
        on_overflow: Callable[[int], LoadError],
    ) -> None:
        self._log = log
        self._base_offset = base_offset
        self._indexes = indexes
        self._interval = index_interval_bytes
        self._producers = producers
        self._epochs = epochs
        self._on_overflow = on_overflow
        self._last_indexed = 0
        self._window = _WINDOW
        self.valid_bytes = 0
        self.batches = 0
        self.largest = TimestampOffset(-1, base_offset)
        self.damage: LoadError | None = None
        self.on_rows: Callable[[list[Row]], None] | None = None
        self.checked: Checked[Columns] | None = None
        self.check_crc = True

    def run(self) -> None:
        """Run the pass. Raises the errors that Kafka's recovery does not catch either: overflow, decreasing offsets, errors of
        transactions.
        """
        try:
            while self._read_window() or self._read_one():
                pass
        except (CorruptRecordError, InvalidRecordError) as error:
            self.damage = error

    def _read_window(self) -> int:
        """Process the valid batches of a window in bulk, and return their size in bytes."""
        log = self._log
        position = self.valid_bytes
        length = min(self._window, log.size - position)
        if self.checked is not None:
            kept = self.checked.windows.get(position)
            if kept is not None and kept.end <= log.size and max(kept.producer_ids) < 0:  # The bytes of producers' batches are needed.
                self._take(kept.rows, [*kept.positions, kept.end], b"", position)
                return kept.end - position
            known = self.checked.at(position, True)
            length = min(length, known.end - position) if known is not None else length
        rows: list[Row] = []
        positions: list[int] = []
        data = log.read_batches_at(position, length)
        size = read_headers(data, position, self.check_crc, _ANY_MAGIC, rows, positions)
        # After a batch that only the slow reader can handle, little is read ahead, because many such batches may follow.
        self._window = min(2 * self._window, _WINDOW) if size else _FIRST_WINDOW
        positions.append(position + size)
        self._take(rows, positions, data, position)
        return size

    def _read_one(self) -> bool:
        """Process the next batch exactly as Kafka reads it, which is slower. Returns False at the end."""
        batch = next(self._log.batches(self.valid_bytes), None)
        if batch is None:
            return False
        ensure_valid(batch)
        if batch.magic < 2:
            timestamp = batch.max_timestamp
            row: Row = (batch.last_offset, batch.size - LOG_OVERHEAD, -1, batch.magic, 0, 0, 0, timestamp, timestamp, -1, -1, -1, -1)
        else:
            row = HEADER_V2.unpack_from(batch.buffer, batch.index)
        self._take([row], [batch.position, batch.end], batch.buffer, batch.position - batch.index)
        return True

    def _take(self, rows: list[Row], positions: list[int], data: bytes, start: int) -> None:
        """Apply the batches one by one. `positions` has one more element than `rows`: the end. `data` begins at `start` in the file."""
        base_offset, interval, last_indexed = self._base_offset, self._interval, self._last_indexed
        largest, largest_offset = self.largest
        offsets, times, _ = self._indexes
        producers = self._producers
        latest_epoch = self._latest_epoch()
        valid_bytes = self.valid_bytes
        try:
            for number, row in enumerate(rows):
                last_offset = row[0] + row[6]
                if not 0 <= last_offset - base_offset <= INT_MAX:
                    last_offset = to_long(last_offset)
                    if not 0 <= to_long(last_offset - base_offset) <= INT_MAX:
                        raise self._on_overflow(last_offset)
                if row[8] > largest:
                    largest, largest_offset = row[8], last_offset
                position = positions[number]
                if position - last_indexed > interval:
                    offsets.append(last_offset, position)
                    times.maybe_append(largest, largest_offset)
                    last_indexed = position
                valid_bytes = positions[number + 1]
                if row[3] >= 2:
                    if row[2] > latest_epoch:
                        latest_epoch = self._assign_epoch(row[2], row[0])
                    if row[9] >= 0:
                        self._update_producers(Batch(data, position - start, position))
                    producers.map_end_offset = last_offset + 1
        finally:
            self.largest = TimestampOffset(largest, largest_offset)
            self._last_indexed, self.valid_bytes = last_indexed, valid_bytes
        self.batches += len(rows)
        if self.on_rows is not None:
            self.on_rows(rows)

    def _latest_epoch(self) -> int:
        if self._epochs is None:
            return INT_MAX
        latest = self._epochs.latest_epoch
        return -1 if latest is None else latest

    def _assign_epoch(self, epoch: int, offset: int) -> int:
        assert self._epochs is not None
        self._epochs.assign(epoch, offset)
        return epoch

    def _update_producers(self, batch: Batch) -> None:
        aborted = update_producers(self._producers, batch)
        if aborted is not None:
            self._indexes.transactions.append(aborted)


def update_producers(producers: ProducerState, batch: Batch) -> AbortedTxn | None:
    """Add a batch of a producer to the state. Returns the transaction that it aborts. Raises the errors that Kafka's recovery does not
    catch.
    """
    info = producers.prepare_update(batch.producer_id)
    completed = info.append(batch)
    producers.update(info)
    if completed is None:
        return None
    last_stable_offset = producers.last_stable_offset(completed)
    producers.complete_txn(completed)
    if not completed.is_aborted:
        return None
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)


def rebuild_transaction_index(batches: Iterable[Batch], base_offset: int, producers: ProducerState) -> bytes:
    """Return the transaction index of a segment with these batches of producers, and add them to the state, as `rebuild_indexes` does.

    Of the batches that a producer has written one after the other in one transaction and epoch, the first and the last are enough, and of
    those the headers.
    """
    files = MemoryFiles()
    index = TransactionIndex(files, segment_path("/", base_offset, TXN_INDEX), base_offset)
    for batch in batches:
        aborted = update_producers(producers, batch)
        if aborted is not None:
            index.append(aborted)
    index.close()
    return files.read_all(index.path) if files.exists(index.path) else b""


@dataclass(frozen=True, slots=True)
class RebuiltIndexes:
    """Indexes as the broker would have written them: their contents in bytes, the size of the valid part of the log, and why it ends there.

    Iteration yields the three contents.
    """

    index: bytes
    timeindex: bytes
    txnindex: bytes
    valid_bytes: int
    damage: LoadError | None

    def __iter__(self) -> Iterator[bytes]:
        return iter((self.index, self.timeindex, self.txnindex))


def rebuild_indexes(
    source: ByteSource,
    base_offset: int,
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    *,
    producers: ProducerState | None = None,
    max_index_size: int = DEFAULT_MAX_INDEX_SIZE,
    path: str = "",
    on_rows: Callable[[list[Row]], None] | None = None,
) -> RebuiltIndexes:
    """Rebuild the indexes of one segment from its log, as if it had been closed or stopped cleanly.

    `producers` is the state at the segment's beginning, and the pass changes it to the state at the end. To handle transactions that span
    segments, pass the same object for one segment after the other, from the first segment or from a snapshot. Without `producers`, the
    segment is treated on its own. The pass ends at the first invalid batch (`valid_bytes`, `damage`). `on_rows` gets the headers of valid
    batches, some at a time; of messages of v0 and v1 not all fields. A `source` whose `checked` covers all of it is not checked again
    (`kops.records.scanning.checked`). Raises `LoadError` if offsets decrease or do not fit into the index, or if the index exceeds its
    size, and OSError if the log can't be read.
    """
    files = MemoryFiles()
    log = LogView(source, path)
    indexes = Indexes(
        MappedOffsetIndex(files, segment_path("/", base_offset, INDEX), base_offset, max_index_size),
        MappedTimeIndex(files, segment_path("/", base_offset, TIME_INDEX), base_offset, max_index_size),
        TransactionIndex(files, segment_path("/", base_offset, TXN_INDEX), base_offset),
    )

    def overflow(offset: int) -> LoadError:
        name = "org.apache.kafka.storage.internals.log.LogSegmentOffsetOverflowException"
        return LoadError(f"Detected offset overflow at offset {offset} in segment {base_offset}", exception=name)

    run = Pass(log, base_offset, indexes, index_interval_bytes, producers or ProducerState(), None, overflow)
    run.on_rows = on_rows
    checked: Checked[Columns] | None = getattr(source, "checked", None)
    run.checked = checked
    run.check_crc = checked is None or not checked.covers(source.size())
    try:
        run.run()
    except LoadError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
    indexes.times.maybe_append(*run.largest, skip_full_check=True)
    for index in (indexes.offsets, indexes.times, indexes.transactions):
        index.close()
    txn_path = indexes.transactions.path
    return RebuiltIndexes(
        files.read_all(indexes.offsets.path),
        files.read_all(indexes.times.path),
        files.read_all(txn_path) if files.exists(txn_path) else b"",
        run.valid_bytes,
        run.damage,
    )
