"""Checks the records of a v2 batch one by one, if the quick check found an error or the batch must be rebuilt.

Source: Kafka's `LogValidator.validateRecord`, `DefaultRecordBatch.RecordIterator`, `DefaultRecord.readPartiallyFrom` and
`PartialDefaultRecord`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kops.errors import ApiError, DecodeError
from kops.records import _hot as hot
from kops.records.batch import BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK, Batch
from kops.records.decode import chunks
from kops.records.record import Record
from kops.records.streams.codecs import SNAPPY
from kops.records.streams.pieces import KAFKA_SIZES, check_opens, kafka_pieces
from kops.records.streams.reader import PieceReader
from kops.records.validation.rules import NO_TIMESTAMP, Append, RecordErrors, check_key, check_timestamp, read_error, wrap64
from kops.records.varint import write_varint
from kops.records.windows import why_unreadable

INVALID_STRUCTURE = "Found invalid record structure"


class Seen(NamedTuple):
    """The part of a record that validation needs. Sizes below 0 mean null. `partial` means that it was read as Kafka reads records that
    stay compressed."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    partial: bool

    @classmethod
    def of(cls, record: Record) -> Seen:
        """The same for a record that was read completely."""
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
    """Check the records of `data[start:]`, which stay unchanged. Returns the largest timestamp. Raises ApiError as Kafka does.

    Records that were compressed (`start` 0) are read as a stream, in which the length of a record is ignored.
    """
    partial = start == 0
    errors = RecordErrors()
    most = NO_TIMESTAMP
    consecutive = True
    for index, seen in enumerate(_read_partially(count, batch) if partial else _read(data, start, count, batch)):
        if check_record(seen, index, batch, append, errors):
            most = max(most, seen.timestamp)
            consecutive = consecutive and seen.offset == index
    errors.raise_if_any()
    if partial and not consecutive:
        # Kafka then tries to rebuild the batch from records whose keys and values it has skipped.
        raise ApiError("UNKNOWN_SERVER_ERROR", "key is skipped in PartialDefaultRecord")
    return most


def check_record(seen: Seen, index: int, batch: Batch, append: Append, errors: RecordErrors) -> bool:
    """Whether a record is valid. Adds the error to `errors` if it is not."""
    return check_key(seen.key_size >= 0, index, append.rules, errors, append.count_invalid) and check_timestamp(
        batch, seen.timestamp, seen.offset, index, seen.describe, append.rules, append.now_ms, errors
    )


def _at(batch: Batch, timestamp_delta: int) -> int:
    """The timestamp of a record."""
    return batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_MASK else wrap64(batch.base_timestamp + timestamp_delta)


def _read(data: bytes, start: int, count: int, batch: Batch) -> Iterator[Seen]:
    """Yield the records of an uncompressed batch. Raises ApiError INVALID_RECORD if one is unreadable or bytes are left."""
    position, end = start, len(data)
    for number in range(count):
        stop, timestamp, offset, _, key_size, _, value_size, _, _ = hot.place(data, position, end)
        if stop < 0:
            # An endless length is the only error here that Kafka does not report as a bad record.
            name = "UNKNOWN_SERVER_ERROR" if _is_endless(data[position : position + 5]) else "INVALID_RECORD"
            raise ApiError(name, why_unreadable(data, position, end, number))
        position = stop
        if number == count - 1 and position != end:
            raise ApiError("INVALID_RECORD", "Incorrect declared batch size, records still remaining in file")
        yield Seen(wrap64(batch.base_offset + offset), _at(batch, timestamp), key_size, value_size, False)


def _is_endless(front: bytes) -> bool:
    return len(front) == 5 and min(front) > 127


