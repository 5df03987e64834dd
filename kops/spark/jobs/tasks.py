"""Spreads work over Spark's tasks: the driver plans items, and rows or answers come back in the order of the plan.

Each job has its own data source for its rows, because Spark accepts Arrow from sources without pandas. The plan's items are pickled and
have plain values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.errors import PySparkAttributeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kops.errors import UsageError
from kops.files.urls import connect, connections
from kops.forensics.verify.parts import TASK_BYTES, part_bytes
from kops.spark.failures import plain_errors
from kops.spark.packed import Tasks, pack, unpack
from kops.spark.progress import plan_next, stage
from kops.spark.session import INSTEAD_OF_CONNECT
from kops.spark.source.schemas import arrow_types, ddl_of, record_batches
from kops.spark.stores.reading import with_connections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Row = dict[str, Any]
LEAST_PART_BYTES: Final = 16 << 20
_JOB: Final = "kops-job"


class Collected(Iterable[Answer]):
    """The answers to all items of a plan, in their order. Those of one task at a time are unpacked."""

    def __init__(self, packed: list[bytes], count: int) -> None:
        self._packed = packed
        self._count = count

    def __iter__(self) -> Iterator[Answer]:
        for data in self._packed:
            yield from unpack(data)

    def __len__(self) -> int:
        return self._count


def frame_of(
    spark: SparkSession, tasks: Tasks[Item], read: Callable[[Item], Iterable[Row]], columns: Mapping[str, str], what: str
) -> DataFrame:
    """Return a DataFrame of the rows that `read` returns for each item. The items of one task are read one after the other.

    `columns` maps names to Spark's types. `read` runs in Spark's workers: a function of a module, or a `partial` of one. `what` says what
    the tasks do, for Spark's pages and the progress bar.
    """
    work = tasks.packed
    given = connections()
    plan_next(spark, what, tasks.sizes)

    class Job(_Job):
        """Pickled by value, with its plan."""

        @classmethod
        def name(cls) -> str:
            return _JOB

        def schema(self) -> str:
            return ddl_of(columns)

        def reader(self, schema: StructType) -> _JobReader:
            connect(given)  # In a process that the driver's URLs are not known to.
            return _JobReader(work, with_connections(read), columns)

    spark.dataSource.register(Job)
    return spark.read.format(_JOB).load()


def answers_of(spark: SparkSession, tasks: Tasks[Item], function: Callable[[Item], Answer], what: str) -> Collected[Answer]:
    """Return the results of `function` for all items, in their order. Runs now. `what` says what the tasks do."""
    answer = with_connections(function)
    if not tasks.packed:
        return Collected([], 0)

    def work(task: tuple[int, bytes]) -> tuple[int, int, bytes]:
        number, packed = task
        answers = [answer(item) for item in unpack(packed)]
        return number, len(answers), pack(answers)

    with plain_errors(), stage(spark, what, tasks.sizes):
        found = spark.sparkContext.parallelize(list(enumerate(tasks.packed)), len(tasks)).map(work).collect()
    found.sort(key=lambda each: int(each[0]))
    return Collected([data for _, _, data in found], sum(count for _, count, _ in found))


def frame_from(spark: SparkSession, rows: Iterable[Row], columns: Mapping[str, str]) -> DataFrame:
    """Return a DataFrame of rows on the driver."""
    import pyarrow as pa

    schema = pa.schema(arrow_types(columns))
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema), schema=ddl_of(columns))


def most_bytes(sizes: Iterable[int], parallelism: int, target: int = TASK_BYTES) -> int:
    """Return from which size on an item is divided, if it can be: a quarter of what a core reads, but at least `target`.

    So no core waits long for the last task, and the driver merges the results of few items only.
    """
    return max(sum(sizes) // (4 * max(parallelism, 1)), target)


def size_of_parts(sizes: Iterable[int], parallelism: int, target: int = TASK_BYTES) -> int:
    """Return the size of the parts in which files are read: `part_bytes`, but as small as a `target` that the user has chosen."""
    return part_bytes(parallelism, list(sizes), target, min(target, LEAST_PART_BYTES))


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at a time. Raises UsageError for a Spark Connect session."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError as error:
        raise UsageError(f"scans do not run on Spark Connect, whose sessions have no RDDs; {INSTEAD_OF_CONNECT}") from error


class _Task(InputPartition):  # type: ignore[misc] # pyspark is not followed
    """The packed items that one task reads."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(None)
        self.packed = packed


class _Job(DataSource):  # type: ignore[misc] # as above
    """The source of one job's rows."""


class _JobReader(DataSourceReader):  # type: ignore[misc] # as above
    def __init__(self, work: list[bytes], read: Callable[[Any], Iterable[Row]], columns: Mapping[str, str]) -> None:
        self.work = work
        self.read_item = read
        self.columns = dict(columns)

    def partitions(self) -> Sequence[_Task]:
        """The tasks of the plan."""
        return [_Task(packed) for packed in self.work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, _Task):
            yield from record_batches((row for item in unpack(partition.packed) for row in self.read_item(item)), self.columns)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the plan: each task has its own part of it."""
        return {"work": [], "read_item": self.read_item, "columns": self.columns}
