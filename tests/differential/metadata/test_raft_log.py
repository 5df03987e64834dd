"""The metadata log compared with Kafka's KafkaRaftLog: the same steps on two directories give the same answers and the same files, byte for
byte.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.broker.quorum.raft_log import METADATA_DIR, METADATA_TOPIC_ID, KafkaRaftLog, MetadataLogSettings
from kops.errors import KopsError
from kops.files import OsFiles
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.voters.replica import OffsetAndEpoch
from kops.records import BatchBuilder
from kops.storage.scheduler import Scheduler
from tests.simulation.raft.raft_log import MemoryLog, MemorySnapshot
from tests.support import corpus
from tests.support.kafka.manual_jvm import ManualClock, ManualScheduler
from tests.support.kafka.oracle import Oracle

RAFT = "org.apache.kafka.raft"
NOW_MS = 1_700_000_000_000
SETTINGS = MetadataLogSettings(internal_segment_bytes=1_000, segment_ms=300_000, max_retention_bytes=6_000, max_retention_ms=400_000)
KEYS = {
    "metadata.log.segment.ms": SETTINGS.segment_ms,
    "metadata.max.retention.bytes": SETTINGS.max_retention_bytes,
    "metadata.max.retention.ms": SETTINGS.max_retention_ms,
}
REFUSED = "refused"


class Real:
    """Kafka's own log, on `root`."""

    def __init__(self, oracle: Oracle, root: Path, *, segment_bytes: int | None = SETTINGS.internal_segment_bytes) -> None:
        self.oracle = oracle
        self.directory = root / METADATA_DIR
        self.clock = ManualClock(oracle, NOW_MS)
        self.tasks = ManualScheduler(oracle, self.clock)
        keys: dict[str, object] = {name: str(value) for name, value in KEYS.items()}
        if segment_bytes is not None:
            keys["internal.metadata.log.segment.bytes"] = str(segment_bytes)
        config = oracle.java_class(f"{RAFT}.MetadataLogConfig")
        values = oracle.java_class("org.apache.kafka.common.config.AbstractConfig")(config.CONFIG_DEF, keys, False)
        self.config = config(values)
        self.log: Any = None

    def open(self) -> None:
        oracle = self.oracle
        self.directory.mkdir(parents=True, exist_ok=True)
        self.tasks.clear()
        self.log = oracle.java_class(f"{RAFT}.internals.KafkaRaftLog").createLog(
            oracle.java_class("org.apache.kafka.common.TopicPartition")("__cluster_metadata", 0),
            oracle.java_class("org.apache.kafka.common.Uuid").fromString(METADATA_TOPIC_ID),
            oracle.jvm.java.io.File(str(self.directory)),
            self.clock.time,
            self.tasks.scheduler,
            self.config,
            1,
        )

    def pass_time(self, now_ms: int) -> None:
        self.tasks.collect()
        self.clock.now_ms = now_ms
        self.tasks.run_due()

    def _buffer(self, data: bytes) -> Any:
        return self.oracle.jvm.java.nio.ByteBuffer.wrap(data)

    def _records(self, data: bytes) -> Any:
        return self.oracle.java_class("org.apache.kafka.common.record.internal.MemoryRecords").readableRecords(self._buffer(data))

    def _id(self, snapshot_id: OffsetAndEpoch) -> Any:
        return self.oracle.java_class("org.apache.kafka.server.common.OffsetAndEpoch")(snapshot_id.offset, snapshot_id.epoch)

    def append(self, data: bytes, epoch: int, leads: bool) -> None:
        (self.log.appendAsLeader if leads else self.log.appendAsFollower)(self._records(data), epoch)

    def flush(self) -> None:
        self.log.flush(False)

    def truncate_to(self, offset: int) -> None:
        self.log.truncateTo(offset)

    def truncate_to_latest_snapshot(self) -> bool:
        return bool(self.log.truncateToLatestSnapshot())

    def initialize_leader_epoch(self, epoch: int) -> None:
        self.log.initializeLeaderEpoch(epoch)

    def update_high_watermark(self, offset: int) -> None:
        self.log.updateHighWatermark(self.oracle.java_class(f"{RAFT}.LogOffsetMetadata")(offset))

    def snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes, checked: bool) -> bool:
        begin = self.log.createNewSnapshot if checked else self.log.createNewSnapshotUnchecked
        found = begin(self._id(snapshot_id))
        if not found.isPresent():
            return False
        writer = found.get()
        records = self.oracle.java_class("org.apache.kafka.common.record.internal.UnalignedMemoryRecords")
        for piece in (data[:100], data[100:]):
            writer.append(records(self._buffer(piece)))
        writer.freeze()
        return True

    def maybe_clean(self) -> bool:
        return bool(self.log.maybeClean())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._pair(self.log.endOffsetForEpoch(epoch))

    def read_size(self, offset: int, max_size: int, committed: bool) -> int:
        isolation = self.oracle.java_class(f"{RAFT}.Isolation")
        wanted = isolation.COMMITTED if committed else isolation.UNCOMMITTED
        return int(get_field(self.log.read(offset, wanted, max_size), "records").sizeInBytes())

    def state(self) -> dict[str, object]:
        log = self.log
        latest, earliest = log.latestSnapshotId(), log.earliestSnapshotId()
        return {
            "start": log.startOffset(),
            "end": log.endOffset().offset(),
            "high watermark": log.highWatermark().offset(),
            "latest": self._pair(latest.get()) if latest.isPresent() else None,
            "earliest": self._pair(earliest.get()) if earliest.isPresent() else None,
            "epoch": outcome(log.lastFetchedEpoch),
        }

    def _pair(self, found: Any) -> tuple[int, int]:
        return found.offset(), found.epoch()

    def close(self) -> None:
        self.tasks.run_due()
        self.log.flush(True)
        self.log.close()


