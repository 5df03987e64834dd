"""`kops scan stats` and `kops scan keys`: the numbers of `kops log stats` for each replica, and the keys with the most records.

For the second, tasks count the keys of parts of segments, and Spark adds the counts up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import absolute_path, plain_paths
from kops.forensics.inventory.replicas import Replica, list_kafkas
from kops.forensics.questions.reading import as_topics, by_replica, check_topics, find_logs, parts_of
from kops.forensics.questions.stats import LogStats, merged, read_part, row_of, total_row
from kops.forensics.verify.parts import TASK_BYTES, Part
from kops.spark.jobs.replicas import bare, choose
from kops.spark.jobs.results import DAMAGE
from kops.spark.jobs.tasks import answers_of, frame_from, frame_of, parallelism, size_of_parts
from kops.spark.packed import PackedItems, cut
from kops.spark.remembered import Answers, State, Unit
from kops.spark.source.key_counts import KEY_COUNTS, count_keys
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


COLUMNS: Final = {
    "name": "string",
    "broker": "int",
    "topic": "string",
    "partition": "int",
    "dir": "string",
    "segments": "bigint",
    "batches": "bigint",
    "records": "bigint",
    "bytes": "bigint",
    "codecs": "array<string>",
    "records_per_batch": "double",
    "largest_batch": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "gaps": "bigint",
    "missing_offsets": "bigint",
    "first_timestamp": "bigint",
    "last_timestamp": "bigint",
    "steps_back": "bigint",
    "largest_step_back_ms": "bigint",
    "future_batches": "bigint",
    "append_time_batches": "bigint",
    "producers": "bigint",
    "idempotent_batches": "bigint",
    "transactional_batches": "bigint",
    "control_batches": "bigint",
    "commits": "bigint",
    "aborts": "bigint",
    "open_transactions": "bigint",
    "damaged": "bigint",
    "damaged_bytes": "bigint",
    "by_codec": "array<struct<codec: string, batches: bigint, records: bigint, bytes: bigint, plain_bytes: bigint, ratio: double>>",
    "ratio": "double",
    "keys": "bigint",
    "null_keys": "bigint",
    "tombstones": "bigint",
    "headers": "bigint",
    "key_bytes": "bigint",
    "value_bytes": "bigint",
    "largest_record": "bigint",
    "estimated": "array<string>",
}


def stats(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    topics: Sequence[str] = (),
    deep: bool = False,
    total: bool = False,
    now_ms: int | None = None,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """Return a row for each replica, with the columns of `kops log stats --format jsonl`. Times are milliseconds since 1970.

    `deep`: also read the records. `total`: one row, for all replicas together. `now_ms`: later timestamps are in the future (default: now).
    `state`: use and keep the numbers of parts of segments there. The errors are those of `kops log stats`.
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    found = collect_stats(spark, paths, now, topics=topics, deep=deep, task_bytes=task_bytes, state=state)
    rows = [total_row([each for _, each in found], now, deep=deep)] if total else [row_of(*each) for each in found]
    return frame_from(spark, rows, COLUMNS)


