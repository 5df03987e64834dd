"""`kops scan offsets`: shows the offsets of groups and their lag, like `kops log offsets`, from the directories of all brokers.

Tasks find where replicas end, and replay the partitions of `__consumer_offsets`. A partition that is much larger than others is read in
parts before it is replayed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files.urls import plain_paths
from kops.forensics.coordinators.internal_topics import (
    GROUP_TOPIC,
    checked_inventory,
    topic_partitions,
)
from kops.forensics.coordinators.log_ends import offset_row
from kops.forensics.coordinators.offsets import (
    DEFAULT_RETENTION_MS,
    PartItem,
    Position,
    join_offsets,
    read_offsets,
    read_part_offsets,
)
from kops.forensics.coordinators.records import Lost, Raw
from kops.forensics.inventory.replicas import Replica, list_replicas
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import Work, choose, log_ends, read_in_parts, replica_unit, work_of
from kops.spark.jobs.results import DAMAGE, RAW, damage_value
from kops.spark.jobs.tasks import frame_of
from kops.spark.remembered import Answers, State
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kops.records import Batch

COLUMNS: Final = {
    "group": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "lag": "bigint",
    "state": "string",
    "timestamp": "bigint",
    "expires": "bigint",
    "metadata": "string",
    "leader_epoch": "int",
    "producer_id": "bigint",
    "log": "string",
    "record_offset": "bigint",
    "note": "string",
    "raw": RAW,
    "damage": DAMAGE,
}


def offsets(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    at_ms: int | None = None,
    groups: Sequence[str] = (),
    retention_ms: int = DEFAULT_RETENTION_MS,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """Return the offsets of groups as a DataFrame, with the columns of `kops log offsets --format jsonl`.

    `at_ms`: only records up to that time count, and there is no lag. `state`: use and keep what tasks find in partitions there. Raises
    NotFoundError and UsageError like `kops log offsets`.
    """
    listing = list_replicas(plain_paths(paths), driver_files())
    checked_inventory(listing.inventory)
    chosen = choose(spark, listing, topic_partitions(listing.inventory, GROUP_TOPIC, listing.paths), task_bytes, state)
    ends = {} if at_ms is not None else log_ends(spark, listing, task_bytes, state)
    kept = state.answers("offsets", [at_ms, retention_ms]) if state is not None else None
    read = partial(_read_part, at_ms=at_ms)
    parts = read_in_parts(
        spark, chosen, read, "reads large partitions of __consumer_offsets", task_bytes=task_bytes, state=state, kept=kept
    )
    tasks = work_of(spark, chosen, parts, task_bytes, state, kept)
    rows = partial(_rows, at_ms=at_ms, groups=frozenset(groups), retention_ms=retention_ms, ends=ends, kept=kept)
    return frame_of(spark, tasks, rows, COLUMNS, "replays __consumer_offsets")


class _Contents(NamedTuple):
    """What a partition of `__consumer_offsets` holds."""

    positions: list[Position]
    raw: list[Raw]
    lost: list[Lost]


def _read_part(found: Iterator[Batch | Lost], replica: Replica, *, at_ms: int | None) -> list[PartItem]:
    """Runs in a task."""
    return read_part_offsets(task_files(replica), replica.directory, found, at_ms=at_ms)


def _contents(work: Work, at_ms: int | None, retention_ms: int) -> _Contents:
    replica = work.replica
    parts = work.parts
    if parts is None:
        found = read_offsets(task_files(replica), replica.directory, at_ms=at_ms)
    else:
        found = join_offsets(replica.directory, parts)
    lost = [each._replace(file=replica.as_given(each.file)) for each in found.lost]
    return _Contents(list(found.replay.positions(replica.directory.name, retention_ms)), found.raw, lost)


def _rows(
    work: Work,
    *,
    at_ms: int | None,
    groups: frozenset[str],
    retention_ms: int,
    ends: Mapping[tuple[str, int], int],
    kept: Answers | None,
) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    if kept is None or work.packed is not None:
        found = _contents(work, at_ms, retention_ms)
    else:
        found = kept.of(replica_unit(work.replica), lambda: _contents(work, at_ms, retention_ms))
    for lost in found.lost:
        yield {"state": "damage", "damage": damage_value(lost)}
    for one in found.positions:
        if not groups or one.place.group in groups:
            yield offset_row(one, ends.get((one.place.topic, one.place.partition)))
    if not groups:
        yield from (raw.to_row() for raw in found.raw)
