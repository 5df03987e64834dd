"""The files of a log: rolling, flushing, truncating, retention, renaming, closing, deleting."""

from __future__ import annotations

from typing import Any

import pytest

from kops.config.values.java import INT_MAX
from kops.errors import ApiError
from kops.records.scanning.scanner import read_batches
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry
from kops.storage.log_offsets import Isolation
from kops.storage.segment_files.paths import CLEANED
from kops.storage.segments.split import create_cleaned_segment
from tests.support.logs.twins.open_log import DIRECTORY, NOW, OpenLog, batch

SIZE = len(batch())
DAY = 86_400_000


def name(offset: int, kind: str = ".log") -> str:
    return f"{offset:020d}{kind}"


def bases(log: OpenLog) -> list[int]:
    return log.log.segments.base_offsets


class TestRoll:
    def test_on_size(self) -> None:
        log = OpenLog(internal_segment_bytes=2 * SIZE)
        for _ in range(5):
            log.append()
        assert bases(log) == [0, 2, 4]

    def test_on_the_time_between_timestamps(self) -> None:
        log = OpenLog(segment_ms=1000)
        for later in (0, 1000, 1001, 500):
            log.append(batch(timestamp=NOW + later))
        assert bases(log) == [0, 2]

    def test_jitter_lets_it_come_earlier(self) -> None:
        log = OpenLog(segment_ms=1000, segment_jitter_ms=400, draw=-1300)
        for later in (0, 900, 901):
            log.append(batch(timestamp=NOW + later))
        assert bases(log) == [0, 2]
        assert log.log.segments.active.roll_jitter_ms == 100

    def test_the_lowest_int_draws_no_jitter(self) -> None:
        log = OpenLog(segment_ms=1000, segment_jitter_ms=400, draw=-(2**31))
        assert log.log.segments.active.roll_jitter_ms == 0

    def test_without_timestamps_on_the_age_of_the_segment(self) -> None:
        log = OpenLog(segment_ms=1000)
        for number, later in enumerate((0, 1000, 1)):
            log.now_ms += later
            log.log.append_as_follower(batch(magic=0, base_offset=number), 0)
        assert bases(log) == [0, 2]

    def test_an_empty_segment_is_never_too_old(self) -> None:
        log = OpenLog(segment_ms=1000)
        log.now_ms += DAY
        log.append()
        assert bases(log) == [0]

    def test_the_age_is_known_again_after_a_restart(self) -> None:
        log = OpenLog(segment_ms=1000)
        log.append()
        log.log.close()
        log.open(had_clean_shutdown=True)
        log.append(batch(timestamp=NOW + 1001))
        assert bases(log) == [0, 1]

    def test_on_a_full_index(self) -> None:
        log = OpenLog(segment_index_bytes=16, index_interval_bytes=0)
        for _ in range(5):
            log.append()
        assert bases(log) == [0, 1, 2, 3, 4]

    def test_on_offsets_that_do_not_fit(self) -> None:
        log = OpenLog()
        log.append()
        log.log.append_as_follower(batch(base_offset=INT_MAX, partition_leader_epoch=0), 0)
        assert bases(log) == [0]
        log.log.append_as_follower(batch(base_offset=INT_MAX + 1, partition_leader_epoch=0), 0)
        assert bases(log) == [0, INT_MAX + 1]

    def test_old_formats_roll_at_the_lowest_offset_that_may_be(self) -> None:
        log = OpenLog()
        log.append()
        last = 3 * INT_MAX
        log.log.append_as_follower(batch(magic=1, base_offset=last), 0)
        assert bases(log) == [0, last - INT_MAX]

    def test_what_was_preallocated_is_given_back(self) -> None:
        log = OpenLog(preallocate=True, internal_segment_bytes=4096, segment_index_bytes=800)
        log.append()
        assert log.files.stat(f"{DIRECTORY}/{name(0)}").size == 4096
        log.log.roll()
        assert log.files.stat(f"{DIRECTORY}/{name(0)}").size == SIZE
        assert log.files.stat(f"{DIRECTORY}/{name(0, '.timeindex')}").size == 12
        assert log.files.stat(f"{DIRECTORY}/{name(1)}").size == 4096

    def test_leftovers_are_removed_with_a_warning(self) -> None:
        log = OpenLog()
        log.append()
        log.files.write_all(f"{DIRECTORY}/{name(1)}", b"left")
        log.files.write_all(f"{DIRECTORY}/{name(1, '.txnindex')}", b"left")
        log.log.roll()
        assert [warning.split("; ")[1] for warning in log.warnings] == ["deleting it first"] * 2
        assert log.log.segments.active.size == 0

    def test_the_scheduler_flushes_what_is_behind(self) -> None:
        log = OpenLog()
        log.append()
        log.log.roll()
        assert log.log.recovery_point == 0
        assert name(1, ".snapshot") in log.names()
        log.run()
        assert log.log.recovery_point == 1

    def test_an_empty_segment_is_replaced(self) -> None:
        log = OpenLog()
        log.append()
        log.log.roll()
        old = log.log.segments.active
        log.log.roll()
        assert log.log.segments.active is not old
        assert name(1, ".log.deleted") in log.names()
        log.run(60_000)
        assert name(1, ".log.deleted") not in log.names()
        assert log.append().first_offset == 1

    def test_further_on(self) -> None:
        log = OpenLog()
        log.append()
        assert log.log.roll(7).base_offset == 7
        with pytest.raises(LoadError, match="lower than start offset of the active segment"):
            log.log.roll(3)


