"""The records of a batch of format v2 one by one: where the quick look found something, and where they are built anew.

Source: Kafka's `LogValidator.validateRecord`, `DefaultRecordBatch.RecordIterator`, `DefaultRecord.readPartiallyFrom` and
`PartialDefaultRecord`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kops.errors import ApiError, DecodeError
from kops.records import _hot as hot
from kops.records.batch import BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK, Batch
from kops.records.compression import DEFAULT_LIMIT
from kops.records.decode import read_some, why_unreadable
from kops.records.record import Record
from kops.records.validation.rules import NO_TIMESTAMP, Append, RecordErrors, check_key, check_timestamp, read_error, wrap64
from kops.records.varint import read_varint, read_varlong

INVALID_STRUCTURE = "Found invalid record structure"


class Seen(NamedTuple):
    """A record as far as validation looks at it; sizes below 0 are null. `partial`: read as Kafka reads what is to stay compressed."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    partial: bool

    @classmethod
    def of(cls, record: Record) -> Seen:
        """A record that was read whole."""
        key, value = record.key, record.value
        return cls(record.offset, record.timestamp, -1 if key is None else len(key), -1 if value is None else len(value), False)

    def describe(self) -> str:
        """Kafka's toString."""
        if self.partial:
            sizes = f"key={self.key_size} bytes, value={self.value_size} bytes"
            return f"PartialDefaultRecord(offset={self.offset}, timestamp={self.timestamp}, {sizes})"
        sizes = f"key={max(0, self.key_size)} bytes, value={max(0, self.value_size)} bytes"
        return f"DefaultRecord(offset={self.offset}, timestamp={self.timestamp}, {sizes})"


def check_each(data: bytes, start: int, count: int, batch: Batch, append: Append) -> int:
    """The records of `data[start:]`, which stay as they are. -> the largest timestamp; ApiError as Kafka answers.

    What was compressed (`start` 0) is read as a stream, in which the length in front of a record means nothing.
    """
    partial = start == 0
    errors = RecordErrors()
    most = NO_TIMESTAMP
    consecutive = True
    for index, seen in enumerate(_read_partially(data, count, batch) if partial else _read(data, start, count, batch)):
        if check_record(seen, index, batch, append, errors):
            most = max(most, seen.timestamp)
            consecutive = consecutive and seen.offset == index
    errors.raise_if_any()
    if partial and not consecutive:
        # Kafka wants to build such a batch anew then, of records whose keys and values it has skipped.
        raise ApiError("UNKNOWN_SERVER_ERROR", "key is skipped in PartialDefaultRecord")
    return most


def check_record(seen: Seen, index: int, batch: Batch, append: Append, errors: RecordErrors) -> bool:
    """Whether nothing is wrong with a record; else it is among `errors`."""
    return check_key(seen.key_size >= 0, index, append.rules, errors, append.count_invalid) and check_timestamp(
        batch, seen.timestamp, seen.offset, index, seen.describe, append.rules, append.now_ms, errors
    )


def _at(batch: Batch, timestamp_delta: int) -> int:
    """A record's timestamp."""
    return batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_MASK else wrap64(batch.base_timestamp + timestamp_delta)


def _read(data: bytes, start: int, count: int, batch: Batch) -> Iterator[Seen]:
    """The records as they stand in an uncompressed batch. ApiError INVALID_RECORD where one can't be read or bytes are left."""
    position, end = start, len(data)
    for number in range(count):
        stop, timestamp, offset, _, key_size, _, value_size, _, _ = hot.place(data, position, end)
        if stop < 0:
            # An endless length in front of a record is the one thing here that Kafka takes for no bad record.
            name = "UNKNOWN_SERVER_ERROR" if _is_endless(data[position : position + 5]) else "INVALID_RECORD"
            raise ApiError(name, why_unreadable(data, position, end, number))
        position = stop
        if number == count - 1 and position != end:
            raise ApiError("INVALID_RECORD", "Incorrect declared batch size, records still remaining in file")
        yield Seen(wrap64(batch.base_offset + offset), _at(batch, timestamp), key_size, value_size, False)


def _is_endless(front: bytes) -> bool:
    return len(front) == 5 and min(front) > 127


def _read_partially(data: bytes, count: int, batch: Batch) -> Iterator[Seen]:
    """The records of a decompressed stream, keys, values and headers passed over. ApiError INVALID_RECORD as `_read` has it."""
    position = 0
    try:
        for number in range(count):
            _, position = read_varint(data, position)
            timestamp, position = read_varlong(data, position + 1)
            offset, position = read_varint(data, position)
            key_size, position = read_varint(data, position)
            value_size, position = read_varint(data, position + max(0, key_size))
            headers, position = read_varint(data, position + max(0, value_size))
            position = _skip_headers(data, position, headers)
            if number == count - 1 and position != len(data):
                raise ApiError("INVALID_RECORD", "Incorrect declared batch size, records still remaining in file")
            yield Seen(wrap64(batch.base_offset + offset), _at(batch, timestamp), key_size, value_size, True)
    except DecodeError:
        raise ApiError("INVALID_RECORD", INVALID_STRUCTURE) from None


def _skip_headers(data: bytes, position: int, count: int) -> int:
    if count < 0:
        raise ApiError("INVALID_RECORD", f"Found invalid number of record headers {count}")
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise ApiError("INVALID_RECORD", f"Invalid negative header key size {size}")
        size, position = read_varint(data, position + size)
        position += max(0, size)
    if position > len(data):
        raise ApiError("INVALID_RECORD", INVALID_STRUCTURE)
    return position


def is_consecutive(batch: Batch) -> bool:
    """Whether the records' offsets count from 0 on, as far as they can be read."""
    records, _ = read_some(batch, DEFAULT_LIMIT) if (batch.count or 0) > 0 else ([], None)
    return all(record.offset == index for index, record in enumerate(records))


def readable(batch: Batch) -> list[Record]:
    """Every record whole. ApiError: INVALID_RECORD, or UNKNOWN_SERVER_ERROR where they can't be decompressed."""
    try:
        return batch.records(DEFAULT_LIMIT)
    except DecodeError as error:
        if not batch.compressed and batch.count is not None:
            for _ in _read(bytes(batch.data()), BATCH_OVERHEAD, batch.count, batch):
                pass
        raise read_error(error) from None
