"""A batch of records, and the outcome of each record.

Source: Kafka's ProducerBatch, MemoryRecordsBuilder (room for records, estimates), CompressionRatioEstimator, FutureRecordMetadata,
ProduceRequestResult. A batch is compressed when it is closed. Kafka compresses while it appends, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.producer.core._hot_records import REFUSED, Delivery, OpenRecords, size_with_length
from kops.records.batch import BATCH_OVERHEAD, TRANSACTIONAL_MASK
from kops.records.build import write_batch, write_record
from kops.records.compression import NONE, Compressor
from kops.records.decode import iterate
from kops.records.scanning.scanner import read_batches
from kops.records.varint import write_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.client.errors import KafkaError
    from kops.records.log_offsets import TopicPartition
    from kops.records.record import Header

NO_SEQUENCE: Final = -1
_ESTIMATION_FACTOR: Final = 1.05
_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05
_RECORD_OVERHEAD: Final = 21  # the maximum size of a record's own length, attributes and deltas


def largest_size(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return the maximum size of an uncompressed batch with only this record (DefaultRecordBatch.estimateBatchSizeUpperBound)."""
    size = BATCH_OVERHEAD + _RECORD_OVERHEAD + size_with_length(key) + size_with_length(value)
    if not headers:
        return size + 1
    size += len(write_varint(len(headers)))
    for name, content in headers:
        size += size_with_length(name.encode() if isinstance(name, str) else name) + size_with_length(content)
    return size