def _read_partially(count: int, batch: Batch) -> Iterator[Seen]:
    """Yield the records of a compressed batch, read from its stream as in Kafka. Keys, values and headers are skipped.

    Raises ApiError: INVALID_RECORD as `_read` does, UNKNOWN_SERVER_ERROR if the stream breaks.
    """
    reader = stream_reader(batch)
    try:
        for number in range(count):
            try:
                seen = _read_seen(reader, batch)
            except DecodeError as error:
                if error.code == "bad-records":
                    raise ApiError("INVALID_RECORD", INVALID_STRUCTURE) from None
                raise
            if number == count - 1 and reader.byte() >= 0:
                raise ApiError("INVALID_RECORD", "Incorrect declared batch size, records still remaining in file")
            yield seen
    except DecodeError as error:
        raise read_error(error) from None


def stream_reader(batch: Batch) -> PieceReader:
    """Return the records of a compressed v2 batch as a stream, in Kafka's pieces."""
    data = memoryview(batch.buffer)[batch.index + BATCH_OVERHEAD : batch.index + batch.size]
    codec = batch.attributes & 7
    return PieceReader(kafka_pieces(codec, data, magic=batch.magic), direct=KAFKA_SIZES[codec])


def _read_seen(reader: PieceReader, batch: Batch) -> Seen:
    reader.varint()
    reader.byte()
    timestamp, offset, key_size = reader.varlong(), reader.varint(), reader.varint()
    reader.skip(key_size)
    value_size = reader.varint()
    reader.skip(value_size)
    headers = reader.varint()
    if headers < 0:
        raise ApiError("INVALID_RECORD", f"Found invalid number of record headers {headers}")
    for _ in range(headers):
        size = reader.varint()
        if size < 0:
            raise ApiError("INVALID_RECORD", f"Invalid negative header key size {size}")
        reader.skip(size)
        reader.skip(reader.varint())
    return Seen(wrap64(batch.base_offset + offset), _at(batch, timestamp), key_size, value_size, True)


def is_consecutive(batch: Batch) -> bool:
    """Whether the offsets of the readable records count up from 0."""
    try:
        return all(record.offset == index for index, record in enumerate(readable(batch)))
    except ApiError:
        return True


def readable(batch: Batch) -> Iterator[Record]:
    """Yield all records, read completely. Raises ApiError: INVALID_RECORD, or UNKNOWN_SERVER_ERROR if decompression fails."""
    try:
        if batch.compressed and (batch.count or 0) < 0:
            data = memoryview(batch.buffer)[batch.index + BATCH_OVERHEAD : batch.index + batch.size]
            check_opens(batch.attributes & 7, data)  # Kafka opens the stream before it checks the count
        for records in chunks(batch):
            yield from records
    except DecodeError as error:
        if batch.count is not None and not batch.compressed:
            for _ in _read(bytes(batch.data()), BATCH_OVERHEAD, batch.count, batch):
                pass
        elif batch.count is not None and (error.code == "bad-compression" or batch.attributes & 7 == SNAPPY):
            _read_up_to_the_break(batch)
        raise read_error(error) from None


def _read_up_to_the_break(batch: Batch) -> None:
    """Raise ApiError for the error that Kafka finds first: INVALID_RECORD for a record that the stream returns, UNKNOWN_SERVER_ERROR where
    it breaks."""
    reader = stream_reader(batch)
    try:
        for number in range(batch.count or 0):
            size = reader.varint()
            if size < 0:
                raise ApiError("INVALID_RECORD", f"record {number} of the batch claims {size} bytes")
            record = reader.take(size)
            data = write_varint(size) + record
            if len(record) < size or hot.place(data, 0, len(data))[0] != len(data):
                raise ApiError("INVALID_RECORD", why_unreadable(data, 0, len(data), number))
        if reader.byte() >= 0:
            raise ApiError("INVALID_RECORD", "Incorrect declared batch size, records still remaining in file")
    except DecodeError as error:
        if error.code == "bad-records":
            raise ApiError("INVALID_RECORD", INVALID_STRUCTURE) from None
        raise read_error(error) from None
