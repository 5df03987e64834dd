"""Where the fields of v2 records stand, as buffers that Arrow takes as they are: the hot loop of the rows of records.

One typed source, interpreted or compiled, as `kops.records._hot`, whose `place` reads a record. The numbers go into `librt`'s byte
writers, which compiled code fills without an object a number. Offsets and timestamps are little-endian as in Arrow's buffers; every
machine that kops knows is.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from kops.records._hot import add, place, read_varint


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


class RecordIndex:
    """What is known of some records. All numbers are little-endian.

    `offsets`, `timestamps` (ms): int64 a record. `keys`, `values`: two int32 a record, where it begins and ends in the bytes; of null both
    are the same, and its byte in `absent_keys`, `absent_values` is 1. `headers`: two int32 a record, where they begin behind their count,
    and how many.
    """

    def __init__(self) -> None:
        self.offsets: BytesWriter = BytesWriter()
        self.timestamps: BytesWriter = BytesWriter()
        self.keys: BytesWriter = BytesWriter()
        self.values: BytesWriter = BytesWriter()
        self.absent_keys: BytesWriter = BytesWriter()
        self.absent_values: BytesWriter = BytesWriter()
        self.headers: BytesWriter = BytesWriter()
        self.rows: i64 = 0
        self.null_keys: i64 = 0
        self.null_values: i64 = 0
        self.header_count: i64 = 0

    def add(self, data: bytes, start: i64, end: i64, count: i64, shift: i64, base_offset: i64, base_timestamp: i64, is_fixed: bool) -> bool:
        """Take in `count` records of `data[start:end]`; False, and nothing taken in, where that is not what these bytes are.

        `shift` is added to all positions. The timestamps are `base_timestamp` itself if `is_fixed`, else deltas from there. Sums wrap at 64
        bits, as in Java.
        """
        offsets, timestamps, headers = self.offsets, self.timestamps, self.headers
        keys, values, absent_keys, absent_values = self.keys, self.values, self.absent_keys, self.absent_values
        position: i64 = start
        null_keys: i64 = 0
        null_values: i64 = 0
        header_count: i64 = 0
        at: i64 = 0
        found: i64 = 0
        for _ in range(count):
            stop, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, _attributes = place(data, position, end)
            if stop < 0:
                self._cut()
                return False
            write_i64_le(offsets, add(base_offset, offset))
            write_i64_le(timestamps, base_timestamp if is_fixed else add(base_timestamp, timestamp))
            at = key_at + shift
            write_i32_le(keys, i32(at))
            if key_size < 0:
                null_keys += 1
                absent_keys.append(1)
            else:
                at += key_size
                absent_keys.append(0)
            write_i32_le(keys, i32(at))
            at = value_at + shift
            write_i32_le(values, i32(at))
            if value_size < 0:
                null_values += 1
                absent_values.append(1)
            else:
                at += value_size
                absent_values.append(0)
            write_i32_le(values, i32(at))
            found, headers_at = read_varint(data, headers_at)
            write_i32_le(headers, i32(headers_at + shift))
            write_i32_le(headers, i32(found))
            header_count += found
            position = stop
        if position != end:
            self._cut()
            return False
        self.rows += count
        self.null_keys += null_keys
        self.null_values += null_values
        self.header_count += header_count
        return True

    def _cut(self) -> None:
        """Forget what belongs to no whole batch."""
        rows = self.rows
        self.offsets.truncate(8 * rows)
        self.timestamps.truncate(8 * rows)
        self.keys.truncate(8 * rows)
        self.values.truncate(8 * rows)
        self.headers.truncate(8 * rows)
        self.absent_keys.truncate(rows)
        self.absent_values.truncate(rows)
