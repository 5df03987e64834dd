"""The cleaner of a broker: which log it takes, its states, checkpoints, aborts, uncleanable partitions and its rate."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from kops.config.topic import TopicConfig, topic_config
from kops.files import OsFiles
from kops.records import BatchBuilder
from kops.storage.background.flush import Flush
from kops.storage.background.work import SideWork
from kops.storage.cleaning.cleaner_manager import Busy, Paused
from kops.storage.cleaning.cleaner_stats import Throttler
from kops.storage.cleaning.log_cleaner import LOOK_AGAIN_MS, CleanerConfig, LogCleaner, cleaner_config
from kops.storage.failures.load_errors import KafkaStorageError, LoadError
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog
from tests.support.logs.twins import cleaning
from tests.support.logs.twins.cleaning import NOW_MS, SETTINGS
from tests.support.logs.twins.side_threads import SideThreads

ORDERS = TopicPartition("orders", 0)


class Broker:
    """Logs in one directory, and a cleaner. `made` has all brokers with the logs that they opened, which are closed after a test."""

    made: ClassVar[list[Broker]] = []

    def __init__(self, root: Path, **config: float) -> None:
        self.made.append(self)
        self.opened: list[UnifiedLog] = []
        self.root = root
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.failures = LogDirFailureChannel()
        self.warnings: list[str] = []
        self.now_ms = NOW_MS
        self.cleaner = LogCleaner(
            OsFiles(),
            [str(root)],
            self.logs,
            self.failures,
            CleanerConfig(dedupe_buffer_size=1 << 20, io_buffer_size=1024, **config),  # type: ignore[arg-type]
            now_ms=lambda: self.now_ms,
            now_ns=lambda: self.now_ms * 1_000_000,
            warn=self.warnings.append,
        )

    def add(self, topic: str = "orders", segments: int = 4, settings: dict[str, str] | None = None) -> UnifiedLog:
        """Add a log of `segments` with the same three keys in each."""
        directory = self.root / f"{topic}-0"
        directory.mkdir()
        offset = 0
        for _ in range(segments):
            builder = BatchBuilder(base_offset=offset)
            name = f"{offset:020d}.log"
            for key in range(3):
                builder.append(NOW_MS - 1_000_000 + offset, b"%d" % key, b"v" * 50)
                offset += 1
            directory.joinpath(name).write_bytes(builder.build())
        config: TopicConfig = topic_config({**SETTINGS, **(settings or {})})
        log = cleaning.open_log(str(directory), config=config, clean=False)
        self.opened.append(log)
        log.update_high_watermark(log.log_end_offset)
        self.logs[TopicPartition(topic, 0)] = log
        return log

    def run(self) -> None:
        """Clean until there is nothing more to clean."""
        for _ in range(1000):
            if self.cleaner.step() == self.cleaner.config.backoff_ms:
                return
        raise AssertionError("it never ends")

    def checkpoint(self) -> dict[TopicPartition, int]:
        """Return the contents of the checkpoint file."""
        return read_offset_checkpoint(self.root.joinpath("cleaner-offset-checkpoint").read_bytes())


@pytest.fixture(autouse=True)
def closed_logs() -> Iterator[None]:
    """Close the logs that a test leaves open."""
    yield
    while Broker.made:
        broker = Broker.made.pop()
        for log in broker.opened:
            log.close_handlers()


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def offsets(log: UnifiedLog) -> list[int]:
    return [record.offset for segment in log.segments for batch in segment.log.batches() for record in batch.records()]


def test_a_log_is_cleaned_up_to_its_active_segment(broker: Broker) -> None:
    log = broker.add()
    broker.run()
    assert offsets(log) == [6, 7, 8, 9, 10, 11]
    assert broker.checkpoint() == {ORDERS: 9}
    assert broker.cleaner.manager.states == {}
    assert (broker.cleaner.max_dirty_percent, broker.cleaner.cleaner_recopy_percent) == (0, 33)
    assert broker.cleaner.time_since_last_run_ms == 0
    assert (broker.cleaner.max_buffer_utilization_percent, broker.cleaner.max_clean_time_s) == (0, 0)


def test_the_dirtiest_log_comes_first(broker: Broker) -> None:
    broker.add("clean", 6)
    broker.add("dirty", 6)
    broker.cleaner.manager.update_checkpoints(str(broker.root), update={TopicPartition("clean", 0): 6})
    assert broker.cleaner.step() == 0
    assert broker.cleaner.workers[0].cleaning == TopicPartition("dirty", 0)
    assert broker.cleaner.max_dirty_percent == 100


def test_below_the_ratio_only_what_is_overdue(broker: Broker) -> None:
    log = broker.add(segments=6, settings={"min.cleanable.dirty.ratio": "0.9"})
    broker.cleaner.manager.update_checkpoints(str(broker.root), update={ORDERS: 9})
    broker.run()
    assert len(offsets(log)) == 18
    log.update_config(topic_config({**SETTINGS, "min.cleanable.dirty.ratio": "0.9", "max.compaction.lag.ms": "500000"}))
    broker.cleaner.step()
    assert broker.cleaner.workers[0].last_pre_clean_stats.delayed_partitions == 1
    assert broker.cleaner.max_compaction_delay_s == 499
    broker.run()
    assert offsets(log) == [12, 13, 14, 15, 16, 17]


def test_young_and_unstable_records_wait(broker: Broker) -> None:
    log = broker.add(settings={"min.compaction.lag.ms": "999995", "max.compaction.lag.ms": "9999999"})
    broker.run()
    assert offsets(log) == [3, 4, 5, 6, 7, 8, 9, 10, 11]  # the third segment has a timestamp that is 5 ms later
    assert broker.checkpoint() == {ORDERS: 6}


def test_nothing_above_the_high_watermark(broker: Broker) -> None:
    log = broker.add()
    log.update_high_watermark(7)
    broker.run()
    assert broker.checkpoint() == {ORDERS: 6}
    assert offsets(log) == [3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_an_abort_leaves_the_log_as_it_was(broker: Broker) -> None:
    log = broker.add()
    broker.cleaner.step()
    assert broker.cleaner.manager.states == {ORDERS: Busy.IN_PROGRESS}
    broker.cleaner.abort_and_pause_cleaning(ORDERS)
    assert broker.cleaner.manager.states == {ORDERS: Paused(1)}
    assert offsets(log) == list(range(12))
    assert not list(broker.root.joinpath("orders-0").glob("*.cleaned"))
    broker.cleaner.abort_and_pause_cleaning(ORDERS)
    broker.run()
    assert offsets(log) == list(range(12))
    broker.cleaner.resume_cleaning([ORDERS])
    assert broker.cleaner.manager.states == {ORDERS: Paused(1)}
    broker.cleaner.resume_cleaning([ORDERS])
    broker.run()
    assert broker.checkpoint() == {ORDERS: 9}


def test_states_that_cannot_be(broker: Broker) -> None:
    manager = broker.cleaner.manager
    with pytest.raises(LoadError, match="is not paused"):
        manager.resume([ORDERS])
    manager.states[ORDERS] = Busy.ABORTED
    with pytest.raises(LoadError, match="cannot be aborted and paused since it is in LogCleaningAborted state"):
        manager.abort_and_pause(ORDERS)
    with pytest.raises(LoadError, match="cannot be resumed since it is in LogCleaningAborted state"):
        manager.resume([ORDERS])
    manager.states[ORDERS] = Paused(2)
    with pytest.raises(LoadError, match=r"cannot be in LogCleaningPaused\(2\) state"):
        manager.done_cleaning(ORDERS, str(broker.root), 5)
    del manager.states[ORDERS]
    with pytest.raises(LoadError, match="should exist"):
        manager.done_deleting([ORDERS])


def test_a_corrupt_batch_makes_the_partition_uncleanable(broker: Broker) -> None:
    log = broker.add()
    path = Path(next(iter(log.segments)).log.path)
    data = bytearray(path.read_bytes())
    data[61] = 0xFF  # the first record's length
    path.write_bytes(data)
    broker.run()
    assert broker.cleaner.uncleanable_partitions_count(str(broker.root)) == 1
    assert broker.cleaner.uncleanable_bytes(str(broker.root)) == sum(segment.size for segment in log.segments) // 4 * 3
    assert len(broker.warnings) == 1
    assert "orders-0" in broker.warnings[0]
    assert not broker.failures.offline
    del broker.logs[ORDERS]
    broker.cleaner.step()
    assert broker.cleaner.uncleanable_partitions_count(str(broker.root)) == 0


def test_a_pause_behind_each_partition_that_can_not_be_cleaned(broker: Broker) -> None:
    """CleanerThread.tryCleanFilthiestLog returns false, so the thread pauses for log.cleaner.backoff.ms."""
    for topic in ("orders", "payments"):
        path = Path(next(iter(broker.add(topic).segments)).log.path)
        data = bytearray(path.read_bytes())
        data[61] = 0xFF  # the first record's length
        path.write_bytes(data)
    broker.run()
    assert broker.cleaner.uncleanable_partitions_count(str(broker.root)) == 1
    broker.run()
    assert broker.cleaner.uncleanable_partitions_count(str(broker.root)) == 2


@pytest.mark.parametrize("is_last", [True, False])
def test_a_checkpoint_that_a_moved_folder_left_behind_does_not_count(broker: Broker, tmp_path: Path, is_last: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    other.joinpath("cleaner-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    broker.add()
    dirs = broker.cleaner.manager.log_dirs
    dirs.insert(len(dirs) if is_last else 0, str(other))
    assert broker.cleaner.manager.all_checkpoints() == {ORDERS: 0}  # these are all checkpoints
    broker.run()
    assert broker.cleaner.manager.all_checkpoints() == broker.checkpoint() == {ORDERS: 9}


def test_checkpoints_move_shrink_and_go(broker: Broker, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    broker.add()
    cleaner = broker.cleaner
    cleaner.manager.log_dirs.append(str(other))
    other.joinpath("cleaner-offset-checkpoint").write_text("")
    broker.run()
    cleaner.maybe_truncate_checkpoint(str(broker.root), ORDERS, 10)
    assert broker.checkpoint() == {ORDERS: 9}
    cleaner.maybe_truncate_checkpoint(str(broker.root), ORDERS, 4)
    assert broker.checkpoint() == {ORDERS: 4}
    cleaner.manager.mark_uncleanable(str(broker.root), ORDERS)
    cleaner.alter_checkpoint_dir(ORDERS, str(broker.root), str(other))
    assert broker.checkpoint() == {}
    assert read_offset_checkpoint(other.joinpath("cleaner-offset-checkpoint").read_bytes()) == {ORDERS: 4}
    assert cleaner.manager.uncleanable[str(other)] == {ORDERS}
    cleaner.update_checkpoints(str(other), ORDERS)
    assert other.joinpath("cleaner-offset-checkpoint").read_text() == "0\n0\n"
    cleaner.handle_log_dir_failure(str(other))
    cleaner.manager.update_checkpoints(str(other), update={ORDERS: 7})
    assert other.joinpath("cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_a_malformed_checkpoint_takes_the_directory_offline(broker: Broker) -> None:
    broker.add()
    broker.root.joinpath("cleaner-offset-checkpoint").write_text("nonsense\n")
    assert broker.cleaner.manager.all_checkpoints() == {}
    assert broker.failures.has_offline(str(broker.root))


@pytest.mark.parametrize("checkpointed", [-5, 100])
def test_a_checkpoint_outside_of_the_log_is_written_anew(broker: Broker, checkpointed: int) -> None:
    broker.add(settings={"min.cleanable.dirty.ratio": "1"})
    broker.cleaner.manager.update_checkpoints(str(broker.root), update={ORDERS: checkpointed})
    broker.run()
    assert broker.checkpoint() == {ORDERS: 0}
    assert len(broker.warnings) == 1


def test_retention_and_cleaning_keep_apart(broker: Broker) -> None:
    log = broker.add(settings={"cleanup.policy": "compact,delete", "retention.ms": "1000"})
    plain = broker.add("plain", settings={"cleanup.policy": "delete"})
    paused = broker.cleaner.pause_cleaning_for_non_compacted_partitions()
    assert dict(paused) == {TopicPartition("plain", 0): plain}
    assert broker.cleaner.manager.pause_non_compacted() == {}
    broker.run()
    assert log.log_start_offset == 12
    assert broker.cleaner.manager.states == {TopicPartition("plain", 0): Paused(1)}


def test_an_io_error_takes_the_directory_offline(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.add()

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log, "replace_segments", fail)
    for _ in range(20):
        broker.cleaner.step()
        if broker.failures.offline:
            break
    assert list(broker.failures.offline) == [str(broker.root)]
    assert broker.cleaner.manager.states == {}
    assert broker.checkpoint() == {ORDERS: 0}


def test_a_log_that_is_offline_or_closed_is_let_go(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has informed the failure channel itself, or there is nothing to report."""
    log = broker.add()
    rounds = []

    def fail(*_: object) -> None:
        rounds.append(1)
        raise KafkaStorageError("the memory mapped buffer is already closed")

    monkeypatch.setattr(log, "replace_segments", fail)
    while not rounds:
        broker.cleaner.step()
    assert broker.cleaner.manager.states == {}
    assert not broker.failures.offline
    assert not broker.warnings
    assert broker.checkpoint() == {ORDERS: 0}


