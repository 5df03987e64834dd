"""LogManager: start, new logs, settings, truncation, moves, deletion, checkpoints, tasks, the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kops.errors import ApiError, KopsError, LockHeldError, UsageError
from kops.files import MemoryFiles, Mode, OsFiles
from kops.files.tree import TreeFile
from kops.storage.failures.load_errors import KafkaStorageError
from kops.storage.formats.checkpoints import TopicPartition, write_offset_checkpoint
from kops.storage.formats.partition_metadata import read_partition_metadata
from kops.storage.manager.live_log_dirs import LOST, UNASSIGNED
from kops.storage.manager.settings import PERIODIC_TASKS, LogManagerConfig, TopicConfigs, log_manager_config
from kops.storage.producers.state import ProducerState
from kops.storage.segments.epoch_cache import LeaderEpochFileCache
from kops.storage.segments.segment import LogSegment
from kops.storage.start.log_dirs import Job, StartRefusedError
from kops.storage.unified_log import UnifiedLog
from tests.support.parts.managing import DIRECTORY_IDS, START_MS, Broker, batch

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 3)
TOPIC_ID = "SR5EBbt_QsyfzJiKc7oxwA"
SMALL = {"orders": {"internal.segment.bytes": "200"}}
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
MARKER = "/a/.kafka_cleanshutdown"


def _fill(log: UnifiedLog, batches: int) -> None:
    for _ in range(batches):
        log.append_as_leader(batch(), 0)


def test_a_clean_stop_leaves_what_a_start_needs() -> None:
    broker = Broker()
    log = broker.start().get_or_create_log(ORDERS, is_new=True, topic_id=TOPIC_ID)
    _fill(log, 3)
    log.update_high_watermark(2)
    broker.stop(broker_epoch=41)
    assert broker.files.read_all(MARKER) == b'{"version":0,"brokerEpoch":41}'
    assert broker.checkpoint(RECOVERY_POINTS) == {ORDERS: 3}
    assert broker.checkpoint(LOG_STARTS) == {}
    assert broker.checkpoint(HIGH_WATERMARKS) == {ORDERS: 2}
    assert read_partition_metadata(broker.files.read_all("/a/orders-0/partition.metadata")).topic_id == TOPIC_ID
    assert broker.manager.broker_epoch_of_clean_shutdown() == 41
    manager = broker.start()
    assert not broker.files.exists(MARKER)
    assert manager.broker_epoch_of_clean_shutdown() is None
    assert [start.had_clean_shutdown for start in manager.log_dirs] == [True]
    again = manager.get_or_create_log(ORDERS, topic_id=TOPIC_ID)
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (0, 2, 3)
    assert again.topic_id == TOPIC_ID


def test_no_log_is_given_out_whose_high_watermark_cannot_be_read() -> None:
    """Kafka's replicas get no log then, and the file stays unchanged until somebody repairs it."""
    broker = Broker()
    _fill(broker.start().get_or_create_log(ORDERS, is_new=True), 3)
    broker.stop()
    path = f"/a/{HIGH_WATERMARKS}"
    malformed = b"0\n1\norders 0 12x\n"
    broker.files.unlink(path)
    with broker.files.open(path, "create") as file:
        file.write(0, malformed)
    manager = broker.start()
    for key in (ORDERS, CLICKS):
        with pytest.raises(KopsError, match='not a number: "12x"'):
            manager.get_or_create_log(key, is_new=True)
    manager.checkpoint_high_watermarks()
    broker.stop()
    assert broker.files.read_all(path) == malformed
    assert broker.checkpoint(RECOVERY_POINTS) == {ORDERS: 3, CLICKS: 0}


def test_without_a_clean_stop_the_log_is_recovered() -> None:
    broker = Broker()
    log = broker.start().get_or_create_log(ORDERS, is_new=True)
    _fill(log, 2)
    path = log.segments.active.log.path
    broker.kill()
    with broker.files.open(path, "rw") as file:
        file.write(file.size(), b"\x00" * 30)
    manager = broker.start()
    assert [start.had_clean_shutdown for start in manager.log_dirs] == [False]
    assert manager.current_logs[ORDERS].log_end_offset == 2
    assert manager.current_logs[ORDERS].size == broker.files.stat(path).size == 2 * len(batch())
    assert [start.remaining_logs for start in manager.log_dirs] == [0]
    broker.stop()
    assert broker.files.exists(MARKER)


