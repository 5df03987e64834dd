"""The hot loop over the records of a batch: one typed source, interpreted, or compiled by mypyc where a compiler is.

Source: Kafka's `DefaultRecord.readFrom` and `DefaultRecordBatch.RecordIterator`. A record is
`length: varint, attributes: int8, timestampDelta: varlong, offsetDelta: varint, key, value: varint length and bytes (-1: null),
headers: varint count, then key (never null) and value each`. Nothing here raises for wrong bytes: a function returns the position of the
record that could not be read (`kops.records.deep` finds the sentence for it), so the loop carries no error handling.

Both variants must give the same answer for any bytes: no arithmetic here may leave 64 bits where an interpreted int would grow.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

OK: Final = 0
UNREADABLE: Final = 1
NOT_INCREASING: Final = 2
LEFT_OVER: Final = 3

_MAX64: Final = 9223372036854775807
_SAFE: Final = 4611686018427387904


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """-> (signed 32-bit value, position behind it); position -1 where it does not end within 5 bytes. IndexError at the end of `data`.

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
    """-> (signed 64-bit value, position behind it); position -1 where it does not end within 10 bytes. IndexError at the end of `data`."""
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
        # The tenth byte gives one bit, the highest; it is kept apart so that the sum fits a signed 64-bit number.
        return ((raw >> 1) | ((byte & 1) << 62)) ^ -(raw & 1), position + 1
    raw |= byte << shift
    return (raw >> 1) ^ -(raw & 1), position + 1


def _skip_headers(data: bytes, position: i64, count: i64, end: i64) -> i64:
    """-> the position behind `count` headers, or -1."""
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


def validate_records(data: bytes, start: i64, end: i64, count: i64) -> tuple[i64, i64, i64, i64]:
    """Look at every record of the uncompressed set `data[start:end]` without making objects.

    -> (status, position, last offset delta, largest timestamp delta). Status OK; UNREADABLE: `position` is where the bad record begins;
    NOT_INCREASING: all can be read, but the record at `position` does not come after the one before it; LEFT_OVER: bytes remain from
    `position` on. Without a record both deltas are -2**63.
    """
    # A jump beyond a record's end is not looked for field by field: positions only grow, so it shows where the record must end.
    position: i64 = start
    begin: i64 = start
    status: i64 = OK
    where: i64 = -1
    last: i64 = -_MAX64 - 1
    most: i64 = -_MAX64 - 1
    stop: i64
    byte: i64
    high: i64
    value: i64
    try:
        for _ in range(count):
            begin = position
            # Length.
            byte = data[position]
            if byte < 128:
                value = byte >> 1
                position += 1
                if byte & 1:
                    return UNREADABLE, begin, last, most
            else:
                high = data[position + 1]
                if high < 128 and not byte & 1:
                    value = (byte - 128 + (high << 7)) >> 1
                    position += 2
                else:
                    value, position = read_varint(data, position)
                    if position < 0:
                        return UNREADABLE, begin, last, most
            stop = position + value
            if stop > end or value < 6:
                return UNREADABLE, begin, last, most
            # One byte of attributes, then the timestamp's delta.
            byte = data[position + 1]
            if byte < 128:
                value = byte >> 1
                position += 2
                if byte & 1:
                    value = -1 - value
            else:
                high = data[position + 2]
                if high < 128:
                    value = (byte - 128 + (high << 7)) >> 1
                    position += 3
                    if byte & 1:
                        value = -1 - value
                else:
                    value, position = read_varlong(data, position + 1)
                    if position < 0:
                        return UNREADABLE, begin, last, most
            if value > most:
                most = value
            # Offset delta.
            byte = data[position]
            if byte < 128:
                value = byte >> 1
                position += 1
                if byte & 1:
                    value = -1 - value
            else:
                high = data[position + 1]
                if high < 128:
                    value = (byte - 128 + (high << 7)) >> 1
                    position += 2
                    if byte & 1:
                        value = -1 - value
                else:
                    value, position = read_varint(data, position)
                    if position < 0:
                        return UNREADABLE, begin, last, most
            if value <= last and status == OK:
                status = NOT_INCREASING
                where = begin
            last = value
            # Key.
            byte = data[position]
            if byte == 1:
                position += 1
            elif byte < 128:
                position += 1
                if not byte & 1:
                    position += byte >> 1
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return UNREADABLE, begin, last, most
                if value > 0:
                    position += value
            # Value.
            byte = data[position]
            if byte < 128:
                position += 1
                if not byte & 1:
                    position += byte >> 1
            else:
                high = data[position + 1]
                if high < 128 and not byte & 1:
                    position += 2 + ((byte - 128 + (high << 7)) >> 1)
                else:
                    value, position = read_varint(data, position)
                    if position < 0:
                        return UNREADABLE, begin, last, most
                    if value > 0:
                        position += value
            # Headers.
            if data[position]:
                value, position = read_varint(data, position)
                if position < 0:
                    return UNREADABLE, begin, last, most
                position = _skip_headers(data, position, value, stop)
            else:
                position += 1
            if position != stop:
                return UNREADABLE, begin, last, most
    except IndexError:
        return UNREADABLE, begin, last, most
    if position != end:
        return LEFT_OVER, position, last, most
    return status, where, last, most


