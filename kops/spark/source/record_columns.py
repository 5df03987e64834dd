"""Makes Arrow columns of the records of many v2 batches, without a Python object for each record.

`RecordIndex` finds the fields of each record. Arrow itself copies keys and values from the batches' bytes: it sees the bytes as a binary
array whose elements are alternately a value and the bytes between two values, and takes every other one. Needs pyarrow and librt, not
Spark.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kops.records import Batch
from kops.records._hot import read_varint
from kops.records.windows import OVERHEAD, WINDOW, Window
from kops.spark._hot_columns import NULL_KEY, NULL_TIMESTAMP, NULL_VALUE, RecordIndex
from kops.spark.source.schemas import arrow_schema, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    from librt.strings import BytesWriter

_MAX_POSITION = (1 << 31) - 1


class RecordColumns:
    """Records of batches that follow each other in one segment. `same` are the columns that are the same in all rows.

    `rows` is the number of rows since the last `take`.
    """

    def __init__(self, columns: Sequence[str], same: dict[str, Any]) -> None:
        self._columns = list(columns)
        self._same = same
        self._index = RecordIndex()
        self._runs: list[tuple[Batch, int]] = []
        self._data = b""
        self._bodies: list[bytes] = []
        self._joined = 0
        self._repeated: dict[tuple[pa.DataType, Any], pa.Array] = {}
        self.rows = 0

    def fits(self, batch: Batch) -> bool:
        """Whether there is room for the batch's bytes; if not, call `take` first."""
        if not self.rows:
            return True
        if batch.compressed:
            return bool(self._bodies)
        return batch.buffer is self._data

    @property
    def held(self) -> int:
        """The number of decompressed bytes in memory."""
        return self._joined

    def add(self, batch: Batch, window: Window) -> bool:
        """Add the records of one window of a v2 batch. Returns False and adds nothing if they can't be read."""
        data, start, end, count = window
        if self._joined + len(data) > _MAX_POSITION:
            return False
        fixed = bool(batch.attributes & 8)
        base = batch.max_timestamp if fixed else batch.base_timestamp
        if not self._index.add(data, start, end, count, self._joined, batch.base_offset, base, fixed):
            return False
        if batch.compressed:
            self._bodies.append(data)
            self._joined += len(data)
        else:
            self._data = data
        self._runs.append((batch, count))
        self.rows += count
        return True

    def add_held(self, batch: Batch) -> bool:
        """Add an uncompressed v2 batch whose bytes are all in memory: the usual one, without the steps that others need.

        Returns False and adds nothing if it is another one, or if its records can't be read.
        """
        count, begin, size = batch.count, batch.index, batch.size
        if batch.compressed or not count or count < 0 or not OVERHEAD <= size <= WINDOW or begin + size > len(batch.buffer):
            return False
        return self.add(batch, (batch.buffer, begin + OVERHEAD, begin + size, count))

    def take(self) -> pa.RecordBatch:
        """Return the rows so far, and drop them here."""
        import pyarrow as pa

        data = b"".join(self._bodies) if self._bodies else self._data
        index, self._index = self._index, RecordIndex()
        columns = [self._column(name, data, index) for name in self._columns]
        self._runs.clear()
        self._bodies.clear()
        self._data, self._joined, self.rows = b"", 0, 0
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema("records", self._columns))

    def _column(self, name: str, data: bytes, index: RecordIndex) -> pa.Array:
        import pyarrow as pa

        if name == "key":
            return _binary(data, index.keys, index, index.null_keys, NULL_KEY)
        if name == "value":
            return _binary(data, index.values, index, index.null_values, NULL_VALUE)
        if name == "offset":
            return _integers(index.offsets)
        if name == "timestamp":
            return _timestamps(index)
        if name == "headers":
            return self._header_lists(data, index)
        kind = arrow_type({"timestampType": "int", "leaderEpoch": "int", "isControl": "boolean"}.get(name, "string"))
        if name == "timestampType":
            return self._each(kind, [1 if batch.attributes & 8 else 0 for batch, _ in self._runs])
        if name == "leaderEpoch":
            return self._each(kind, [batch.partition_leader_epoch for batch, _ in self._runs])
        if name == "isControl":
            return self._each(kind, [batch.is_control for batch, _ in self._runs])
        if name == "damage":
            return pa.nulls(self.rows, arrow_schema("records", ["damage"]).field(0).type)
        if name in ("partition", "broker"):
            return self._repeat(self._same[name], pa.int32())
        return self._repeat(self._same.get(name), pa.string())

    def _repeat(self, value: Any, kind: pa.DataType) -> pa.Array:
        """The value in each row. The array is kept, as most values are the same in the next rows, too."""
        import pyarrow as pa

        known = self._repeated.get((kind, value))
        if known is None or len(known) < self.rows:
            count = self.rows if known is None else max(self.rows, 2 * len(known))
            known = self._repeated[kind, value] = pa.repeat(pa.scalar(value, kind), count)
        return known.slice(0, self.rows)

    def _each(self, kind: pa.DataType, values: list[Any]) -> pa.Array:
        """Repeat the value of each batch for each of its records."""
        import pyarrow as pa

        if values.count(values[0]) == len(values):
            return self._repeat(values[0], kind)
        parts = [pa.repeat(pa.scalar(value, kind), count) for value, (_, count) in zip(values, self._runs, strict=True)]
        return pa.concat_arrays(parts)

    def _header_lists(self, data: bytes, index: RecordIndex) -> pa.Array:
        import pyarrow as pa

        kind = arrow_schema("records", ["headers"]).field(0).type
        if not index.header_count:
            return pa.nulls(self.rows, kind)
        places = array("i", index.headers.getvalue())
        return pa.array([_headers(data, at, count) if count else None for at, count in zip(places[::2], places[1::2], strict=True)], kind)


