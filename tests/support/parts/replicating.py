"""Partitions for tests: a log in memory whose records are (epoch, value), brokers that a test sets, registrations."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kops.errors import ApiError
from kops.protocol.primitives import Buffer
from kops.records.log_offsets import Isolation, LogOffsetMetadata, LogOffsetSnapshot, TopicPartition, UnexpectedAppendOffsetError
from kops.records.validation.validate import AppendOrigin
from kops.replication.leading.isr import LeaderAndIsr, ProposedIsr
from kops.replication.leading.partition import Partition, Surroundings

ENTRY = struct.Struct(">qiq")
TP = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))


def pack(entries: Sequence[tuple[int, int, int]]) -> bytes:
    """Return (offset, epoch, value) as a log has them."""
    return b"".join(ENTRY.pack(*entry) for entry in entries)


def values(*numbers: int) -> bytes:
    """Return values to append. The leader gives them offsets."""
    return pack([(0, 0, number) for number in numbers])


class Info(NamedTuple):
    """The result of an append."""

    first_offset: int
    last_offset: int
    last_leader_epoch: int | None
    valid_bytes: int
    log_append_time_ms: int = -1
    log_start_offset: int = 0
    is_duplicate: bool = False
    converted_count: int = 0
    temporary_memory_bytes: int = 0


class Data(NamedTuple):
    """The result of a read."""

    offset_metadata: LogOffsetMetadata
    records: bytes | None
    first_entry_incomplete: bool = False
    aborted_transactions: None = None

    @property
    def size(self) -> int:
        return len(self.records or b"")


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int | None


@dataclass
class Settings:
    """The settings of a topic."""

    min_insync_replicas: int = 1
    max_message_bytes: int = 1_048_588
    compact: bool = False
    delete: bool = True


@dataclass
class MemoryLog:
    """A log of (epoch, value), the first at offset `log_start_offset`. A value is also its record's timestamp."""

    config: Settings = field(default_factory=Settings)
    parent_dir: str = "/disk1"
    entries: list[tuple[int, int]] = field(default_factory=list)
    log_start_offset: int = 0
    base_offset: int = 0
    high_watermark: int = 0
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    on_log_start: Callable[[], object] | None = None
    on_high_watermark: Callable[[int], None] | None = None

    @property
    def epochs(self) -> MemoryLog:
        return self

    def assign(self, epoch: int, start_offset: int) -> None:
        if not self.epoch_starts or epoch > self.epoch_starts[-1][0]:
            self.epoch_starts = [(known, start) for known, start in self.epoch_starts if start < start_offset]
            self.epoch_starts.append((epoch, start_offset))

    def epoch_for_offset(self, offset: int) -> int | None:
        return next((epoch for epoch, start in reversed(self.epoch_starts) if start <= offset), None)

    @property
    def latest_epoch(self) -> int | None:
        return self.epoch_starts[-1][0] if self.epoch_starts else None

    @property
    def log_end_offset(self) -> int:
        return self.base_offset + len(self.entries)

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return self._metadata(self.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def _metadata(self, offset: int) -> LogOffsetMetadata:
        return LogOffsetMetadata(offset, 0, offset * ENTRY.size)

    def append_as_leader(
        self, data: Buffer, leader_epoch: int, *, origin: AppendOrigin, verification_guard: object, transaction_version: int
    ) -> Info:
        first = self.log_end_offset
        self.assign(leader_epoch, first)
        self.entries += [(leader_epoch, value) for _, _, value in ENTRY.iter_unpack(data)]
        return Info(first, self.log_end_offset - 1, leader_epoch, len(data))

    def append_as_follower(self, data: Buffer, leader_epoch: int) -> Info:
        given = [entry for entry in ENTRY.iter_unpack(data) if entry[1] <= leader_epoch]
        if not given:
            return Info(-1, -1, None, 0)
        if given[0][0] != self.log_end_offset:
            raise UnexpectedAppendOffsetError("unexpected offset", given[0][0], given[-1][0])
        for offset, epoch, value in given:
            self.assign(epoch, offset)
            self.entries.append((epoch, value))
        return Info(given[0][0], given[-1][0], given[-1][1], len(data))

    def read(self, start_offset: int, max_size: int, isolation: Isolation, *, min_one_batch: bool) -> Data:
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise ApiError("OFFSET_OUT_OF_RANGE", f"offset {start_offset}")
        end = self.log_end_offset if isolation is Isolation.LOG_END else self.high_watermark
        count = max(max_size // ENTRY.size, int(min_one_batch))
        found = [
            (offset, *self.entries[offset - self.base_offset])
            for offset in range(start_offset, max(min(end, start_offset + count), start_offset))
        ]
        return Data(self._metadata(start_offset), pack(found) if found else None)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        if epoch == self.latest_epoch:
            return epoch, self.log_end_offset
        higher = [start for known, start in self.epoch_starts if known > epoch]
        if epoch < 0 or not higher:
            return None
        return next((known for known, _ in reversed(self.epoch_starts) if known <= epoch), epoch), higher[0]

    def fetch_offset_by_timestamp(self, target: int) -> Found | None:
        if target < 0:
            return Found(-1, self.log_start_offset, self.epoch_for_offset(self.log_start_offset))
        for place, (epoch, value) in enumerate(self.entries):
            if value >= target:
                return Found(value, self.base_offset + place, epoch)
        return None

    def fetch_offset_snapshot(self) -> LogOffsetSnapshot:
        watermark = self._metadata(self.high_watermark)
        return LogOffsetSnapshot(self.log_start_offset, self.log_end_offset_metadata, watermark, watermark)

    def update_high_watermark(self, offset: int) -> int:
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        return self.high_watermark

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        old = self.high_watermark
        return None if self.update_high_watermark(offset) == old else self.high_watermark

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        assert new.message_offset <= self.log_end_offset
        if new.message_offset <= self.high_watermark:
            return None
        old = self._metadata(self.high_watermark)
        self.high_watermark = new.message_offset
        if self.on_high_watermark is not None:
            self.on_high_watermark(new.message_offset)
        return old

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        if offset > self.high_watermark:
            raise ApiError("OFFSET_OUT_OF_RANGE", f"offset {offset}")
        increases = offset > self.log_start_offset
        self.log_start_offset = max(offset, self.log_start_offset)
        if increases and self.on_log_start is not None:
            self.on_log_start()
        return increases

    def truncate_to(self, offset: int) -> None:
        del self.entries[max(offset - self.base_offset, 0) :]
        self.epoch_starts = [(epoch, start) for epoch, start in self.epoch_starts if start < self.log_end_offset]
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.entries, self.epoch_starts = [], []
        self.base_offset = self.log_start_offset = self.high_watermark = offset


@dataclass
class Registration:
    """The metadata of a partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int] = (1, 2, 3)
    replicas: Sequence[int] = (1, 2, 3)
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()
    leader_recovery_state: int = 0


class World:
    """Everything around the partitions of broker 1: time, other brokers, the controller's queue, and what was reported."""

    def __init__(self, broker_id: int = 1) -> None:
        self.broker_id = broker_id
        self.now_ms = 100_000
        self.epochs: dict[int, int] = {1: 10, 2: 20, 3: 30, 4: 40}
        self.fenced: set[int] = set()
        self.shutting_down: set[int] = set()
        self.asked: list[tuple[ProposedIsr, Callable[[LeaderAndIsr | str], None]]] = []
        self.checked = 0
        self.delayed_delete_count = 0
        self.partitions: dict[TopicPartition, Partition] = {}

    def surroundings(self) -> Surroundings:
        return Surroundings(self.broker_id, lambda: self.epochs[self.broker_id], lambda: self.now_ms, self, self, self, self)

    def partition(self, log: MemoryLog | None = None) -> Partition:
        """Return a partition with a log and no role yet."""
        made = Partition(TP, TOPIC_ID, self.surroundings())
        made.log = log or MemoryLog()
        self.partitions[TP] = made
        return made

    # Brokers, AlterPartitionQueue, DelayedOperations, LogKeeper

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        return None if broker_id in self.fenced else self.epochs.get(broker_id)

    def is_fenced(self, broker_id: int) -> bool:
        return broker_id in self.fenced

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self.shutting_down

    def submit(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None:
        self.asked.append((proposed, done))

    def check_and_complete_all(self, key: TopicPartition) -> None:
        self.checked += 1

    def _log(self, key: TopicPartition, is_future: bool) -> Any:
        partition = self.partitions[key]
        return partition.future_log if is_future else partition.log

    def truncate_to(self, offsets: dict[TopicPartition, int], *, is_future: bool = False) -> None:
        for key, offset in offsets.items():
            self._log(key, is_future).truncate_to(offset)

    def truncate_fully_and_start_at(
        self, key: TopicPartition, offset: int, *, is_future: bool = False, log_start_offset: int | None = None
    ) -> None:
        self._log(key, is_future).truncate_fully_and_start_at(offset)

    def replace_current_with_future_log(self, key: TopicPartition) -> None:
        """Do nothing: there is no disk here."""

    def answer(self, isr: Sequence[int], partition_epoch: int, leader_epoch: int = 5) -> None:
        """Let the controller accept the last change."""
        self.asked[-1][1](LeaderAndIsr(self.broker_id, leader_epoch, tuple(isr), 0, partition_epoch))