class RecordMetadata(NamedTuple):
    """The place of a written record. The offset is -1 if the broker did not report it (acks=0, a duplicate)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


class CompressionRatios:
    """Estimates how well the records of each topic compress. An estimate falls slowly and rises fast."""

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimate(self, topic: str) -> float:
        """Return the estimated ratio of a topic: compressed by uncompressed size."""
        return self._ratios.get(topic, 1.0)

    def observe(self, topic: str, ratio: float) -> None:
        """Move the estimate towards an observed ratio."""
        now = self.estimate(topic)
        if ratio > now:
            self._ratios[topic] = max(now + _DETERIORATING_STEP, ratio)
        elif ratio < now:
            self._ratios[topic] = max(now - _IMPROVING_STEP, ratio)

    def reset(self, topic: str, ratio: float) -> None:
        """Set the estimate."""
        self._ratios[topic] = ratio


class ProducerBatch:
    """Records for one partition. `memory` is its share of the pool; a part of a split batch has none."""

    __slots__ = (
        "_body",
        "_codec",
        "_data",
        "_level",
        "_record_errors",
        "attempts",
        "attempts_at_leader_change",
        "base_offset",
        "base_sequence",
        "created_ms",
        "error",
        "is_done",
        "is_in_flight",
        "is_split",
        "is_told",
        "is_transactional",
        "last_attempt_ms",
        "last_error",
        "leader_epoch",
        "log_append_time_ms",
        "max_record_size",
        "memory",
        "partition",
        "parts",
        "pause_ms",
        "producer_epoch",
        "producer_id",
        "records",
        "was_reset",
        "was_retried",
    )

    def __init__(
        self,
        partition: TopicPartition,
        created_ms: float,
        *,
        limit: int,
        memory: int = 0,
        codec: int = NONE,
        level: int | None = None,
        ratio: float = 1.0,
        is_split: bool = False,
    ) -> None:
        self.partition = partition
        self.created_ms = self.last_attempt_ms = created_ms
        self.records = OpenRecords(self, limit, is_compressed=codec != NONE, ratio=ratio * _ESTIMATION_FACTOR)
        self.memory = memory
        self.is_split = is_split
        self.parts: list[ProducerBatch] | None = None  # after a split
        self.pause_ms = 0  # before the next attempt
        self.is_told = False  # whether the callbacks for the outcome have been called
        self.attempts = 0
        self.was_retried = self.was_reset = False
        self.is_in_flight = self.is_done = False
        self.is_transactional = False
        self.producer_id = self.producer_epoch = self.base_sequence = NO_SEQUENCE
        self.max_record_size = 0  # of a part of a split batch
        self.leader_epoch: int | None = None
        self.attempts_at_leader_change = 0
        self.base_offset = self.log_append_time_ms = -1
        self.error: BaseException | None = None
        self.last_error: KafkaError | None = None
        self._record_errors: dict[int, BaseException] | None = None
        self._codec = codec
        self._level = level
        self._body: bytes | None = None
        self._data: bytes | None = None

    # records in

    def try_append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header], delivery: Delivery | None
    ) -> bool:
        """Append a record if there is room. An empty batch takes any record."""
        records = self.records
        count = records.count
        if records.is_full:
            return False
        if not count and not headers and delivery is not None and records.begin(timestamp, key, value, delivery) != REFUSED:
            return True
        part = write_record(count, timestamp - records.base_timestamp if count else 0, key, value, headers)
        if count and records.limit < records.estimate + len(part):
            return False
        records.append(part, timestamp, delivery)
        if self.is_split:
            self.max_record_size = max(self.max_record_size, largest_size(key, value, headers))
        return True

    def append_quickly(self, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery) -> int:
        """Append a record without headers to a batch that has records. Returns the bytes that it adds, or 0 if `try_append` must decide.

        It does the same as that, and describes the delivery.
        """
        return 0 if self.records.add(timestamp, key, value, delivery) == REFUSED else self.records.added

    @property
    def count(self) -> int:
        """The number of records."""
        return self.records.count

    @property
    def estimated_size(self) -> int:
        """The size on the wire. Until a compressed batch is built, this is an estimate."""
        if self._data is not None:
            return len(self._data)
        return self.records.estimate

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more records."""
        return self.records.is_full

    def close_for_appends(self) -> None:
        """Accept no more records."""
        self.records.is_closed = True

    # bytes out

    @property
    def has_sequence(self) -> bool:
        """Whether its sequence numbers are fixed."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        return self.base_sequence + self.count - 1

    def set_identity(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer and the first sequence number. A retry keeps them."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self._data = None

    def reset_identity(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Replace the producer or the sequence numbers of a batch that will be sent again."""
        self.set_identity(producer_id, producer_epoch, base_sequence)
        self.was_reset = True

    def build(self, ratios: CompressionRatios) -> bytes:
        """Close the batch, and return its bytes."""
        records = self.records
        records.is_closed = True
        self.was_reset = False
        if self._body is None:
            self._body = b"".join(records.parts)
            records.parts.clear()
            if self._codec != NONE:
                compressor = Compressor(self._codec, level=self._level)
                compressor.write(self._body)
                self._body = compressor.finish()
            ratios.observe(self.partition.topic, self.ratio)
        return self._written()

    def _written(self) -> bytes:
        """Return the bytes of a closed batch. New sequence numbers need new ones, also while it is in flight."""
        records = self.records
        assert self._body is not None
        if self._data is None:
            self._data = write_batch(
                self._body,
                base_offset=0,
                last_offset=self.count - 1,
                count=self.count,
                attributes=self._codec | (TRANSACTIONAL_MASK if self.is_transactional else 0),
                base_timestamp=records.base_timestamp,
                max_timestamp=records.max_timestamp,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return self._data

    @property
    def ratio(self) -> float:
        """The compressed by the uncompressed size of the records."""
        return 1.0 if self._codec == NONE or self._body is None else len(self._body) / max(self.records.size, 1)

    def split(self, limit: int) -> list[ProducerBatch]:
        """Return smaller batches with the same records and consecutive sequence numbers. These decide the outcomes of the records."""
        parts: list[ProducerBatch] = []
        for record in iterate(read_batches(self._written())[0]):
            if not parts or not parts[-1].try_append(record.timestamp, record.key, record.value, record.headers, None):
                room = max(limit, largest_size(record.key, record.value, record.headers))
                part = ProducerBatch(self.partition, self.created_ms, limit=room, codec=self._codec, level=self._level, is_split=True)
                part.is_transactional = self.is_transactional
                part.try_append(record.timestamp, record.key, record.value, record.headers, None)
                parts.append(part)
        sequence = self.base_sequence
        for part in parts:
            part.close_for_appends()
            if self.has_sequence:
                part.set_identity(self.producer_id, self.producer_epoch, sequence)
                sequence += part.count
        self.parts = parts
        for delivery in self.records.watched:
            delivery.locate()[0].records.watched.append(delivery)
        self.records.watched.clear()
        return parts

    def take_watched(self) -> list[Delivery]:
        """Return the deliveries that have callbacks, in the order of their records, and forget them."""
        watched = self.records.watched
        self.records.watched = []
        return sorted(watched, key=lambda one: one.index) if len(watched) > 1 else watched

    @property
    def is_over(self) -> bool:
        """Whether the callbacks of all records have been called, including those in the parts of a split batch."""
        return self.is_told or (self.parts is not None and all(part.is_over for part in self.parts))

    # the way

    def waited_ms(self, now_ms: float) -> float:
        """Return the time since it was created or last sent."""
        return max(0.0, now_ms - self.last_attempt_ms)

    def is_expired(self, timeout_ms: int, now_ms: float) -> bool:
        """Whether the delivery time-out has passed."""
        return timeout_ms <= now_ms - self.created_ms

    def reenqueued(self, now_ms: float, pause_ms: int) -> None:
        """Count a failed attempt. The next one waits for the pause."""
        self.pause_ms = pause_ms
        self.attempts += 1
        self.last_attempt_ms = max(self.last_attempt_ms, now_ms)
        self.was_retried = True

    def see_leader(self, epoch: int | None) -> None:
        """Record the epoch of the current leader. A retry to a new leader need not wait."""
        if epoch is not None and (self.leader_epoch is None or self.leader_epoch < epoch):
            self.attempts_at_leader_change = self.attempts
            self.leader_epoch = epoch

    def pause_left_ms(self, now_ms: float) -> float:
        """Return the rest of the pause, or 0. A retry that goes to a new leader does not wait."""
        if not self.attempts or self.attempts == self.attempts_at_leader_change:
            return 0.0
        return max(self.pause_ms - self.waited_ms(now_ms), 0.0)

    # the end

    def complete(self, base_offset: int, log_append_time_ms: int) -> bool:
        """Set the offsets. Returns False if the outcome is already known, because an abandoned batch may still be written."""
        if self.is_done:
            return False
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._end()
        return True

    def fail(self, error: BaseException, record_errors: dict[int, BaseException] | None = None) -> bool:
        """Set the error, and those of single records. Returns False if the outcome is already known."""
        if self.is_done:
            return False
        self.error = error
        self._record_errors = record_errors
        self._end()
        return True

    def error_of(self, index: int) -> BaseException | None:
        """Return the error of a record, or None."""
        if self._record_errors is None:
            return self.error
        return self._record_errors.get(index, self.error)

    def metadata_of(self, index: int, timestamp: int, key_size: int, value_size: int) -> RecordMetadata:
        """Return the place of a record that was written."""
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        if self.log_append_time_ms >= 0:
            timestamp = self.log_append_time_ms
        return RecordMetadata(*self.partition, offset, timestamp, key_size, value_size)

    def _end(self) -> None:
        self.is_done = True
        self.records.is_closed = True
        self.records.parts.clear()
        self.records.batch = None  # no cycle keeps the batch
        self._body = self._data = None
