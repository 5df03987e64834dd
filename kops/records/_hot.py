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
_WRAP: Final = 18446744073709551616


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


def validate_records(data: bytes, start: i64, end: i64, count: i64) -> tuple[i64, i64, i64, i64, i64]:
    """Look at every record of the uncompressed set `data[start:end]` without making objects.

    -> (status, position, first offset delta, last offset delta, largest timestamp delta). Status OK; UNREADABLE: `position` is where the
    bad record begins; NOT_INCREASING: all can be read, but the record at `position` does not come after the one before it; LEFT_OVER: bytes
    remain from `position` on.
    """
    position = start
    begin: i64 = start
    status: i64 = OK
    where: i64 = -1
    first: i64 = -1
    last: i64 = -1
    most: i64 = -0x7FFFFFFFFFFFFFFF
    number: i64 = 0
    length: i64
    stop: i64
    byte: i64
    value: i64
    try:
        while number < count:
            begin = position
            byte = data[position]
            position += 1
            if byte < 128:
                length = byte >> 1
                if byte & 1:
                    return UNREADABLE, begin, first, last, most
            else:
                length, position = read_varint(data, position - 1)
                if position < 0:
                    return UNREADABLE, begin, first, last, most
            stop = position + length
            if stop > end or length < 6:
                return UNREADABLE, begin, first, last, most
            # One byte of attributes, then the timestamp's delta.
            byte = data[position + 1]
            if byte < 128:
                position += 2
                value = (byte >> 1) ^ -(byte & 1)
            else:
                value, position = read_varlong(data, position + 1)
                if position < 0:
                    return UNREADABLE, begin, first, last, most
            if value > most:
                most = value
            byte = data[position]
            if byte < 128:
                position += 1
                value = (byte >> 1) ^ -(byte & 1)
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return UNREADABLE, begin, first, last, most
            if number == 0:
                first = value
            elif value <= last and status == OK:
                status = NOT_INCREASING
                where = begin
            last = value
            # Key.
            byte = data[position]
            if byte < 128:
                position += 1
                if not byte & 1:
                    position += byte >> 1
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return UNREADABLE, begin, first, last, most
                if value > 0:
                    position += value
            if position >= stop:
                return UNREADABLE, begin, first, last, most
            # Value.
            byte = data[position]
            if byte < 128:
                position += 1
                if not byte & 1:
                    position += byte >> 1
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return UNREADABLE, begin, first, last, most
                if value > 0:
                    position += value
            if position >= stop:
                return UNREADABLE, begin, first, last, most
            if data[position]:
                value, position = read_varint(data, position)
                if position < 0:
                    return UNREADABLE, begin, first, last, most
                position = _skip_headers(data, position, value, stop)
            else:
                position += 1
            if position != stop:
                return UNREADABLE, begin, first, last, most
            number += 1
    except IndexError:
        return UNREADABLE, begin, first, last, most
    if position != end:
        return LEFT_OVER, position, first, last, most
    return status, where, first, last, most


Header = tuple[str | bytes, bytes | None]
Row = tuple[int, int, bytes | None, bytes | None, list[Header], int, int, int]


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
    data: bytes, start: i64, end: i64, count: i64, base_offset: i64, base_timestamp: i64, fixed_timestamp: bool, rows: list[Row]
) -> i64:
    """Append a row for each record of `data[start:end]`: (offset, timestamp, key, value, headers, size, attributes, offset delta).

    -> position behind the last record, or -1 - position of the record that can't be read (the rows before it are there).
    `fixed_timestamp`: `base_timestamp` is that of every record (LogAppendTime). Sums wrap at 64 bits, as in Java.
    """
    position = start
    begin: i64 = start
    number: i64 = 0
    length: i64
    stop: i64
    value: i64
    offset_delta: i64
    offset: i64
    timestamp: i64
    key: bytes | None
    payload: bytes | None
    headers: list[Header]
    try:
        while number < count:
            begin = position
            length, position = read_varint(data, position)
            stop = position + length
            if position < 0 or length < 6 or stop > end:
                return -1 - begin
            attributes: i64 = data[position]
            value, position = read_varlong(data, position + 1)
            if position < 0:
                return -1 - begin
            if fixed_timestamp:
                timestamp = base_timestamp
            else:
                timestamp = _add(base_timestamp, value)
            byte: i64 = data[position]
            if byte < 128:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                offset_delta, position = read_varint(data, position)
                if position < 0:
                    return -1 - begin
            offset = _add(base_offset, offset_delta)
            byte = data[position]
            if byte < 128:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return -1 - begin
            key = None
            if value >= 0:
                if position + value >= stop:
                    return -1 - begin
                key = data[position : position + value]
                position += value
            byte = data[position]
            if byte < 128:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                value, position = read_varint(data, position)
                if position < 0:
                    return -1 - begin
            payload = None
            if value >= 0:
                if position + value >= stop:
                    return -1 - begin
                payload = data[position : position + value]
                position += value
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
            rows.append((offset, timestamp, key, payload, headers, stop - begin, attributes, offset_delta))
            number += 1
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
