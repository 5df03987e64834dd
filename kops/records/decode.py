"""The records inside a batch, of every format.

Source: Kafka's `DefaultRecordBatch` iterators and `DefaultRecord.readFrom` (v2), `AbstractLegacyRecordBatch.DeepRecordsIterator` and
`LegacyRecord` (v0, v1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError
from kops.records import _hot as hot
from kops.records.compression import LZ4, ZSTD, codec_name
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record
from kops.records.streams.messages import InnerMessage, inner_messages
from kops.records.windows import MAX_RECORD, OVERHEAD, WINDOW, Holds, RecordWindows, why_unreadable

if TYPE_CHECKING:
    from kops.records.batch import Batch

_LEGACY_SIZE = 12
CHUNK: Final = 16384
"""The number of records that are decoded at once."""
_as_record: Callable[[hot.Row], Record] = partial(tuple.__new__, Record)


def _bad(batch: Batch, reason: str, code: str = "bad-records") -> DecodeError:
    return DecodeError(reason, code=code, position=batch.position)


def read_records(batch: Batch, limit: int) -> list[Record]:
    """`Batch.records`."""
    if batch.magic < 2:
        return list(_read_legacy(batch, limit))
    records, error = read_some(batch, limit)
    if error is not None:
        raise error
    return records


def read_some(batch: Batch, limit: int) -> tuple[list[Record], DecodeError | None]:
    """Return the records of a v2 batch up to the first unreadable one, and the error there. Raises DecodeError if the whole batch is
    unreadable."""
    windows = RecordWindows(batch, max_record_bytes=limit)
    records: list[Record] = []
    count = batch.count or 0
    if 0 < count <= CHUNK:
        only = windows.whole()
        if only is not None and (windows.size <= limit or not batch.compressed):
            data, start, end, _ = only
            return _decode(batch, data, start, end, count, 0, is_last=True)[:2]
    for chunk, error in decoded(batch, windows):
        if windows.size > limit and batch.compressed:
            raise _too_large(batch, limit)
        if records:
            records += chunk
        else:
            records = chunk
        if error is not None:
            return records, error
    return records, None


def first_of(batch: Batch) -> tuple[list[Record], DecodeError | None]:
    """Return the first record of a v2 batch, if any, and the error in the batch. Raises DecodeError if the whole batch is unreadable."""
    first: list[Record] = []
    failed = None
    for records, error in decoded(batch, RecordWindows(batch)):
        first = first or records[:1]
        failed = error
    return first, failed


def _too_large(batch: Batch, limit: int) -> DecodeError:
    return _bad(batch, f"the records decompress to more than the limit of {limit} bytes", "too-large")


def decoded(batch: Batch, windows: RecordWindows) -> Iterator[tuple[list[Record], DecodeError | None]]:
    """Yield the records of a v2 batch, at most `CHUNK` at a time. The last list comes with the error of the next record, if any."""
    left = batch.count or 0
    if left == 0:
        return
    if left < 0:
        raise _bad(batch, f"the batch claims {left} records")
    number = 0
    try:
        for data, position, end, found in windows:
            while found:
                some = min(found, CHUNK)
                found -= some
                records, error, position = _decode(batch, data, position, end, some, number, is_last=not found)
                yield records, error
                if error is not None:
                    return
                number += some
    except DecodeError as failed:
        if failed.code != "bad-records":
            raise
        yield [], failed


def _decode(
    batch: Batch, data: bytes, position: int, end: int, count: int, number: int, *, is_last: bool
) -> tuple[list[Record], DecodeError | None, int]:
    """Return (`count` records that begin at `position`, the error, the position after them). `number` is the index of the first one in the
    batch."""
    fixed = batch.attributes & 8 != 0
    rows: list[hot.Row] = []
    stop = hot.decode_records(
        data,
        position,
        end,
        count,
        batch.base_offset,
        batch.max_timestamp if fixed else batch.base_timestamp,
        LOG_APPEND_TIME if fixed else CREATE_TIME,
        batch.base_sequence,
        batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None,
        rows,
    )
    error = None
    if stop < 0:
        error = _bad(batch, why_unreadable(data, -1 - stop, end, number + len(rows)))
    elif is_last and stop != end:
        error = _bad(batch, f"{end - stop} bytes are left after the {batch.count} records that the batch claims")
    return list(map(_as_record, rows)), error, stop


def iterate(batch: Batch, *, max_record_bytes: int = MAX_RECORD, holds: Holds = "records") -> Iterator[Record]:
    """Implements `Batch.iterate`. `holds` says how much of a record of more than 4 MiB is kept (in v0 and v1 always all)."""
    return _small(batch) or _iterate(batch, max_record_bytes, holds)


def _small(batch: Batch) -> Iterator[Record] | None:
    """Return the records of a good small batch, which is read at once, or None for any other batch. Internal topics are full of small
    batches."""
    count, begin, end = batch.count or 0, batch.index + OVERHEAD, batch.index + batch.size
    if batch.magic < 2 or batch.compressed or not 0 < count <= CHUNK or not begin <= end <= len(batch.buffer):
        return None
    records, error, _ = _decode(batch, batch.buffer, begin, end, count, 0, is_last=True)
    return iter(records) if error is None else None


def _iterate(batch: Batch, max_record_bytes: int, holds: Holds) -> Iterator[Record]:
    for records in chunks(batch, max_record_bytes=max_record_bytes, holds=holds):
        yield from records


def chunks(batch: Batch, *, max_record_bytes: int = MAX_RECORD, holds: Holds = "records") -> Iterator[list[Record]]:
    """Yield the records in lists of at most `CHUNK`, so that memory does not grow with the batch. Raises DecodeError as `iterate` does."""
    if batch.magic < 2:
        yield from _bundled(_read_legacy(batch, None, whole=holds == "records", max_bytes=max_record_bytes))
        return
    for chunk, error in decoded(batch, RecordWindows(batch, max_record_bytes=max_record_bytes, holds=holds)):
        if chunk:
            yield chunk
        if error is not None:
            raise error


# v0 and v1 ----------------------------------------------------------------------------------------------------------------------------


def _field(message: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a field after a 32-bit length (negative: null). Returns (bytes, position after it)."""
    if position + 4 > len(message):
        raise DecodeError("a message ends within its fields", code="bad-records")
    size = int.from_bytes(message[position : position + 4], "big", signed=True)
    position += 4
    if size < 0:
        return None, position
    if position + size > len(message):
        raise DecodeError(f"a message has a field of {size} bytes, {len(message) - position} are left", code="bad-records")
    return message[position : position + size], position + size


