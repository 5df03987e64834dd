"""Builds batches of every format and codec. Uncompressed batches equal Kafka's byte for byte.

Source: Kafka's `MemoryRecordsBuilder`, `DefaultRecord.writeTo`, `LegacyRecord.write`, `EndTransactionMarker`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from kops.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_V2,
    LOG_OVERHEAD,
    MAX_INT,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kops.records.compression import NONE, ZSTD, Compressor, codec_id
from kops.records.crc import crc32c_function
from kops.records.record import CONTROL_TYPES, CREATE_TIME, LOG_APPEND_TIME, Header, Record
from kops.records.varint import write_varint

_LARGE: Final = 4 << 20
_CRC: Final = 17
_CHECKED: Final = 21
"""The positions of the checksum and of the part of the header that it covers."""
_NULL: Final = b"\x01"
_NULL_FIELD: Final = b"\xff\xff\xff\xff"
_MARKER: Final = struct.Struct(">hi")
_ABORT: Final = struct.pack(">hh", 0, CONTROL_TYPES.index("ABORT"))
_COMMIT: Final = struct.pack(">hh", 0, CONTROL_TYPES.index("COMMIT"))
_SMALL: Final = tuple(write_varint(value) for value in range(64))


class BatchBuilder:
    """Builds one batch. Times are in ms, -1 for none. Raises ValueError for anything that Kafka's builder rejects.

    In v0 and v1 without a codec, each record is a separate message. With a codec, one message contains all of them.
    """

    def __init__(
        self,
        *,
        magic: int = 2,
        codec: int | str = "none",
        base_offset: int = 0,
        timestamp_type: str = CREATE_TIME,
        log_append_time: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        partition_leader_epoch: int = -1,
        delete_horizon_ms: int | None = None,
        level: int | None = None,
    ) -> None:
        self.magic = magic
        self.codec = codec_id(codec)
        self.base_offset = base_offset
        self.timestamp_type = timestamp_type
        self.log_append_time = log_append_time
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.control = control
        self.partition_leader_epoch = partition_leader_epoch
        self.delete_horizon_ms = delete_horizon_ms
        self.level = level
        self.base_timestamp: int | None = delete_horizon_ms
        self.max_timestamp = -1
        self.last_offset: int | None = None
        self.count = 0
        self.uncompressed_size = 0
        """The size of the records so far, uncompressed."""
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._compressor = Compressor(self.codec, magic=magic, level=level)
        self._check()

    def _check(self) -> None:
        if self.magic not in (0, 1, 2):
            raise ValueError(f"magic {self.magic}; known are 0, 1 and 2")
        if self.magic < 2:
            extras = (self.transactional, self.control, self.delete_horizon_ms is not None, self.producer_id != -1, self.codec == ZSTD)
            if any(extras):
                raise ValueError(f"format v{self.magic} has no producers, transactions, control batches, delete horizon or zstd")
        if self.transactional and self.producer_id == -1:
            raise ValueError("a transactional batch needs a producer id")
        if self.producer_id != -1:
            if self.producer_epoch == -1:
                raise ValueError("a producer id needs a producer epoch")
            if self.base_sequence < 0 and not self.control:
                raise ValueError("a producer id needs a base sequence")

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | memoryview | None,
        headers: Sequence[Header] = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Add a record and return its offset, which is the next one unless `offset` is given."""
        if offset is None:
            offset = self.base_offset if self.last_offset is None else self.last_offset + 1
        if self.last_offset is not None and offset <= self.last_offset:
            raise ValueError(f"offset {offset} after offset {self.last_offset}: offsets must increase")
        if not 0 <= offset - self.base_offset <= MAX_INT:
            raise ValueError(f"offset {offset} in a batch that begins at {self.base_offset}")
        if timestamp < -1:
            raise ValueError(f"timestamp {timestamp}")
        if self.magic > 1:
            if self.base_timestamp is None:
                self.base_timestamp = timestamp
            part = write_record(offset - self.base_offset, timestamp - self.base_timestamp, key, value, headers)
        else:
            if headers:
                raise ValueError(f"format v{self.magic} has no headers")
            if self.timestamp_type == LOG_APPEND_TIME:
                timestamp = self.log_append_time
            inner = offset - self.base_offset if self.magic and self.codec else offset
            part = write_message(self.magic, inner, timestamp, key, value, timestamp_type=self.timestamp_type)
        self._take(part)
        self.count += 1
        self.last_offset = offset
        if self.magic and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return offset

    def _take(self, part: bytes) -> None:
        self._parts.append(part)
        self.uncompressed_size += len(part)
        self._part_bytes += len(part)
        if self._part_bytes >= _LARGE and self.codec != NONE:
            self._compressor.write(b"".join(self._parts))
            self._parts.clear()
            self._part_bytes = 0

    def append_record(self, record: Record) -> int:
        """Add a record that was read elsewhere. It keeps its offset."""
        return self.append(record.timestamp, record.key, record.value, record.headers, offset=record.offset)

    def append_control(self, timestamp: int, control_type: str, value: bytes, *, offset: int | None = None) -> int:
        """Add a control record of this type (`ABORT`, `COMMIT`, `LEADER_CHANGE` ...)."""
        if not self.control:
            raise ValueError("only a control batch may contain control records")
        return self.append(timestamp, struct.pack(">hh", 0, CONTROL_TYPES.index(control_type)), value, offset=offset)

    def append_end_txn_marker(self, timestamp: int, commit: bool, coordinator_epoch: int, *, offset: int | None = None) -> int:
        """Add a transaction marker."""
        return self.append_control(timestamp, "COMMIT" if commit else "ABORT", _MARKER.pack(0, coordinator_epoch), offset=offset)

    def build(self, *, last_offset: int | None = None) -> bytes:
        """Return the batch, or b"" without records (see `empty_batch`). `last_offset` overrides that of the last record, as compaction
        needs."""
        if self.last_offset is None:
            return b""
        last = self.last_offset if last_offset is None else last_offset
        body = b"".join(self._parts)
        self._parts = [body]
        if self.codec != NONE:
            self._compressor.write(body)
            body = self._compressor.finish()
        if self.magic < 2:
            return self._build_legacy(body, last) if self.codec else body
        latest = self.log_append_time if self.timestamp_type == LOG_APPEND_TIME else self.max_timestamp
        attributes = self.codec | (DELETE_HORIZON_MASK if self.delete_horizon_ms is not None else 0)
        attributes |= _attributes(self.timestamp_type, self.transactional, self.control)
        return write_batch(
            body,
            base_offset=self.base_offset,
            last_offset=last,
            count=self.count,
            attributes=attributes,
            base_timestamp=-1 if self.base_timestamp is None else self.base_timestamp,
            max_timestamp=latest,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            partition_leader_epoch=self.partition_leader_epoch,
        )

    def _build_legacy(self, packed: bytes, last: int) -> bytes:
        latest = self.log_append_time if self.timestamp_type == LOG_APPEND_TIME else self.max_timestamp
        return write_message(self.magic, last, latest, None, packed, codec=self.codec, timestamp_type=self.timestamp_type)


