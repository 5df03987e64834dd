"""The records of many v2 batches as Arrow columns, without an object a record.

`_hot.index_records` tells where the fields of each record stand; keys and values are taken out of the batches' bytes by Arrow itself: of a
binary array over all of the bytes, whose segments are alternately a value and what lies between two of them, every other one is taken.
Needs pyarrow, not Spark.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kops.errors import DecodeError
from kops.records import Batch
from kops.records import _hot as hot
from kops.records.compression import DEFAULT_LIMIT
from kops.records.decode import body
from kops.spark.schemas import arrow_schema, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_POSITION = (1 << 31) - 1
_MAX_MILLISECONDS = ((1 << 63) - 1) // 1000
_OFFSET, _TIMESTAMP, _KEY, _VALUE, _HEADERS_AT, _HEADERS = 0, 1, 2, 4, 6, 7


class RecordColumns:
    """Records of batches that follow each other in one segment. `same` are the columns that are the same in all rows.

    `rows` have been taken in since the last `take`.
    """

    def __init__(self, columns: Sequence[str], same: dict[str, Any]) -> None:
        self._columns = list(columns)
        self._same = same
        self._numbers: list[int] = []
        self._runs: list[tuple[Batch, int]] = []
        self._data = b""
        self._bodies: list[bytes] = []
        self._joined = 0
        self.rows = 0

    def fits(self, batch: Batch) -> bool:
        """Whether the batch's bytes may stand beside those that are there; else `take` first."""
        if not self.rows:
            return True
        if batch.compressed:
            return bool(self._bodies)
        return batch.buffer is self._data

    @property
    def held(self) -> int:
        """Decompressed bytes that are held."""
        return self._joined

    def add(self, batch: Batch) -> bool:
        """Take in the records of a batch; False, and nothing taken in, where it is of an old format or its records can't be read."""
        if batch.magic < 2 or batch.count is None or batch.count < 0:
            return False
        if not batch.count:
            return True
        try:
            data, start, end = body(batch, DEFAULT_LIMIT)
        except DecodeError:
            return False
        if self._joined + len(data) > _MAX_POSITION:
            return False
        before = len(self._numbers)
        if hot.index_records(data, start, end, batch.count, self._numbers) != end:
            del self._numbers[before:]
            return False
        if batch.compressed:
            if self._joined:
                for field in (_KEY, _VALUE, _HEADERS_AT):
                    place = before + field
                    self._numbers[place :: hot.INDEX_FIELDS] = [at + self._joined for at in self._numbers[place :: hot.INDEX_FIELDS]]
            self._bodies.append(data)
            self._joined += len(data)
        else:
            self._data = data
        self._runs.append((batch, batch.count))
        self.rows += batch.count
        return True

    def take(self) -> pa.RecordBatch:
        """The rows so far; none are left."""
        import pyarrow as pa

        data = b"".join(self._bodies) if self._bodies else self._data
        numbers = array("q", self._numbers)
        columns = [self._column(name, data, numbers) for name in self._columns]
        self._numbers.clear()
        self._runs.clear()
        self._bodies.clear()
        self._data, self._joined, self.rows = b"", 0, 0
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema("records", self._columns))

    def _column(self, name: str, data: bytes, numbers: array[int]) -> pa.Array:
        import pyarrow as pa

        if name == "key" or name == "value":
            return _binary(data, numbers, _KEY if name == "key" else _VALUE)
        if name == "offset":
            return _sum(self._each(pa.int64(), [batch.base_offset for batch, _ in self._runs]), _field(numbers, _OFFSET))
        if name == "timestamp":
            return self._timestamps(numbers)
        if name == "headers":
            return self._header_lists(data, numbers)
        kind = arrow_type({"timestampType": "int", "leaderEpoch": "int", "isControl": "boolean"}.get(name, "string"))
        if name == "timestampType":
            return self._each(kind, [1 if batch.attributes & 8 else 0 for batch, _ in self._runs])
        if name == "leaderEpoch":
            return self._each(kind, [batch.partition_leader_epoch for batch, _ in self._runs])
        if name == "isControl":
            return self._each(kind, [batch.is_control for batch, _ in self._runs])
        if name == "damage":
            return pa.nulls(self.rows, arrow_schema("records", ["damage"]).field(0).type)
        if name == "partition":
            return pa.repeat(pa.scalar(self._same[name], pa.int32()), self.rows)
        return pa.repeat(pa.scalar(self._same.get(name), pa.string()), self.rows)

    def _each(self, kind: pa.DataType, values: list[Any]) -> pa.Array:
        """A value a batch, as many times as it has records."""
        import pyarrow as pa

        if values.count(values[0]) == len(values):
            return pa.repeat(pa.scalar(values[0], kind), self.rows)
        if not pa.types.is_int64(kind):
            parts = [pa.repeat(pa.scalar(value, kind), count) for value, (_, count) in zip(values, self._runs, strict=True)]
            return pa.concat_arrays(parts)
        column = array("q")
        for value, (_, count) in zip(values, self._runs, strict=True):
            column += array("q", (value,)) * count
        return _integers(column)

    def _timestamps(self, numbers: array[int]) -> pa.Array:
        """Microseconds; null for none (-1) and for what no timestamp can hold."""
        import pyarrow as pa
        import pyarrow.compute as pc

        fixed = [batch.attributes & 8 != 0 for batch, _ in self._runs]
        base = self._each(pa.int64(), [batch.max_timestamp if batch.attributes & 8 else batch.base_timestamp for batch, _ in self._runs])
        if all(fixed):
            times = base
        elif any(fixed):
            times = pc.if_else(self._each(pa.bool_(), fixed), base, _sum(base, _field(numbers, _TIMESTAMP)))
        else:
            times = _sum(base, _field(numbers, _TIMESTAMP))
        bounds = pc.min_max(times)
        if bounds["min"].as_py() < 0 or bounds["max"].as_py() > _MAX_MILLISECONDS:
            good = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, _MAX_MILLISECONDS))
            times = pc.if_else(good, times, pa.scalar(None, pa.int64()))
        return pc.multiply(times, 1000).view(pa.timestamp("us", tz="UTC"))

    def _header_lists(self, data: bytes, numbers: array[int]) -> pa.Array:
        import pyarrow as pa

        kind = arrow_schema("records", ["headers"]).field(0).type
        counts = numbers[_HEADERS :: hot.INDEX_FIELDS]
        if not any(counts):
            return pa.nulls(self.rows, kind)
        places = numbers[_HEADERS_AT :: hot.INDEX_FIELDS]
        return pa.array([_headers(data, at, count) if count else None for at, count in zip(places, counts, strict=True)], kind)


