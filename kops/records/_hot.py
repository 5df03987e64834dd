"""The hot loop over the records of a batch. The same typed source is interpreted, or compiled by mypyc if there is a C compiler.

Source: Kafka's `DefaultRecord.readFrom` and `DefaultRecordBatch.RecordIterator`. A record is `length: varint, attributes: int8,
timestampDelta: varlong, offsetDelta: varint, key, value: varint length and bytes (-1: null), headers: varint count, then key (never null)
and value each`. No function raises an error for wrong bytes, so the loop has no error handling. It returns the position of the record that
it cannot read, and `kops.records.windows.why_unreadable` describes the error.

Both variants must give the same result for any bytes. So no arithmetic may exceed 64 bits: an interpreted int would grow.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

OK: Final = 0
UNREADABLE: Final = 1
NOT_INCREASING: Final = 2
LEFT_OVER: Final = 3

_MAX64: Final = 9223372036854775807
SAFE: Final = 4611686018427387904


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """Return (signed 32-bit value, position after it). The position is -1 if the number does not end within 5 bytes. Raises IndexError at
    the end of `data`.

    As in Kafka, bits beyond 32 in the fifth byte are dropped.
    """
    raw: i64 = 0
    shift: i64 = 0
    byte: i64 = data[position]
    while byte >= 128:
        raw |= (byte & 127) << shift
        shift += 7
        if shift > 28:
            return 0, -1
        position += 1
        byte = data[position]
    raw = (raw | (byte << shift)) & 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position + 1


def read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """Return (signed 64-bit value, position after it). The position is -1 if the number does not end within 10 bytes. Raises IndexError at
    the end of `data`."""
    raw: i64 = 0
    shift: i64 = 0
    byte: i64 = data[position]
    while byte >= 128:
        if shift == 63:
            return 0, -1
        raw |= (byte & 127) << shift
        shift += 7
        position += 1
        byte = data[position]
    if shift == 63:
        # The tenth byte holds only the highest bit. It is handled separately, so that the sum fits into a signed 64-bit number.
        return ((raw >> 1) | ((byte & 1) << 62)) ^ -(raw & 1), position + 1
    raw |= byte << shift
    return (raw >> 1) ^ -(raw & 1), position + 1


def _skip_headers(data: bytes, position: i64, count: i64, end: i64) -> i64:
    """Return the position after `count` headers, or -1."""
    if count < 0 or count > end - position:
        return -1
    size: i64
    for _ in range(count):
        size, position = read_varint(data, position)
        if position < 0 or size < 0:
            return -1
        position += size
        if position > end:
            return -1
        size, position = read_varint(data, position)
        if position < 0:
            return -1
        if size > 0:
            position += size
            if position > end:
                return -1
    return position


Place = tuple[i64, i64, i64, i64, i64, i64, i64, i64, i64]
"""(position after the record or -1, timestamp delta, offset delta, key position, key size, value position, value size, position of the
headers' count, attributes as an unsigned byte). A size below 0 means null."""


def locate(data: bytes, position: i64, end: i64) -> Place:
    """Return the places of the fields of any record at `position`. The first one is -1 if the record is unreadable."""
    if position >= end:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    try:
        size, position = read_varint(data, position)
        stop = position + size
        if position < 0 or size < 6 or stop > end:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        # One byte of attributes comes before the timestamp.
        timestamp, at = read_varlong(data, position + 1)
        if at < 0:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        offset, at = read_varint(data, at)
        if at < 0:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        key_size, key_at = read_varint(data, at)
        if key_at < 0:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        value_size, value_at = read_varint(data, key_at + key_size if key_size > 0 else key_at)
        if value_at < 0:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        headers_at = value_at + value_size if value_size > 0 else value_at
        count, at = read_varint(data, headers_at)
        if at < 0 or _skip_headers(data, at, count, stop) != stop:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        return stop, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, data[position]
    except IndexError:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0


# The usual record has no headers, and none of its numbers takes more than two bytes. The loop itself reads it. A number with a third byte
# appears as one above 16383, and a field that exceeds the record gives a wrong end. In both cases `locate` decides.


Survey = tuple[i64, i64, i64, i64, i64, i64]


def validate_records(data: bytes, start: i64, end: i64, count: i64) -> Survey:
    """Check every record of the uncompressed set `data[start:end]` without creating objects.

    Returns (status, position, last offset delta, largest timestamp delta, smallest timestamp delta, number of records without a key). The
    status is one of these. OK. UNREADABLE: the bad record begins at `position`. NOT_INCREASING: all records are readable, but the offset of
    the record at `position` is not above the previous one. LEFT_OVER: bytes remain at `position`. Without records, the last and the largest
    delta are -2**63, and the smallest is 2**63 - 1.
    """
    position: i64 = start
    status: i64 = OK
    where: i64 = -1
    last: i64 = -_MAX64 - 1
    most: i64 = -_MAX64 - 1
    least: i64 = _MAX64
    keyless: i64 = 0
    stop, timestamp, offset, length, key, value, begin, _, _ = locate(b"", 0, 0)
    for _ in range(count):
        begin = position
        try:
            length = data[position]
            if length > 127:
                length, position = length - 128 + (data[position + 1] << 7), position + 1
            stop = position + 1 + (length >> 1)
            timestamp = data[position + 2]
            if timestamp > 127:
                timestamp, position = timestamp - 128 + (data[position + 3] << 7), position + 1
            offset = data[position + 3]
            if offset > 127:
                offset, position = offset - 128 + (data[position + 4] << 7), position + 1
            key = data[position + 4]
            if key > 127:
                key, position = key - 128 + (data[position + 5] << 7), position + 1
            if not key & 1:
                position += key >> 1
            value = data[position + 5]
            if value > 127:
                value, position = value - 128 + (data[position + 6] << 7), position + 1
            if not value & 1:
                position += value >> 1
            if data[position + 6] or position + 7 != stop:
                stop = -1
        except IndexError:
            stop = -1
        if stop < 0 or stop > end or length & 1 or (length | timestamp | offset | key | value) > 16383:
            stop, timestamp, offset, _, key, _, _, _, _ = locate(data, begin, end)
            if stop < 0:
                return UNREADABLE, begin, last, most, least, keyless
            if key < 0:
                keyless += 1
        else:
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            offset = (offset >> 1) ^ -(offset & 1)
            keyless += key & 1
        position = stop
        if timestamp > most:
            most = timestamp
        if timestamp < least:
            least = timestamp
        if offset <= last and status == OK:
            status, where = NOT_INCREASING, begin
        last = offset
    if position != end:
        return LEFT_OVER, position, last, most, least, keyless
    return status, where, last, most, least, keyless


def _int32(data: bytes, at: i64) -> i64:
    value: i64 = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
    return value - ((value & 0x80000000) << 1)


def to_check(data: bytes, indexes: list[int]) -> list[int]:
    """Return the numbers of the v2 batches at `indexes` in `data` that `check_batch` must look at: all but the uncompressed ones whose
    records can be read and fit the header.

    Every batch must be in `data` as a whole, with a header of v2.
    """
    found: list[int] = []
    number: i64 = -1
    for each in indexes:
        number += 1
        index: i64 = each
        count: i64 = _int32(data, index + 57)
        latest: i64 = (_int32(data, index + 35) << 32) | (_int32(data, index + 39) & 0xFFFFFFFF)
        first: i64 = (_int32(data, index + 27) << 32) | (_int32(data, index + 31) & 0xFFFFFFFF)
        # Without negative timestamps, no difference of two exceeds 64 bits.
        if data[index + 22] & 7 or count <= 0 or first < 0 or latest < 0:
            found.append(number)
            continue
        stop: i64 = index + _int32(data, index + 8) + 12
        status, _, last, most, _, _ = validate_records(data, index + 61, stop, count)
        if status != OK or last > _int32(data, index + 23) or (not data[index + 22] & 8 and most > latest - first):
            found.append(number)
    return found


def place(data: bytes, position: i64, end: i64) -> Place:
    """Like `locate`, with a fast path for the usual record."""
    begin = position
    try:
        length: i64 = data[position]
        if length > 127:
            length, position = length - 128 + (data[position + 1] << 7), position + 1
        stop = position + 1 + (length >> 1)
        attributes: i64 = data[position + 1]
        timestamp: i64 = data[position + 2]
        if timestamp > 127:
            timestamp, position = timestamp - 128 + (data[position + 3] << 7), position + 1
        offset: i64 = data[position + 3]
        if offset > 127:
            offset, position = offset - 128 + (data[position + 4] << 7), position + 1
        key: i64 = data[position + 4]
        if key > 127:
            key, position = key - 128 + (data[position + 5] << 7), position + 1
        key_at = position + 5
        if not key & 1:
            position += key >> 1
        value: i64 = data[position + 5]
        if value > 127:
            value, position = value - 128 + (data[position + 6] << 7), position + 1
        value_at = position + 6
        if not value & 1:
            position += value >> 1
        if (
            position + 7 == stop
            and stop <= end
            and not data[position + 6]
            and not length & 1
            and (length | timestamp | offset | key | value) < 16384
        ):
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            offset = (offset >> 1) ^ -(offset & 1)
            key = -1 if key & 1 else key >> 1
            value = -1 if value & 1 else value >> 1
            return stop, timestamp, offset, key_at, key, value_at, value, position + 6, attributes
    except IndexError:
        pass
    return locate(data, begin, end)


def whole_records(data: bytes, start: i64, end: i64, count: i64) -> tuple[i64, i64]:
    """Return (position after the complete records that begin at `start`, at most `count` of them; their number)."""
    position: i64 = start
    read: i64 = 0
    while read < count:
        stop, _, _, _, _, _, _, _, _ = place(data, position, end)
        if stop < 0:
            break
        position = stop
        read += 1
    return position, read


def _varint_size(value: i64) -> i64:
    """The size of a signed number in its shortest form."""
    raw: i64 = value if value >= 0 else ~value
    size: i64 = 1
    while raw >= 64 and size < 10:
        raw >>= 7
        size += 1
    return size


def are_plain(data: bytes, start: i64, end: i64, count: i64, first: i64 = 0) -> bool:
    """Whether Kafka's builder would write exactly these bytes for the records of `data[start:end]`.

    Plain records have consecutive offsets from `first`, the timestamp delta 0 at offset 0, every number in its shortest form, and no
    attributes. Records with headers, and with numbers so large that reading them may drop bits, never count as plain.
    """
    position: i64 = start
    index: i64
    if end - start >= 1 << 27:
        return False
    for index in range(first, first + count):
        stop, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, attributes = place(data, position, end)
        if stop < 0 or attributes or offset != index or data[headers_at] or not -SAFE <= timestamp < SAFE:
            return False
        # Any size below 0 means null, but the builder writes -1.
        if (key_size < 0 and data[key_at - 1] != 1) or (value_size < 0 and data[value_at - 1] != 1):
            return False
        if index == 0 and timestamp:
            return False
        size: i64 = 2 + _varint_size(timestamp) + _varint_size(offset)
        size += _varint_size(key_size) + key_size if key_size >= 0 else 1
        size += _varint_size(value_size) + value_size if value_size >= 0 else 1
        if stop - position != size + _varint_size(size):
            return False
        position = stop
    return position == end


Header = tuple[str | bytes, bytes | None]
Row = tuple[int, int, str, bytes | None, bytes | None, list[Header], int, int | None, int, int]


def _read_headers(data: bytes, position: i64, end: i64, out: list[Header]) -> None:
    """Append the headers whose count is at `position`. The caller has checked that they fit."""
    count, position = read_varint(data, position)
    name: str | bytes
    for _ in range(count):
        size, position = read_varint(data, position)
        raw = data[position : position + size]
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            name = raw
        size, position = read_varint(data, position + size)
        if size < 0:
            out.append((name, None))
        else:
            out.append((name, data[position : position + size]))
            position += size


def decode_records(
    data: bytes,
    start: i64,
    end: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    timestamp_type: str,
    base_sequence: i64,
    leader_epoch: int | None,
    rows: list[Row],
) -> i64:
    """Append a row for each record of `data[start:end]`, with the fields of `kops.records.Record` in order.

    Returns the position after the last record, or -1 - position of an unreadable record (the rows before it are appended). With
    `timestamp_type` LogAppendTime, every record has the timestamp `base_timestamp`. Sums wrap at 64 bits, as in Java.
    """
    fixed = timestamp_type == "LogAppendTime"
    position: i64 = start
    sequence: i64 = -1
    # At this distance from the limits, no sum with a 32-bit number wraps.
    safe = -SAFE < base_offset < SAFE and -SAFE < base_timestamp < SAFE
    for _ in range(count):
        stop, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, attributes = place(data, position, end)
        if stop < 0:
            return -1 - position
        if base_sequence >= 0:
            sequence = base_sequence + offset
            if sequence > 0x7FFFFFFF:
                sequence -= 0x80000000
            elif offset < 0:
                # Kafka compares it with a limit that also wraps (DefaultRecordBatch.incrementSequence).
                sequence += 0x80000000 if sequence < 0 else -0x80000000
        key = None if key_size < 0 else data[key_at : key_at + key_size]
        value = None if value_size < 0 else data[value_at : value_at + value_size]
        headers: list[Header] = []
        if data[headers_at]:
            _read_headers(data, headers_at, stop, headers)
        if attributes > 127:
            attributes -= 256
        if fixed:
            timestamp = base_timestamp
        elif safe and -SAFE < timestamp < SAFE:
            timestamp += base_timestamp
        else:
            timestamp = add(base_timestamp, timestamp)
        offset = base_offset + offset if safe else add(base_offset, offset)
        rows.append((offset, timestamp, timestamp_type, key, value, headers, sequence, leader_epoch, stop - position, attributes))
        position = stop
    return position


ConsumerRow = tuple[str, int, int, int, str, bytes | None, bytes | None, tuple[Header, ...], int | None, int, int]


def decode_for_consumer(
    data: bytes,
    start: i64,
    end: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    timestamp_type: str,
    leader_epoch: int | None,
    topic: str,
    partition: int,
    first_offset: i64,
    rows: list[ConsumerRow],
) -> i64:
    """Append a row for each record of `data[start:end]` from `first_offset` on, with the fields of a consumer's record in order.

    Returns the position after the last record, or -1 - position of an unreadable record. The rest is as in `decode_records`.
    """
    fixed = timestamp_type == "LogAppendTime"
    position: i64 = start
    safe = -SAFE < base_offset < SAFE and -SAFE < base_timestamp < SAFE
    nothing: tuple[Header, ...] = ()
    for _ in range(count):
        stop, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, _ = place(data, position, end)
        if stop < 0:
            return -1 - position
        position = stop
        offset = base_offset + offset if safe else add(base_offset, offset)
        if offset < first_offset:
            continue
        key = None if key_size < 0 else data[key_at : key_at + key_size]
        value = None if value_size < 0 else data[value_at : value_at + value_size]
        if fixed:
            timestamp = base_timestamp
        elif safe and -SAFE < timestamp < SAFE:
            timestamp += base_timestamp
        else:
            timestamp = add(base_timestamp, timestamp)
        found = nothing
        if data[headers_at]:
            headers: list[Header] = []
            _read_headers(data, headers_at, stop, headers)
            found = tuple(headers)
        if key_size < 0:
            key_size = -1
        if value_size < 0:
            value_size = -1
        rows.append((topic, partition, offset, timestamp, timestamp_type, key, value, found, leader_epoch, key_size, value_size))
    return position


def add(base: i64, delta: i64) -> i64:
    """A sum that wraps at 64 bits, both interpreted and compiled."""
    if delta >= 0:
        if base > _MAX64 - delta:
            return (base - _MAX64 - 1) + (delta - _MAX64 - 1)
    elif base < -_MAX64 - 1 - delta:
        return (base + _MAX64 + 1) + (delta + _MAX64 + 1)
    return base + delta
