"""A batch of records, and the outcome of each record.

Source: Kafka's ProducerBatch, MemoryRecordsBuilder (room for records, estimates), CompressionRatioEstimator, FutureRecordMetadata,
ProduceRequestResult. A batch is compressed when it is closed. Kafka compresses while it appends, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.client.errors import KafkaError
from kops.records.batch import BATCH_OVERHEAD, TRANSACTIONAL_MASK
from kops.records.build import write_batch, write_record
from kops.records.compression import NONE, Compressor
from kops.records.decode import iterate
from kops.records.scanning.scanner import read_batches
from kops.records.varint import write_varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.records.log_offsets import TopicPartition
    from kops.records.record import Header

NO_SEQUENCE: Final = -1
_ESTIMATION_FACTOR: Final = 1.05
_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05
_KNOWN: Final = 4096
_LONGEST: Final = _KNOWN - 32  # of key and value together
VARINTS: Final = tuple(write_varint(number) for number in range(_KNOWN))
_RECORD_OVERHEAD: Final = 21  # the maximum size of a record's own length, attributes and deltas


def largest_size(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return the maximum size of an uncompressed batch with only this record (DefaultRecordBatch.estimateBatchSizeUpperBound)."""
    size = BATCH_OVERHEAD + _RECORD_OVERHEAD + _size_of(key) + _size_of(value) + len(write_varint(len(headers)))
    for name, content in headers:
        size += _size_of(name.encode() if isinstance(name, str) else name) + _size_of(content)
    return size


def _size_of(data: bytes | None) -> int:
    """The size of bytes with their length."""
    return 1 if data is None else len(write_varint(len(data))) + len(data)


