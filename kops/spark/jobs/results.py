"""Passes a job's DataFrame to a command: the rows in pieces, or files that Spark's tasks write, and the damage among the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files.urls import is_url
from kops.forensics.coordinators.records import Lost
from kops.spark.failures import plain_errors
from kops.spark.progress import planned_stage
from kops.spark.stores.rows import write_lines, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAMAGE: Final = "struct<file: string, position: bigint, length: bigint, base_offset: bigint, last_offset: bigint, reason: string>"
"""The column `damage` of a job: the place of bytes that are not an intact batch. Null in all other rows."""
RAW: Final = "struct<key: string, value: string>"
"""The column `raw` of a job: base64 of a record that could not be decoded. Null in all other rows."""
_ROWS: Final = 1000


class Piece(NamedTuple):
    """Rows to print, the damage among them, and the number of all rows, `total` (including those written to files).

    `has_problem`: a record could not be decoded, or a written row is a problem.
    """

    rows: list[dict[str, Any]]
    damage: list[Lost]
    total: int
    has_problem: bool = False


def damage_value(lost: Lost) -> dict[str, Any]:
    """The value of the column `damage`."""
    return {name: getattr(lost, name) for name in ("file", "position", "length", "base_offset", "last_offset", "reason")}


def pieces(
    frame: DataFrame, target: str | None = None, shape: str = "parquet", problem: str = "", order: Sequence[str] = ()
) -> Iterator[Piece]:
    """Yield the rows of a DataFrame in order. All cores compute them; they are kept on disk.

    `order`: the columns to sort by. To sort, Spark looks at all rows first. So it is done here, after they have been computed once.

    With `target` they are written there and only counted. `problem` is the condition, in SQL, for rows that are a problem.
    """
    from pyspark import StorageLevel

    with plain_errors():
        held = frame.persist(StorageLevel.DISK_ONLY)
        try:
            if target is not None:
                with planned_stage(frame.sparkSession):
                    piece = _written(held, target, shape, problem, order)
                yield piece
                return
            with planned_stage(frame.sparkSession):
                held.write.format("noop").mode("overwrite").save()
            source = (row.asDict(recursive=True) for row in _sorted(held, order).toLocalIterator())
            while some := list(islice(source, _ROWS)):
                yield _piece(some)
        finally:
            held.unpersist()


def _sorted(frame: DataFrame, order: Sequence[str]) -> DataFrame:
    return frame.orderBy(*order) if order else frame


def _written(frame: DataFrame, target: str, shape: str, problem: str, order: Sequence[str]) -> Piece:
    rows: DataFrame = frame
    damage: list[Lost] = []
    if "damage" in frame.columns:
        damage = [Lost(**row.damage.asDict()) for row in frame.filter("damage is not null").select("damage").collect()]
        rows = frame.filter("damage is null").drop("damage")
    writers: Mapping[str, Callable[[DataFrame], None]] = (
        _to_store(target)
        if is_url(target)
        else {
            "parquet": lambda some: some.write.parquet(target),
            "jsonl": lambda some: some.write.option("ignoreNullFields", "false").json(target),
            "csv": lambda some: _flat(some).write.option("header", "true").csv(target),
        }
    )
    writers[shape](_sorted(rows, order))
    conditions = [*(["raw is not null"] if "raw" in frame.columns else []), *([problem] if problem else [])]
    return Piece([], damage, rows.count(), any(not frame.filter(each).isEmpty() for each in conditions))


def _to_store(target: str) -> dict[str, Callable[[DataFrame], None]]:
    from pyspark.sql.functions import struct, to_csv, to_json

    def csv(some: DataFrame) -> None:
        flat = _flat(some)
        write_lines(flat.select(to_csv(struct("*"))), target, "csv", ",".join(flat.columns))

    return {
        "parquet": lambda some: write_parquet(some, target),
        "jsonl": lambda some: write_lines(some.select(to_json(struct("*"), {"ignoreNullFields": "false"})), target, "json"),
        "csv": csv,
    }


def _flat(frame: DataFrame) -> DataFrame:
    """Convert columns for csv, which has no nested columns and no bytes: JSON and base64 instead."""
    from pyspark.sql.functions import base64, col, to_json

    columns = []
    for name, kind in frame.dtypes:
        if kind == "binary":
            columns.append(base64(col(name)).alias(name))
        elif "<" in kind:
            columns.append(to_json(col(name)).alias(name))
        else:
            columns.append(col(name))
    return frame.select(columns)


def _piece(some: list[dict[str, Any]]) -> Piece:
    rows, damage, has_raw = [], [], False
    for row in some:
        lost = row.pop("damage", None)
        if lost is not None:
            damage.append(Lost(**lost))
            continue
        if row.get("raw", 0) is None:
            del row["raw"]
        has_raw = has_raw or "raw" in row
        rows.append(row)
    return Piece(rows, damage, len(rows), has_raw)
