"""Reads parts of segments as Arrow record batches, in the data source's tasks. Needs no Spark.

The scanner is `kops.records.scanning.scanner`. Damage that reaches the end of a part is read again beyond that end, so that it is reported
as in a scan of the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kops.errors import DecodeError, MissingDependencyError
from kops.files import Files
from kops.forensics.verify.parts import Part, part_items
from kops.records import Batch, Damage, Record
from kops.records.decode import chunks
from kops.records.windows import WINDOW, RecordWindows
from kops.spark.source.schemas import SCHEMAS, TIMESTAMP_TYPES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from kops.spark.source.record_columns import RecordColumns

ROWS = 1 << 16
VALUE_BYTES = 64 << 20
"""A record batch is passed on at this many rows, or at this many bytes of keys and values."""
_MAX_MICROSECONDS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Source:
    """The data about a row's segment. Plain values, because it is pickled."""

    path: str
    topic: str | None
    partition: int
    base_offset: int
    state: str
    size: int
    broker: int | None = None

    @property
    def same(self) -> dict[str, Any]:
        """The values that are the same in all rows."""
        return {"path": self.path, "broker": self.broker, "topic": self.topic, "partition": self.partition}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The reader's request: a mode and some of its columns. Batches outside of the offsets and times may be left out."""

    mode: str
    columns: tuple[str, ...]
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp: int | None = None
    control: bool = True

    def batch(self, batch: Batch) -> bool:
        """Whether any record of the batch may be requested."""
        if self.min_offset is not None and batch.last_offset < self.min_offset:
            return False
        if self.max_offset is not None and batch.magic == 2 and batch.base_offset > self.max_offset:
            return False
        return self.min_timestamp is None or batch.magic < 1 or batch.max_timestamp >= self.min_timestamp


class Table:
    """Columns being filled, row by row or in runs; only requested ones are kept."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._columns: dict[str, list[Any]] = {name: [] for name in wanted.columns}
        self.rows = 0
        self.bytes = 0

    def add(self, count: int, values: dict[str, list[Any]], same: dict[str, Any]) -> None:
        """Add `count` rows: `values` has a list for each column, `same` the values that are the same in all of them; the rest is null."""
        for name, column in self._columns.items():
            if name in values:
                column += values[name]
            else:
                column += [same.get(name)] * count
        self.rows += count

    def take(self) -> pa.RecordBatch:
        """The rows so far as a record batch; the table is empty after it."""
        import pyarrow as pa

        schema = arrow_schema(self._wanted.mode, list(self._wanted.columns))
        arrays = [pa.array(self._columns[field.name], type=field.type) for field in schema]
        for column in self._columns.values():
            column.clear()
        self.rows = self.bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def wants(self, name: str) -> bool:
        """Whether the column is requested."""
        return name in self._columns


def damage_row(damage: Damage) -> dict[str, Any]:
    """The struct of column `damage`."""
    return {
        "code": damage.code,
        "reason": damage.reason,
        "position": damage.position,
        "length": damage.length,
        "baseOffset": damage.base_offset,
        "lastOffset": damage.last_offset,
    }


def read_parts(files: Files, work: list[tuple[Part, Source]], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows of some parts, in modes `batches` and `records`. Raises OSError if a file can't be read."""
    table = Table(wanted)
    for part, source in work:
        if wanted.mode == "records":
            _record_columns(wanted, source)  # A missing package is reported before a file is opened.
        with files.open(part.path) as file:
            if wanted.mode == "records":
                yield from records_of(part_items(file, part), source, wanted)
            else:
                yield from batches_of(part_items(file, part), source, wanted, table)
    if table.rows:
        yield table.take()


def batches_of(found: Iterable[Batch | Damage], source: Source, wanted: Wanted, table: Table) -> Iterator[pa.RecordBatch]:
    """Yield a row for each batch, and the damage. The last rows stay in `table`."""
    for item in found:
        if isinstance(item, Damage):
            _add_damage(table, wanted, source, item)
        elif wanted.batch(item):
            _add_batch(table, wanted, source, item)
        if table.rows >= ROWS:
            yield table.take()


