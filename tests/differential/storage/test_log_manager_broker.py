"""A log directory that kops opened, wrote to and left, in a real Apache Kafka 4.3 broker. After a clean stop there is nothing to recover,
after a kill everything is recovered, and a consumer gets every record either way. Then kops opens what the broker left.
"""

from __future__ import annotations

import base64
import itertools
import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kops.files import OsFiles, OverlayFiles
from kops.forensics.forecast.metadata_log import load_metadata_log, stray_rule
from kops.metadata import ClusterImage
from kops.records import BatchBuilder, end_txn_marker
from kops.records.validation.validate import AppendOrigin
from kops.storage.cleaning.log_cleaner import CleanerConfig, LogCleaner
from kops.storage.formats.checkpoints import TopicPartition
from kops.storage.manager.log_manager import LogManager
from kops.storage.manager.settings import LogManagerConfig, TopicConfigs
from kops.storage.scheduler import Scheduler
from kops.storage.start.log_dirs import check_meta_properties
from kops.storage.unified_log import UnifiedLog
from tests.support.kafka.oracle import Oracle, java_command
from tests.support.kafka.real_broker import LOGGERS, RealBroker

SMALL = {"internal.segment.bytes": "4000", "index.interval.bytes": "256"}
TOPICS = {
    "plain": SMALL,
    "transactions": SMALL,
    "epochs": SMALL,
    "beginning": SMALL,
    "retained": {**SMALL, "retention.bytes": "6000"},
    "stamped": {**SMALL, "message.timestamp.type": "LogAppendTime", "compression.type": "lz4"},
    "moved": SMALL,
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}
SETTINGS = {
    "log.initial.task.delay.ms": 3_600_000,
    "producer.id.expiration.ms": 2_147_483_647,
    "log.cleaner.enable": "false",
}
TALKATIVE = dict.fromkeys(("kafka.log.LogManager", "org.apache.kafka.storage.internals.log.LogLoader"), "info")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECOVERING = re.compile(r"partition=(?!__cluster_metadata)\S+, dir=.*Recovering unflushed segment")