class TestTruncate:
    @pytest.fixture
    def log(self) -> OpenLog:
        """Provide six records in three segments, one epoch each."""
        log = OpenLog(internal_segment_bytes=2 * SIZE)
        for number in range(6):
            log.append(epoch=number // 2)
        return log

    def test_to_an_offset(self, log: OpenLog) -> None:
        assert log.log.truncate_to(3)
        assert (bases(log), log.log.log_end_offset, log.log.high_watermark) == ([0, 2], 3, 3)
        assert log.log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 2))
        assert name(4, ".log.deleted") in log.names()
        assert name(4, ".snapshot.deleted") in log.names()
        log.run(60_000)
        assert not [left for left in log.names() if left.endswith(".deleted")]
        assert log.files.read_all(f"{DIRECTORY}/leader-epoch-checkpoint").endswith(b"\n2\n0 0\n1 2\n")
        assert log.append(epoch=3).first_offset == 3

    def test_behind_the_end(self, log: OpenLog) -> None:
        assert not log.log.truncate_to(6)
        assert bases(log) == [0, 2, 4]

    def test_before_the_first_segment(self, log: OpenLog) -> None:
        log.log.maybe_increment_log_start_offset(4)
        log.log.delete_old_segments()
        assert log.log.truncate_to(1)
        assert (bases(log), log.log.log_start_offset, log.log.log_end_offset) == ([1], 1, 1)

    def test_below_zero(self, log: OpenLog) -> None:
        with pytest.raises(LoadError, match="negative offset"):
            log.log.truncate_to(-1)

    def test_fully(self, log: OpenLog) -> None:
        log.log.truncate_fully_and_start_at(100, 90)
        assert (bases(log), log.log.log_start_offset, log.log.log_end_offset) == ([100], 90, 100)
        assert (log.log.high_watermark, log.log.epochs.entries) == (100, ())
        assert log.append(epoch=9).first_offset == 100

    def test_producers_are_as_they_were(self) -> None:
        log = OpenLog()
        for sequence in range(4):
            log.append(batch(producer_id=5, sequence=sequence))
            if sequence == 1:
                log.log.roll()
        log.begin(7)
        log.log.truncate_to(3)
        assert log.log.producers.producers[5].last_sequence == 2
        assert 7 not in log.log.producers.producers
        assert log.log.first_unstable_offset is None
        assert log.append(batch(producer_id=5, sequence=3)).first_offset == 3

    def test_an_empty_segment_is_new_again(self) -> None:
        log = OpenLog(segment_ms=1000)
        log.append(batch(timestamp=NOW - 5000))
        log.now_ms += 10
        log.log.truncate_to(0)
        log.append()
        assert bases(log) == [0]