def _message(message: bytes, offset: int, outer_type: str | None, outer_timestamp: int) -> Record:
    """Return a message (from its CRC) as a record. `outer_type` is the timestamp type of the compressed set around it, if any."""
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


def _bundled(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yield the records in lists of at most `CHUNK` records and little more than `WINDOW` bytes."""
    found: list[Record] = []
    size = 0
    for record in records:
        found.append(record)
        size += record.size
        if len(found) >= CHUNK or size >= WINDOW:
            yield found
            found, size = [], 0
    if found:
        yield found


def _outer(batch: Batch) -> bytes:
    end = batch.index + batch.size
    if batch.size < 26 or end > len(batch.buffer):
        raise _bad(batch, f"the message claims {batch.size} bytes", "bad-length")
    return batch.buffer[batch.index + _LEGACY_SIZE : end]


def _read_legacy(batch: Batch, limit: int | None, *, whole: bool = True, max_bytes: int = MAX_RECORD) -> Iterator[Record]:
    """Yield the messages. `limit` bounds the size of all messages, `max_bytes` that of each. Without `whole`, a large message of a
    compressed set has no contents."""
    message = _outer(batch)
    size = 0
    try:
        if not batch.compressed:
            yield _message(message, batch.last_offset, None, -1)
            return
        base, found = _inner_set(batch, message, whole=whole, max_bytes=max_bytes if limit is None else min(limit, max_bytes))
        for inner in found:
            size += _LEGACY_SIZE + inner.size
            if limit is not None and size > limit:
                raise _too_large(batch, limit)
            content = inner.content
            if inner.computed_crc is not None:
                _check_fields(inner)
                content = content[: 6 if content[4] == 0 else 14] + bytes(8)
            outer_type = batch.timestamp_type if content[4] == 1 else None
            yield _message(content, base + inner.offset, outer_type, batch.max_timestamp)
    except DecodeError as error:
        raise error.at(position=batch.position) from None


LegacyMessage = tuple[bytes, int, str | None, int]
"""(bytes from the CRC, offset, outer timestamp type or None, outer timestamp)"""


def legacy_messages(batch: Batch, message: bytes) -> Iterator[LegacyMessage]:
    """Yield the messages inside a compressed one. Checks the whole set before the first message; raises DecodeError if Kafka rejects it.

    As in Kafka, a message that is cut off at the end is dropped. A set of more than `WINDOW` bytes is decompressed twice and never held in
    memory.
    """
    base, found = _inner_set(batch, message)
    for offset, _, content, _ in found:
        yield content, base + offset, batch.timestamp_type if content[4] == 1 else None, batch.max_timestamp


def _inner_set(batch: Batch, message: bytes, *, whole: bool = True, max_bytes: int = MAX_RECORD) -> tuple[int, Iterable[InnerMessage]]:
    """Return (the number to add to the messages' offsets, the messages).

    In v1, offsets are relative: they count from 0, and the last message has the outer offset. In v0, they are absolute. An outer offset of
    0 in v1 comes from old librdkafka producers. The offsets then count as written.
    """
    codec = batch.attributes & 7
    if codec == ZSTD or codec > LZ4:
        raise DecodeError(f"compression {codec_name(codec)} in message format v{batch.magic}", code="unknown-codec")
    value = _message(message, batch.last_offset, None, -1).value
    if value is None:
        raise DecodeError("a compressed message without a value", code="bad-records")
    held: list[InnerMessage] = []
    size, last = 0, None
    for inner in inner_messages(codec, value, batch.magic, whole=False):
        if inner.content[5] & 7:
            raise DecodeError("an inner message that is itself compressed", code="bad-records")
        last = inner.offset
        size += _LEGACY_SIZE + inner.size
        if size <= WINDOW and inner.computed_crc is None:
            held.append(inner)
        else:
            size = max(size, WINDOW + 1)
            held.clear()
    if last is None:
        raise DecodeError("a compressed message without an inner message", code="bad-records")
    base = 0
    if batch.magic == 1 and batch.last_offset != 0:
        if batch.last_offset < last:
            raise DecodeError(f"the outer offset {batch.last_offset} is below the last inner offset {last}", code="bad-records")
        base = batch.last_offset - last
    return base, held if size <= WINDOW else inner_messages(codec, value, batch.magic, whole=whole, max_bytes=max_bytes)


def read_base_offset(batch: Batch) -> int:
    """Implements `Batch.read_base_offset` for a compressed set of v0 or v1."""
    message = _outer(batch)
    try:
        base, found = _inner_set(batch, message, whole=False)
        first = next(iter(found))
        _check_fields(first)
    except DecodeError as error:
        raise error.at(position=batch.position) from None
    return base + first.offset


def _check_fields(inner: InnerMessage) -> None:
    """Raise DecodeError for an impossible key or value. In a large message, only the first 64 KiB are checked."""
    if inner.computed_crc is None:
        _message(inner.content, 0, None, -1)
        return
    position = 6 if inner.content[4] == 0 else 14
    for _ in range(2):
        if position + 4 > len(inner.content):
            return
        size = max(0, int.from_bytes(inner.content[position : position + 4], "big", signed=True))
        position += 4 + size
        if position > inner.size:
            reason = f"a message has a field of {size} bytes, {inner.size - position + size} are left"
            raise DecodeError(reason, code="bad-records")


# the deep check -----------------------------------------------------------------------------------------------------------------------


def check_batch(batch: Batch) -> list[DecodeError]:
    """`Batch.check`."""
    try:
        return _check_legacy(batch) if batch.magic < 2 else _check_v2(batch)
    except DecodeError as error:
        return [error]


def _check_v2(batch: Batch) -> list[DecodeError]:
    count = batch.count or 0
    if count < 0:
        raise _bad(batch, f"the batch claims {count} records")
    windows = RecordWindows(batch, holds="nulls")
    last = most = -(1 << 63)
    rises = True
    for data, start, end, found in windows if count or not batch.compressed else ((b"", 0, 0, 0),):
        if windows.is_streamed and hot.place(data, start, end)[2] <= last:
            rises = False
        status, position, last, highest, _, _ = hot.validate_records(data, start, end, found)
        most = max(most, highest)
        if status == hot.UNREADABLE:
            records, error = read_some(batch, end)
            return [error or _bad(batch, why_unreadable(data, position, end, len(records)))]
        if status == hot.LEFT_OVER:
            return [_bad(batch, f"{end - position} bytes are left after the {count} records that the batch claims")]
        rises = rises and status != hot.NOT_INCREASING
    problems = []
    if not rises:
        problems.append(_bad(batch, "the offsets of its records do not increase", "bad-offsets"))
    if count and last > batch.last_offset_delta:
        reason = f"its last record has the offset {batch.base_offset + last}, the batch ends at {batch.last_offset}"
        problems.append(_bad(batch, reason, "bad-offsets"))
    if count and not batch.attributes & 8 and batch.base_timestamp + most > batch.max_timestamp:
        reason = f"a record has the timestamp {batch.base_timestamp + most}, the batch claims at most {batch.max_timestamp}"
        problems.append(_bad(batch, reason, "bad-timestamps"))
    return problems


def _check_legacy(batch: Batch) -> list[DecodeError]:
    message = _outer(batch)
    if not batch.compressed:
        _message(message, batch.last_offset, None, -1)
        return []
    problems = []
    rises = True
    last: int | None = None
    base, found = _inner_set(batch, message, whole=False)
    for inner in found:
        _check_fields(inner)
        offset = base + inner.offset
        if not inner.crc_ok():
            problems.append(_bad(batch, f"the checksum of the inner message of offset {offset} is wrong", "bad-inner-crc"))
        rises = rises and (last is None or offset > last)
        last = offset
    if not rises:
        problems.append(_bad(batch, "the offsets of its records do not increase", "bad-offsets"))
    if last != batch.last_offset and not (batch.magic == 1 and batch.last_offset == 0):
        reason = f"its last record has the offset {last}, the set has {batch.last_offset}"
        problems.append(_bad(batch, reason, "bad-offsets"))
    return problems
