"""`kops scan offsets`: shows the offsets of groups and their lag, like `kops log offsets`, from the directories of all brokers.

Tasks find where replicas end, and replay the partitions of `__consumer_offsets`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import plain_paths
from kops.forensics.coordinators.internal_topics import (
    GROUP_TOPIC,
    checked_inventory,
    topic_partitions,
)
from kops.forensics.coordinators.log_ends import offset_row
from kops.forensics.coordinators.offsets import DEFAULT_RETENTION_MS, read_offsets
from kops.forensics.inventory.replicas import Replica, list_replicas
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import choose, log_ends
from kops.spark.jobs.results import DAMAGE, RAW, damage_value
from kops.spark.jobs.tasks import cut, frame_of, parallelism
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
) -> DataFrame:
    """Return the offsets of groups as a DataFrame, with the columns of `kops log offsets --format jsonl`.

    `at_ms`: only records up to that time count, and there is no lag. Raises NotFoundError and UsageError like `kops log offsets`.
    """
    listing = list_replicas(plain_paths(paths), driver_files())
    checked_inventory(listing.inventory)
    chosen = choose(spark, listing, topic_partitions(listing.inventory, GROUP_TOPIC, listing.paths), task_bytes)
    ends = {} if at_ms is not None else log_ends(spark, listing, task_bytes)
    read = partial(_rows, at_ms=at_ms, groups=frozenset(groups), retention_ms=retention_ms, ends=ends)
    return frame_of(spark, cut(chosen, lambda each: each.size, parallelism(spark), task_bytes), read, COLUMNS, "replays __consumer_offsets")


def _rows(
    replica: Replica, *, at_ms: int | None, groups: frozenset[str], retention_ms: int, ends: Mapping[tuple[str, int], int]
) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    found = read_offsets(task_files(replica), replica.directory, at_ms=at_ms)
    for lost in found.lost:
        yield {"state": "damage", "damage": damage_value(lost._replace(file=replica.as_given(lost.file)))}
    for one in found.replay.positions(replica.directory.name, retention_ms):
        if not groups or one.place.group in groups:
            yield offset_row(one, ends.get((one.place.topic, one.place.partition)))
    if not groups:
        yield from (raw.to_row() for raw in found.raw)
