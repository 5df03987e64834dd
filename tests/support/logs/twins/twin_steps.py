"""A random life of a twin of logs, drawn from a seed: appends, rolls, truncations, retention, markers, flushes, kills, opens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kops.records import BatchBuilder
from tests.support.logs.twins.twin_logs import NAME, Refused, Twin

START_MS = 1_700_000_000_000
CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")
PRODUCERS = (7, 23, 39, 1001)
INT_MAX = 2**31 - 1


@dataclass
class Producer:
    """A client's own state: its epoch, its next sequence, whether it has an open transaction here, and its last batches."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    supports_epoch_bump: bool = False


class Life:
    """Steps on a twin, drawn from a seed. The twin compares the result of every step."""

    def __init__(self, twin: Twin, seed: int) -> None:
        self.twin = twin
        self.random = random.Random(seed)
        self.settings = self._some_settings()
        self.codecs = CODECS if self.random.random() < 0.5 else CODECS[:1]
        self.clean_offset = 0
        self.leader_epoch = 0
        self.coordinator_epoch = 3
        self.producers = {producer_id: Producer(producer_id) for producer_id in PRODUCERS}
        self.sent: list[tuple[bytes, str, int | None, int]] = []
        self.guard_count = 0
        self.is_over = False
        self.log_start_offset = self.recovery_point = 0
        twin.history.append(f"seed {seed}: {self.settings}")
        twin.real.directory.mkdir()
        twin.kops.directory.mkdir()
        self._open(clean=False)

    def _some_settings(self) -> dict[str, str]:
        pick = self.random.choice
        settings = {
            "internal.segment.bytes": str(pick((300, 700, 1500, 4000))),
            "index.interval.bytes": str(pick((0, 1, 100, 300, 4096))),
            "segment.index.bytes": str(pick((24, 80, 120, 500, 1000))),
            "segment.ms": str(pick((1000, 60_000, 604_800_000))),
            "retention.ms": str(pick((5_000, 100_000, -1))),
            "retention.bytes": str(pick((-1, -1, 500, 3000))),
            "file.delete.delay.ms": str(pick((0, 1000, 60_000))),
            "flush.messages": str(pick((1, 20, 2**63 - 1))),
            "max.message.bytes": str(pick((250, 1_000_000, 1_000_000))),
            "cleanup.policy": pick(("delete", "delete", "compact", "compact,delete")),
            "message.timestamp.type": pick(("CreateTime", "CreateTime", "LogAppendTime")),
            "compression.type": pick(("producer", "producer", "uncompressed")),
            "preallocate": pick(("false", "false", "false", "true")),
        }
        if self.random.random() < 0.3:
            settings["message.timestamp.after.max.ms"] = "1000"
            settings["message.timestamp.before.max.ms"] = "5000"
        return settings

    def run(self, count: int) -> None:
        """Run the steps. If a log cannot be opened again, both refuse it, and the steps end there."""
        steps: list[tuple[int, Callable[[], object]]] = [
            (14, self.append_plain),
            (12, self.append_idempotent),
            (10, self.append_transactional),
            (7, self.append_marker),
            (5, self.append_again),
            (8, self.append_follower),
            (2, self.append_legacy),
            (2, self.append_garbage),
            (1, self.append_as_raft_leader),
            (8, self.move_high_watermark),
            (6, self.read),
            (4, self.look_up),
            (3, lambda: self.twin.do("roll", None)),
            (1, self.roll_expected),
            (4, lambda: self.twin.do("flush", self.random.random() < 0.3)),
            (1, lambda: self.twin.do("flush_up_to", min(self.some_offset(), self.log_end))),
            (3, self.truncate),
            (1, self.truncate_fully),
            (3, lambda: self.twin.do("delete_records", self.some_offset())),
            (3, lambda: self.twin.do("delete_old_segments")),
            (3, self.clean),
            (7, lambda: self.twin.do("run_tasks")),
            (7, lambda: self.twin.advance(self.random.choice((1, 10, 500, 5_000, 70_000, 700_000)))),
            (1, lambda: self.twin.do("take_snapshot")),
            (1, self.configure),
            (2, self.new_epoch),
            (2, self.checkpoint),
            (1, self.rename),
            (2, self.restart),
            (2, self.die),
        ]
        weights = [weight for weight, _ in steps]
        for _ in range(count):
            if self.is_over:
                return
            self.random.choices(steps, weights)[0][1]()

    # random values ----------------------------------------------------------------------------------------------------------------

    @property
    def log_end(self) -> int:
        return self.twin.kops.log.log_end_offset

    def some_offset(self) -> int:
        """Return an offset that is mostly within the log, often at a border."""
        log = self.twin.kops.log
        borders = [log.log_start_offset, log.log_end_offset, log.high_watermark, *log.segments.base_offsets]
        if self.random.random() < 0.5:
            return max(0, self.random.choice(borders) + self.random.choice((-1, 0, 0, 0, 1)))
        return self.random.randint(max(0, log.log_start_offset - 2), log.log_end_offset + 2)

    def some_time(self) -> int:
        drawn = self.random.random()
        now = self.twin.now_ms
        if drawn < 0.06:
            return now + self.random.choice((2_000, 3_500_000, 4_000_000))
        return now - self.random.choice((0, 0, 1, 5, 300, 6_000, 100_000))

    def batch(self, count: int | None = None, **settings: Any) -> bytes:
        builder = BatchBuilder(codec=self.random.choice(self.codecs), **settings)
        for _ in range(count or self.random.choice((1, 1, 2, 3, 7))):
            key = self.random.choice((b"a", b"b", b"key", b"key", None if self.random.random() < 0.3 else b"c"))
            builder.append(self.some_time(), key, bytes(self.random.choices(b"xyz", k=self.random.choice((0, 5, 40, 120)))))
        return builder.build()

    # appends ----------------------------------------------------------------------------------------------------------------------

    def append_plain(self) -> None:
        self.leader(self.batch(), "CLIENT")

    def leader(self, data: bytes, origin: str, guard: int | None = None, transaction_version: int = -1) -> object:
        done = self.twin.do("append_leader", data, self.leader_epoch, origin, guard, transaction_version)
        if not isinstance(done, Refused):
            self.sent = [*self.sent[-11:], (data, origin, guard, transaction_version)]
        return done

    def some_producer(self) -> Producer:
        return self.producers[self.random.choice(PRODUCERS)]

    def sequenced(self, producer: Producer, *, transactional: bool) -> tuple[bytes, int]:
        """Return a batch of a producer, and the sequence after it. The batch mostly has the sequence that is due, rarely another one."""
        drawn, sequence = self.random.random(), producer.sequence
        if drawn < 0.05:
            sequence += self.random.choice((1, 5))
        elif drawn < 0.08:
            sequence = INT_MAX - self.random.choice((0, 1, 3))
        count = self.random.choice((1, 2, 5))
        epoch = max(0, producer.epoch - (self.random.random() < 0.04))
        data = self.batch(
            count, producer_id=producer.producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        return data, (sequence + count) % (INT_MAX + 1)

    def append_idempotent(self) -> None:
        producer = self.some_producer()
        if self.random.random() < 0.1:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        data, following = self.sequenced(producer, transactional=False)
        if not isinstance(self.leader(data, "CLIENT"), Refused):
            producer.sequence = following

    def append_transactional(self) -> None:
        producer = self.some_producer()
        guard = None
        if not producer.is_open:
            producer.supports_epoch_bump = self.random.random() < 0.5
            if self.random.random() < 0.9:
                guard = self.verification(producer)
        elif self.random.random() < 0.1:
            guard = self.verification(producer)
        if guard is not None and self.guard_count > 1 and self.random.random() < 0.1:
            guard = self.random.randrange(self.guard_count)
        data, following = self.sequenced(producer, transactional=True)
        if not isinstance(self.leader(data, "CLIENT", guard), Refused):
            producer.sequence, producer.is_open = following, True

    def verification(self, producer: Producer) -> int | None:
        done = self.twin.do("start_verification", producer.producer_id, producer.sequence, producer.epoch, producer.supports_epoch_bump)
        if isinstance(done, Refused):
            return None
        self.guard_count += 1
        return self.guard_count - 1

    def append_marker(self) -> None:
        producer = self.some_producer()
        version = 2 if producer.supports_epoch_bump else 1
        epoch = producer.epoch + (version == 2)
        drawn = self.random.random()
        if drawn < 0.06:
            epoch = max(0, epoch - 1)
        elif drawn < 0.12:
            self.coordinator_epoch += self.random.choice((-1, 1))
        elif drawn < 0.14:
            version = -1
        builder = BatchBuilder(producer_id=producer.producer_id, producer_epoch=epoch, transactional=True, control=True)
        builder.append_end_txn_marker(self.twin.now_ms, self.random.random() < 0.5, self.coordinator_epoch)
        origin = "CLIENT" if self.random.random() < 0.03 else "COORDINATOR"
        if not isinstance(self.leader(builder.build(), origin, None, version), Refused):
            producer.is_open = False
            if epoch > producer.epoch:
                producer.epoch, producer.sequence = epoch, 0

    def append_again(self) -> None:
        """Append a batch that was sent before: a retry, or a duplicate that is too old."""
        if self.sent:
            data, origin, _, version = self.random.choice(self.sent)
            self.leader(data, origin, None, version)

    def append_follower(self) -> None:
        """Append batches with offsets, as fetched: mostly from the log's end on, with gaps, several epochs, or a cut tail."""
        offset, epoch = self.log_end, self.leader_epoch
        if self.random.random() < 0.1:
            offset = max(0, offset + self.random.choice((-3, -1, 5, 100)))
        parts = []
        for _ in range(self.random.choice((1, 1, 2, 4))):
            count = self.random.choice((1, 2, 4))
            settings: dict[str, Any] = {"base_offset": offset, "partition_leader_epoch": epoch}
            if self.random.random() < 0.4:
                producer = self.some_producer()
                settings |= {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.epoch,
                    "base_sequence": producer.sequence,
                    "transactional": producer.is_open,
                }
                producer.sequence = (producer.sequence + count) % (INT_MAX + 1)
            parts.append(self.batch(count, **settings))
            offset += count + self.random.choice((0, 0, 0, 3))
            if self.random.random() < 0.1:
                epoch += 1
        data = b"".join(parts)
        if self.random.random() < 0.1:
            data = data[: -self.random.randint(1, 60)]
        done = self.twin.do("append_follower", data, epoch if self.random.random() < 0.9 else self.leader_epoch)
        if not isinstance(done, Refused):
            self.leader_epoch = max(self.leader_epoch, epoch)

    def append_legacy(self) -> None:
        """Append messages of the formats 0 and 1.

        None is compressed, because a leader would compress them anew, and not to the bytes of Kafka's codecs.
        """
        as_leader = self.random.random() < 0.5
        builder = BatchBuilder(magic=self.random.choice((0, 1)), base_offset=0 if as_leader else self.log_end)
        for _ in range(self.random.choice((1, 2, 5))):
            builder.append(self.some_time(), self.random.choice((b"a", b"b", None)), b"legacy")
        if as_leader:
            self.leader(builder.build(), "CLIENT")
        else:
            self.twin.do("append_follower", builder.build(), self.leader_epoch)

    def append_garbage(self) -> None:
        data = bytearray(self.batch() + (self.batch() if self.random.random() < 0.3 else b""))
        for _ in range(self.random.choice((0, 1, 2))):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        if self.random.random() < 0.5:
            self.twin.do("append_leader", bytes(data), self.leader_epoch, "CLIENT", None, -1)
        else:
            self.twin.do("append_follower", bytes(data), self.leader_epoch)

    def append_as_raft_leader(self) -> None:
        offset = self.log_end + self.random.choice((0, 0, 0, 1, -1))
        self.leader(self.batch(base_offset=max(0, offset), partition_leader_epoch=self.leader_epoch), "RAFT_LEADER")

    # everything else --------------------------------------------------------------------------------------------------------------

    def move_high_watermark(self) -> None:
        name = self.random.choice(("update_high_watermark", "increment_high_watermark"))
        offset = self.log_end if self.random.random() < 0.5 else self.some_offset()
        self.twin.do(name, offset)

    def read(self) -> None:
        isolation = self.random.choice(("LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED"))
        self.twin.do("read", self.some_offset(), self.random.choice((0, 1, 80, 200, 1000, 100_000)), isolation, self.random.random() < 0.5)

    def look_up(self) -> None:
        drawn = self.random.random()
        if drawn < 0.4:
            self.twin.do("by_timestamp", self.random.choice((-1, -2, -3, self.some_time(), self.some_time() - 50_000)))
        elif drawn < 0.7:
            self.twin.do("end_of_epoch", max(0, self.leader_epoch + self.random.choice((-2, -1, 0, 1))))
        else:
            start = self.some_offset()
            self.twin.do("aborted", start, start + self.random.choice((0, 10, 1000)))

    def roll_expected(self) -> None:
        """Roll at an offset that may be beyond the log's end, as for a fetched batch after a gap. The batch then follows."""
        expected = self.log_end + self.random.choice((0, 0, 1, 50, -1))
        self.twin.do("roll", expected)
        if expected > self.log_end:
            data = self.batch(1, base_offset=expected, partition_leader_epoch=self.leader_epoch)
            self.twin.do("append_follower", data, self.leader_epoch)

    def truncate(self) -> None:
        offset = self.some_offset() if self.random.random() < 0.97 else -1
        self.clean_offset = min(self.clean_offset, max(offset, 0))
        self.twin.do("run_tasks")  # after a truncation, the flush of a roll would put Kafka's recovery point above the log's end
        self.twin.do("truncate_to", offset)

    def truncate_fully(self) -> None:
        offset = self.some_offset()
        self.clean_offset = 0
        self.twin.do("run_tasks")
        self.twin.do("truncate_fully", offset, self.random.choice((None, None, offset, max(0, offset - 3))))

    def clean(self) -> None:
        """Compact the log if no batch is compressed. Compressed batches would be compressed anew."""
        log = self.twin.kops.log
        first = max(self.clean_offset, log.log_start_offset)
        stable = log.segments.floor(log.last_stable_offset)
        end = log.segments.active.base_offset if stable is None else stable.base_offset
        if first < end and self.codecs == CODECS[:1]:
            done = self.twin.do("clean", first, end)
            if isinstance(done, int):
                self.clean_offset = done

    def rename(self) -> None:
        """Rename the directory to or from the name of a copy that moves to another log directory.

        All tasks run first, because Kafka does not write leader epochs that were cut if the directory is renamed before its scheduler runs.
        """
        self.twin.do("run_tasks")
        is_future = self.twin.kops.name != NAME
        self.twin.do("rename", NAME if is_future else f"{NAME}.{'0' * 32}-future")

    def configure(self) -> None:
        other = self._some_settings()
        for name in self.random.sample(list(other), 3):
            self.settings[name] = other[name]
        self.twin.do("configure", dict(self.settings))

    def new_epoch(self) -> None:
        self.leader_epoch += 1

    def checkpoint(self) -> None:
        """Set what a broker's checkpoints record of the log from now on."""
        log = self.twin.kops.log
        self.log_start_offset, self.recovery_point = log.log_start_offset, log.recovery_point

    def restart(self) -> None:
        """Stop cleanly and start. The start assumes a clean stop or not."""
        if isinstance(self.twin.do("close", open_afterwards=False), Refused):
            return
        if self.random.random() < 0.8:
            self.checkpoint()
        self._open(clean=self.random.random() < 0.7)

    def die(self) -> None:
        """Kill as with `kill -9`, and start with recovery."""
        self.twin.kill()
        self._open(clean=False)

    def _open(self, *, clean: bool) -> None:
        done = self.twin.do("open", dict(self.settings), self.log_start_offset, self.recovery_point, clean, open_afterwards=False)
        self.guard_count = 0
        self.is_over = isinstance(done, Refused)
        if not self.is_over:
            self.twin.compare_state()