def records_of(found: Iterable[Batch | Damage], source: Source, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The records of batches of one segment, and the damage.

    v2 batches go into Arrow columns directly. Old formats, damage and unreadable batches go row by row. All stay in order.
    """
    table = Table(wanted)
    columns = _record_columns(wanted, source)
    for item in found:
        if columns.rows and (isinstance(item, Damage) or not columns.fits(item) or columns.rows >= ROWS or columns.held >= VALUE_BYTES):
            yield columns.take()
        if isinstance(item, Damage):
            _add_damage(table, wanted, source, item)
        elif not wanted.batch(item) or (item.is_control and not wanted.control):
            continue
        else:
            if table.rows and (item.magic > 1 or table.rows >= ROWS or table.bytes >= VALUE_BYTES):
                yield table.take()
            if item.magic < 2 or not columns.add_held(item):
                yield from _add_batch_records(table, columns, wanted, source, item)
    if columns.rows:
        yield columns.take()
    if table.rows:
        yield table.take()


def _record_columns(wanted: Wanted, source: Source) -> RecordColumns:
    try:
        from kops.spark.source.record_columns import RecordColumns
    except ImportError as error:  # For example on a cluster's worker, which has its own pyarrow.
        raise MissingDependencyError(f"rows of records need {error.name}: pip install 'kops[spark]'") from error
    return RecordColumns(wanted.columns, source.same)


def _add_damage(table: Table, wanted: Wanted, source: Source, damage: Damage) -> None:
    same = {**source.same, "damage": damage_row(damage)}
    if wanted.mode == "records":
        same["offset"] = damage.base_offset
    else:
        same |= {"position": damage.position, "size": damage.length, "baseOffset": damage.base_offset, "lastOffset": damage.last_offset}
    table.add(1, {}, same)


def _add_batch(table: Table, wanted: Wanted, source: Source, batch: Batch) -> None:
    v2 = batch.magic == 2
    table.add(
        1,
        {},
        {
            **source.same,
            "position": batch.position,
            "size": batch.size,
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.count if v2 else None,
            "magic": batch.magic,
            "codec": batch.codec,
            "timestampType": TIMESTAMP_TYPES[batch.timestamp_type],
            "baseTimestamp": microseconds(batch.base_timestamp),
            "maxTimestamp": microseconds(batch.max_timestamp),
            "leaderEpoch": batch.partition_leader_epoch if v2 else None,
            "producerId": batch.producer_id if v2 else None,
            "producerEpoch": batch.producer_epoch if v2 else None,
            "baseSequence": batch.base_sequence if v2 else None,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "crc": batch.crc,
        },
    )


def _add_batch_records(table: Table, columns: RecordColumns, wanted: Wanted, source: Source, batch: Batch) -> Iterator[pa.RecordBatch]:
    """Add a batch's records; yields rows if there are too many for memory."""
    if batch.magic > 1 and batch.count is not None and batch.count >= 0:
        windows = RecordWindows(batch)
        try:
            for window in windows if batch.count else ():
                if columns.rows and (columns.rows >= ROWS or columns.held + window[2] - window[1] > VALUE_BYTES):
                    yield columns.take()
                if not columns.add(batch, window):
                    break
            else:
                return
        except DecodeError as error:
            if windows.is_streamed:  # The records before the damage are among the rows.
                if columns.rows:
                    yield columns.take()
                _add_damage(table, wanted, source, Damage(batch.position, batch.size, error.code, error.reason, batch=batch))
                return
    if columns.rows:
        yield columns.take()
    try:
        for records in _record_lists(batch):
            if table.rows and (table.rows >= ROWS or table.bytes >= VALUE_BYTES):
                yield table.take()
            _add_records(table, wanted, source, batch, records)
    except DecodeError as error:
        _add_damage(table, wanted, source, Damage(batch.position, batch.size, error.code, error.reason, batch=batch))


def _record_lists(batch: Batch) -> Iterator[list[Record]]:
    """Yield all records of a small batch, or none if one can't be read; those of a large one in pieces."""
    try:
        whole = batch.records(WINDOW)
    except DecodeError as error:
        if error.code != "too-large":
            raise
        yield from chunks(batch)
    else:
        yield whole


def _add_records(table: Table, wanted: Wanted, source: Source, batch: Batch, records: list[Record]) -> None:
    values: dict[str, list[Any]] = {"offset": [record.offset for record in records]}
    if table.wants("key"):
        values["key"] = [record.key for record in records]
    if table.wants("value"):
        values["value"] = [record.value for record in records]
    if table.wants("timestamp"):
        values["timestamp"] = [microseconds(record.timestamp) for record in records]
    if table.wants("timestampType"):
        values["timestampType"] = [TIMESTAMP_TYPES[record.timestamp_type] for record in records]
    if table.wants("headers"):
        values["headers"] = [
            [{"key": header_text(key), "value": value} for key, value in record.headers] if record.headers else None for record in records
        ]
    same = {
        **source.same,
        "leaderEpoch": batch.partition_leader_epoch if batch.magic == 2 else None,
        "isControl": batch.is_control,
    }
    table.add(len(records), values, same)
    table.bytes += batch.size


def header_text(key: str | bytes) -> str:
    """A header's key as text; bytes that are not UTF-8 become replacement characters, as in Java."""
    return key if isinstance(key, str) else key.decode("utf-8", "replace")


def microseconds(timestamp_ms: int) -> int | None:
    """Return a timestamp for Arrow; null for none (-1) and for one that Arrow's type cannot hold."""
    value = timestamp_ms * 1000
    return value if timestamp_ms >= 0 and value <= _MAX_MICROSECONDS else None


def segment_row(
    source: Source, batches: int, records: int, first: int | None, last: int | None, max_timestamp: int, damages: list[Any]
) -> dict[str, Any]:
    """One row of mode `segments`."""
    return {
        **source.same,
        "baseOffset": source.base_offset,
        "state": source.state,
        "size": source.size,
        "batches": batches,
        "records": records,
        "firstOffset": first,
        "lastOffset": last,
        "maxTimestamp": microseconds(max_timestamp),
        "damages": damages,
    }


def read_segments(files: Files, work: list[tuple[Part, Source]], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Mode `segments`: yield one row for each segment (its parts are one here), with checksums checked."""
    table = Table(wanted)
    for part, source in work:
        batches = records = 0
        first: int | None = None
        last: int | None = None
        max_timestamp = -1
        damages: list[Any] = []
        with files.open(part.path) as file:
            for item in part_items(file, part):
                if isinstance(item, Damage):
                    damages.append(damage_row(item))
                    continue
                batches += 1
                records += item.count if item.magic == 2 and item.count is not None else 1
                first = item.read_base_offset() if first is None else first
                last = item.last_offset
                max_timestamp = max(max_timestamp, item.max_timestamp)
        table.add(1, {}, segment_row(source, batches, records, first, last, max_timestamp, damages))
    if table.rows:
        yield table.take()


def columns_of(mode: str) -> tuple[str, ...]:
    """All columns of a mode."""
    return tuple(SCHEMAS[mode])