def test_retention_that_fails_leaves_the_partition_alone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.add(settings={"cleanup.policy": "compact,delete"})

    def fail() -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log, "delete_old_segments", fail)
    broker.run()
    assert broker.cleaner.uncleanable_partitions_count(str(broker.root)) == 1


def test_the_rate_becomes_pauses(tmp_path: Path) -> None:
    broker = Broker(tmp_path, io_max_bytes_per_second=100.0)
    broker.add()
    waits = []
    for _ in range(12):
        broker.now_ms += 301
        waits.append(broker.cleaner.step())
        broker.now_ms += waits[-1]
    assert max(waits[:6]) > 1000


def test_throttler() -> None:
    now = [0]
    pauses: list[int] = []
    throttler = Throttler(1000, now_ns=lambda: now[0], sleep_ms=pauses.append)
    throttler.maybe_throttle(10_000)
    assert pauses == []  # the interval is not over
    now[0] = 400_000_000
    throttler.maybe_throttle(0.6)
    assert pauses == [9601]
    now[0] = 800_000_000
    throttler.maybe_throttle(100)
    assert pauses == [9601]


def test_settings() -> None:
    config = cleaner_config({"log.cleaner.threads": "2", "log.cleaner.io.buffer.load.factor": "0.5", "other": "x"})
    assert (config.threads, config.io_buffer_load_factor, config.backoff_ms) == (2, 0.5, 15_000)


