"""Counts the keys of a part of a segment, for `kops scan keys --state`: the answer is kept, so it is small and has plain values only.

The records are those of the data source in mode `records`, so the counts are the same as those of a query on it. Needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kops.files import Files
from kops.forensics.verify.parts import Part
from kops.spark.source.rows import Source, Wanted, read_parts

if TYPE_CHECKING:
    import pyarrow as pa

KEY_COUNTS: Final = ("key", "records", "bytes", "tombstones", "first_offset", "last_offset", "last_timestamp")
_MERGED_ROWS: Final = 1 << 18
_DAMAGE: Final = {"position": "position", "length": "length", "base_offset": "baseOffset", "last_offset": "lastOffset", "reason": "reason"}


def count_keys(files: Files, part: Part) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """The columns `KEY_COUNTS`, with a row for each key, and the damage. Raises OSError if the file can't be read."""
    import pyarrow as pa

    damages: list[dict[str, Any]] = []
    waiting: list[pa.Table] = []
    waiting_rows = 0
    wanted = Wanted("records", ("key", "value", "offset", "timestamp", "damage"), control=False)
    for rows in read_parts(files, [(part, Source(part.path, None, -1, 0, "", part.end))], wanted):
        damaged = rows.column("damage")
        if damaged.null_count < rows.num_rows:
            found = [each for each in damaged.to_pylist() if each is not None]
            damages += [{ours: each[theirs] for ours, theirs in _DAMAGE.items()} for each in found]
            rows = rows.filter(damaged.is_null())
        waiting.append(_counted(rows))
        waiting_rows += waiting[-1].num_rows
        if waiting_rows > _MERGED_ROWS:
            waiting = [_summed(pa.concat_tables(waiting))]
            waiting_rows = 0
    if not waiting:
        return [[] for _ in KEY_COUNTS], damages
    table = _summed(pa.concat_tables(waiting))
    return [table.column(name).to_pylist() for name in KEY_COUNTS], damages


def _counted(rows: pa.RecordBatch) -> pa.Table:
    """The counts of each key of these records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def size(name: str) -> Any:
        return pc.fill_null(pc.binary_length(rows.column(name)), 0).cast("int64")

    columns = {
        "key": rows.column("key"),
        "records": pa.array([1] * rows.num_rows, pa.int64()),
        "bytes": pc.add(size("key"), size("value")),
        "tombstones": rows.column("value").is_null().cast("int64"),
        "first_offset": rows.column("offset"),
        "last_offset": rows.column("offset"),
        # As Spark's unix_millis: whole milliseconds, and the data source has no others.
        "last_timestamp": pc.divide(rows.column("timestamp").cast("int64"), 1000),
    }
    return _summed(pa.table(columns))


def _summed(table: pa.Table) -> pa.Table:
    how = {"first_offset": "min", "last_offset": "max", "last_timestamp": "max"}
    grouped = table.group_by("key").aggregate([(name, how.get(name, "sum")) for name in KEY_COUNTS[1:]])
    return grouped.select(["key", *(f"{name}_{how.get(name, 'sum')}" for name in KEY_COUNTS[1:])]).rename_columns(list(KEY_COUNTS))