def test_what_folders_are_called_says_what_becomes_of_them() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    for partition in range(4):
        _fill(manager.get_or_create_log(TopicPartition("orders", partition), is_new=True), partition + 1)
    manager.prefer_log_dir(ORDERS, "/b" if manager.current_logs[ORDERS].parent_dir == "/a" else "/a")
    manager.get_or_create_log(ORDERS, is_future=True)
    manager.async_delete(TopicPartition("orders", 1))
    manager.async_delete(TopicPartition("orders", 2), is_stray=True)
    broker.stop()
    manager = broker.start()
    assert sorted(manager.current_logs) == [ORDERS, TopicPartition("orders", 3)]
    assert sorted(manager.future_logs) == [ORDERS]
    assert manager.future_logs[ORDERS].is_future
    assert sorted(manager.stray_logs) == [TopicPartition("orders", 2)]
    assert len(manager.to_be_deleted) == 1


def test_a_stray_replica_is_put_aside() -> None:
    broker = Broker()
    for key in (ORDERS, CLICKS):
        _fill(broker.start().get_or_create_log(key, is_new=True), 1)
        broker.stop()
    asked = []

    def is_stray(topic_id: str | None, topic: str, partition: int) -> str | None:
        asked.append((topic_id, topic, partition))
        return "not in the metadata" if topic == "orders" else None

    started = broker.manager.startup(is_stray=is_stray)
    assert asked == [(None, "clicks", 3), (None, "orders", 0)]
    assert [each.outcome for each in started.log_dirs[0].partitions] == ["loaded", "stray"]
    assert broker.names() == ["clicks-3", "orders-0.00000000000000000000000000000000-stray"]
    assert list(broker.manager.stray_logs) == [ORDERS]
    assert list(broker.manager.current_logs) == [CLICKS]
    broker.stop()
    assert broker.checkpoint(RECOVERY_POINTS) == {CLICKS: 1}
    assert list(broker.start().stray_logs) == [ORDERS]


def test_jobs_of_the_directories_may_run_in_any_order() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    for partition in range(6):
        _fill(manager.get_or_create_log(TopicPartition("orders", partition), is_new=True), partition)
    broker.stop()
    remaining: list[list[int]] = []

    def run(jobs: list[list[Job]]) -> None:
        assert [len(each) for each in jobs] == [3, 3]
        for job in reversed([job for each in jobs for job in each]):
            remaining.append([start.remaining_logs for start in broker.manager.log_dirs])
            job()

    broker.manager.startup(run=run)
    assert remaining == [[3, 3], [3, 2], [3, 1], [3, 0], [2, 0], [1, 0]]
    assert {key.partition: log.log_end_offset for key, log in broker.manager.current_logs.items()} == {n: n for n in range(6)}
    assert broker.manager.shutdown(run=run_backwards) == []


def run_backwards(jobs: list[list[Job]]) -> None:
    for job in reversed([job for each in jobs for job in each]):
        job()


def test_a_directory_has_one_owner() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    with pytest.raises(LockHeldError):
        Broker(broker.files, ["/c", "/b"])
    broker.manager.dirs.release_locks()
    Broker(broker.files, ["/c", "/b"])  # the rejected one has kept nothing of it


def test_checkpoints_are_there_from_the_start() -> None:
    """They are created empty, as in Kafka's constructors, but existing ones stay. If one can't be created, there is no start, and nothing
    is locked.
    """
    files = MemoryFiles()
    for log_dir in ("/a", "/b"):
        files.mkdir(log_dir)
    kept = write_offset_checkpoint({ORDERS: 3})
    files.write_all(f"/b/{LOG_STARTS}", kept)
    broker = Broker(files, ["/a", "/b"])
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
        assert broker.files.read_all(f"/a/{name}") == b""
    assert broker.files.read_all(f"/b/{LOG_STARTS}") == kept
    broker.manager.dirs.release_locks()

    class Full(MemoryFiles):
        def open(self, path: str, mode: Mode = "r") -> TreeFile:
            if path == f"/b/{HIGH_WATERMARKS}":
                raise OSError(28, "No space left on device", path)
            return super().open(path, mode)

    full = Full()
    with pytest.raises(StartRefusedError, match=f"/b/{HIGH_WATERMARKS}: No space left on device"):
        Broker(full, ["/a", "/b"])
    full.lock("/a").release()


