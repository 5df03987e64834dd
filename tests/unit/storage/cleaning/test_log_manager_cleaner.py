"""LogManager and the log cleaner: cleaning pauses while a log is cut or deleted, checkpoints follow the logs, and retention leaves its logs
alone.
"""

from __future__ import annotations

import pytest

from kops.storage.cleaning.log_cleaner import CleanerConfig, LogCleaner
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.manager.log_manager import LogManager
from tests.support.parts.managing import Broker, batch

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)
CHECKPOINT = "cleaner-offset-checkpoint"
TOPICS = {
    "orders": {
        "internal.segment.bytes": "300",
        "segment.index.bytes": "600",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
    },
    "clicks": {"internal.segment.bytes": "300", "segment.index.bytes": "600", "retention.bytes": "300"},
}


def _cleaned(broker: Broker) -> tuple[LogManager, LogCleaner]:
    """Fill both logs, and run the cleaner's rounds until there is nothing to do."""
    manager = broker.start()
    cleaner = LogCleaner(
        broker.files,
        manager.dirs.live,
        manager.current_logs,
        manager.failures,
        CleanerConfig(dedupe_buffer_size=100_000, io_buffer_size=10_000),
        now_ms=broker.clock,
        now_ns=lambda: broker.clock() * 1_000_000,
        warn=lambda message: None,
    )
    manager.cleaner = cleaner
    for key in (ORDERS, CLICKS):
        log = manager.get_or_create_log(key, is_new=True)
        for _ in range(12):
            log.append_as_leader(batch(2), 0)
        log.update_high_watermark(log.log_end_offset)
    for _ in range(200):
        if cleaner.step() == cleaner.config.backoff_ms:
            break
    else:
        pytest.fail("the cleaner does not come to an end")
    return manager, cleaner


def _records(manager: LogManager) -> int:
    log = manager.current_logs[ORDERS]
    return sum(len(list(found.records())) for segment in log.segments for found in segment.log.batches())


def test_the_cleaner_cleans_and_retention_deletes() -> None:
    broker = Broker(topics=TOPICS)
    manager, _ = _cleaned(broker)
    cleaned_to = manager.current_logs[ORDERS].segments.active.base_offset
    assert broker.checkpoint(CHECKPOINT) == {ORDERS: cleaned_to}
    assert 2 <= _records(manager) < 24
    assert manager.cleanup_logs() > 0
    assert manager.current_logs[ORDERS].log_start_offset == 0
    assert manager.current_logs[CLICKS].log_start_offset > 0
    broker.stop()
    manager = broker.start()
    assert manager.current_logs[ORDERS].log_end_offset == 24
    assert 2 <= _records(manager) < 24


def test_truncation_takes_the_checkpoint_back() -> None:
    broker = Broker(topics=TOPICS)
    manager, cleaner = _cleaned(broker)
    before = broker.checkpoint(CHECKPOINT)[ORDERS]
    manager.truncate_to({ORDERS: before - 3})
    active = manager.current_logs[ORDERS].segments.active.base_offset
    assert broker.checkpoint(CHECKPOINT) == {ORDERS: active}
    assert active < before
    manager.truncate_fully_and_start_at(ORDERS, 7)
    assert broker.checkpoint(CHECKPOINT) == {ORDERS: min(active, 7)}
    assert cleaner.step() == cleaner.config.backoff_ms


def test_the_checkpoint_goes_with_the_log() -> None:
    broker = Broker(log_dirs=["/a", "/b"], topics=TOPICS)
    manager, _ = _cleaned(broker)
    offset = broker.checkpoint(CHECKPOINT)[ORDERS]
    manager.prefer_log_dir(ORDERS, "/b")
    manager.get_or_create_log(ORDERS, is_future=True)
    assert manager.cleaner is not None
    manager.cleaner.abort_and_pause_cleaning(ORDERS)  # as ReplicaManager does when a move begins
    manager.replace_current_with_future_log(ORDERS)
    assert broker.checkpoint(CHECKPOINT, "/b") == {ORDERS: offset}
    assert broker.checkpoint(CHECKPOINT) == {}
    manager.async_delete(ORDERS)
    assert broker.checkpoint(CHECKPOINT, "/b") == {}


def test_many_deletions_write_the_checkpoint_once() -> None:
    broker = Broker(topics=TOPICS)
    manager, _ = _cleaned(broker)
    manager.async_delete_all([ORDERS, CLICKS], lambda key, error: pytest.fail(f"{key}: {error}"))
    assert broker.checkpoint(CHECKPOINT) == {}
    assert manager.current_logs == {}


def test_a_topic_that_is_compacted_no_more() -> None:
    broker = Broker(topics=TOPICS)
    manager, _ = _cleaned(broker)
    broker.topics["orders"] = dict(TOPICS["clicks"])
    manager.update_topic_config("orders")
    assert manager.cleanup_logs() > 0
    assert manager.current_logs[ORDERS].log_start_offset > 0


def test_a_failed_directory_is_cleaned_no_more() -> None:
    broker = Broker(log_dirs=["/a", "/b"], topics=TOPICS)
    manager, cleaner = _cleaned(broker)
    before = broker.files.read_all(f"/a/{CHECKPOINT}")
    manager.failures.maybe_add_offline_log_dir("/a", "a test", OSError("gone"))
    assert manager.handle_failures() == ["/a"]
    manager.cleaner = cleaner
    cleaner.update_checkpoints("/a")
    assert broker.files.read_all(f"/a/{CHECKPOINT}") == before
