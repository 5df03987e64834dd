"""Rows of a job as objects in a store: `--out s3://…`. Spark itself would need Hadoop's file systems for that.

Each task writes one object, under a name that depends on its number only, so a task that runs twice writes the same object. `_SUCCESS`
comes last, as with Spark's own files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from kops.files import Files
from kops.forensics.recover.tables import Sink
from kops.spark.stores.reading import output_files, with_connections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUCCESS: Final = "_SUCCESS"
"""The last object of a complete output in a store, as Hadoop's committers write it."""
_ROWS: Final = 10_000


def write_lines(lines: DataFrame, target: str, ending: str, header: str = "") -> None:
    """Write a DataFrame of one column of strings as text; each object begins with the header."""
    _write(lines, partial(_text, target=target, ending=ending, header=header), target)


def write_parquet(rows: DataFrame, target: str) -> None:
    """Write a DataFrame as Parquet."""
    from pyspark.sql.pandas.types import to_arrow_schema

    _write(rows, partial(_parquet, target=target, schema=to_arrow_schema(rows.schema)), target)


def _write(frame: DataFrame, write: Any, target: str) -> None:
    frame.rdd.mapPartitionsWithIndex(with_connections(write)).count()
    with output_files(target) as files:
        succeed(files, target)


def succeed(files: Files, target: str) -> None:
    """Say that the output is complete."""
    files.write_atomic(posixpath.join(target, SUCCESS), b"")


def _text(number: int, rows: Iterable[Any], *, target: str, ending: str, header: str) -> Iterator[int]:
    """Runs in a task."""
    lines = (f"{row[0]}\n".encode() for row in rows)
    first = next(lines, None)
    if first is None and number:
        return  # One object tells the columns of no rows.
    path = posixpath.join(target, f"part-{number:05}.{ending}")
    source = chain([f"{header}\n".encode()] if header else [], [] if first is None else [first], lines)
    with output_files(target) as files:
        with files.open(f"{path}.tmp", "create") as file:
            position = 0
            while data := b"".join(islice(source, _ROWS)):
                file.write(position, data)
                position += len(data)
        files.rename(f"{path}.tmp", path)
    yield number


def _parquet(number: int, rows: Iterable[Any], *, target: str, schema: Any) -> Iterator[int]:
    """Runs in a task."""
    import pyarrow as pa
    from pyarrow import parquet

    source = (row.asDict(recursive=True) for row in rows)
    some = list(islice(source, _ROWS))
    if not some and number:
        return
    path = posixpath.join(target, f"part-{number:05}.parquet")
    with output_files(target) as files:
        with files.open(f"{path}.tmp", "create") as file, parquet.ParquetWriter(Sink(file), schema, compression="zstd") as writer:
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
            while some := list(islice(source, _ROWS)):
                writer.write_table(pa.Table.from_pylist(some, schema=schema))
        files.rename(f"{path}.tmp", path)
    yield number