def test_several_workers_clean_different_logs(tmp_path: Path) -> None:
    broker = Broker(tmp_path, threads=2)
    for number in range(3):
        broker.add(f"t{number}")
    broker.cleaner.step()
    assert len({worker.cleaning for worker in broker.cleaner.workers}) == 2
    broker.run()
    assert {key.topic for key in broker.checkpoint()} == {"t0", "t1", "t2"}
    broker.cleaner.reconfigure(CleanerConfig(threads=3, dedupe_buffer_size=1 << 20))
    assert len(broker.cleaner.workers) == 3


def test_random_logs_end_clean(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    cleaning.write_log(tmp_path / "orders-0", random.Random(7), cleaning.Shape())
    log = cleaning.open_log(str(tmp_path / "orders-0"))
    log.update_high_watermark(log.log_end_offset)
    broker.opened.append(log)
    broker.logs[ORDERS] = log
    broker.run()
    assert broker.checkpoint()[ORDERS] <= log.segments.active.base_offset
    assert not broker.warnings


class TestCheckpointsAside:
    """Checkpoints are written in side threads. Until then, their future contents are known."""

    @pytest.fixture
    def threads(self, broker: Broker) -> SideThreads:
        threads, scheduler = SideThreads(), Scheduler(lambda: NOW_MS)
        scheduler.side_work = SideWork(threads.in_thread)
        broker.cleaner.manager.scheduler = scheduler
        return threads

    def test_what_is_being_written_counts(self, broker: Broker, threads: SideThreads) -> None:
        broker.add()
        broker.run()
        assert broker.root.joinpath("cleaner-offset-checkpoint").read_bytes() == b""
        assert broker.cleaner.manager.all_checkpoints() == {ORDERS: 9}
        broker.add("late")
        broker.run()
        assert len(threads.begun) == 2
        threads.work()
        assert broker.checkpoint() == {ORDERS: 9}
        threads.tell()
        assert broker.cleaner.manager.all_checkpoints() == {ORDERS: 9, TopicPartition("late", 0): 9}, "the second write is not done"
        threads.run()
        assert broker.checkpoint() == broker.cleaner.manager.all_checkpoints() == {ORDERS: 9, TopicPartition("late", 0): 9}

    def test_a_truncation_waits_for_the_disk(self, broker: Broker, threads: SideThreads) -> None:
        broker.add()
        broker.run()
        broker.cleaner.maybe_truncate_checkpoint(str(broker.root), ORDERS, 4)
        assert broker.checkpoint() == {ORDERS: 4}
        threads.run()
        assert broker.checkpoint() == {ORDERS: 4}, "what was begun before does not overwrite it"

    def test_a_clean_stop_writes_the_rest(self, broker: Broker, threads: SideThreads) -> None:
        broker.add()
        broker.run()
        broker.cleaner.shutdown()
        assert broker.checkpoint() == {ORDERS: 9}

    def test_a_failure_takes_the_directory_offline(self, broker: Broker, threads: SideThreads) -> None:
        broker.add()
        broker.run()
        broker.root.joinpath("cleaner-offset-checkpoint.tmp").mkdir()
        threads.run()
        assert broker.failures.has_offline(str(broker.root))
        assert len(broker.warnings) == 1


class TestSyncsAside:
    """The syncs of a round run in a side thread. If one fails, the directory goes offline, even if the round was aborted meanwhile."""

    @pytest.fixture
    def threads(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> SideThreads:
        def fail(flush: Flush) -> None:
            raise OSError(errno.EIO, "broken")

        monkeypatch.setattr(Flush, "run", fail)
        threads, scheduler = SideThreads(), Scheduler(lambda: NOW_MS)
        scheduler.side_work = SideWork(threads.in_thread)
        worker = broker.cleaner.workers[0]
        worker._scheduler = scheduler
        broker.add()
        while not worker.is_waiting:
            broker.cleaner.step()
        assert broker.cleaner.step() == LOOK_AGAIN_MS
        return threads

    def test_a_failure(self, broker: Broker, threads: SideThreads) -> None:
        threads.run()
        assert not broker.failures.offline
        broker.cleaner.step()
        assert broker.failures.has_offline(str(broker.root))
        # The cleaner does not continue before the owner has closed the log.
        assert broker.cleaner.step() == broker.cleaner.config.backoff_ms
        assert broker.cleaner.workers[0].cleaning is None

    def test_aborted_before_the_failure_is_told(self, broker: Broker, threads: SideThreads) -> None:
        broker.cleaner.abort_cleaning(ORDERS)
        threads.run()
        assert broker.failures.has_offline(str(broker.root))

    def test_aborted_behind_it(self, broker: Broker, threads: SideThreads) -> None:
        threads.run()
        broker.cleaner.abort_cleaning(ORDERS)
        assert broker.failures.has_offline(str(broker.root))
