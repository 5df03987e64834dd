"""The records inside a batch, of every format.

Source: Kafka's `DefaultRecordBatch` iterators and `DefaultRecord.readFrom` (v2), `AbstractLegacyRecordBatch.DeepRecordsIterator` and
`LegacyRecord` (v0, v1).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.records import _hot as hot
from kops.records.compression import LZ4, NONE, ZSTD, codec_name, decompress
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record

if TYPE_CHECKING:
    from kops.records.batch import Batch

_LEGACY_SIZE = 12
_as_record: Callable[[hot.Row], Record] = partial(tuple.__new__, Record)


def _bad(batch: Batch, reason: str, code: str = "bad-records") -> DecodeError:
    return DecodeError(reason, code=code, position=batch.position)


def body(batch: Batch, limit: int) -> tuple[bytes, int, int]:
    """-> (bytes, start, end) of the uncompressed records of a v2 batch; without compression they are the batch's own buffer."""
    end = batch.index + batch.size
    if batch.size < 61 or end > len(batch.buffer):
        raise _bad(batch, f"the batch claims {batch.size} bytes", "bad-length")
    codec = batch.attributes & 7
    if codec == NONE:
        return batch.buffer, batch.index + 61, end
    try:
        data = decompress(codec, memoryview(batch.buffer)[batch.index + 61 : end], magic=batch.magic, limit=limit)
    except DecodeError as error:
        raise error.at(position=batch.position) from None
    return data, 0, len(data)


def read_records(batch: Batch, limit: int) -> list[Record]:
    """`Batch.records`."""
    if batch.magic < 2:
        return _read_legacy(batch, limit)
    records, error = read_some(batch, limit)
    if error is not None:
        raise error
    return records


def read_some(batch: Batch, limit: int) -> tuple[list[Record], DecodeError | None]:
    """The records of a v2 batch up to the first that can't be read, and the error there. Raises for what spoils the whole batch."""
    count = batch.count or 0
    if count == 0:
        return [], None
    if count < 0:
        raise _bad(batch, f"the batch claims {count} records")
    data, start, end = body(batch, limit)
    fixed = batch.attributes & 8 != 0
    epoch = batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None
    rows: list[hot.Row] = []
    stop = hot.decode_records(
        data,
        start,
        end,
        count,
        batch.base_offset,
        batch.max_timestamp if fixed else batch.base_timestamp,
        LOG_APPEND_TIME if fixed else CREATE_TIME,
        batch.base_sequence,
        epoch,
        rows,
    )
    records = list(map(_as_record, rows))
    if stop < 0:
        return records, _bad(batch, why_unreadable(data, -1 - stop, end, len(rows)))
    if stop != end:
        return records, _bad(batch, f"{end - stop} bytes are left behind the {count} records that the batch claims")
    return records, None


def why_unreadable(data: bytes, position: int, end: int, number: int) -> str:
    """The sentence for a record at `position` that the hot loop could not read."""
    from kops.records.varint import read_varint, read_varlong

    name = f"record {number} of the batch"
    if position >= end:
        return f"{name} is missing: the records end before it"
    try:
        length, position = read_varint(data[:end], position)
        stop = position + length
        if length < 0 or stop > end:
            return f"{name} claims {length} bytes where {end - position} are left"
        view = data[:stop]
        _, position = read_varlong(view, position + 1)
        _, position = read_varint(view, position)
        for field in ("key", "value"):
            size, position = read_varint(view, position)
            position += max(0, size)
            if position > stop:
                return f"{name} has a {field} of {size} bytes, which goes beyond its end"
        headers, position = read_varint(view, position)
        if headers < 0 or headers > stop - position:
            return f"{name} claims {headers} headers where {stop - position} bytes are left"
        for _ in range(headers):
            size, position = read_varint(view, position)
            if size < 0:
                return f"{name} has a header whose key has {size} bytes"
            position += size
            size, position = read_varint(view, position)
            position += max(0, size)
        if position != stop:
            return f"{name} claims {length} bytes and its fields take {length + position - stop}"
    except (DecodeError, IndexError):
        pass
    return f"{name} has fields that go beyond its end"


# v0 and v1 ----------------------------------------------------------------------------------------------------------------------------


def _field(message: bytes, position: int) -> tuple[bytes | None, int]:
    """A field with a 32-bit length in front (negative: null) -> (bytes, position behind it)."""
    if position + 4 > len(message):
        raise DecodeError("a message ends within its fields", code="bad-records")
    size = int.from_bytes(message[position : position + 4], "big", signed=True)
    position += 4
    if size < 0:
        return None, position
    if position + size > len(message):
        raise DecodeError(f"a message has a field of {size} bytes where {len(message) - position} are left", code="bad-records")
    return message[position : position + size], position + size


def _message(message: bytes, offset: int, outer_type: str | None, outer_timestamp: int) -> Record:
    """A message (from its CRC on) as a record. `outer_type`: timestamp type of the compressed set around it, if any."""
    magic, attributes = message[4], message[5]
    if magic == 0:
        kind, timestamp, position = NO_TIMESTAMP_TYPE, -1, 6
    else:
        if len(message) < 14:
            raise DecodeError("a message ends within its fields", code="bad-records")
        kind = outer_type or (LOG_APPEND_TIME if attributes & 8 else CREATE_TIME)
        timestamp = outer_timestamp if outer_type == LOG_APPEND_TIME else int.from_bytes(message[6:14], "big", signed=True)
        position = 14
    key, position = _field(message, position)
    value, _ = _field(message, position)
    signed = attributes - 256 if attributes > 127 else attributes
    return Record(offset, timestamp, kind, key, value, None, -1, None, len(message) + _LEGACY_SIZE, signed)