class Ours:
    """The log of kops, with the same methods."""

    def __init__(self, root: Path, settings: MetadataLogSettings = SETTINGS) -> None:
        self.root = root
        self.directory = root / METADATA_DIR
        self.settings = settings
        self.now_ms = NOW_MS
        self.log: KafkaRaftLog

    def open(self) -> None:
        self.root.mkdir(exist_ok=True)
        self.tasks = Scheduler(lambda: self.now_ms)
        self.log = KafkaRaftLog.open(OsFiles(), str(self.root), self.settings, now_ms=lambda: self.now_ms, scheduler=self.tasks)

    def pass_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.tasks.run_due()

    def append(self, data: bytes, epoch: int, leads: bool) -> None:
        (self.log.append_as_leader if leads else self.log.append_as_follower)(data, epoch)

    def flush(self) -> None:
        self.log.flush()

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)

    def truncate_to_latest_snapshot(self) -> bool:
        return self.log.truncate_to_latest_snapshot()

    def initialize_leader_epoch(self, epoch: int) -> None:
        self.log.initialize_leader_epoch(epoch)

    def update_high_watermark(self, offset: int) -> None:
        self.log.update_high_watermark(offset)

    def snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes, checked: bool) -> bool:
        sink = (self.log.create_new_snapshot if checked else self.log.create_snapshot)(snapshot_id)
        if sink is None:
            return False
        for piece in (data[:100], data[100:]):
            sink.append(piece)
        sink.freeze()
        return True

    def maybe_clean(self) -> bool:
        return self.log.maybe_clean(self.now_ms)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        end = self.log.end_offset_for_epoch(epoch)
        return end.offset, end.epoch

    def read_size(self, offset: int, max_size: int, committed: bool) -> int:
        return len(self.log.read(offset, max_size, committed=committed))

    def state(self) -> dict[str, object]:
        log = self.log
        latest, earliest = log.latest_snapshot_id, log.earliest_snapshot_id
        return {
            "start": log.start_offset,
            "end": log.end_offset,
            "high watermark": log.high_watermark,
            "latest": latest and (latest.offset, latest.epoch),
            "earliest": earliest and (earliest.offset, earliest.epoch),
            "epoch": outcome(lambda: log.last_fetched_epoch),
        }

    def close(self) -> None:
        self.tasks.run_due()
        self.log.close()


def outcome(step: Callable[[], Any]) -> Any:
    """Return what a step gives, or that it is rejected."""
    try:
        return step()
    except (KopsError, Py4JJavaError):
        return REFUSED