def test_a_directory_is_named_once() -> None:
    with pytest.raises(StartRefusedError, match="Duplicate log directory found: /a, /b, /a"):
        Broker(log_dirs=["/a", "/b", "/b/../a"])


def test_a_folder_that_is_no_partition_refuses_the_start() -> None:
    broker = Broker()
    _fill(broker.start().get_or_create_log(ORDERS, is_new=True), 1)
    broker.stop()
    broker.files.mkdir("/a/what")
    with pytest.raises(StartRefusedError, match="'what' is not in the form of topic-partition"):
        broker.start()
    broker.new()  # the locks are free again


def test_a_partition_twice_refuses_the_start() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    _fill(broker.start().get_or_create_log(ORDERS, is_new=True), 1)
    broker.stop()
    broker.files.mkdir("/b/orders-0")
    with pytest.raises(StartRefusedError, match="Duplicate log directories for orders-0 are found in both /a/orders-0 and /b/orders-0"):
        broker.start()


def test_a_new_partition_goes_where_the_fewest_logs_are() -> None:
    broker = Broker(log_dirs=["/a", "/b", "/c"])
    manager = broker.start()

    def place(partition: int, **options: str) -> str:
        return manager.get_or_create_log(TopicPartition("orders", partition), is_new=True, **options).parent_dir  # type: ignore[arg-type]

    assert [place(partition) for partition in range(4)] == ["/a", "/b", "/c", "/a"]
    assert place(4, directory_id=DIRECTORY_IDS["/c"]) == "/c"
    assert place(5, directory_id=UNASSIGNED) == "/b"
    assert place(6, directory_id=LOST) == "/a"
    assert place(7, directory_id="DddddddddddddddddddddA") == "/b"
    manager.prefer_log_dir(TopicPartition("orders", 8), "/c")
    assert place(8, directory_id=DIRECTORY_IDS["/a"]) == "/c"
    manager.dirs.cordoned = frozenset(["/b", "/c"])
    assert [place(partition) for partition in (9, 10)] == ["/a", "/a"]
    manager.dirs.cordoned = frozenset(["/a", "/b", "/c"])
    assert place(11) == "/a"
    assert place(11) == "/a"
    assert len(manager.current_logs) == 12


def test_a_log_belongs_to_one_topic() -> None:
    manager = Broker().start()
    manager.get_or_create_log(ORDERS, is_new=True, topic_id=TOPIC_ID)
    with pytest.raises(ApiError) as error:
        manager.get_or_create_log(ORDERS, topic_id="AAAAAAAAAAAAAAAAAAAAAw")
    assert error.value.name == "INCONSISTENT_TOPIC_ID"
    assert manager.get_or_create_log(ORDERS).topic_id == TOPIC_ID


def test_a_future_log_needs_another_directory() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    manager.get_or_create_log(ORDERS, is_new=True)
    with pytest.raises(KopsError, match="without having a preferred log directory"):
        manager.get_or_create_log(ORDERS, is_future=True)
    manager.prefer_log_dir(ORDERS, "/a")
    with pytest.raises(KopsError, match="without having a preferred log directory"):
        manager.get_or_create_log(ORDERS, is_future=True)
    with pytest.raises(KopsError, match="in the current log directory"):
        manager.get_or_create_log(ORDERS, is_future=True, directory_id=DIRECTORY_IDS["/a"])
    with pytest.raises(ApiError) as error:
        manager.dirs.is_online("/x")
    assert error.value.name == "LOG_DIR_NOT_FOUND"