def collect_stats(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    now_ms: int,
    *,
    topics: Sequence[str] = (),
    deep: bool = False,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> list[tuple[Replica, LogStats]]:
    """Return the numbers of each replica. Tasks read parts of segments; the driver merges the results."""
    files = driver_files()
    replicas = find_logs(plain_paths(paths), files, topics).replicas
    size = size_of_parts((each.size for each in replicas), parallelism(spark), task_bytes)
    parts = PackedItems(part for number, each in enumerate(replicas) for part in parts_of(files, number, each, size))
    kept = state.answers("stats", [deep], since=now_ms) if state is not None else None
    known = state.known(kept, map(_unit, parts)) if state is not None and kept is not None else repeat(False, len(parts))
    work = cut(PackedItems(zip(parts, known, strict=True)), lambda each: 0 if each[1] else each[0].size, parallelism(spark), task_bytes)
    answers = answers_of(spark, work, partial(_read_part, now_ms=now_ms, deep=deep, kept=kept), "counts batches and records")
    numbered = ((part.number, answer) for part, answer in zip(parts, answers, strict=True))
    some = by_replica(numbered, len(replicas))
    return [(each, merged(each, list(own), now_ms, deep=deep)) for each, own in zip(replicas, some, strict=True)]


def _unit(part: Part) -> Unit:
    return Unit((absolute_path(part.path), part.start, part.end), (absolute_path(part.path),), part.size)


def _read_part(work: tuple[Part, bool], *, now_ms: int, deep: bool, kept: Answers | None) -> LogStats:
    """Runs in a task."""
    part = work[0]
    if kept is None:
        return read_part(task_files(), part, now_ms, deep=deep)
    # Later, a timestamp may no longer be in the future.
    found = kept.of(
        _unit(part),
        lambda: read_part(task_files(), part, now_ms, deep=deep),
        keep=lambda answer: answer.future_batches == 0,
    )
    found.now_ms = now_ms
    return found


def keys(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    topics: Sequence[str] = (),
    top: int | None = None,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """Return a row for each key of a topic, most records first, and a row for each damaged range (`damage`). One replica is read.

    `bytes` are those of keys and values, `tombstones` records without a value. Records without a key have the key null. `topics`: only
    these; `top`: only this many keys. `state`: use and keep the counts of parts of segments there.
    """
    rows, partitions = count_rows(spark, paths, topics, task_bytes, state)
    counted = _summed(rows, partitions)
    # A total order by ranges, in as many shuffle partitions.
    ordered = counted.repartitionByRange(partitions, *_order()).sortWithinPartitions(*_order())
    if top is not None:
        ordered = counted.orderBy(*_order()).limit(top)
    return ordered.unionByName(rows.filter("damage is not null").select("damage"), allowMissingColumns=True)


def _order() -> list[Column]:
    """Most records first."""
    from pyspark.sql import functions as f

    return [f.col("records").desc(), f.col("topic"), f.col("key")]


def _summed(rows: DataFrame, partitions: int) -> DataFrame:
    """The counts of keys from those of parts, in a number of shuffle partitions that suits the data, instead of Spark's 200."""
    from pyspark.sql import functions as f

    return (
        rows.filter("damage is null")
        .repartition(partitions, "topic", "key")
        .groupBy("topic", "key")
        .agg(
            *(f.sum(name).alias(name) for name in ("records", "bytes", "tombstones")),
            f.countDistinct("partition").alias("partitions"),
            f.min("first_offset").alias("first_offset"),
            f.max("last_offset").alias("last_offset"),
            f.max("last_timestamp").alias("last_timestamp"),
        )
    )


_COUNTS: Final = {
    "topic": "string",
    "partition": "int",
    "key": "binary",
    "records": "bigint",
    "bytes": "bigint",
    "tombstones": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "last_timestamp": "bigint",
    "damage": DAMAGE,
}
_KEYS_PART_BYTES: Final = 64 << 20
"""A task has the keys of a part in memory."""
_SHUFFLE_BYTES: Final = 256 << 20
_MOST_SHUFFLE_PARTITIONS: Final = 2000


def count_rows(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], topics: Sequence[str], task_bytes: int, state: State | None
) -> tuple[DataFrame, int]:
    """The counts of keys in parts of segments, and the damage. Also the number of partitions for a shuffle of these rows."""
    files = driver_files()
    topics = as_topics(topics)
    listing = list_kafkas(plain_paths(paths), files)
    live = [replace(each.directory, path=each.given) for each in listing.replicas if not each.directory.state]
    check_topics(topics, {each.topic for each in live}, plain_paths(paths))
    chosen = choose(spark, listing, [each for each in live if not topics or each.topic in topics], task_bytes, state)
    parts = PackedItems((part, bare(each)) for each in chosen for part in parts_of(files, 0, each, min(task_bytes, _KEYS_PART_BYTES)))
    kept = state.answers("keys", []) if state is not None else None
    known: Iterable[bool] = repeat(False, len(parts))
    if state is not None and kept is not None:
        known = state.known(kept, (_unit(part) for part, _ in parts))
    work = PackedItems((*each, is_known) for each, is_known in zip(parts, known, strict=True))
    tasks = cut(work, lambda each: 0 if each[2] else each[0].size, parallelism(spark), task_bytes)
    wanted = -(-sum(part.size for part, _ in parts) // _SHUFFLE_BYTES)
    partitions = min(max(wanted, 1), _MOST_SHUFFLE_PARTITIONS)
    return frame_of(spark, tasks, partial(_count_rows, kept=kept), _COUNTS, "counts keys"), partitions


def _count_rows(work: tuple[Part, Replica, bool], *, kept: Answers | None) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    part, replica, _ = work
    topic, number = replica.key

    def count() -> tuple[list[list[Any]], list[dict[str, Any]]]:
        return count_keys(task_files(replica), part)

    columns, damages = count() if kept is None else kept.of(_unit(part), count)
    for row in zip(*columns, strict=True):
        yield {"topic": topic, "partition": number, **dict(zip(KEY_COUNTS, row, strict=True))}
    for damage in damages:
        yield {"damage": {"file": absolute_path(part.path), **damage}}
