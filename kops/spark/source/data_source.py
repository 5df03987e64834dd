"""`spark.read.format("kafkalog").load("dirA,dirB")`: log directories as a DataFrame (Spark's Python data source API, Arrow batches).

`kops.spark.source.options` has the options. A directory may be a partition's, a broker's, or one that holds those. Damage becomes rows.
Filters on topic, partition, offset, baseOffset, lastOffset and timestamp narrow the reading; Spark also applies every filter itself. A
user's `.schema(…)` chooses columns. `spark.readStream` is in `kops.spark.source.stream`. `records` reads all records with less CPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import PySparkImportError
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from kops.errors import UsageError
from kops.files import Files, OsFiles
from kops.files.urls import connect, connections, plain_paths
from kops.forensics.coordinators.internal_topics import one_replica_each
from kops.forensics.inventory.replicas import Listing, Replica, list_replicas
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.forensics.plans.journal import locked
from kops.forensics.verify.parts import Part, split_segment
from kops.spark.packed import PackedItems, cut, largest_first, unpack
from kops.spark.sockets import widen
from kops.spark.source.options import ALL, Options, read_options, refuse_stream_options
from kops.spark.source.pushdown import Bounds
from kops.spark.source.rows import Source, Wanted, read_parts, read_segments
from kops.spark.source.schemas import SCHEMAS, STATE_MODES, ddl, ddl_of, record_batches
from kops.spark.source.state import TOPICS, read_state
from kops.spark.source.stream import KafkaLogStreamReader
from kops.spark.source.stream_options import read_stream_options
from kops.spark.source.writer import KafkaLogWriter, check_columns, read_write_options
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class KafkaLogDataSource(DataSource):  # type: ignore[misc] # pyspark is not followed
    """Spark makes one instance for each `load`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kafkalog"

    def schema(self) -> str:
        """All columns of the mode."""
        return ddl(self._mode())

    def reader(self, schema: StructType) -> KafkaLogReader:
        """A reader of the columns that `schema` has."""
        refuse_stream_options(self.options)
        return KafkaLogReader(read_options(self.options), self._columns(schema))

    def streamReader(  # noqa: N802 the name is Spark's
        self, schema: StructType
    ) -> KafkaLogStreamReader:
        """A reader that follows the logs, of the columns that `schema` has."""
        return KafkaLogStreamReader(read_stream_options(self.options), self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        """The columns of a user's schema, which must be those of the mode."""
        mode = self._mode()
        unknown = [name for name in schema.names if name not in SCHEMAS[mode]]
        if unknown:
            raise UsageError(f"mode {mode} has no column {unknown[0]}; it has {', '.join(SCHEMAS[mode])}")
        for field in schema.fields:
            kind = SCHEMAS[mode][field.name]
            if field.dataType.simpleString() != kind.replace(": ", ":").replace(", ", ","):
                raise UsageError(f"column {field.name} is {kind}, not {field.dataType.simpleString()}; cast it in the query")
            if not field.nullable:
                raise UsageError(f"column {field.name} is null in rows of damage; leave NOT NULL out")
        return tuple(schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> KafkaLogWriter:
        """A writer of rows at the ends of logs."""
        if overwrite:
            raise UsageError('kafkalog never replaces a log; use mode("append")')
        options = read_write_options(self.options)
        check_columns(schema, options.topic)
        if not os.path.isdir(options.path):
            raise UsageError(f"{options.path}: no such directory; a log directory is needed")
        with locked(OsFiles(), options.path):
            pass  # Reported before any task runs; the commit takes the lock again.
        return KafkaLogWriter(options)

    def _mode(self) -> str:
        return read_options(self.options).mode


class Task(InputPartition):  # type: ignore[misc] # as above
    """What one task reads: packed parts with their sources, or replicas. Plain values only, because it is pickled."""

    def __init__(self, work: bytes = b"", replicas: Sequence[Replica] = ()) -> None:
        super().__init__(None)
        self.work = work
        self.replicas = replicas


class KafkaLogReader(DataSourceReader):  # type: ignore[misc] # as above
    """Plans the tasks on the driver, reads them on the executors."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.bounds = Bounds()
        self.connections = connections()

    @property
    def wanted(self) -> Wanted:
        """Return the rows that tasks must read; they may leave out others."""
        control = self.options.mode != "records" or self.options.include_control
        bounds = self.bounds
        return Wanted(self.options.mode, self.columns, bounds.min_offset, bounds.max_offset, bounds.min_timestamp, control)

    def pushFilters(  # noqa: N802 the name is Spark's
        self, filters: list[Filter]
    ) -> Iterator[Filter]:
        """Use the filters that narrow the reading. All are returned, so Spark also applies them to the rows."""
        for each in filters:
            self._narrow(each)
        yield from filters

    def _narrow(self, condition: Filter) -> None:
        attribute = getattr(condition, "attribute", None)
        if not isinstance(attribute, tuple) or len(attribute) != 1:
            return
        name, value = attribute[0], getattr(condition, "value", None)
        if isinstance(condition, (EqualTo, EqualNullSafe, In)):
            self.bounds.equal(name, list(value or ()) if isinstance(condition, In) else [value])
        elif isinstance(condition, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
            self.bounds.bound(name, value, low=isinstance(condition, (GreaterThan, GreaterThanOrEqual)))

    def partitions(self) -> Sequence[Task]:
        """Plan tasks of about `taskBytes` each."""
        files = driver_files()
        listing = list_replicas(self.options.paths, files)
        if self.options.mode in STATE_MODES:
            return self._state_tasks(files, listing)
        parts: PackedItems[tuple[Part, Source]] = PackedItems()
        for each in self._replicas(files, [each for each in listing.replicas if self.bounds.wants(each.directory)]):
            for segment, state in self._segments(files, each.directory):
                for part in self._parts(files, each, segment, state):
                    parts.append(part)
        tasks = cut(parts, lambda each: each[0].size, 1, self.options.task_bytes)
        return [Task(work) for work in largest_first(tasks, 2 * self.options.task_bytes)]

    def _state_tasks(self, files: Files, listing: Listing) -> list[Task]:
        topic = TOPICS[self.options.mode]
        found = [each for each in listing.replicas if each.directory.topic == topic and not each.directory.state]
        return [Task(replicas=[each]) for each in self._replicas(files, found)]

    def _replicas(self, files: Files, found: list[Replica]) -> list[Replica]:
        if self.options.replicas == ALL:
            return found
        chosen = one_replica_each((each.directory for each in found if not each.directory.state), files).partitions
        by_path = {each.directory.path: each for each in found}
        return [by_path[each.path] for each in chosen]

    def _segments(self, files: Files, partition: PartitionDir) -> Iterator[tuple[Segment, str]]:
        """The segments to read, with their states."""
        live = partition.live_segments
        following = dict(zip((each.base_offset for each in live), live[1:], strict=False))
        for segment in partition.segments:
            is_dead = bool(segment.suffix) or partition.state in ("delete", "stray")
            if segment.log is None or (is_dead and not self.options.include_deleted):
                continue
            if is_dead or self.bounds.wants_segment(files, segment, following.get(segment.base_offset)):
                yield segment, segment.state if segment.suffix else (partition.state or "live")

    def _parts(self, files: Files, replica: Replica, segment: Segment, state: str) -> Iterator[tuple[Part, Source]]:
        log, index, directory = segment.log, segment.files.get("index"), replica.directory
        assert log is not None
        source = Source(log.path, directory.topic, directory.partition, segment.base_offset, state, log.size, replica.broker)
        if self.options.mode == "segments":
            yield Part(0, log.path, 0, log.size), source
            return
        start, end = (0, log.size) if segment.suffix else self.bounds.span(files, segment)
        whole = Part(0, log.path, start, end)
        if whole.size <= self.options.task_bytes:
            yield whole, source
            return
        for part in split_segment(files, 0, log.path, log.size, None if index is None else index.path, self.options.task_bytes):
            clipped = part._replace(start=max(part.start, start), end=min(part.end, end))
            if clipped.start < clipped.end:
                yield clipped, source

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if not isinstance(partition, Task):
            return  # Spark makes a task of its own if there is nothing to read.
        if TaskContext.get() is not None:
            widen()
        connect(self.connections)
        files = task_files()
        wanted = self.wanted
        if partition.replicas:
            mode, at_ms = self.options.mode, self.options.at_ms
            rows = (row for each in partition.replicas for row in read_state(files, mode, each, at_ms))
            yield from record_batches(rows, {name: SCHEMAS[mode][name] for name in self.columns})
            return
        read = read_segments if wanted.mode == "segments" else read_parts
        yield from read(files, unpack(partition.work) if partition.work else [], wanted)


def records(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], columns: Sequence[str] | None = None, **options: str
) -> DataFrame:
    """All records below some paths: the rows of the source in mode records, with less CPU.

    `columns` are those that are wanted, in their order (all). `options` are those of the source. The tasks are planned now. Spark filters
    the rows, and nothing is left unread, so use the source to read a part of the records. Raises UsageError, NotFoundError.

    The rows of a Python data source pass two projections and a counter in the JVM, and those of `mapInArrow` one projection.
    """
    wanted = tuple(SCHEMAS["records"] if columns is None else columns)
    unknown = [name for name in wanted if name not in SCHEMAS["records"]]
    if unknown:
        raise UsageError(f"records have no column {unknown[0]}; they have {', '.join(SCHEMAS['records'])}")
    refuse_stream_options(options)
    chosen = read_options({**options, "paths": json.dumps(plain_paths(paths))})
    if chosen.mode != "records":
        raise UsageError(f'mode {chosen.mode}: use spark.read.format("kafkalog")')
    reader = KafkaLogReader(chosen, wanted)
    tasks = [(task.work,) for task in reader.partitions()]
    plan = spark.createDataFrame(spark.sparkContext.parallelize(tasks, max(len(tasks), 1)), "work binary")
    return _map_in_arrow(plan, partial(_read_planned, reader), ddl_of({name: SCHEMAS["records"][name] for name in wanted}))


def _read_planned(reader: KafkaLogReader, plans: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a task. The rows of the plan are pickled work."""
    for batch in plans:
        for work in batch.column(0).to_pylist():
            yield from reader.read(Task(work))


def _map_in_arrow(frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`. It refuses to work without pandas, although it does not use it; then its own steps are taken here."""
    try:
        return frame.mapInArrow(function, schema)
    except PySparkImportError:
        made = UserDefinedFunction(function, returnType=schema, name="records", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column = made(*(frame[name] for name in frame.columns))
        return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
