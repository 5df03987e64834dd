"""One producer's state on one partition, and how a batch changes it (Kafka ProducerStateEntry, ProducerAppendInfo; KIP-98, KIP-890).

These are the rules for a batch that is read back from the log. Epochs and sequences are not checked. Only one batch is rejected: a data
batch outside the transaction that its producer has open. `kops.storage.producers.checks` has the further rules for an append.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import unpack_from
from typing import TYPE_CHECKING, Final, NoReturn

from mypy_extensions import mypyc_attr

from kops.config.values.java import to_int, to_long
from kops.errors import DecodeError
from kops.records import record as records
from kops.records.batch import BATCH_OVERHEAD, CODEC_MASK, TIMESTAMP_TYPE_MASK, decrement_sequence, increment_sequence
from kops.storage.failures.load_errors import (
    ERRORS,
    INDEX_OUT_OF_BOUNDS,
    KAFKA_EXCEPTION,
    NULL_POINTER,
    InvalidRecordError,
    LoadError,
    illegal_argument,
)
from kops.storage.segment_files.legacy_batch import check_codec

if TYPE_CHECKING:
    from kops.records import Batch
    from kops.records.record import Record

BATCHES_TO_RETAIN = 5
NO_SEQUENCE = -1
# A marker in a batch: the record's size, attributes, deltas of timestamp and offset, a key of four bytes (version 0, type), a value of six
# (version, the coordinator's epoch), no headers.
_MARKER_START: Final = b"\x20\x00\x00\x00\x08\x00\x00\x00"
_MARKER_VALUE_SIZE: Final = 0x0C
_MARKER_SIZE: Final = 17
_MARKER_BATCH_SIZE: Final = BATCH_OVERHEAD + _MARKER_SIZE
_ABORT: Final = 0
TV_UNKNOWN: Final = -1
"""No transaction version was given (TransactionVersion.TV_UNKNOWN)."""


@mypyc_attr(acyclic=True)
class BatchMetadata:
    """What is remembered about a batch, to recognize duplicates and to store in snapshots. It is not changed."""

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BatchMetadata)
            and self.last_sequence == other.last_sequence
            and self.last_offset == other.last_offset
            and self.offset_delta == other.offset_delta
            and self.timestamp == other.timestamp
        )

    def __hash__(self) -> int:
        return hash((self.last_sequence, self.last_offset, self.offset_delta, self.timestamp))

    def __repr__(self) -> str:
        return f"BatchMetadata({self.last_sequence}, {self.last_offset}, {self.offset_delta}, {self.timestamp})"

    @property
    def first_sequence(self) -> int:
        """The first record's sequence."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The first record's offset."""
        return to_long(self.last_offset - self.offset_delta)


@dataclass(slots=True)
class TxnMetadata:
    """A transaction in this partition: its producer, its first offset, and its marker's offset once it has ended."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


