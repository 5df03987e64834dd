"""A log under random operations, compared with a list of records: exactly the appended records are read, whatever happens in between.

The model has only what the log promises: the records with their offsets, the start of the log, and what each known producer has written.
Segments, indexes and other files are up to the log, but their contents must be correct. After a clean stop and after a kill, the log comes
back the same.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kops.records import Record
from kops.storage.log_offsets import Isolation
from tests.support.logs.twins.open_log import NOW, OpenLog, batch

PRODUCERS = (1, 2, 3)
COUNTS = st.integers(1, 3)


class Kept(NamedTuple):
    """A batch of `size` records in the model. `commits` is set only for the marker that ends a transaction."""

    base_offset: int
    size: int
    timestamp: int
    producer_id: int
    sequence: int
    transactional: bool
    commits: bool | None = None

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.size


class LogMachine(RuleBasedStateMachine):
    """Appends, transactions, rolls, truncations, deletions, retention, stops and kills in any order."""

    @initialize(size=st.integers(120, 900), interval=st.sampled_from((0, 100, 4096)), index=st.sampled_from((24, 240, 10 << 20)))
    def begin_log(self, size: int, interval: int, index: int) -> None:
        self.log = OpenLog(
            internal_segment_bytes=max(size, 400), index_interval_bytes=interval, segment_index_bytes=index, retention_bytes=1200
        )
        self.kept: list[Kept] = []
        self.start = self.end = 0

    def take(self, count: int, timestamp: int = NOW, producer_id: int = -1, *, transactional: bool = False) -> None:
        self.kept.append(Kept(self.end, count, timestamp, producer_id, self.sequence(producer_id), transactional))
        self.end += count

    def sequence(self, producer_id: int) -> int:
        return sum(kept.size for kept in self.written(producer_id)) if producer_id > 0 else -1

    def written(self, producer_id: int) -> list[Kept]:
        return [kept for kept in self.kept if kept.producer_id == producer_id and kept.commits is None]

    def opened(self, producer_id: int) -> list[Kept]:
        """Return the batches of the producer's open transaction."""
        found: list[Kept] = []
        for kept in self.kept:
            if kept.producer_id == producer_id and kept.transactional:
                found = [*found, kept] if kept.commits is None else []
        return found

    # rules ------------------------------------------------------------------------------------------------------------------------

    @rule(count=COUNTS, later=st.integers(0, 50))
    def append(self, count: int, later: int) -> None:
        info = self.log.append(batch(count, timestamp=NOW + later))
        assert (info.first_offset, info.message_count) == (self.end, count)
        self.take(count, NOW + later)

    @rule(count=COUNTS, producer_id=st.sampled_from(PRODUCERS))
    def append_idempotent(self, count: int, producer_id: int) -> None:
        if self.is_known(producer_id) and not self.opened(producer_id):
            sequence = self.sequence(producer_id)
            data = batch(count, producer_id=producer_id, sequence=sequence)
            assert self.log.append(data).first_offset == self.end
            again = self.log.append(data)
            assert (again.first_offset, again.is_duplicate) == (self.end, True)
            self.take(count, producer_id=producer_id)

    def is_known(self, producer_id: int) -> bool:
        """Return whether the log knows the producer's last sequence, or the producer is new. The log does not know it if the producer's
        batches were truncated or deleted.
        """
        entry = self.log.log.producers.producers.get(producer_id)
        written = self.sequence(producer_id)
        return written == 0 if entry is None else entry.last_sequence == written - 1

    @rule(count=COUNTS, producer_id=st.sampled_from(PRODUCERS))
    def append_transactional(self, count: int, producer_id: int) -> None:
        if self.is_known(producer_id):
            assert self.log.begin(producer_id, self.sequence(producer_id), count).first_offset == self.end
            self.take(count, producer_id=producer_id, transactional=True)

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        if self.opened(producer_id):
            self.log.end(producer_id, commit=commit)
            self.kept.append(Kept(self.end, 1, NOW, producer_id, -1, True, commit))
            self.end += 1

    @rule()
    def roll(self) -> None:
        self.log.log.roll()

    @rule(later=st.sampled_from((0, 60_000)))
    def run_tasks(self, later: int) -> None:
        self.log.run(later)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([kept.base_offset for kept in self.kept if kept.base_offset >= self.start] or [self.end]))
        self.log.log.truncate_to(offset)
        self.kept = [kept for kept in self.kept if kept.base_offset < offset]
        self.end = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.log.maybe_increment_log_start_offset(offset)
        self.start = offset

    @rule()
    def retain(self) -> None:
        self.log.log.delete_old_segments()
        log = self.log.log
        assert log.log_start_offset >= self.start
        assert log.size < 1200 + self.log.config.segment_size
        self.start = log.log_start_offset

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Restart after a clean stop or after a kill."""
        log = self.log.log
        if clean:
            log.close()
        self.log.open(had_clean_shutdown=clean, log_start_offset=log.log_start_offset, recovery_point=log.recovery_point)
        self.log.log.update_high_watermark(self.log.log.log_end_offset)

    # invariants -------------------------------------------------------------------------------------------------------------------

    @invariant()
    def offsets_are_right(self) -> None:
        log = self.log.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (self.start, self.end, self.end)
        assert not self.log.failures.offline

    @invariant()
    def every_record_is_read(self) -> None:
        """A read from any offset returns the batches from there on, over all segments."""
        for start in {self.start, (self.start + self.end) // 2, self.end}:
            assert self.read(start) == [kept.base_offset for kept in self.kept if kept.next_offset > start]

    def read(self, start: int) -> list[int]:
        found: list[int] = []
        while start < self.end:
            fetched = self.log.log.read(start, 150, Isolation.LOG_END, min_one_batch=True)
            assert fetched.records is not None
            for one in fetched.records.batches():
                assert one.crc_ok
                found.append(one.base_offset)
                start = one.next_offset
        return found

    @invariant()
    def the_last_stable_offset_is_right(self) -> None:
        """The log may forget an open transaction that is completely before its start, and the beginning of one that is partly before it."""
        opened = [kept for producer_id in PRODUCERS for kept in self.opened(producer_id)]
        first = min((kept.base_offset for kept in opened), default=self.end)
        first_left = min((kept.base_offset for kept in opened if kept.next_offset > self.start), default=self.end)
        assert first <= self.log.log.last_stable_offset <= first_left

    @invariant()
    def aborted_transactions_are_found(self) -> None:
        """Every aborted transaction with records after the log's start is found. For the others, a recovery finds only the marker."""
        log = self.log.log
        stable = log.last_stable_offset
        aborted = set()
        for marker in self.kept:
            if marker.commits is False and self.start <= marker.base_offset < stable and self.last_of(marker) > self.start:
                aborted.add((marker.producer_id, marker.base_offset))
        assert {(txn.producer_id, txn.last_offset) for txn in log.collect_aborted_transactions(self.start, stable)} >= aborted

    def last_of(self, marker: Kept) -> int:
        """Return the end of the last data batch of the transaction that a marker ends."""
        return max(kept.next_offset for kept in self.written(marker.producer_id) if kept.base_offset < marker.base_offset)

    @invariant()
    def segments_and_indexes_are_in_order(self) -> None:
        segments = list(self.log.log.segments)
        assert [segment.base_offset for segment in segments] == sorted({segment.base_offset for segment in segments})
        assert all(segment.size for segment in segments[:-1])
        for segment in segments:
            entries = [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entries)]
            assert all(one < other for one, other in pairwise(entries))
            for entry in entries:
                found = segment.log.search_for_offset(entry.offset, entry.position)
                assert found is not None
                assert found.position == entry.position

    @invariant()
    def times_are_found(self) -> None:
        for target in (NOW, NOW + 25):
            found = self.log.log.fetch_offset_by_timestamp(target)
            expected = next((record for record in self.records() if record.timestamp >= target), None)
            if found is None and expected is not None:
                # Kafka looks only into the first segment with such a timestamp, even if the record is before the log's start.
                assert self.log.log.segments.base_offsets[0] < self.start
            else:
                assert (found and found.offset) == (expected and expected.offset)

    def records(self) -> list[Record]:
        return [
            Record(offset, kept.timestamp, "CreateTime", b"", b"")
            for kept in self.kept
            for offset in range(max(kept.base_offset, self.start), kept.next_offset)
        ]


LogMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestLogMachine = LogMachine.TestCase