def _read_legacy(batch: Batch, limit: int) -> list[Record]:
    end = batch.index + batch.size
    if batch.size < 26 or end > len(batch.buffer):
        raise _bad(batch, f"the message claims {batch.size} bytes", "bad-length")
    message = batch.buffer[batch.index + _LEGACY_SIZE : end]
    try:
        if not batch.compressed:
            return [_message(message, batch.last_offset, None, -1)]
        return [_message(*inner) for inner in legacy_messages(batch, message, limit)]
    except DecodeError as error:
        raise error.at(position=batch.position) from None


def legacy_messages(batch: Batch, message: bytes, limit: int) -> list[tuple[bytes, int, str | None, int]]:
    """The messages inside a compressed one -> [(bytes from the CRC on, offset, outer timestamp type or None, outer timestamp)].

    v1 numbers them from 0 relative to the set (the last one has the outer offset), v0 absolutely. An outer offset of 0 in v1 comes from old
    librdkafka producers and means: as they stand. A cut message at the end is dropped, as Kafka does.
    """
    codec = batch.attributes & 7
    if codec == ZSTD or codec > LZ4:
        raise DecodeError(f"compression {codec_name(codec)} in message format v{batch.magic}", code="unknown-codec")
    outer = _message(message, batch.last_offset, None, -1)
    if outer.value is None:
        raise DecodeError("a compressed message without a value", code="bad-records")
    data = decompress(codec, outer.value, magic=batch.magic, limit=limit)
    found: list[tuple[bytes, int, str | None, int]] = []
    position = 0
    while position + _LEGACY_SIZE <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        position += _LEGACY_SIZE
        if size < 14:
            raise DecodeError(f"an inner message of {size} bytes, at least 14 are needed", code="bad-records")
        if position + size > len(data):
            break
        inner = data[position : position + size]
        position += size
        if inner[5] & 7:
            raise DecodeError("an inner message that is itself compressed", code="bad-records")
        found.append((inner, offset, batch.timestamp_type if inner[4] == 1 else None, batch.max_timestamp))
    if not found:
        raise DecodeError("a compressed message that holds no message", code="bad-records")
    if batch.magic == 1 and batch.last_offset != 0:
        last = found[-1][1]
        if batch.last_offset < last:
            raise DecodeError(f"the outer offset {batch.last_offset} is below the last inner offset {last}", code="bad-records")
        base = batch.last_offset - last
        return [(inner, base + offset, kind, timestamp) for inner, offset, kind, timestamp in found]
    return found


# the deep check -----------------------------------------------------------------------------------------------------------------------


def check_batch(batch: Batch, limit: int) -> list[DecodeError]:
    """`Batch.check`."""
    try:
        return _check_legacy(batch, limit) if batch.magic < 2 else _check_v2(batch, limit)
    except DecodeError as error:
        return [error]


def _check_v2(batch: Batch, limit: int) -> list[DecodeError]:
    count = batch.count or 0
    if count < 0:
        raise _bad(batch, f"the batch claims {count} records")
    data, start, end = body(batch, limit) if count or not batch.compressed else (b"", 0, 0)
    status, position, last, most, _, _ = hot.validate_records(data, start, end, count)
    if status == hot.UNREADABLE:
        records, error = read_some(batch, limit)
        return [error or _bad(batch, why_unreadable(data, position, end, len(records)))]
    if status == hot.LEFT_OVER:
        return [_bad(batch, f"{end - position} bytes are left behind the {count} records that the batch claims")]
    problems = []
    if status == hot.NOT_INCREASING:
        problems.append(_bad(batch, "the offsets of its records do not increase", "bad-offsets"))
    if count and last > batch.last_offset_delta:
        reason = f"its last record has the offset {batch.base_offset + last}, the batch ends at {batch.last_offset}"
        problems.append(_bad(batch, reason, "bad-offsets"))
    if count and not batch.attributes & 8 and batch.base_timestamp + most > batch.max_timestamp:
        reason = f"a record has the timestamp {batch.base_timestamp + most}, the batch claims at most {batch.max_timestamp}"
        problems.append(_bad(batch, reason, "bad-timestamps"))
    return problems


def _check_legacy(batch: Batch, limit: int) -> list[DecodeError]:
    records = _read_legacy(batch, limit)
    problems = []
    if batch.compressed:
        message = batch.buffer[batch.index + _LEGACY_SIZE : batch.index + batch.size]
        for inner, offset, _, _ in legacy_messages(batch, message, limit):
            if zlib.crc32(inner[4:]) != int.from_bytes(inner[:4], "big"):
                problems.append(_bad(batch, f"the checksum of the inner message of offset {offset} is wrong", "bad-inner-crc"))
    if any(after.offset <= before.offset for before, after in pairwise(records)):
        problems.append(_bad(batch, "the offsets of its records do not increase", "bad-offsets"))
    if records[-1].offset != batch.last_offset and not (batch.magic == 1 and batch.last_offset == 0):
        reason = f"its last record has the offset {records[-1].offset}, the set has {batch.last_offset}"
        problems.append(_bad(batch, reason, "bad-offsets"))
    return problems