class TestLogStart:
    def test_records_are_deleted(self) -> None:
        log = OpenLog()
        for number in range(4):
            log.append(epoch=number)
        assert log.log.maybe_increment_log_start_offset(2, "client")
        assert not log.log.maybe_increment_log_start_offset(2)
        assert (log.log.log_start_offset, log.log.recovery_point) == (2, 2)
        log.run()
        assert log.files.read_all(f"{DIRECTORY}/leader-epoch-checkpoint").endswith(b"2 2\n3 3\n")

    def test_not_above_the_high_watermark(self) -> None:
        log = OpenLog()
        log.append(replicated=False)
        with pytest.raises(ApiError, match="larger than the high watermark 0"):
            log.log.maybe_increment_log_start_offset(1)

    def test_the_last_stable_offset_follows(self) -> None:
        log = OpenLog()
        log.begin(1)
        log.append()
        log.log.maybe_increment_log_start_offset(1)
        assert log.log.last_stable_offset == 1


class TestRetention:
    def log(self, count: int = 6, **config: Any) -> OpenLog:
        log = OpenLog(internal_segment_bytes=2 * SIZE, **config)
        for number in range(count):
            log.append(batch(timestamp=NOW + number))
        return log

    def test_by_time(self) -> None:
        log = self.log(retention_ms=1000)
        log.now_ms = NOW + 3 + 1000
        assert log.log.delete_old_segments() == 1
        assert (bases(log), log.log.log_start_offset) == ([2, 4], 2)
        assert name(2, ".snapshot") in log.names()
        log.run(59_999)
        assert name(0, ".log.deleted") in log.names()
        log.run(1)
        assert name(0, ".log.deleted") not in log.names()

    def test_all_of_it(self) -> None:
        log = self.log(retention_ms=1000)
        log.now_ms += DAY
        assert log.log.delete_old_segments() == 3
        assert (bases(log), log.log.log_start_offset, log.log.is_empty) == ([6], 6, True)
        assert log.log.delete_old_segments() == 0

    def test_nothing_above_the_high_watermark(self) -> None:
        log = self.log(retention_ms=1000)
        log.log.update_high_watermark(3)
        log.now_ms += DAY
        assert log.log.delete_old_segments() == 1
        assert bases(log) == [2, 4]

    def test_records_of_the_future_stay(self) -> None:
        log = self.log(retention_ms=1000, message_timestamp_after_max_ms=10 * DAY)
        log.append(batch(timestamp=NOW + 5 * DAY))
        log.now_ms += 2 * DAY
        assert log.log.delete_old_segments() == 3
        assert any("future timestamp" in warning for warning in log.warnings)

    def test_by_size(self) -> None:
        assert self.log(retention_bytes=4 * SIZE).log.delete_old_segments() == 1
        assert self.log(retention_bytes=4 * SIZE + 1).log.delete_old_segments() == 0
        assert self.log(retention_bytes=0).log.delete_old_segments() == 3
        assert self.log(retention_bytes=-1).log.delete_old_segments() == 0

    def test_by_log_start(self) -> None:
        log = self.log(cleanup_policy=("compact",), retention_bytes=0)
        log.log.maybe_increment_log_start_offset(5)
        assert log.log.delete_old_segments() == 2
        assert bases(log) == [4]

    def test_an_empty_last_segment_stays(self) -> None:
        log = self.log(count=4, retention_bytes=0)
        log.log.roll()
        assert bases(log) == [0, 2, 4]
        assert log.log.delete_old_segments() == 2
        assert bases(log) == [4]