@dataclass
class Written:
    """What kops wrote: the directories as a clean stop and as a kill left them, and the records of each topic (offset → key and value)."""

    clean: Path
    killed: Path
    records: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)
    aborted: dict[str, set[int]] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Writer:
    """Appends to one log as a leader, and remembers the records."""

    def __init__(self, log: UnifiedLog, written: Written, rng: random.Random) -> None:
        self.log = log
        self.rng = rng
        self.records = written.records.setdefault(log.topic, {})
        self.aborted = written.aborted.setdefault(log.topic, set())
        self.numbers = itertools.count() if log.topic != "compacted" else itertools.cycle(range(40))

    def append(self, count: int, epoch: int, **fields: Any) -> int:
        """Append a batch of `count` records, and return its first offset."""
        builder = BatchBuilder(codec=self.rng.choice(CODECS), **fields)
        pairs = [
            (b"%s-%d" % (self.log.topic.encode(), next(self.numbers)), self.rng.randbytes(self.rng.randint(0, 90))) for _ in range(count)
        ]
        for key, value in pairs:
            builder.append(int(time.time() * 1000), key, value, [("h", b"x")])
        info = self.log.append_as_leader(builder.build(), epoch)
        self.records.update({info.first_offset + n: (_text(key), _text(value)) for n, (key, value) in enumerate(pairs)})
        return info.first_offset

    def transaction(self, producer_id: int, sequence: int, *, batches: int, commit: bool, epoch: int) -> int:
        """Append a whole transaction, and return the producer's next sequence number."""
        before = set(self.records)
        for _ in range(batches):
            count = self.rng.randint(1, 4)
            self.append(count, epoch, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
            sequence += count
        if not commit:
            self.aborted |= set(self.records) - before
        marker = end_txn_marker(0, int(time.time() * 1000), commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0)
        self.log.append_as_leader(marker, epoch, origin=AppendOrigin.COORDINATOR, transaction_version=1)
        return sequence


def _open(log_dirs: list[Path]) -> tuple[LogManager, ClusterImage]:
    """Open the directories of the broker with kops and the cluster's metadata."""
    files = OsFiles()
    paths = [str(path) for path in log_dirs]

    def now_ms() -> int:
        return int(time.time() * 1000)

    starts = check_meta_properties(files, paths, node_id=1, metadata_log_dir=paths[0])
    # The metadata log is only read here, from a copy in memory, so the broker's own stays as it is.
    image = load_metadata_log(OverlayFiles(OsFiles(read_only=True)), paths[0], now_ms=now_ms()).image
    assert image is not None
    numbers = itertools.count()
    manager = LogManager(
        files,
        starts,
        now_ms=now_ms,
        scheduler=Scheduler(now_ms),
        new_id=lambda: f"{next(numbers):032x}",
        topics=TopicConfigs(image.topic_config),
        config=LogManagerConfig(transaction_partition_verification_enable=False),
    )
    manager.startup(is_stray=stray_rule(image, 1))
    assert manager.stray_logs == {}
    return manager, image


def _leader_epoch(image: ClusterImage, log: UnifiedLog) -> int:
    assert log.topic_id is not None
    return image.partitions[log.topic_id, log.partition].leader_epoch


def _fill(manager: LogManager, image: ClusterImage, written: Written) -> None:
    """Write something with every feature."""
    rng = random.Random(43)
    logs = {topic: manager.current_logs[TopicPartition(topic, 0)] for topic in TOPICS}
    writers = {topic: Writer(log, written, rng) for topic, log in logs.items()}
    last_epoch = min(_leader_epoch(image, log) for log in logs.values())
    assert last_epoch >= 2
    sequences = dict.fromkeys((4000, 4001, 4002), 0)
    for step in range(90):
        epoch = step * (last_epoch + 1) // 90
        for topic in ("plain", "epochs", "beginning", "retained", "stamped", "moved", "compacted"):
            writers[topic].append(rng.randint(1, 6), epoch if topic == "epochs" else last_epoch)
        producer = rng.choice(list(sequences))
        sequences[producer] = writers["transactions"].transaction(
            producer, sequences[producer], batches=rng.randint(1, 3), commit=rng.random() < 0.6, epoch=last_epoch
        )
        if step % 10 == 0:
            writers["transactions"].append(2, last_epoch)
        if step == 40:
            writers["moved"].log = logs["moved"] = _move(manager, logs["moved"], last_epoch)
        if step == 50:
            manager.checkpoint_recovery_points()
            for log in logs.values():
                log.flush(force_flush_active_segment=True)
    for log in logs.values():
        log.update_high_watermark(log.log_end_offset)
    _compact(manager, written)
    logs["beginning"].maybe_increment_log_start_offset(logs["beginning"].log_end_offset // 2, "a client deleted records")
    assert manager.cleanup_logs() > 0
    manager.checkpoint_log_start_offsets()
    manager.checkpoint_high_watermarks()
    for topic, log in logs.items():
        assert len(log.segments) > 2 or topic == "retained"
        written.begins[topic], written.ends[topic] = log.log_start_offset, log.log_end_offset


def _compact(manager: LogManager, written: Written) -> None:
    """Run the cleaner's rounds to their end. Only former values of a key are removed."""
    cleaner = LogCleaner(
        manager.files,
        manager.dirs.live,
        manager.current_logs,
        manager.failures,
        CleanerConfig(dedupe_buffer_size=1_000_000),
        now_ms=manager.now_ms,
        now_ns=time.monotonic_ns,
        warn=lambda message: None,
    )
    manager.cleaner = cleaner
    while cleaner.step() == 0:
        pass
    records = written.records["compacted"]
    log = manager.current_logs[TopicPartition("compacted", 0)]
    left = {record.offset for segment in log.segments for batch in segment.log.batches() for record in batch.records()}
    assert left < set(records)
    last = {key: offset for offset, (key, _) in sorted(records.items())}
    assert set(last.values()) < left
    written.records["compacted"] = {offset: pair for offset, pair in records.items() if offset in left}


def _move(manager: LogManager, source: UnifiedLog, epoch: int) -> UnifiedLog:
    """Return the log in the other directory, as after a move."""
    key = TopicPartition(source.topic, source.partition)
    (other,) = [path for path in manager.dirs.live if path != source.parent_dir]
    manager.prefer_log_dir(key, other)
    future = manager.get_or_create_log(key, is_future=True, topic_id=source.topic_id)
    for segment in source.segments:
        future.append_as_follower(segment.log.file.read(0, segment.size), epoch)
    manager.replace_current_with_future_log(key)
    return future


@pytest.fixture(scope="module")
def written(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Provide topics of a real broker that was started several times, filled by kops."""
    work = tmp_path_factory.mktemp("written")
    log_dirs = [work / "disks" / "disk1", work / "disks" / "disk2"]
    broker = RealBroker(oracle, work / "run", log_dirs=log_dirs, settings=SETTINGS)
    with broker:
        for topic, config in TOPICS.items():
            oracle.create_topic(broker.bootstrap, topic, config=config)
    for _ in range(2):
        with broker:  # every start is a new leader epoch
            pass
    answer = Written(work / "disks", work / "killed")
    manager, image = _open(log_dirs)
    assert [start.had_clean_shutdown for start in manager.log_dirs] == [True, True]
    _fill(manager, image, answer)
    shutil.copytree(work / "disks", answer.killed)
    assert manager.shutdown(broker_epoch=1) == []
    yield answer


def _serves_everything(oracle: Oracle, work: Path, disks: Path, written: Written) -> str:
    """Start the broker on the directories, read every topic, and return the broker's output."""
    log_dirs = [disks / "disk1", disks / "disk2"]
    broker = RealBroker(oracle, work / "run", log_dirs=log_dirs, settings=SETTINGS)
    broker.command = java_command(oracle.version, log_level="warn", loggers={**LOGGERS, **TALKATIVE})
    with broker:
        for topic, records in written.records.items():
            begin, end = written.begins[topic], written.ends[topic]
            expected = {offset: pair for offset, pair in records.items() if offset >= begin}
            for isolation, hidden in (("read_uncommitted", set()), ("read_committed", written.aborted[topic])):
                seen = oracle.read_records(broker.bootstrap, topic, 0, isolation=isolation)
                got = {row["offset"]: (row["key"], row["value"]) for row in seen.records}
                assert seen.meta["error"] is None
                assert (seen.meta["beginningOffset"], seen.meta["endOffset"]) == (begin, end), topic
                assert got == {offset: pair for offset, pair in expected.items() if offset not in hidden}, (topic, isolation)
    return broker.output()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_a_clean_stop_nothing_is_recovered(oracle: Oracle, written: Written, tmp_path: Path) -> None:
    shutil.copytree(written.clean, tmp_path / "disks")
    said = _serves_everything(oracle, tmp_path, tmp_path / "disks", written)
    assert said.count("Skipping recovery of") == 2
    assert not RECOVERING.search(said), said
    manager, _ = _open([tmp_path / "disks" / "disk1", tmp_path / "disks" / "disk2"])
    assert [start.had_clean_shutdown for start in manager.log_dirs] == [True, True]
    for topic, end in written.ends.items():
        assert manager.current_logs[TopicPartition(topic, 0)].log_end_offset == end
    assert manager.shutdown() == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_a_kill_everything_is_recovered(oracle: Oracle, written: Written, tmp_path: Path) -> None:
    shutil.copytree(written.killed, tmp_path / "disks")
    said = _serves_everything(oracle, tmp_path, tmp_path / "disks", written)
    assert "Skipping recovery of" not in said
    assert RECOVERING.search(said)