def test_a_partition_moves_to_another_directory() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    source = manager.get_or_create_log(ORDERS, is_new=True, topic_id=TOPIC_ID)
    _fill(source, 3)
    source.update_high_watermark(3)
    manager.prefer_log_dir(ORDERS, "/b")
    future = manager.get_or_create_log(ORDERS, is_future=True, topic_id=TOPIC_ID)
    future.append_as_follower(source.segments.active.log.file.read(0, source.size), 0)
    broker.wait(0)
    manager.replace_current_with_future_log(ORDERS)
    assert manager.current_logs == {ORDERS: future}
    assert manager.future_logs == {}
    assert (future.directory, future.high_watermark, future.is_future) == ("/b/orders-0", 3, False)
    assert [name[-7:] for name in broker.names()] == ["-delete"]
    assert broker.checkpoint(RECOVERY_POINTS) == {}
    _fill(future, 1)
    broker.wait(60_000)
    broker.wait(60_000)
    assert broker.names() == []
    broker.stop()
    manager = broker.start()
    assert manager.current_logs[ORDERS].log_end_offset == 4
    assert manager.current_logs[ORDERS].topic_id == TOPIC_ID
    with pytest.raises(KafkaStorageError, match="The future replica for orders-0 is offline"):
        manager.replace_current_with_future_log(ORDERS)
    with pytest.raises(KafkaStorageError, match="The current replica for clicks-3 is offline"):
        manager.replace_current_with_future_log(CLICKS)


def test_a_move_is_given_up() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    log = manager.get_or_create_log(ORDERS, is_new=True)
    manager.prefer_log_dir(ORDERS, "/b")
    manager.get_or_create_log(ORDERS, is_future=True)
    manager.async_delete(ORDERS, is_future=True)
    assert manager.current_logs == {ORDERS: log}
    assert manager.future_logs == {}
    assert [name[-7:] for name in broker.names("/b")] == ["-delete"]


@pytest.mark.parametrize("source_is_there", [True, False])
def test_a_move_that_the_end_interrupted_is_finished(source_is_there: bool) -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    manager.get_or_create_log(ORDERS, is_new=True, topic_id=TOPIC_ID)
    manager.prefer_log_dir(ORDERS, "/b")
    _fill(manager.get_or_create_log(ORDERS, is_future=True, topic_id=TOPIC_ID), 2)
    if not source_is_there:
        manager.async_delete(ORDERS)
    broker.stop()
    manager = broker.start()
    assert manager.recover_abandoned_future_logs(lambda topic_id, partition: DIRECTORY_IDS["/a"]) == []
    assert manager.recover_abandoned_future_logs(lambda topic_id, partition: None) == []
    assert manager.recover_abandoned_future_logs(lambda topic_id, partition: DIRECTORY_IDS["/b"]) == [ORDERS]
    assert manager.current_logs[ORDERS].directory == "/b/orders-0"
    assert manager.current_logs[ORDERS].log_end_offset == 2
    assert manager.future_logs == {}
    assert [name[-7:] for name in broker.names()] == ["-delete"]


def test_a_deleted_log_goes_after_the_delay() -> None:
    broker = Broker()
    manager = broker.start()
    long_name = TopicPartition("t" * 249, 0)
    for key in (ORDERS, long_name):
        _fill(manager.get_or_create_log(key, is_new=True), 1)
    broker.wait(29_000)
    assert manager.async_delete(ORDERS) is not None
    assert manager.async_delete(ORDERS) is None
    assert manager.get_log(ORDERS) is None
    broker.wait(1_000)
    manager.async_delete(long_name)
    assert [len(name) for name in broker.names()] == [48, 255]
    assert broker.checkpoint(RECOVERY_POINTS) == {}
    again = manager.get_or_create_log(ORDERS, is_new=True)
    assert again.log_end_offset == 0
    broker.wait(58_999)
    assert len(broker.names()) == 3
    broker.wait(1)
    assert len(broker.names()) == 2
    broker.wait(1_000)
    assert broker.names() == ["orders-0"]
    assert broker.task_errors == []


def test_many_partitions_are_deleted_together() -> None:
    broker = Broker(log_dirs=["/a", "/b"])
    manager = broker.start()
    keys = [TopicPartition("orders", partition) for partition in range(4)]
    for key in keys:
        manager.get_or_create_log(key, is_new=True)
    manager.prefer_log_dir(keys[0], "/b")
    manager.get_or_create_log(keys[0], is_future=True)
    errors: list[TopicPartition] = []
    manager.async_delete_all([*keys[:2], CLICKS], lambda key, error: errors.append(key))
    assert errors == []
    assert sorted(manager.current_logs) == keys[2:]
    assert manager.future_logs == {}
    assert broker.checkpoint(RECOVERY_POINTS) == {keys[2]: 0}
    assert broker.checkpoint(RECOVERY_POINTS, "/b") == {keys[3]: 0}