def _headers(data: bytes, position: int, count: int) -> list[dict[str, Any]]:
    """The headers at `position`; bytes that are not UTF-8 become replacement characters, as in Java."""
    found = []
    for _ in range(count):
        size, position = read_varint(data, position)
        key = data[position : position + size].decode("utf-8", "replace")
        size, position = read_varint(data, position + size)
        value = data[position : position + size] if size >= 0 else None
        position += max(size, 0)
        found.append({"key": key, "value": value})
    return found


def _integers(column: BytesWriter) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(column) // 8, [None, pa.py_buffer(column.getvalue())])


def _timestamps(index: RecordIndex) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    times = _integers(index.timestamps)
    if index.null_timestamps:
        times = pc.if_else(_is_null(index, NULL_TIMESTAMP), pa.scalar(None, pa.int64()), times)
    return times.view(arrow_type("timestamp"))


def _is_null(index: RecordIndex, flag: int) -> pa.Array:
    """The records for which the flag is set."""
    import pyarrow as pa
    import pyarrow.compute as pc

    absent = pa.Array.from_buffers(pa.uint8(), index.rows, [None, pa.py_buffer(index.absent.getvalue())])
    return pc.not_equal(pc.bit_wise_and(absent, pa.scalar(flag, pa.uint8())), pa.scalar(0, pa.uint8()))


@lru_cache(maxsize=4)
def _even(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(range(0, 2 * count, 2), pa.int32())


def _binary(data: bytes, places: BytesWriter, index: RecordIndex, nulls: int, flag: int) -> pa.Array:
    """Keys or values, copied from the bytes. `nulls` of them are null: those with the flag."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = index.rows
    if nulls == count:
        return pa.nulls(count, pa.binary())
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(places.getvalue()), pa.py_buffer(data)])
    wanted = _even(count)
    if nulls:
        wanted = pc.if_else(_is_null(index, flag), pa.scalar(None, pa.int32()), wanted)
    return every.take(wanted)
