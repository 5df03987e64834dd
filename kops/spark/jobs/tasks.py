"""Spreads work over Spark's tasks: the driver plans items, and rows or answers come back in the order of the plan.

Each job has its own data source for its rows, because Spark accepts Arrow from sources without pandas. The plan's items are pickled and
have plain values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyspark.errors import PySparkAttributeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kops.errors import UsageError
from kops.files.urls import connect, connections
from kops.forensics.verify.parts import MOST_TASKS, TASK_BYTES, part_bytes
from kops.spark.failures import plain_errors
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


@dataclass(slots=True)
class Tasks(Generic[Item]):
    """The items of each task, and the bytes that it reads."""

    items: list[list[Item]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)


def frame_of(
    spark: SparkSession, tasks: Tasks[Item], read: Callable[[Item], Iterable[Row]], columns: Mapping[str, str], what: str
) -> DataFrame:
    """Return a DataFrame of the rows that `read` returns for each item. The items of one task are read one after the other.

    `columns` maps names to Spark's types. `read` runs in Spark's workers: a function of a module, or a `partial` of one. `what` says what
    the tasks do, for Spark's pages and the progress bar.
    """
    work = tasks.items
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


def answers_of(spark: SparkSession, tasks: Tasks[Item], function: Callable[[Item], Answer], what: str) -> list[Answer]:
    """Return the results of `function` for all items, in their order. Runs now. `what` says what the tasks do."""
    answer = with_connections(function)
    numbered: list[list[tuple[int, Item]]] = []
    number = 0
    for task in tasks.items:
        numbered.append([(number + place, item) for place, item in enumerate(task)])
        number += len(task)
    if not numbered:
        return []

    def work(items: list[tuple[int, Item]]) -> list[tuple[int, Answer]]:
        return [(place, answer(item)) for place, item in items]

    with plain_errors(), stage(spark, what, tasks.sizes):
        found = spark.sparkContext.parallelize(numbered, len(numbered)).flatMap(work).collect()
    return [answer for _, answer in sorted(found, key=lambda each: int(each[0]))]


def frame_from(spark: SparkSession, rows: Iterable[Row], columns: Mapping[str, str]) -> DataFrame:
    """Return a DataFrame of rows on the driver."""
    import pyarrow as pa

    schema = pa.schema(arrow_types(columns))
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema), schema=ddl_of(columns))


def cut(items: Sequence[Item], size: Callable[[Item], int] | None, parallelism: int, target: int = TASK_BYTES) -> Tasks[Item]:
    """Divide the items into tasks of about equal bytes, in their order: one for each core, or more of `target` bytes.

    Without `size` all items count the same, and nothing is said about bytes.
    """
    sizes = [1 if size is None else max(size(each), 1) for each in items]
    total = sum(sizes)
    share = max(min(target, -(-total // max(parallelism, 1))), total // MOST_TASKS, 1)
    tasks: Tasks[Item] = Tasks()
    taken = share
    for item, bytes_ in zip(items, sizes, strict=True):
        # An item goes to the task in which most of it falls.
        if taken + bytes_ // 2 >= share or not tasks:
            tasks.items.append([])
            tasks.sizes.append(0)
            taken = 0
        tasks.items[-1].append(item)
        tasks.sizes[-1] += bytes_
        taken += bytes_
    if size is None:
        tasks.sizes = []
    return tasks


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
    """The items that one task reads."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(None)
        self.items = items


class _Job(DataSource):  # type: ignore[misc] # as above
    """The source of one job's rows."""


class _JobReader(DataSourceReader):  # type: ignore[misc] # as above
    def __init__(self, work: list[list[Any]], read: Callable[[Any], Iterable[Row]], columns: Mapping[str, str]) -> None:
        self.work = work
        self.read_item = read
        self.columns = dict(columns)

    def partitions(self) -> Sequence[_Task]:
        """The tasks of the plan."""
        return [_Task(items) for items in self.work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, _Task):
            yield from record_batches((row for item in partition.items for row in self.read_item(item)), self.columns)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the plan: each task has its own part of it."""
        return {"work": [], "read_item": self.read_item, "columns": self.columns}
