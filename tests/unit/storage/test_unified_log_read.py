"""Reading a log: isolation, sizes, positions, look-ups by time and epoch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kops.errors import ApiError
from kops.files import File, OsFiles
from kops.records import BatchBuilder
from kops.storage import log_lookup
from kops.storage.failures.load_errors import LoadError
from kops.storage.log_offsets import Isolation, LogOffsetMetadata
from kops.storage.segment_files.file_records import TimestampAndOffset
from kops.storage.unified_log import UnifiedLog
from tests.support.logs.twins.open_log import NOW, OpenLog, batch, offsets

SIZE = len(batch())
END, HIGH, DECIDED = Isolation.LOG_END, Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED


@pytest.fixture
def log() -> OpenLog:
    """Provide offsets 0 to 5 in three segments of two batches, with the high watermark at 4."""
    log = OpenLog(internal_segment_bytes=2 * SIZE)
    for _ in range(6):
        log.append(replicated=False)
    log.log.update_high_watermark(4)
    return log


def test_a_read_stays_in_one_segment(log: OpenLog) -> None:
    assert log.log.segments.base_offsets == [0, 2, 4]
    fetched = log.log.read(2, 10_000, END)
    assert offsets(fetched) == [(2, 2), (3, 3)]
    assert fetched.offset_metadata == LogOffsetMetadata(2, 2, 0)
    assert (fetched.size, fetched.aborted_transactions) == (2 * SIZE, None)


def test_a_slice_ends_within_a_batch_unless_one_is_to_be_whole(log: OpenLog) -> None:
    cut = log.log.read(2, SIZE - 1, END)
    assert (cut.size, cut.first_entry_incomplete, offsets(cut)) == (SIZE - 1, True, [])
    whole = log.log.read(2, 1, END, min_one_batch=True)
    assert (whole.size, whole.first_entry_incomplete, offsets(whole)) == (SIZE, False, [(2, 2)])
    nothing = log.log.read(3, 0, END)
    assert (nothing.records, nothing.offset_metadata) == (None, LogOffsetMetadata(3, 2, SIZE))


def test_the_high_watermark_ends_a_read(log: OpenLog) -> None:
    log.log.update_high_watermark(3)
    assert offsets(log.log.read(2, 10_000, HIGH)) == [(2, 2)]
    assert offsets(log.log.read(0, 10_000, HIGH)) == [(0, 0), (1, 1)]
    at = log.log.read(3, 10_000, HIGH)
    assert (at.records, at.offset_metadata) == (None, LogOffsetMetadata(3, 2, SIZE))
    beyond = log.log.read(4, 10_000, HIGH)
    assert (beyond.records, beyond.offset_metadata) == (None, LogOffsetMetadata(4, 4, 0))


def test_the_end_of_the_log(log: OpenLog) -> None:
    assert log.log.read(6, 10_000, END).offset_metadata == LogOffsetMetadata(6, 4, 2 * SIZE)
    with pytest.raises(ApiError, match="only have log segments upto 6") as error:
        log.log.read(7, 10_000, END)
    assert error.value.name == "OFFSET_OUT_OF_RANGE"


def test_before_the_start_of_the_log(log: OpenLog) -> None:
    log.log.maybe_increment_log_start_offset(2)
    with pytest.raises(ApiError, match="starting from offset: 2"):
        log.log.read(1, 10_000, END)
    assert not log.failures.offline


def test_a_slice_goes_to_a_socket(tmp_path: Path) -> None:
    log = OpenLog()
    path = str(tmp_path / "t-0")
    opened = UnifiedLog.open(OsFiles(), path, log.config, now_ms=lambda: NOW, scheduler=log.scheduler, failures=log.failures)
    for _ in range(2):
        opened.append_as_leader(batch(2), 0)
    view = opened.read(2, 10_000, END).records
    assert view is not None
    assert isinstance(view.source, File)
    assert os.pread(view.source.fileno(), view.size, view.start) == view.read_at(view.start, view.size)
    assert (view.start, view.size) == (len(batch(2)), len(batch(2)))
    opened.close()


class TestDecided:
    def test_aborted_transactions_come_with_the_records(self) -> None:
        log = OpenLog()
        log.begin(1)
        log.begin(2, count=2)
        log.end(1, commit=False)
        log.end(2, commit=False)
        log.append()
        log.begin(3)
        log.append()
        fetched = log.log.read(0, 10_000, DECIDED)
        assert offsets(fetched)[-1] == (5, 5)
        assert [(txn.producer_id, txn.first_offset) for txn in fetched.aborted_transactions or ()] == [(1, 0), (2, 1)]
        assert [txn.producer_id for txn in log.log.collect_aborted_transactions(0, 4)] == [1, 2]
        later = log.log.read(4, 10_000, DECIDED)
        assert [txn.producer_id for txn in later.aborted_transactions or ()] == [2]
        assert log.log.read(6, 10_000, DECIDED).aborted_transactions == []

    def test_markers_in_later_segments_are_found(self) -> None:
        log = OpenLog()
        log.begin(1)
        log.log.roll()
        log.append()
        log.log.roll()
        log.end(1, commit=False)
        fetched = log.log.read(0, 10_000, DECIDED)
        assert offsets(fetched) == [(0, 0)]
        assert [txn.last_offset for txn in fetched.aborted_transactions or ()] == [2]
        assert [txn.last_offset for txn in log.log.collect_aborted_transactions(0, 3)] == [2]

    def test_the_snapshot_of_all_offsets(self) -> None:
        log = OpenLog()
        log.append()
        log.begin(1)
        log.append(replicated=False)
        snapshot = log.log.fetch_offset_snapshot()
        first = len(batch())
        assert snapshot.last_stable_offset == LogOffsetMetadata(1, 0, first)
        assert (snapshot.high_watermark.message_offset, snapshot.log_end_offset.message_offset) == (2, 3)
        assert snapshot.log_start_offset == 0

    def test_an_open_transaction_survives_a_restart(self) -> None:
        log = OpenLog()
        log.append()
        log.begin(1)
        log.append()
        log.log.close()
        log.open(had_clean_shutdown=True).update_high_watermark(3)
        assert (log.log.first_unstable_offset, log.log.last_stable_offset) == (1, 1)
        assert offsets(log.log.read(0, 10_000, DECIDED)) == [(0, 0)]


class TestHighWatermark:
    def test_it_stays_within_the_log(self, log: OpenLog) -> None:
        assert log.log.update_high_watermark(99) == 6
        log.log.maybe_increment_log_start_offset(2)
        assert log.log.update_high_watermark(0) == 2

    def test_it_only_grows_where_it_is_incremented(self, log: OpenLog) -> None:
        heard: list[int] = []
        log.log.on_high_watermark = heard.append
        assert log.log.maybe_increment_high_watermark(LogOffsetMetadata(3)) is None
        assert log.log.maybe_increment_high_watermark(LogOffsetMetadata(5, 4, SIZE)) == LogOffsetMetadata(4, 4, 0)
        assert log.log.high_watermark == 5
        assert heard[-1] == 5
        with pytest.raises(LoadError, match="exceeds current log end offset"):
            log.log.maybe_increment_high_watermark(LogOffsetMetadata(7))

    def test_the_same_offset_in_a_newer_segment_counts(self) -> None:
        log = OpenLog()
        log.append()
        assert log.log.maybe_increment_high_watermark(LogOffsetMetadata(1, 1, 0)) == LogOffsetMetadata(1, 0, SIZE)

    def test_it_follows_the_end_over_a_roll(self) -> None:
        log = OpenLog()
        log.append()
        log.log.roll()
        assert log.log.fetch_offset_snapshot().high_watermark == LogOffsetMetadata(1, 1, 0)

    def test_going_back_is_warned_of(self, log: OpenLog) -> None:
        log.log.update_high_watermark(2)
        assert "non-monotonic" in log.warnings[-1]


class TestByTime:
    @pytest.fixture
    def log(self) -> OpenLog:
        """Provide records at offsets 0 to 4 with timestamps +0, +10, +5, +30, +20, and a new segment at offsets 2 and 4."""
        log = OpenLog()
        for number, later in enumerate((0, 10, 5, 30, 20)):
            if number in (2, 4):
                log.log.roll()
            log.append(batch(timestamp=NOW + later), epoch=number // 2)
        return log

    def test_the_first_record_that_is_not_older(self, log: OpenLog) -> None:
        def find(later: int) -> TimestampAndOffset | None:
            return log.log.fetch_offset_by_timestamp(NOW + later)

        assert find(-5) == TimestampAndOffset(NOW, 0, 0)
        assert find(3) == TimestampAndOffset(NOW + 10, 1, 0)
        assert find(12) == TimestampAndOffset(NOW + 30, 3, 1)
        assert find(10) == TimestampAndOffset(NOW + 10, 1, 0)
        assert find(30) == TimestampAndOffset(NOW + 30, 3, 1)
        assert find(31) is None

    def test_not_before_the_log_starts(self, log: OpenLog) -> None:
        log.log.maybe_increment_log_start_offset(1)
        assert log.log.fetch_offset_by_timestamp(NOW) == TimestampAndOffset(NOW + 10, 1, 0)

    def test_what_the_constants_stand_for(self, log: OpenLog) -> None:
        find = log.log.fetch_offset_by_timestamp
        assert find(log_lookup.EARLIEST) == find(log_lookup.EARLIEST_LOCAL) == TimestampAndOffset(-1, 0, 0)
        assert find(log_lookup.LATEST) == TimestampAndOffset(-1, 5, 2)
        assert find(log_lookup.MAX_TIMESTAMP) == TimestampAndOffset(NOW + 30, 3, 1)
        assert find(log_lookup.LATEST_TIERED) == find(log_lookup.EARLIEST_PENDING_UPLOAD) == TimestampAndOffset(-1, -1, -1)

    def test_the_record_within_its_batch(self) -> None:
        log = OpenLog()
        builder = BatchBuilder()
        for later in (3, 9, 1):
            builder.append(NOW + later, b"k", b"v")
        log.append(builder.build())
        assert log.log.fetch_offset_by_timestamp(log_lookup.MAX_TIMESTAMP) == TimestampAndOffset(NOW + 9, 1, 0)
        assert log.log.fetch_offset_by_timestamp(NOW + 4) == TimestampAndOffset(NOW + 9, 1, 0)

    def test_an_empty_log_has_none(self) -> None:
        log = OpenLog()
        assert log.log.is_empty
        assert log.log.fetch_offset_by_timestamp(log_lookup.MAX_TIMESTAMP) is None
        assert log.log.fetch_offset_by_timestamp(NOW - 1) is None
        assert log.log.fetch_offset_by_timestamp(log_lookup.EARLIEST) == TimestampAndOffset(-1, 0, None)

    def test_the_old_format_has_no_time_of_a_record(self) -> None:
        log = OpenLog()
        log.log.append_as_follower(batch(magic=0), 0)
        assert log.log.fetch_offset_by_timestamp(log_lookup.MAX_TIMESTAMP) is None


def test_where_epochs_end() -> None:
    log = OpenLog()
    for epoch in (0, 0, 2):
        log.append(epoch=epoch)
    assert log.log.latest_epoch == 2
    assert log.log.end_offset_for_epoch(0) == log.log.end_offset_for_epoch(1) == (0, 2)
    assert log.log.end_offset_for_epoch(2) == (2, 3)
    assert log.log.end_offset_for_epoch(3) is None


def test_how_a_log_calls_itself() -> None:
    log = OpenLog()
    log.append(batch(2))
    words = "topic=t, partition=0, highWatermark=2, lastStableOffset=2, logStartOffset=0, logEndOffset=2)"
    assert str(log.log) == f"Log(dir=/logs/t-0, {words}"
    assert (log.log.topic, log.log.partition, log.log.topic_partition, log.log.parent_dir) == ("t", 0, "t-0", "/logs")
    assert not log.log.is_future