Header = tuple[str | bytes, bytes | None]
Row = tuple[int, int, str, bytes | None, bytes | None, list[Header], int, int | None, int, int]


def _read_headers(data: bytes, position: i64, count: i64, end: i64, out: list[Header]) -> i64:
    """Append `count` headers to `out`; -> the position behind them, or -1."""
    if count < 0 or count > end - position:
        return -1
    size: i64
    name: str | bytes
    for _ in range(count):
        size, position = read_varint(data, position)
        if position < 0 or size < 0 or position + size > end:
            return -1
        raw = data[position : position + size]
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            name = raw
        position += size
        size, position = read_varint(data, position)
        if position < 0:
            return -1
        if size < 0:
            out.append((name, None))
        else:
            if position + size > end:
                return -1
            out.append((name, data[position : position + size]))
            position += size
    return position


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
    """Append a row for each record of `data[start:end]`, with the fields of `kops.records.Record` in its order.

    -> the position behind the last record, or -1 - position of the record that can't be read (the rows before it are there).
    With `timestamp_type` LogAppendTime, `base_timestamp` is that of every record. Sums wrap at 64 bits, as in Java.
    """
    fixed = timestamp_type == "LogAppendTime"
    position: i64 = start
    begin: i64 = start
    stop: i64
    byte: i64
    high: i64
    value: i64
    size: i64
    offset: i64
    timestamp: i64
    attributes: i64
    sequence: i64 = -1
    headers: list[Header]
    try:
        for _ in range(count):
            begin = position
            # Length.
            byte = data[position]
            high = data[position + 1]
            if byte > 127 and high < 128 and not byte & 1:
                value = (byte - 128 + (high << 7)) >> 1
                position += 2
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return -1 - begin
            stop = position + value
            if value < 6 or stop > end:
                return -1 - begin
            attributes = data[position]
            # Timestamp delta.
            byte = data[position + 1]
            if byte < 128:
                value = (byte >> 1) ^ -(byte & 1)
                position += 2
            else:
                high = data[position + 2]
                if high < 128:
                    value = (byte - 128 + (high << 7)) >> 1
                    position += 3
                    if byte & 1:
                        value = -1 - value
                else:
                    value, position = read_varlong(data, position + 1)
                    if position < 0:
                        return -1 - begin
            timestamp = base_timestamp if fixed else base_timestamp + value
            if not -_SAFE < timestamp < _SAFE and not fixed:
                timestamp = _add(base_timestamp, value)
            # Offset delta.
            byte = data[position]
            if byte < 128:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                high = data[position + 1]
                if high < 128:
                    value = (byte - 128 + (high << 7)) >> 1
                    position += 2
                    if byte & 1:
                        value = -1 - value
                else:
                    value, position = read_varint(data, position)
                    if position < 0:
                        return -1 - begin
            offset = base_offset + value
            if not -_SAFE < offset < _SAFE:
                offset = _add(base_offset, value)
            if base_sequence >= 0:
                sequence = base_sequence + value
                if sequence > 0x7FFFFFFF:
                    sequence -= 0x80000000
            # Key.
            byte = data[position]
            key: bytes | None = None
            if byte == 1:
                position += 1
            else:
                size, position = read_varint(data, position)
                if position < 0:
                    return -1 - begin
                if size >= 0:
                    key = data[position : position + size]
                    position += size
            # Value.
            byte = data[position]
            payload: bytes | None = None
            if byte == 1:
                position += 1
            else:
                high = data[position + 1]
                if byte > 127 and high < 128 and not byte & 1:
                    size = (byte - 128 + (high << 7)) >> 1
                    position += 2
                else:
                    size, position = read_varint(data, position)
                    if position < 0:
                        return -1 - begin
                if size >= 0:
                    payload = data[position : position + size]
                    position += size
            headers = []
            if data[position]:
                value, position = read_varint(data, position)
                if position < 0:
                    return -1 - begin
                position = _read_headers(data, position, value, stop, headers)
            else:
                position += 1
            if position != stop:
                return -1 - begin
            if attributes > 127:
                attributes -= 256
            rows.append((offset, timestamp, timestamp_type, key, payload, headers, sequence, leader_epoch, stop - begin, attributes))
    except IndexError:
        return -1 - begin
    return position


def _add(base: i64, delta: i64) -> i64:
    """A sum that wraps at 64 bits, whether this is interpreted or compiled."""
    if delta >= 0:
        if base > _MAX64 - delta:
            return (base - _MAX64 - 1) + (delta - _MAX64 - 1)
    elif base < -_MAX64 - 1 - delta:
        return (base + _MAX64 + 1) + (delta + _MAX64 + 1)
    return base + delta