def write_batch(
    body: bytes,
    *,
    base_offset: int,
    last_offset: int,
    count: int,
    attributes: int = 0,
    base_timestamp: int = -1,
    max_timestamp: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    magic: int = 2,
) -> bytes:
    """Return a v2 batch with its checksum. `body` is the records, compressed as `attributes` says. The fields are not checked."""
    header = HEADER_V2.pack(
        base_offset,
        BATCH_OVERHEAD - LOG_OVERHEAD + len(body),
        partition_leader_epoch,
        magic,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    function, checked = crc32c_function(), header[_CHECKED:]
    return b"".join((header[:_CRC], function(body, function(checked, 0)).to_bytes(4, "big"), checked, body))


def one_record_batch(timestamp: int, key: bytes, value: bytes) -> bytes:
    """Return a v2 batch with one record, as a coordinator writes it, without a builder. `timestamp` is in ms and not negative."""
    record = write_record(0, 0, key, value)
    return write_batch(record, base_offset=0, last_offset=0, count=1, base_timestamp=timestamp, max_timestamp=timestamp)


def write_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | memoryview | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """Return a record of format v2."""
    if key is not None and value is not None and not headers and len(value) < _LARGE:
        # Nearly all records of coordinators are like this.
        front = (b"\x00", _varint(timestamp_delta), _varint(offset_delta), _varint(len(key)), key, _varint(len(value)), value, b"\x00")
        record = b"".join(front)
        return _varint(len(record)) + record
    parts: list[bytes | memoryview] = [b"\x00", _varint(timestamp_delta), _varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(_NULL)
        else:
            parts.append(_varint(len(field)))
            parts.append(field)
    parts.append(_varint(len(headers)))
    for name, content in headers:
        raw = name.encode() if isinstance(name, str) else name
        parts.append(_varint(len(raw)))
        parts.append(raw)
        if content is None:
            parts.append(_NULL)
        else:
            parts.append(_varint(len(content)))
            parts.append(content)
    if value is not None and len(value) >= _LARGE:
        parts.insert(0, _varint(sum(map(len, parts))))  # saves a copy
        return b"".join(parts)
    record = b"".join(parts)
    return _varint(len(record)) + record


def write_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | memoryview | None,
    *,
    codec: int = 0,
    timestamp_type: str = CREATE_TIME,
) -> bytes:
    """Return a message of format v0 or v1 without its offset and length. With a codec, `value` is the compressed set."""
    attributes = codec | (TIMESTAMP_TYPE_MASK if magic and timestamp_type == LOG_APPEND_TIME else 0)
    parts = [bytes((magic, attributes)), struct.pack(">q", timestamp) if magic else b""]
    parts.append(_NULL_FIELD if key is None else len(key).to_bytes(4, "big") + key)
    parts.append(_NULL_FIELD if value is None else len(value).to_bytes(4, "big"))
    front = b"".join(parts)
    body = b"" if value is None else value
    crc = zlib.crc32(body, zlib.crc32(front))
    return b"".join((struct.pack(">qiI", offset, len(front) + len(body) + 4, crc), front, body))


def empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    timestamp: int = -1,
    timestamp_type: str = CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return a batch without records, as compaction leaves it (`DefaultRecordBatch.writeEmptyHeader`)."""
    return write_batch(
        b"",
        base_offset=base_offset,
        last_offset=last_offset,
        count=0,
        attributes=_attributes(timestamp_type, transactional, control),
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
    )


def end_txn_marker(
    offset: int,
    timestamp: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the control batch that ends a transaction (`MemoryRecords.withEndTransactionMarker`)."""
    if producer_id == -1 or producer_epoch == -1 or timestamp < -1:
        raise ValueError(f"a marker of producer {producer_id} with epoch {producer_epoch} at {timestamp}")
    return write_batch(
        write_record(0, 0, _COMMIT if commit else _ABORT, _MARKER.pack(0, coordinator_epoch)),
        base_offset=offset,
        last_offset=offset,
        count=1,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
    )


def build_batch(records: Iterable[Record], **fields: object) -> bytes:
    """Return a batch of these records with their offsets. `fields` are those of `BatchBuilder`; the base offset defaults to the first
    offset."""
    all_records = list(records)
    if all_records:
        fields.setdefault("base_offset", all_records[0].offset)
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    for record in all_records:
        builder.append_record(record)
    return builder.build()


def _varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < 64 else write_varint(value)


def _attributes(timestamp_type: str, transactional: bool, control: bool) -> int:
    return (
        (TIMESTAMP_TYPE_MASK if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_MASK if transactional else 0)
        | (CONTROL_MASK if control else 0)
    )