class TestStops:
    def test_a_clean_stop_needs_no_recovery(self) -> None:
        log = OpenLog(index_interval_bytes=0)
        for number in range(4):
            log.append(batch(producer_id=1, sequence=number))
        before = log.log.fetch_offset_snapshot()
        log.log.close()
        assert log.files.stat(f"{DIRECTORY}/{name(0, '.index')}").size == 24
        files = {path: log.files.read_all(path) for path in log.files.walk(DIRECTORY)}
        log.open(had_clean_shutdown=True, recovery_point=4)
        log.log.update_high_watermark(4)
        assert log.log.fetch_offset_snapshot() == before
        assert log.log.producers.producers[1].last_sequence == 3
        log.log.close()
        assert {path: log.files.read_all(path) for path in log.files.walk(DIRECTORY)} == files

    def test_a_kill_loses_nothing_that_is_in_the_file(self) -> None:
        log = OpenLog(index_interval_bytes=0)
        for number in range(4):
            log.append(batch(producer_id=1, sequence=number))
        index = log.log.segments.active.offset_index.entries
        log.open()
        assert (log.log.log_end_offset, log.log.recovery_point) == (4, 0)
        assert log.log.segments.active.offset_index.entries == index
        assert log.append(batch(producer_id=1, sequence=4)).first_offset == 4

    def test_what_loading_gave_up_is_deleted_later(self) -> None:
        log = OpenLog(internal_segment_bytes=2 * SIZE)
        for _ in range(6):
            log.append()
        path = f"{DIRECTORY}/{name(0)}"
        log.files.write_all(path, log.files.read_all(path)[:-1])
        log.open()
        assert (bases(log), log.log.log_end_offset) == ([0], 1)
        assert name(4, ".log.deleted") in log.names()
        log.run(60_000)
        assert not [left for left in log.names() if left.endswith(".deleted")]

    def test_the_directory_is_renamed(self) -> None:
        log = OpenLog(internal_segment_bytes=2 * SIZE)
        for _ in range(3):
            log.append(batch(producer_id=1, sequence=log.log.log_end_offset))
        log.log.rename_dir("t-0.abc-future")
        assert log.log.directory == "/logs/t-0.abc-future"
        assert log.log.is_future
        log.append(batch(producer_id=1, sequence=3), epoch=4)
        log.log.roll()
        log.run()
        log.log.close()
        assert log.memory.list("/logs") == ["t-0.abc-future"]
        assert name(4, ".snapshot") in log.names()

    def test_deletion(self) -> None:
        log = OpenLog(internal_segment_bytes=2 * SIZE)
        for _ in range(3):
            log.append()
        log.log.rename_dir("t-0.abc-delete", should_reinitialize=False)
        log.log.delete()
        assert log.memory.list("/logs") == []
        assert not log.failures.offline
        log.run(DAY)

    def test_files_that_wait_for_deletion_move_with_a_future_log(self) -> None:
        log = OpenLog(internal_segment_bytes=2 * SIZE)
        log.log.rename_dir("t-0.abc-future")
        for _ in range(3):
            log.append()
        log.log.truncate_to(1)
        log.log.rename_dir("t-0")
        assert name(2, ".log.deleted") in log.names()
        log.run(60_000)
        assert name(2, ".log.deleted") not in log.names()


def test_cleaned_segments_take_the_place_of_others() -> None:
    log = OpenLog(internal_segment_bytes=2 * SIZE)
    for _ in range(6):
        log.append(batch(producer_id=1, sequence=log.log.log_end_offset))
    old = list(log.log.segments)[:2]
    new = create_cleaned_segment(log.files, DIRECTORY, log.config, 0)
    data = b"".join(log.files.read_all(segment.log.path) for segment in old)
    batches = read_batches(data)
    new.append(batches[-1].last_offset, data, batches)
    log.log.replace_segments([new], old)
    assert bases(log) == [0, 4]
    assert log.log.segments.first is new
    assert name(2, ".snapshot.deleted") in log.names()
    assert not [left for left in log.names() if left.endswith(CLEANED)]
    log.run(60_000)
    assert not [left for left in log.names() if left.endswith(".deleted")]
    assert log.log.read(3, 10_000, Isolation.LOG_END).offset_metadata.segment_base_offset == 0