@mypyc_attr(acyclic=True)
class CompletedTxn:
    """A transaction whose marker was read. It is not changed."""

    __slots__ = ("first_offset", "is_aborted", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.is_aborted = is_aborted

    def __repr__(self) -> str:
        return f"CompletedTxn({self.producer_id}, {self.first_offset}, {self.last_offset}, {self.is_aborted})"


class ProducerStateEntry:
    """A producer's epoch, its last batches (at most five of that epoch) and its open transaction. -1 and None stand for missing values."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "last_timestamp", "producer_epoch", "producer_id")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)

    def without_batches(self) -> ProducerStateEntry:
        """A copy without batches, to which a batch can be added."""
        return ProducerStateEntry(
            self.producer_id, self.producer_epoch, self.coordinator_epoch, self.last_timestamp, self.current_txn_first_offset
        )

    @property
    def last_sequence(self) -> int:
        """The last record's sequence."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest batch that is kept."""
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The last record's offset."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        """The last batch's last offset delta."""
        return self.batches[-1].offset_delta if self.batches else 0

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Add a batch that the producer wrote. A batch of a new epoch removes the older batches."""
        self._set_epoch(producer_epoch)
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Apply a marker of the producer."""
        self._set_epoch(producer_epoch)
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = None
        self.last_timestamp = timestamp

    def update(self, newer: ProducerStateEntry) -> None:
        """Adopt the values of `newer`, and append its batches to the existing ones."""
        self._set_epoch(newer.producer_epoch)
        self.batches.extend(newer.batches)
        newer.batches.clear()
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp = newer.last_timestamp

    def find_duplicate_batch(self, batch: Batch) -> BatchMetadata | None:
        """The batch with the same epoch and sequences that was written before, or None."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        return next((known for known in self.batches if known.last_sequence == last and known.first_sequence == first), None)

    def _set_epoch(self, producer_epoch: int) -> None:
        if self.producer_epoch != producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class ProducerAppendInfo:
    """Batches of one producer that are about to change its state. `entry` is the future state, `started` the transactions that they
    begin.
    """

    __slots__ = ("entry", "started")

    def __init__(self, current: ProducerStateEntry) -> None:
        self.entry = current.without_batches()
        self.started: list[TxnMetadata] = []

    def append(self, batch: Batch, transaction_version: int = TV_UNKNOWN) -> CompletedTxn | None:
        """Add a v2 batch. Returns the transaction that it ends, if it is a marker that ends one."""
        if batch.is_control:
            return self._append_control(batch, transaction_version)
        base_offset, last_offset = batch.base_offset, batch.last_offset
        sequence = batch.base_sequence
        delta = to_int(last_offset - base_offset)
        if sequence != NO_SEQUENCE:
            sequence = increment_sequence(sequence, delta)
        self.entry.add_batch(batch.producer_epoch, BatchMetadata(sequence, last_offset, delta, batch.max_timestamp))
        is_transactional = batch.is_transactional
        if self.entry.current_txn_first_offset is not None and not is_transactional:
            self._refuse_plain_batch(base_offset)
        if self.entry.current_txn_first_offset is None and is_transactional:
            self.entry.current_txn_first_offset = base_offset
            self.started.append(TxnMetadata(self.entry.producer_id, base_offset))
        return None

    def _append_control(self, batch: Batch, transaction_version: int) -> CompletedTxn | None:
        marker = usual_marker(batch) or _any_marker(batch)
        if marker is None:  # the cleaner removed the marker and kept the empty batch
            return None
        is_abort, coordinator_epoch, timestamp = marker
        self._check_marker(batch, coordinator_epoch, transaction_version)
        entry = self.entry
        completed = None
        if entry.current_txn_first_offset is not None:
            completed = CompletedTxn(entry.producer_id, entry.current_txn_first_offset, batch.base_offset, is_abort)
        entry.end_transaction(batch.producer_epoch, coordinator_epoch, timestamp)
        return completed

    def _check_marker(self, batch: Batch, coordinator_epoch: int, transaction_version: int) -> None:
        """Accept any marker, because it is already in the log."""

    def _refuse_plain_batch(self, offset: int) -> NoReturn:
        reason = f"Expected transactional write from producer {self.entry.producer_id} at offset {offset}"
        raise LoadError(reason, exception=ERRORS + "InvalidTxnStateException")


def usual_marker(batch: Batch) -> tuple[bool, int, int] | None:
    """Return what `read_end_txn_marker` says of the marker in a batch, and its timestamp, if the batch is one as every coordinator writes
    it. Returns None for any other batch: then the record is decoded."""
    start = batch.index + BATCH_OVERHEAD
    data = batch.buffer
    if batch.size != _MARKER_BATCH_SIZE or batch.count != 1 or batch.attributes & (CODEC_MASK | TIMESTAMP_TYPE_MASK):
        return None
    if len(data) < start + _MARKER_SIZE or data[start : start + 8] != _MARKER_START:
        return None
    type_id = data[start + 8]
    if type_id > 1 or data[start + 9] != _MARKER_VALUE_SIZE or data[start + 10] & 0x80 or data[start + 16]:
        return None
    return type_id == _ABORT, unpack_from(">i", data, start + 12)[0], batch.base_timestamp


def _any_marker(batch: Batch) -> tuple[bool, int, int] | None:
    record = first_record(batch)
    if record is None:
        return None
    is_abort, coordinator_epoch = read_end_txn_marker(record)
    return is_abort, coordinator_epoch, record.timestamp


def first_record(batch: Batch) -> Record | None:
    """The first record of a control batch, or None in an empty batch. Raises the exceptions of DefaultRecordBatch's iterator."""
    from kops.records import decode

    if len(batch.data()) < BATCH_OVERHEAD:
        raise LoadError("", exception=INDEX_OUT_OF_BOUNDS, words=f"the control batch at offset {batch.base_offset} is cut short")
    count = batch.count or 0
    if count == 0:
        return None
    compressed = check_codec(batch.attributes & CODEC_MASK)
    if count < 0:
        raise InvalidRecordError(f"Found invalid record count {count} in magic v{batch.magic} batch")
    try:
        found, error = decode.first_of(batch)
    except DecodeError as broken:
        reason = f"Failed to decompress record stream: {broken.reason}"
        raise LoadError(reason, exception=KAFKA_EXCEPTION) from broken
    if error is not None and (compressed or count == 1 or not found):
        raise InvalidRecordError(error.reason) from error
    return found[0]


def read_end_txn_marker(record: Record) -> tuple[bool, int]:
    """Return whether the marker aborts, and the coordinator's epoch. Raises the exceptions of EndTransactionMarker.deserialize."""
    if record.key is None:
        reason = 'Cannot invoke "java.nio.ByteBuffer.duplicate()" because "key" is null'
        raise LoadError(reason, exception=NULL_POINTER, words=f"the control record at offset {record.offset} has no key")
    try:
        _, type_id = records.control_type_id(record.key)
    except DecodeError as error:
        raise InvalidRecordError(error.reason) from error
    name = records.CONTROL_TYPES[type_id] if 0 <= type_id < len(records.CONTROL_TYPES) else records.UNKNOWN
    if name not in (records.ABORT, records.COMMIT):
        illegal_argument(f"Invalid control record type for end transaction marker {name}")
    value = record.value
    if value is None:
        reason = 'Cannot invoke "java.nio.ByteBuffer.getShort()" because "value" is null'
        raise LoadError(reason, exception=NULL_POINTER, words=f"the transaction marker at offset {record.offset} has no value")
    if len(value) >= 2 and value[0] & 0x80:
        version = int.from_bytes(value[:2], "big", signed=True)
        raise InvalidRecordError(f"Invalid version found for end transaction marker: {version}. May indicate data corruption")
    if len(value) < 6:
        words = f"the value of the transaction marker at offset {record.offset} has {len(value)} bytes; at least 6 are needed"
        raise LoadError("", exception="java.nio.BufferUnderflowException", words=words)
    return name == records.ABORT, unpack_from(">i", value, 2)[0]