def _headers(data: bytes, position: int, count: int) -> list[dict[str, Any]]:
    """The headers at `position`; keys that are no UTF-8 become replacement characters, as in Java."""
    found = []
    for _ in range(count):
        size, position = hot.read_varint(data, position)
        key = data[position : position + size].decode("utf-8", "replace")
        size, position = hot.read_varint(data, position + size)
        value = data[position : position + size] if size >= 0 else None
        position += max(size, 0)
        found.append({"key": key, "value": value})
    return found


def _integers(column: array[int]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(column)])


def _field(numbers: array[int], field: int) -> pa.Array:
    return _integers(numbers[field :: hot.INDEX_FIELDS])


def _sum(one: pa.Array, other: pa.Array) -> pa.Array:
    """Wraps at 64 bits, as in Java."""
    import pyarrow.compute as pc

    return pc.add(one, other)


@lru_cache(maxsize=4)
def _even(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(range(0, 2 * count, 2), pa.int32())


def _binary(data: bytes, numbers: array[int], field: int) -> pa.Array:
    """Keys or values, out of the bytes they stand in."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(numbers) // hot.INDEX_FIELDS
    sizes = numbers[field + 1 :: hot.INDEX_FIELDS]
    least, most = min(sizes), max(sizes)
    if most < 0:
        return pa.nulls(count, pa.binary())
    places = numbers[field :: hot.INDEX_FIELDS]
    bounds = array("i", bytes(8 * count))
    bounds[::2] = array("i", places)
    if least == most:
        ends = array("i", [place + most for place in places])
    else:
        ends = array("i", [place + size if size > 0 else place for place, size in zip(places, sizes, strict=True)])
    bounds[1::2] = ends
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    wanted = _even(count)
    if least < 0:
        wanted = pc.if_else(pc.less(_integers(sizes), 0), pa.scalar(None, pa.int32()), wanted)
    return every.take(wanted)
