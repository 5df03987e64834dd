"""Logs of random shapes, written by Kafka's own UnifiedLog: leaders and followers, transactions, compaction, deleted beginnings."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kops.records import BatchBuilder
from kops.records.build import end_txn_marker
from tests.support.kafka.oracle import Oracle

LOG = "org.apache.kafka.storage.internals.log"
RECORDS = "org.apache.kafka.common.record.internal.MemoryRecords"
START_MS = 1_700_000_000_000
BASE = {
    "max.message.bytes": 10_000_000,
    "retention.ms": -1,
    "retention.bytes": -1,
    "message.timestamp.before.max.ms": 2**63 - 1,
    "message.timestamp.after.max.ms": 2**63 - 1,
    "file.delete.delay.ms": 0,
    "segment.index.bytes": 4096,
}


@dataclass
class Shape:
    """The kind of a log, drawn from a generator."""

    rng: random.Random
    config: dict[str, object] = field(default_factory=dict)
    follower: bool = False
    transactions: bool = False
    idempotent: bool = False
    deletes: bool = False
    compacts: bool = False

    @classmethod
    def draw(cls, rng: random.Random) -> Shape:
        shape = cls(rng, dict(BASE))
        shape.config["internal.segment.bytes"] = rng.choice([1500, 4000, 9000, 40_000])
        shape.config["index.interval.bytes"] = rng.choice([0, 1, 90, 512, 4096])
        if rng.random() < 0.15:
            shape.config["message.timestamp.type"] = "LogAppendTime"
        shape.follower, shape.transactions = rng.random() < 0.25, rng.random() < 0.4
        shape.idempotent, shape.deletes, shape.compacts = rng.random() < 0.4, rng.random() < 0.3, rng.random() < 0.25
        if shape.compacts:
            shape.config |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}
        return shape


class RealLog:
    """An open UnifiedLog in `directory`, which must be named like a partition. `cleaned_to` is the cleaner's checkpoint."""

    def __init__(self, oracle: Oracle, directory: Path, shape: Shape, log_start_offset: int = 0) -> None:
        self.oracle = oracle
        self.directory = directory
        self.shape = shape
        self.rng = shape.rng
        self.cleaned_to: int | None = None
        self.clock = START_MS
        self.epoch = 0
        self.producers: dict[int, tuple[int, int]] = {}
        self.open: set[int] = set()
        self.waiting: list[bytes] = []
        self.next_offset = log_start_offset
        directory.mkdir(parents=True)
        self.log = oracle.java_class(f"{LOG}.UnifiedLog").create(
            oracle.jvm.java.io.File(str(directory)),
            oracle.java_class(f"{LOG}.LogConfig")({name: str(value) for name, value in shape.config.items()}),
            log_start_offset,
            0,
            oracle.shared("org.apache.kafka.server.util.KafkaScheduler", 1),
            oracle.shared("org.apache.kafka.storage.log.metrics.BrokerTopicStats"),
            oracle.java_class("org.apache.kafka.common.utils.Time").SYSTEM,
            300_000,
            oracle.java_class(f"{LOG}.ProducerStateManagerConfig")(2**31 - 1, False),
            600_000,
            oracle.java_class(f"{LOG}.LogDirFailureChannel")(4),
            False,
            oracle.java_class("java.util.Optional").empty(),
        )

    @property
    def end_offset(self) -> int:
        return int(self.log.logEndOffset())

    @property
    def start_offset(self) -> int:
        return int(self.log.logStartOffset())

    @property
    def base_offset(self) -> int:
        """The base offset of the next batch. That of a producer is 0; that of a leader is its place in the log."""
        return self.next_offset if self.shape.follower else 0

    def append(self, data: bytes, count: int, *, marker: bool = False) -> None:
        """Append a batch as a leader does. A follower appends several at once."""
        self.next_offset += count
        if self.shape.follower:
            self.waiting.append(data)
            if self.rng.random() < 0.4 or sum(map(len, self.waiting)) > 600:
                self.settle()
            return
        origin = getattr(self.oracle.java_class(f"{LOG}.AppendOrigin"), "COORDINATOR" if marker else "CLIENT")
        caching = self.oracle.java_class("org.apache.kafka.server.common.RequestLocal").noCaching()
        guard = self.oracle.java_class(f"{LOG}.VerificationGuard").SENTINEL
        self.log.appendAsLeader(self.records(data), self.epoch, origin, caching, guard, self.oracle.short(1))

    def settle(self) -> None:
        """Append the batches that wait."""
        if self.waiting:
            self.log.appendAsFollower(self.records(b"".join(self.waiting)), self.epoch)
            self.waiting.clear()

    def records(self, data: bytes) -> Any:
        return self.oracle.java_class(RECORDS).readableRecords(self.oracle.java_class("java.nio.ByteBuffer").wrap(data))

    def step(self) -> None:
        """Let one random thing happen to the log."""
        rng, shape = self.rng, self.shape
        self.clock += rng.choice([0, 1, 10, -500, 60_000])
        draw = rng.random()
        if draw < 0.06:
            self.settle()
            self.epoch += rng.choice([1, 1, 4])
        elif draw < 0.10:
            self.settle()
            self.log.roll()
        elif draw < 0.14 and shape.compacts:
            self.settle()
            self.clean()
        elif draw < 0.19 and shape.deletes:
            self.settle()
            self.delete_records(rng.randint(self.start_offset, self.end_offset))
        self.produce()

    def produce(self) -> None:
        rng, shape = self.rng, self.shape
        draw = rng.random()
        fields: dict[str, Any] = {"partition_leader_epoch": self.epoch, "base_offset": self.base_offset}
        count = rng.choice([1, 1, 2, 5, 20] if shape.config["internal.segment.bytes"] > 8000 else [1, 1, 2])  # type: ignore[operator]
        producer = -1
        if shape.transactions and draw < 0.4:
            producer = rng.choice([100, 101, 102, 2**50])
            if producer in self.open and rng.random() < 0.45:
                self.end_transaction(producer)
                return
            fields["transactional"] = True
            self.open.add(producer)
        elif shape.idempotent and draw < 0.7:
            producer = rng.choice([0, 1, 2, 77_777])
        if producer >= 0:
            epoch, sequence = self.producers.get(producer, (rng.choice([0, 5]), 0))
            fields |= {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
            self.producers[producer] = (epoch, sequence + count)
        builder = BatchBuilder(codec=rng.choice(["none", "none", "gzip", "snappy", "lz4", "zstd"]), **fields)
        for number in range(count):
            key = rng.choice([b"k%d" % rng.randrange(12), b"\xff\x00bin"])
            value = rng.choice([None, b"", b"value " * rng.randrange(1, 12), rng.randbytes(rng.choice([3, 20, 100]))])
            builder.append(self.clock + rng.choice([0, number]), key, value, [("h", None)] if rng.random() < 0.2 else [])
        self.append(builder.build(), count)

    def end_transaction(self, producer: int) -> None:
        self.open.discard(producer)
        marker = end_txn_marker(
            self.base_offset,
            self.clock,
            commit=self.rng.random() < 0.6,
            coordinator_epoch=1,
            producer_id=producer,
            producer_epoch=self.producers[producer][0],
            partition_leader_epoch=self.epoch,
        )
        self.append(marker, 1, marker=True)

    def delete_records(self, offset: int) -> None:
        self.log.updateHighWatermark(self.end_offset)
        reason = self.oracle.java_class(f"{LOG}.LogStartOffsetIncrementReason").ClientRecordDeletion
        self.log.maybeIncrementLogStartOffset(offset, reason)
        self.log.deleteOldSegments()

    def clean(self) -> None:
        """Compact it with Kafka's Cleaner."""
        self.log.updateHighWatermark(self.end_offset)
        first, upto = self.start_offset, self.log.activeSegment().baseOffset()
        if upto <= first:
            return
        clock = self.oracle.java_class("org.apache.kafka.common.utils.Time").SYSTEM
        offsets = self.oracle.java_class(f"{LOG}.SkimpyOffsetMap")(1 << 20)
        throttler = self.oracle.java_class("org.apache.kafka.storage.internals.utils.Throttler")(1e15, 300, "bytes", "bytes", clock)
        done = self.oracle.jvm.java.util.stream.Stream.builder()  # a Consumer without effect
        cleaner = self.oracle.java_class(f"{LOG}.Cleaner")(0, offsets, 1 << 16, 1 << 20, 0.75, throttler, clock, done)
        self.cleaned_to = int(cleaner.clean(self.oracle.java_class(f"{LOG}.LogToClean")(self.log, first, upto, False)).getKey())

    def close(self) -> None:
        """Stop cleanly. The log directory around it gets the files that record this."""
        self.settle()
        topic, _, partition = self.directory.name.rpartition("-")
        end, start = self.end_offset, self.start_offset
        self.log.close()
        self.oracle.settle()
        values = {"recovery-point": end, "replication": end, "log-start": start if start else None, "cleaner": self.cleaned_to}
        for name, value in values.items():
            text = "0\n0\n" if value is None else f"0\n1\n{topic} {partition} {value}\n"
            (self.directory.parent / f"{name}-offset-checkpoint").write_text(text)
        ids = "cluster.id=MkU3OEVBNTcwNTJENDM2Qk\nversion=1\ndirectory.id=Ql7nEzjDSGyTHZKU6a9-RA\nnode.id=1\n"
        (self.directory.parent / "meta.properties").write_text(ids)
        (self.directory.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
        (self.directory / "partition.metadata").write_text("version: 0\ntopic_id: 015ff02115924efb84e8bw")


def write_log(oracle: Oracle, directory: Path, seed: int) -> RealLog:
    """Write and close a log of 20 to 80 steps. The same seed gives the same bytes, except for times that Kafka itself takes."""
    rng = random.Random(f"real log {seed}")
    log = RealLog(oracle, directory, Shape.draw(rng), rng.choice([0, 0, 7, 2**31 - 100, 2**40]))
    for _ in range(rng.choice([20, 40, 80])):
        log.step()
    log.close()
    return log