def test_truncation_writes_the_recovery_points() -> None:
    broker = Broker(topics=SMALL)
    manager = broker.start()
    log = manager.get_or_create_log(ORDERS, is_new=True)
    _fill(log, 9)
    log.flush(force_flush_active_segment=True)
    manager.truncate_to({ORDERS: 4, CLICKS: 1})
    assert (log.log_end_offset, log.recovery_point) == (4, 4)
    assert broker.checkpoint(RECOVERY_POINTS) == {ORDERS: 4}
    manager.truncate_to({ORDERS: 4})
    manager.truncate_fully_and_start_at(ORDERS, 100)
    manager.truncate_fully_and_start_at(CLICKS, 100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert broker.checkpoint(RECOVERY_POINTS) == {ORDERS: 4}  # what is flushed stays flushed, as in Kafka
    manager.truncate_fully_and_start_at(ORDERS, 120, log_start_offset=110)
    assert (log.log_start_offset, log.log_end_offset) == (110, 120)


def test_settings_change_at_run_time() -> None:
    broker = Broker(topics={"orders": {"retention.ms": "1000", "cleanup.policy": "compact"}})
    manager = broker.start()
    orders, clicks = manager.get_or_create_log(ORDERS, is_new=True), manager.get_or_create_log(CLICKS, is_new=True)
    assert (orders.config.retention_ms, clicks.config.retention_ms) == (1_000, 604_800_000)
    broker.topics["orders"] = {"retention.ms": "2000"}
    manager.update_topic_config("orders")
    manager.update_broker_config({"log.retention.ms": "3000", "log.segment.delete.delay.ms": "5"})
    assert (orders.config.retention_ms, clicks.config.retention_ms) == (2_000, 3_000)
    assert orders.config.file_delete_delay_ms == manager.topics.default.file_delete_delay_ms == 5
    with pytest.raises(UsageError):
        manager.update_broker_config({"log.retention.ms": "much"})
    assert clicks.config.retention_ms == 3_000
    assert TopicConfigs().of("any") == TopicConfigs().default


def test_the_tasks_run_at_their_times() -> None:
    config = LogManagerConfig(log_flush_scheduler_interval_ms=1_000)
    topics = {"orders": {**SMALL["orders"], "retention.ms": "100000", "flush.ms": "40000"}}
    broker = Broker(topics=topics, config=config)
    manager = broker.start()
    log = manager.get_or_create_log(ORDERS, is_new=True)
    _fill(log, 6)
    log.update_high_watermark(6)
    broker.wait(0)
    assert broker.checkpoint(HIGH_WATERMARKS) == {ORDERS: 6}
    broker.wait(30_000)
    flushed = log.recovery_point
    assert flushed < 6
    assert broker.checkpoint(RECOVERY_POINTS) == {ORDERS: flushed}
    broker.wait(10_000)
    assert log.recovery_point > flushed
    broker.wait(290_000)
    assert log.log_start_offset == 6
    _fill(log, 1)
    log.update_high_watermark(7)
    log.maybe_increment_log_start_offset(7, "a client deleted records")
    broker.wait(60_000)
    assert broker.checkpoint(LOG_STARTS) == {ORDERS: 7}
    assert broker.task_errors == []


def test_the_table_of_tasks() -> None:
    told = {task.name: (task.period_key, task.delay_key) for task in PERIODIC_TASKS}
    broker = Broker()
    broker.start().get_or_create_log(ORDERS, is_new=True)
    pending = {task.name: (task.due_ms - START_MS, task.period_ms) for task in broker.scheduler.pending}
    assert set(told) == set(pending)
    assert pending["kafka-log-retention"] == (30_000, 300_000)
    assert pending["kafka-log-flusher"] == (30_000, (1 << 63) - 1)
    assert pending["kafka-recovery-point-checkpoint"] == pending["kafka-log-start-offset-checkpoint"] == (30_000, 60_000)
    assert pending["kafka-delete-logs"] == (30_000, None)
    assert pending["highwatermark-checkpoint"] == (0, 5_000)
    assert pending["PeriodicProducerExpirationCheck"] == (600_000, 600_000)


def test_no_task_is_left_behind_a_stop() -> None:
    broker = Broker()
    manager = broker.start()
    manager.get_or_create_log(ORDERS, is_new=True)
    broker.wait(70_000)
    assert manager.shutdown() == []
    assert broker.scheduler.pending == []


def test_a_brokers_settings() -> None:
    broker = {"log.retention.check.interval.ms": "5", "transaction.partition.verification.enable": "false", "listeners": "x"}
    config = log_manager_config(broker)
    assert config == LogManagerConfig(log_retention_check_interval_ms=5, transaction_partition_verification_enable=False)
    assert log_manager_config({}) == LogManagerConfig()
    with pytest.raises(UsageError):
        log_manager_config({"num.recovery.threads.per.data.dir": "0"})


def test_a_checkpoint_with_a_bad_number_is_reset() -> None:
    broker = Broker(topics=SMALL)
    log = broker.start().get_or_create_log(ORDERS, is_new=True)
    _fill(log, 5)
    broker.stop()
    broker.files.unlink(MARKER)
    broker.files.write_all(f"/a/{RECOVERY_POINTS}", b"0\n1\norders 0 many\n")
    broker.files.write_all(f"/a/{LOG_STARTS}", write_offset_checkpoint({ORDERS: 3}))
    manager = broker.start()
    assert manager.current_logs[ORDERS].log_start_offset == 3
    assert manager.current_logs[ORDERS].log_end_offset == 5
    assert len(manager.log_dirs[0].warnings) == 1


def test_the_progress_of_a_recovery_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(topics=SMALL)
    _fill(broker.start().get_or_create_log(ORDERS, is_new=True), 8)
    segments = len(broker.manager.current_logs[ORDERS].segments)
    broker.kill()
    told = []
    recover = LogSegment.recover

    def recover_and_look(segment: LogSegment, producers: ProducerState, epochs: LeaderEpochFileCache) -> int:
        (start,) = broker.manager.log_dirs
        told.append((start.remaining_logs, start.remaining_segments))
        return recover(segment, producers, epochs)

    monkeypatch.setattr(LogSegment, "recover", recover_and_look)
    broker.start()
    assert told == [(1, remaining) for remaining in range(segments, 0, -1)]
    assert [(start.remaining_logs, start.remaining_segments) for start in broker.manager.log_dirs] == [(0, 0)]


def test_directories_are_recovered_and_closed_by_threads(tmp_path: Path) -> None:
    log_dirs = [str(tmp_path / name) for name in ("disk1", "disk2")]
    broker = Broker(OsFiles(), log_dirs, topics=SMALL)
    manager = broker.start()
    for partition in range(12):
        _fill(manager.get_or_create_log(TopicPartition("orders", partition), is_new=True), partition)
    broker.kill()

    def run(jobs: list[list[Job]]) -> None:
        pools = [ThreadPoolExecutor(2) for _ in jobs]
        futures = [pool.submit(job) for pool, each in zip(pools, jobs, strict=True) for job in each]
        for future in futures:
            future.result()
        for pool in pools:
            pool.shutdown()

    started = broker.manager.startup(run=run)
    assert [len(start.partitions) for start in started.log_dirs] == [6, 6]
    assert {key.partition: log.log_end_offset for key, log in broker.manager.current_logs.items()} == {n: n for n in range(12)}
    assert broker.manager.shutdown(run=run) == []
    broker.new()
    assert [start.had_clean_shutdown for start in broker.start().log_dirs] == [True, True]
    assert broker.manager.shutdown(run=run) == []


def test_no_mark_is_left_where_loading_was_not_complete() -> None:
    broker = Broker()
    _fill(broker.start().get_or_create_log(ORDERS, is_new=True), 1)
    broker.kill()
    with pytest.raises(KeyError):
        broker.manager.startup(run=lambda jobs: None)  # the log was not loaded: a bug of the runner
    broker.new()
    files = broker.files
    assert isinstance(files, MemoryFiles)
    assert not files.exists(MARKER)
