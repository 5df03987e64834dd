"""I/O errors below the log manager. One directory fails, the other one continues, and nothing that was reported as flushed is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kops.errors import KopsError
from kops.files import Crash, FaultyFiles, Files, MemoryFiles
from kops.storage.failures.load_errors import KafkaStorageError
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.manager.live_log_dirs import LogDirsFailedError
from kops.storage.manager.settings import LogManagerConfig
from kops.storage.start.log_dirs import StartRefusedError
from tests.support.parts.managing import Broker, batch

IN_A = TopicPartition("orders", 0)
IN_B = TopicPartition("orders", 1)
IN_A_TOO = TopicPartition("orders", 2)
TOPICS = {"orders": {"internal.segment.bytes": "300", "segment.index.bytes": "600", "retention.bytes": "600"}}
MARKER = ".kafka_cleanshutdown"


class BadDisk(FaultyFiles):
    """Files of which one directory can fail: while `bad` is set, every change in that directory fails with EIO."""

    bad: str | None = None

    def step(self, what: str, part: Callable[[int], None] | None = None) -> None:
        if self.bad is not None and any((word + "/").startswith(self.bad + "/") for word in what.split()):
            raise OSError(errno.EIO, "Input/output error", what)
        super().step(what, part)


def _broker(files: Files) -> Broker:
    config = LogManagerConfig(replica_high_watermark_checkpoint_interval_ms=200_000)
    return Broker(files, ["/a", "/b"], topics=TOPICS, config=config)


def _filled(files: Files) -> Broker:
    """Start a broker with one partition in each directory. Each has three batches, all of them flushed."""
    broker = _broker(files)
    manager = broker.start()
    for key in (IN_A, IN_B):
        log = manager.get_or_create_log(key, is_new=True)
        for _ in range(3):
            log.append_as_leader(batch(), 0)
        log.flush(force_flush_active_segment=True)
    return broker


def test_a_directory_fails_while_the_other_works() -> None:
    files = BadDisk(MemoryFiles())
    broker = _filled(files)
    manager = broker.manager
    files.bad = "/a"
    in_a, in_b = manager.current_logs[IN_A], manager.current_logs[IN_B]
    with pytest.raises(KafkaStorageError):
        in_a.append_as_leader(batch(), 0)
    with pytest.raises(KafkaStorageError, match="already offline"):
        in_a.append_as_leader(batch(), 0)
    assert manager.handle_failures() == ["/a"]
    assert (manager.dirs.live, manager.dirs.offline) == (["/b"], ["/a"])
    assert manager.current_logs == {IN_B: in_b}
    with pytest.raises(KafkaStorageError, match="because log directories /a are offline"):
        manager.get_or_create_log(IN_A)
    with pytest.raises(KafkaStorageError, match="may be in one of the offline directories /a"):
        manager.async_delete(IN_A)
    assert manager.get_or_create_log(IN_A_TOO, is_new=True).parent_dir == "/b"
    in_b.append_as_leader(batch(), 0)
    broker.wait(600_000)
    assert broker.task_errors == []
    broker.stop()
    assert not files.exists(f"/a/{MARKER}")
    assert files.exists(f"/b/{MARKER}")
    files.bad = None
    manager = broker.start()
    assert [start.had_clean_shutdown for start in manager.log_dirs] == [False, True]
    assert manager.current_logs[IN_A].log_end_offset == 3
    assert manager.current_logs[IN_B].log_end_offset == 4


def test_the_last_directory_ends_the_broker() -> None:
    files = BadDisk(MemoryFiles())
    manager = _filled(files).manager
    files.bad = "/a"
    manager.checkpoint_recovery_points()
    assert manager.handle_failures() == ["/a"]
    files.bad = "/b"
    manager.checkpoint_recovery_points()
    with pytest.raises(LogDirsFailedError, match="all log dirs in /a, /b have failed"):
        manager.handle_failures()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_directory_that_fails_at_the_start_is_offline(is_clean: bool) -> None:
    files = BadDisk(MemoryFiles())
    broker = _filled(files)
    if is_clean:
        broker.stop()
    else:
        broker.kill()
    files.bad = "/a"
    started = broker.manager.startup()
    assert started.outcome == "started-log-dir-offline"
    assert [start.outcome for start in started.log_dirs] == ["log-dir-offline", "started"]
    assert broker.manager.dirs.offline == ["/a"]
    assert sorted(broker.manager.current_logs) == [IN_B]
    broker.stop()
    files.bad = None
    assert sorted(broker.start().current_logs) == [IN_A, IN_B]


def test_a_broker_whose_directories_all_fail_does_not_start() -> None:
    files = BadDisk(MemoryFiles())
    broker = _filled(files)
    broker.stop()
    broker.let_go()
    broker = Broker(files, ["/a"])
    files.bad = "/a"
    with pytest.raises(StartRefusedError, match="all log dirs in /a have failed"):
        broker.start()
    files.bad = "/c"
    broker = Broker(files, ["/c", "/b"])
    assert broker.manager.dirs.offline == ["/c"]
    with pytest.raises(StartRefusedError, match="none of the specified log dirs from /c can be created or validated"):
        Broker(files, ["/c"])


def test_a_new_partition_goes_to_the_next_directory() -> None:
    files = BadDisk(MemoryFiles())
    broker = _broker(files)
    manager = broker.start()
    files.bad = "/a"
    assert manager.get_or_create_log(IN_A, is_new=True).parent_dir == "/b"
    assert manager.handle_failures() == ["/a"]
    files.bad = "/b"
    with pytest.raises(KafkaStorageError, match=r"No log directories available\. Tried /b"):
        manager.get_or_create_log(IN_B, is_new=True)


def _live(broker: Broker, flushed: dict[TopicPartition, int]) -> None:
    """Write, flush, run tasks and delete. `flushed` gets the offset up to which each partition was reported as flushed."""
    manager = broker.start()

    seen = set()

    def write(key: TopicPartition, count: int) -> None:
        is_new = key not in seen
        seen.add(key)
        log = manager.get_or_create_log(key, is_new=is_new)
        for _ in range(count):
            log.append_as_leader(batch(), 0)
        log.flush(force_flush_active_segment=True)
        flushed[key] = log.log_end_offset

    steps: list[Callable[[], object]] = [
        lambda: write(IN_A, 5),
        lambda: write(IN_B, 5),
        lambda: write(IN_A_TOO, 2),
        lambda: broker.wait(40_000),
        lambda: flushed.pop(IN_A_TOO, None),
        lambda: manager.async_delete(IN_A_TOO),
        lambda: broker.wait(400_000),
        lambda: write(IN_B, 1),
    ]
    for step in steps:
        try:
            step()
        except KopsError:
            manager.handle_failures()
    manager.handle_failures()
    manager.shutdown()


def _check(files: Files, flushed: dict[TopicPartition, int]) -> None:
    """Check that everything reported as flushed is on the disk."""
    broker = _broker(files)
    manager = broker.start()
    for key, end in flushed.items():
        log = manager.current_logs[key]
        assert log.log_end_offset >= end, key
        assert log.log_start_offset == log.segments.base_offsets[0]
    assert manager.shutdown() == []


def _faulty(at: int, error: int | None) -> tuple[FaultyFiles, Broker]:
    """Return a broker whose operation number `at` fails. Operations count from the moment when its directories exist."""
    files = FaultyFiles(MemoryFiles(), error=error, torn=3)
    broker = _broker(files)
    files.operations.clear()
    files.at = at
    return files, broker


def _operations() -> int:
    files, broker = _faulty(0, None)
    flushed: dict[TopicPartition, int] = {}
    _live(broker, flushed)
    assert flushed == {IN_A: 5, IN_B: 6}
    return len(files.operations)


@pytest.mark.parametrize(("error", "step"), [pytest.param(errno.EIO, 1, marks=pytest.mark.slow), (errno.EIO, 5), (errno.ENOSPC, 4)])
def test_one_failing_operation_costs_one_directory_at_most(error: int, step: int) -> None:
    count = _operations()
    assert count > 100
    failed = 0
    for at in range(1, count + 1, step):
        files, broker = _faulty(at, error)
        flushed: dict[TopicPartition, int] = {}
        _live(broker, flushed)
        assert len(broker.manager.dirs.offline) <= 1, files.operations[at - 1]
        failed += len(broker.manager.dirs.offline)
        _check(files.base, flushed)
    assert failed > count // step // 2


def test_a_crash_at_any_operation_keeps_what_was_flushed() -> None:
    for at in range(1, _operations() + 1):
        files, broker = _faulty(at, None)
        flushed: dict[TopicPartition, int] = {}
        with pytest.raises(Crash):
            _live(broker, flushed)
        broker.manager.dirs.release_locks()
        _check(files.base, flushed)