def files(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return each file's permission bits (only of snapshots, which alone promise them) and bytes."""
    return {
        path.name: (path.stat().st_mode & 0o777 if path.suffix == ".checkpoint" else 0, path.read_bytes())
        for path in sorted(directory.iterdir())
    }


def snapshot_data(snapshot_id: OffsetAndEpoch, time_ms: int, size: int) -> bytes:
    """Return a snapshot's bytes."""
    sink = MemorySnapshot(MemoryLog(), snapshot_id)
    writer = SnapshotWriter(sink, time_ms, 0, None, time_ms)
    writer.append([bytes(size)], time_ms)
    writer.freeze(time_ms)
    return sink.data


class Twins:
    """A random life of both."""

    def __init__(self, real: Real, ours: Ours, seed: int) -> None:
        self.real, self.ours = real, ours
        self.rng = random.Random(seed)
        self.now_ms = NOW_MS
        self.epoch = 1
        self.done: list[str] = []
        self.counts: dict[str, int] = {}

    def both(self, name: str, *arguments: Any) -> Any:
        """Run a step of both. Its outcome and the state after it must be the same."""
        self.done.append(f"{name}{tuple(each if not isinstance(each, bytes) else len(each) for each in arguments)}")
        theirs = outcome(lambda: getattr(self.real, name)(*arguments))
        mine = outcome(lambda: getattr(self.ours, name)(*arguments))
        assert mine == theirs, (self.done[-10:], mine, theirs)
        if name in ("end_offset_for_epoch", "read_size"):
            self.done.pop()
        key = f"{name} {mine}" if mine is True or mine == REFUSED else name
        self.counts[key] = self.counts.get(key, 0) + 1
        return mine

    def batches(self, count: int) -> bytes:
        """Return batches from the end of the log on, of this epoch and later ones."""
        offset, epoch, data = self.ours.log.end_offset, self.epoch, b""
        for _ in range(count):
            values = self.rng.randrange(1, 4)
            builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
            for _ in range(values):
                builder.append(self.now_ms, None, bytes(self.rng.randrange(150)))
            data += builder.build()
            offset += values
            epoch += self.rng.random() < 0.1
        return data

    def step(self) -> None:
        """Run a random step."""
        rng, log = self.rng, self.ours.log
        kind = rng.choices(range(10), weights=(30, 12, 8, 6, 6, 8, 10, 6, 6, 3))[0]
        if kind == 0:
            self.both("append", self.batches(1), self.epoch, True)
        elif kind == 1:
            data = self.batches(rng.randrange(1, 4))
            cut = rng.randrange(len(data)) if rng.random() < 0.2 else len(data)
            self.both("append", data[:cut], self.epoch, False)
        elif kind == 2:
            self.both("update_high_watermark", rng.randrange(log.high_watermark, log.end_offset + 1))
        elif kind == 3:
            self.both("truncate_to", rng.randrange(max(0, log.high_watermark - 2), log.end_offset + 3))
        elif kind == 4:
            self.epoch += rng.randrange(1, 3)
            self.both("initialize_leader_epoch", self.epoch)
        elif kind == 5:
            self.now_ms += rng.choice((10, 61_000, 200_000))
            for each in (self.real, self.ours):
                each.pass_time(self.now_ms)
        elif kind == 6:
            beyond = rng.random() < 0.15
            offset = log.end_offset + rng.randrange(1, 20) if beyond else rng.randrange(log.high_watermark + 1)
            epoch = self.epoch if beyond else self.ours.log.unified.epochs.epoch_for_offset(max(offset - 1, 0)) or 0
            snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
            data = snapshot_data(snapshot_id, self.now_ms - rng.randrange(100_000), rng.randrange(900))
            self.both("snapshot", snapshot_id, data, not beyond)
        elif kind == 7:
            self.both("maybe_clean")
        elif kind == 8:
            self.both("truncate_to_latest_snapshot")
        else:
            if rng.random() < 0.7:
                self.both("close")
            else:
                self.both("flush")
            self.both("open")

    def compare(self) -> None:
        """Compare state, look-ups and files."""
        assert self.ours.state() == self.real.state(), self.done[-10:]
        for epoch in range(self.epoch + 2):
            self.both("end_offset_for_epoch", epoch)
        for _ in range(3):
            end = self.ours.log.end_offset
            self.both("read_size", self.rng.randrange(end + 1), self.rng.choice((1, 500, 5_000)), self.rng.random() < 0.5)


def live(oracle: Oracle, root: Path, seed: int, steps: int) -> Twins:
    """Run this many steps of both, and compare everything after each. Files are compared only when the scheduled tasks have run."""
    twins = Twins(Real(oracle, root / "real"), Ours(root / "ours"), seed)
    twins.both("open")
    for _ in range(steps):
        twins.step()
        twins.compare()
    twins.both("close")
    assert files(twins.ours.directory) == files(twins.real.directory), (seed, twins.done[-10:])
    return twins


def test_random_lives(oracle: Oracle, tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    for seed in range(4):
        for name, count in live(oracle, tmp_path / str(seed), seed, 60).counts.items():
            counts[name] = counts.get(name, 0) + count
    for name in ("maybe_clean True", "truncate_to_latest_snapshot True", "snapshot True", "truncate_to refused", "append refused", "open"):
        assert counts.get(name, 0) > 0, (name, counts)


@pytest.mark.slow
def test_many_random_lives(oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(100, 115):
        live(oracle, tmp_path / str(seed), seed, 100)


@pytest.mark.parametrize("case_id", ["cluster-3.9.1", "cluster-4.3.0"])
def test_what_clusters_left(oracle: Oracle, tmp_path: Path, case_id: str) -> None:
    """Both open and close metadata logs of real clusters with the same state and the same files."""
    case = corpus.load(case_id)
    found = [path for path in (case.root / "nodes").rglob(METADATA_DIR) if path.is_dir()]
    assert found
    for number, directory in enumerate(found):
        real = Real(oracle, tmp_path / f"real-{number}", segment_bytes=None)
        ours = Ours(tmp_path / f"ours-{number}", MetadataLogSettings())
        for each in (real, ours):
            shutil.copytree(directory, each.directory, copy_function=corpus.copy_writable)
            each.open()
        assert ours.state() == real.state()
        real.close()
        ours.close()
        assert files(ours.directory) == files(real.directory)
