"""Finds the fields of v2 records, as buffers that Arrow can use directly: the hot loop for rows of records.

One typed source, interpreted or compiled, as `kops.records._hot`, whose `place` reads a record. The numbers go into `librt`'s byte
writers, which compiled code fills without making Python objects. Offsets and timestamps are little-endian, as in Arrow's buffers and on
every machine that kops supports.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64, u8

from kops.records._hot import SAFE, add, place, read_varint

NULL_KEY: Final = 1
NULL_VALUE: Final = 2
NULL_TIMESTAMP: Final = 4
_MAX_MILLISECONDS: Final[i64] = 9223372036854775  # The largest timestamp whose microseconds fit into 64 bits.


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


class RecordIndex:
    """Places and numbers of some records. All numbers are little-endian.

    `offsets`, `timestamps` (µs): int64 a record. `keys`, `values`: two int32 a record, its start and end in the bytes; they are equal for a
    null or empty one. `absent`: a byte a record, `NULL_KEY | NULL_VALUE | NULL_TIMESTAMP`; a timestamp is null if there is none (-1) or if
    Arrow's type cannot hold it. `headers`: two int32 a record, the position after their count, and how many.
    """

    def __init__(self) -> None:
        self.offsets: BytesWriter = BytesWriter()
        self.timestamps: BytesWriter = BytesWriter()
        self.keys: BytesWriter = BytesWriter()
        self.values: BytesWriter = BytesWriter()
        self.absent: BytesWriter = BytesWriter()
        self.headers: BytesWriter = BytesWriter()
        self.rows: i64 = 0
        self.null_keys: i64 = 0
        self.null_values: i64 = 0
        self.null_timestamps: i64 = 0
        self.header_count: i64 = 0

    def add(self, data: bytes, start: i64, end: i64, count: i64, shift: i64, base_offset: i64, base_timestamp: i64, is_fixed: bool) -> bool:
        """Add `count` records of `data[start:end]`. Returns False and adds nothing if the bytes are not exactly these records.

        `shift` is added to all positions; none reaches 2**31. The timestamps are `base_timestamp` itself if `is_fixed`, else deltas from
        there. Sums wrap at 64 bits, as in Java.
        """
        offsets, timestamps, headers = self.offsets, self.timestamps, self.headers
        keys, values, absent = self.keys, self.values, self.absent
        safe = -SAFE < base_offset < SAFE and -SAFE < base_timestamp < SAFE
        position: i64 = start
        null_keys: i64 = 0
        null_values: i64 = 0
        null_timestamps: i64 = 0
        header_count: i64 = 0
        for _ in range(count):
            stop, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, _attributes = place(data, position, end)
            if stop < 0:
                self._cut()
                return False
            nulls: u8 = 0
            if key_size < 0:
                nulls = NULL_KEY
                null_keys += 1
                key_size = 0
            if value_size < 0:
                nulls |= NULL_VALUE
                null_values += 1
                value_size = 0
            found, headers_at = read_varint(data, headers_at)
            header_count += found
            if is_fixed:
                timestamp = base_timestamp
            elif safe and -SAFE < timestamp < SAFE:
                timestamp += base_timestamp
            else:
                timestamp = add(base_timestamp, timestamp)
            if 0 <= timestamp <= _MAX_MILLISECONDS:
                write_i64_le(timestamps, timestamp * 1000)
            else:
                nulls |= NULL_TIMESTAMP
                null_timestamps += 1
                write_i64_le(timestamps, 0)
            absent.append(nulls)
            write_i64_le(offsets, base_offset + offset if safe else add(base_offset, offset))
            key_at += shift
            value_at += shift
            # Two int32 at once.
            write_i64_le(keys, key_at | (key_at + key_size) << 32)
            write_i64_le(values, value_at | (value_at + value_size) << 32)
            write_i64_le(headers, headers_at + shift | found << 32)
            position = stop
        if position != end:
            self._cut()
            return False
        self.rows += count
        self.null_keys += null_keys
        self.null_values += null_values
        self.null_timestamps += null_timestamps
        self.header_count += header_count
        return True

    def _cut(self) -> None:
        """Drop the records of an incomplete batch."""
        rows = self.rows
        for each in (self.offsets, self.timestamps, self.keys, self.values, self.headers):
            each.truncate(8 * rows)
        self.absent.truncate(rows)