class RecordMetadata(NamedTuple):
    """The place of a written record. The offset is -1 if the broker did not report it (acks=0, a duplicate)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


class Delivery:
    """The outcome of one record, which may not be known yet."""

    __slots__ = ("_batch", "_callbacks", "_error", "_index", "_key_size", "_timestamp", "_value_size", "changed")
    _index: int
    _timestamp: int
    _key_size: int
    _value_size: int

    def __init__(self, changed: Any = None) -> None:
        self._batch: ProducerBatch | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None
        self._error: BaseException | None = None
        self.changed = changed
        """What a face needs to wait for the outcome."""

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._error is not None or (self._batch is not None and self._batch.is_done)

    def exception(self) -> BaseException | None:
        """Return the error of a record that was not written, or None. Call this only when it is done."""
        if self._error is not None:
            return self._error
        assert self._batch is not None
        return self._batch.error_of(self._index)

    def metadata(self) -> RecordMetadata:
        """Return the place of the record, or raise its error. Call this only when it is done."""
        error = self.exception()
        if error is not None:
            raise error
        batch = self._batch
        assert batch is not None
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        timestamp = self._timestamp if batch.log_append_time_ms < 0 else batch.log_append_time_ms
        return RecordMetadata(*batch.partition, offset, timestamp, self._key_size, self._value_size)

    @property
    def place(self) -> TopicPartition | None:
        """The partition of the record, once it has been chosen."""
        return None if self._batch is None else self._batch.partition

    def put(self, batch: ProducerBatch, index: int) -> None:
        """Set the batch that decides the outcome."""
        self._batch = batch
        self._index = index
        if self._callbacks is not None:
            batch.has_callbacks = True

    def describe(self, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Set the record's own data for its metadata."""
        self._timestamp = timestamp
        self._key_size = -1 if key is None else len(key)
        self._value_size = -1 if value is None else len(value)

    def fail(self, error: BaseException) -> None:
        """Fail a record that is in no batch."""
        self._error = error

    def add(self, callback: Callable[[Any], object]) -> None:
        """Add a callback that gets this delivery when it is done. Call this only before it is done."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)
        if self._batch is not None:
            self._batch.has_callbacks = True

    def take_callbacks(self) -> Sequence[Callable[[Any], object]]:
        """Return the callbacks and forget them, because each is called only once."""
        callbacks, self._callbacks = self._callbacks, None
        return callbacks or ()


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
        "_parts",
        "_ratio",
        "_record_errors",
        "_size",
        "attempts",
        "attempts_at_leader_change",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "created_ms",
        "deliveries",
        "error",
        "has_callbacks",
        "is_closed",
        "is_done",
        "is_in_flight",
        "is_split",
        "is_told",
        "is_transactional",
        "largest",
        "last_attempt_ms",
        "last_error",
        "leader_epoch",
        "limit",
        "log_append_time_ms",
        "max_record_size",
        "max_timestamp",
        "memory",
        "partition",
        "parts",
        "pause_ms",
        "producer_epoch",
        "producer_id",
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
        self.limit = limit
        self.memory = memory
        self.is_split = is_split
        self.parts: list[ProducerBatch] | None = None  # after a split
        self.pause_ms = 0  # before the next attempt
        self.is_told = False  # whether the callbacks for the outcome have been called
        self.deliveries: list[Delivery] = []
        self.has_callbacks = False
        self.attempts = 0
        self.was_retried = self.was_reset = False
        self.is_closed = self.is_in_flight = self.is_done = False
        self.is_transactional = False
        self.producer_id = self.producer_epoch = self.base_sequence = NO_SEQUENCE
        self.base_timestamp = self.max_timestamp = -1
        self.max_record_size = 0  # of a part of a split batch
        self.largest = 0  # the size of the largest record, once the batch is built
        self.leader_epoch: int | None = None
        self.attempts_at_leader_change = 0
        self.base_offset = self.log_append_time_ms = -1
        self.error: BaseException | None = None
        self.last_error: KafkaError | None = None
        self._record_errors: dict[int, BaseException] | None = None
        self._codec = codec
        self._level = level
        self._ratio = ratio * _ESTIMATION_FACTOR
        self._parts: list[bytes] = []
        self._size = 0
        self._body: bytes | None = None
        self._data: bytes | None = None

    # records in

    def try_append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header], delivery: Delivery) -> bool:
        """Append a record if there is room. An empty batch takes any record."""
        count = len(self.deliveries)
        if not count:
            if self.is_closed:
                return False
            self.base_timestamp = timestamp
        elif self.is_full:
            return False
        part = write_record(count, timestamp - self.base_timestamp, key, value, headers)
        if count and self.limit < self.estimated_size + len(part):
            return False
        self._parts.append(part)
        self._size += len(part)
        if self.is_split:
            self.max_record_size = max(self.max_record_size, largest_size(key, value, headers))
        self.max_timestamp = max(self.max_timestamp, timestamp)
        delivery.put(self, count)
        self.deliveries.append(delivery)
        return True

    def append_quickly(self, timestamp: int, key: bytes | None, value: bytes | None, delivery: Delivery) -> int:
        """Append a record without headers to a batch that has records. Returns the bytes that it adds, or 0 if `try_append` must decide.

        It does the same as that. A program that sends many records spends most of its time here, so it calls as little as possible.
        """
        deliveries = self.deliveries
        count = len(deliveries)
        delta = timestamp - self.base_timestamp
        if self.is_closed or not 0 <= delta < _KNOWN or not 0 < count < _KNOWN:
            return 0
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if key_size + value_size >= _LONGEST:
            return 0
        # The length, attributes, time, number, key, value, and no headers.
        if key is None and value is not None:
            middle = b"".join((b"\x00", VARINTS[delta], VARINTS[count], b"\x01", VARINTS[value_size], value, b"\x00"))
        else:
            key_part = b"\x01" if key is None else VARINTS[key_size] + key
            value_part = b"\x01" if value is None else VARINTS[value_size] + value
            middle = b"".join((b"\x00", VARINTS[delta], VARINTS[count], key_part, value_part, b"\x00"))
        prefix = VARINTS[len(middle)]
        added = size = len(prefix) + len(middle)
        whole = self._size + size
        if self._codec == NONE:
            if self.limit < BATCH_OVERHEAD + whole or self.limit <= BATCH_OVERHEAD + self._size:
                return 0
        else:
            before = self.estimated_size
            if self.limit < before + size or self.limit <= before:
                return 0
            added = BATCH_OVERHEAD + int(whole * self._ratio) - before or 1
        self._parts += (prefix, middle)
        self._size = whole
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        delivery._batch, delivery._index, delivery._timestamp = self, count, timestamp
        delivery._key_size, delivery._value_size = key_size, value_size
        if delivery._callbacks is not None:
            self.has_callbacks = True
        deliveries.append(delivery)
        return added

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.deliveries)

    @property
    def estimated_size(self) -> int:
        """The size on the wire. Until a compressed batch is built, this is an estimate."""
        if self._data is not None:
            return len(self._data)
        return BATCH_OVERHEAD + (self._size if self._codec == NONE else int(self._size * self._ratio))

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more records."""
        return self.is_closed or (bool(self.deliveries) and self.limit <= self.estimated_size)

    def close_for_appends(self) -> None:
        """Accept no more records."""
        self.is_closed = True

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
        self.is_closed = True
        self.was_reset = False
        if self._body is None:
            self._body = b"".join(self._parts)
            self.largest = max(map(len, self._parts), default=0)
            self._parts.clear()
            if self._codec != NONE:
                compressor = Compressor(self._codec, level=self._level)
                compressor.write(self._body)
                self._body = compressor.finish()
            ratios.observe(self.partition.topic, self.ratio)
        if self._data is None:
            self._data = write_batch(
                self._body,
                base_offset=0,
                last_offset=self.count - 1,
                count=self.count,
                attributes=self._codec | (TRANSACTIONAL_MASK if self.is_transactional else 0),
                base_timestamp=self.base_timestamp,
                max_timestamp=self.max_timestamp,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return self._data

    @property
    def ratio(self) -> float:
        """The compressed by the uncompressed size of the records."""
        return 1.0 if self._codec == NONE or self._body is None else len(self._body) / max(self._size, 1)

    def split(self, limit: int) -> list[ProducerBatch]:
        """Return smaller batches with the same records and consecutive sequence numbers. The deliveries move to them."""
        assert self._data is not None
        parts: list[ProducerBatch] = []
        deliveries = iter(self.deliveries)
        for record in iterate(read_batches(self._data)[0]):
            delivery = next(deliveries)
            if not parts or not parts[-1].try_append(record.timestamp, record.key, record.value, record.headers, delivery):
                room = max(limit, largest_size(record.key, record.value, record.headers))
                part = ProducerBatch(self.partition, self.created_ms, limit=room, codec=self._codec, level=self._level, is_split=True)
                part.is_transactional = self.is_transactional
                part.try_append(record.timestamp, record.key, record.value, record.headers, delivery)
                parts.append(part)
        sequence = self.base_sequence
        for part in parts:
            part.close_for_appends()
            if self.has_sequence:
                part.set_identity(self.producer_id, self.producer_epoch, sequence)
                sequence += part.count
        self.parts = parts
        return parts

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

    def _end(self) -> None:
        self.is_done = True
        self._parts.clear()
        self._body = self._data = None
