"""`kops scan producers`: shows the idempotent and transactional producers of each partition, and breaks in their sequences.

The rule is that of `kops.forensics.questions.producers`. A task reads partitions. A partition that is much larger than others is read in
parts, which the driver joins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import plain_paths
from kops.forensics.coordinators.records import Lost, batches
from kops.forensics.inventory.replicas import Replica, list_kafkas
from kops.forensics.questions.producers import PartProducers, joined, read_producers, rows_of
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import Work, choose, read_in_parts, replica_unit, work_of
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import frame_of
from kops.spark.remembered import Answers, State
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kops.records import Batch

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "batches": "bigint",
    "records": "bigint",
    "transactional": "boolean",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "last_sequence": "int",
    "first_timestamp": "bigint",
    "last_timestamp": "bigint",
    "gaps": "bigint",
    "duplicates": "bigint",
    "epochs_back": "bigint",
    "first_break": "bigint",
    "broker": "int",
    "damage": DAMAGE,
}


def producers(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], *, task_bytes: int = TASK_BYTES, state: State | None = None
) -> DataFrame:
    """Return a row for each producer of a partition, by its first offset, and a row for each damaged range. One replica is read.

    `gaps`, `duplicates` and `epochs_back` count the batches that do not follow the one before; `first_break` is the offset of the first of
    them. In a compacted partition gaps are no loss: the cleaner removes batches. `state`: use and keep the rows of partitions there.
    """
    listing = list_kafkas(plain_paths(paths), driver_files())
    chosen = choose(spark, listing, [each for each in listing.inventory.partitions() if not each.state], task_bytes, state)
    kept = state.answers("producers", []) if state is not None else None
    what = "reads the producers of large partitions"
    parts = read_in_parts(spark, chosen, _read_part, what, task_bytes=task_bytes, state=state, kept=kept)
    tasks = work_of(spark, chosen, parts, task_bytes, state, kept)
    return frame_of(spark, tasks, partial(_kept_rows, kept=kept), COLUMNS, "reads the producers of partitions")


def _read_part(found: Iterator[Batch | Lost], _: Replica) -> PartProducers:
    """Runs in a task."""
    return read_producers(found)


def _kept_rows(work: Work, *, kept: Answers | None) -> Iterable[dict[str, Any]]:
    """Runs in a task."""
    replica = work.replica
    if work.packed is not None or kept is None:
        return _rows(replica, work.parts)
    return kept.of(replica_unit(replica), lambda: list(_rows(replica)))


def _rows(replica: Replica, parts: Sequence[PartProducers] | None = None) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    directory = replica.directory
    same = {"topic": directory.topic, "partition": directory.partition, "broker": replica.broker}
    whole = joined([read_producers(batches(task_files(replica), directory))] if parts is None else parts)
    for lost in whole.lost:
        yield {**same, "damage": damage_value(lost._replace(file=replica.as_given(lost.file)))}
    for row in rows_of(whole):
        yield {**same, **row}
