"""Compaction of one log, which keeps the latest record of each key (Kafka Cleaner, LogToClean).

The offset map takes as many keys of the dirty segments as it can hold. Then all segments up to that point are copied, group by group, into
`.cleaned` segments without the superseded records. Each of these replaces its group. `kops.storage.cleaning.cleaner_filter` decides what
remains of a batch.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kops.config.values.java import INT_MAX
from kops.errors import DecodeError
from kops.records.scanning.scanner import file_batches
from kops.records.windows import RecordWindows
from kops.storage.background.flush import Flush
from kops.storage.cleaning import _hot_clean as hot
from kops.storage.cleaning.cleaned_transactions import CleanedTransactions
from kops.storage.cleaning.cleaner_filter import BatchFilter, Filtered, LastRecord, check_records_read
from kops.storage.cleaning.cleaner_stats import CleanerStats
from kops.storage.failures.load_errors import KAFKA_EXCEPTION, CorruptRecordError, LoadError
from kops.storage.segments.segment import SegmentOverflowError
from kops.storage.segments.split import create_cleaned_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.config import TopicConfig
    from kops.records import Batch
    from kops.storage.segments.segment import LogSegment
    from kops.storage.unified_log import UnifiedLog

DEFAULT_DEDUPE_BUFFER_BYTES = 128 << 20
DEFAULT_LOAD_FACTOR = 0.9
DEFAULT_IO_BUFFER_BYTES = 512 << 10
"""The total size of the read and write buffers, as in `log.cleaner.io.buffer.size`."""


T = TypeVar("T")
Steps = Generator["Callable[[], None] | None", None, T]
"""A step yields None, or work that waits for the disk. The caller has to do that work, in any thread, before the next step."""


class CleaningAbortedError(LoadError):
    """The round was aborted. Segments that had not yet replaced their group were removed."""

    java_class = "org.apache.kafka.storage.internals.log.LogCleaningAbortedException"


@dataclass(frozen=True, slots=True)
class CleanRange:
    """The part of a log for one round. It is dirty from `first_dirty_offset` and must not be cleaned from `first_uncleanable_offset`."""

    first_dirty_offset: int
    first_uncleanable_offset: int


class CleanResult(NamedTuple):
    """The offset up to which the log is clean, and the counters of the round."""

    end_offset: int
    stats: CleanerStats


class Cleaner:
    """Cleans logs one after the other, with one offset map.

    `throttle(bytes)` is called with the size of every read and write. `now_ms` is the clock for delete horizons. Raises ValueError for a
    map without room for an entry.
    """

    def __init__(
        self,
        offsets: hot.OffsetMap,
        *,
        now_ms: Callable[[], int],
        io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES,
        load_factor: float = DEFAULT_LOAD_FACTOR,
        throttle: Callable[[float], None] | None = None,
    ) -> None:
        if int(offsets.slots) * load_factor <= 1:
            raise ValueError(
                "offset map is too small to fit in even a single message, so log cleaning will never make progress. You can increase"
                " log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads"
            )
        self.offsets = offsets
        self._max_entries = int(int(offsets.slots) * load_factor)
        self._now_ms = now_ms
        self._window = max(io_buffer_bytes // 2, 1)
        self._throttle = throttle if throttle is not None else _ignore

    def clean(self, log: UnifiedLog, span: CleanRange, now_ms: int | None = None) -> CleanResult:
        """Run one round to its end. Raises the same errors as `steps`."""
        steps = self.steps(log, span, now_ms)
        try:
            work = next(steps)
            while True:
                error = None
                if work is not None:
                    try:
                        work()
                    except OSError as failed:
                        error = failed
                work = next(steps) if error is None else steps.throw(error)
        except StopIteration as done:
            result: CleanResult = done.value
            return result

    def steps(self, log: UnifiedLog, span: CleanRange, now_ms: int | None = None) -> Steps[CleanResult]:
        """Run one round, one window of a segment in each step. The caller may throw CleaningAbortedError between steps.

        Also raises CleaningAbortedError if a segment was split (the next round handles it), LoadError or DecodeError if the log can't be
        cleaned, and OSError. Nothing is lost then, and groups that were already replaced stay replaced.
        """
        now = self._now_ms() if now_ms is None else now_ms
        stats = CleanerStats(start_ms=self._now_ms())
        clean = log.segments.values(0, span.first_dirty_offset)
        legacy_horizon = _modified_ms(log, clean[-1]) - log.config.delete_retention_ms if clean else 0
        yield from self._build_offset_map(log, span, stats)
        end_offset = self.offsets.latest_offset + 1
        stats.map_complete_ms = self._now_ms()
        transactions = CleanedTransactions()
        for group in group_segments_by_size(log.segments.values(0, end_offset), log.config, span.first_uncleanable_offset):
            yield from self._clean_segments(log, group, now, stats, transactions, legacy_horizon, span.first_uncleanable_offset)
        stats.buffer_utilization = self.offsets.utilization
        stats.end_ms = self._now_ms()
        return CleanResult(end_offset, stats)

    # the offset map ---------------------------------------------------------------------------------------------------------------

    def _build_offset_map(self, log: UnifiedLog, span: CleanRange, stats: CleanerStats) -> Steps[None]:
        """Fill the map from the dirty segments until they end or the map is full."""
        start, end = span.first_dirty_offset, span.first_uncleanable_offset
        self.offsets.clear()
        dirty = log.segments.values(start, end)
        transactions = CleanedTransactions()
        transactions.add_aborted_transactions(log.collect_aborted_transactions(start, end))
        for number, segment in enumerate(dirty):
            following = dirty[number + 1].base_offset if number + 1 < len(dirty) else end
            is_mapped = yield from self._map_segment(segment, start, following, transactions, stats)
            if not is_mapped:
                break

    def _map_segment(
        self, segment: LogSegment, start_offset: int, next_segment_offset: int, transactions: CleanedTransactions, stats: CleanerStats
    ) -> Steps[bool]:
        """Put the keys of a segment into the map. Returns False if the map is full."""
        buffer = b""
        for batch in self._batches_to_map(segment, segment.offset_index.lookup(start_offset).position):
            if batch.buffer is not buffer or batch.compressed:
                # A compressed batch may be many times larger than the window, so it is a step of its own.
                buffer = batch.buffer
                yield None
            if batch.is_control:
                transactions.on_control_batch(batch)
                stats.map_messages_read += 1
            elif transactions.on_batch(batch):
                stats.map_messages_read += batch.count or 0
            elif not self._map_batch(batch, start_offset, stats):
                return False
            if batch.last_offset >= start_offset:
                self.offsets.update_latest_offset(batch.last_offset)
            stats.map_bytes_read += batch.size
        # The last offsets of the segment may be missing.
        self.offsets.update_latest_offset(next_segment_offset - 1)
        return True

    def _batches_to_map(self, segment: LogSegment, position: int) -> Iterator[Batch]:
        """Yield batches as `_batches` does, but raise a plain LoadError for a failing disk.

        The log then counts as uncleanable, and its directory stays online (Kafka's Cleaner.buildOffsetMapForSegment).
        """
        try:
            yield from self._batches(segment, position)
        except OSError as error:
            reason = f"Failed to read from segment {segment.log.path} while loading offset map"
            raise LoadError(reason, exception=KAFKA_EXCEPTION) from error

    def _map_batch(self, batch: Batch, start_offset: int, stats: CleanerStats) -> bool:
        if batch.magic < 2:
            return self._map_legacy(batch, start_offset, stats)
        count = batch.count or 0
        if count <= 0 and batch.compressed:
            return True
        for data, start, end, found in RecordWindows(batch, holds="keys"):
            stop, read = hot.put_keys(self.offsets, data, start, end, found, batch.base_offset, start_offset, self._max_entries)
            stats.map_messages_read += read
            if stop == hot.FULL:
                return False
            check_records_read(batch, data, stop, end)
        return True

    def _map_legacy(self, batch: Batch, start_offset: int, stats: CleanerStats) -> bool:
        for record in batch.iterate():
            if record.key is not None and record.offset >= start_offset:
                if self.offsets.size >= self._max_entries:
                    return False
                self.offsets.put(record.key, record.offset)
            stats.map_messages_read += 1
        return True

    # copying ----------------------------------------------------------------------------------------------------------------------

    def _clean_segments(
        self,
        log: UnifiedLog,
        group: list[LogSegment],
        now_ms: int,
        stats: CleanerStats,
        transactions: CleanedTransactions,
        legacy_horizon_ms: int,
        end_offset: int,
    ) -> Steps[None]:
        """Clean a group of segments into one segment, and replace the group by it."""
        cleaned = create_cleaned_segment(log.files, log.directory, log.config, group[0].base_offset)
        transactions.cleaned_index = cleaned.txn_index
        is_swapped = False
        flush = Flush(log.files, 0)
        try:
            last_records = last_records_of_active_producers(log)
            for number, segment in enumerate(group):
                following = group[number + 1].base_offset if number + 1 < len(group) else segment.read_next_offset()
                transactions.add_aborted_transactions(log.collect_aborted_transactions(segment.base_offset, following))
                retained = BatchFilter(
                    self.offsets,
                    transactions,
                    last_records,
                    stats,
                    now_ms,
                    log.config.delete_retention_ms,
                    _modified_ms(log, segment) > legacy_horizon_ms,
                    end_offset,
                )
                yield from self._clean_into(log, segment, cleaned, retained)
            cleaned.on_become_inactive()
            cleaned.begin_flush(flush)
            yield flush.run
            flush.end()
            modified_ms = _modified_ms(log, group[-1])
            for path in (cleaned.log.path, cleaned.offset_index_path, cleaned.time_index_path):
                log.files.set_mtime(path, modified_ms)
            is_swapped = True
            log.replace_segments([cleaned], group)
        except CleaningAbortedError:
            cleaned.delete()
            raise
        finally:
            flush.close()
            if not is_swapped:
                cleaned.close_handlers()

    def _clean_into(self, log: UnifiedLog, segment: LogSegment, cleaned: LogSegment, retained: BatchFilter) -> Steps[None]:
        out = Filtered()
        buffer = b""
        try:
            for batch in self._batches(segment, 0):
                if batch.buffer is not buffer:
                    self._write(out, cleaned)
                    out, buffer = Filtered(), batch.buffer
                    yield None
                elif batch.compressed:
                    yield None
                retained.take(batch, out)
            self._write(out, cleaned)
        except SegmentOverflowError as error:
            # In the next round, the offsets fit into the segments.
            log.split_overflowed_segment(segment)
            raise CleaningAbortedError(error.reason) from error

    def _write(self, out: Filtered, cleaned: LogSegment) -> None:
        if out.batches:
            data = out.data()
            cleaned.append(out.max_offset, data, out.batches)
            self._throttle(len(data))

    def _batches(self, segment: LogSegment, position: int) -> Iterator[Batch]:
        """Yield the batches from a byte position to the end. Raises CorruptRecordError if they end before the file does."""
        records = segment.log
        buffer = b""
        try:
            for batch in file_batches(records.source, position, records.size, window=self._window):
                if batch.buffer is not buffer:
                    buffer = batch.buffer
                    self._throttle(len(buffer))
                yield batch
                position = batch.end
        except DecodeError as error:
            raise error.at(file=records.path) from None
        if position < records.size:
            raise CorruptRecordError(f"Log segment {records.path} may be corrupt: no complete batch at position {position}")


def group_segments_by_size(segments: list[LogSegment], config: TopicConfig, first_uncleanable_offset: int) -> list[list[LogSegment]]:
    """Group neighbouring segments into one each, within the topic's limits on log and index size and the offset range of an index."""
    groups: list[list[LogSegment]] = []
    sizes = (0, 0, 0)
    limits = (config.segment_size, config.segment_index_bytes, config.segment_index_bytes)
    for number, segment in enumerate(segments):
        own = (segment.size, segment.offset_index.size, segment.time_index.size)
        total = tuple(map(sum, zip(sizes, own, strict=True)))
        # The next segment's base offset gives the last offset without a scan.
        last_offset = (segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset) - 1
        if (
            groups
            and all(size <= limit for size, limit in zip(total, limits, strict=True))
            and (segment.size == 0 or last_offset - groups[-1][0].base_offset <= INT_MAX)
        ):
            groups[-1].append(segment)
            sizes = (total[0], total[1], total[2])
        else:
            groups.append([segment])
            sizes = own
    return groups


def last_records_of_active_producers(log: UnifiedLog) -> dict[int, LastRecord]:
    """Return the last record of each active producer id. Its batch must be kept so that the producer's state can be read back."""
    return {
        producer_id: LastRecord(entry.last_data_offset if entry.last_data_offset >= 0 else None, entry.producer_epoch)
        for producer_id, entry in log.producers.producers.items()
    }


def _modified_ms(log: UnifiedLog, segment: LogSegment) -> int:
    return log.files.stat(segment.log.path).mtime_ms


def _ignore(_: object) -> None:
    pass
