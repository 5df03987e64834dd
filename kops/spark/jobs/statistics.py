"""`kops scan stats` and `kops scan keys`: the numbers of `kops log stats` for each replica, and the keys with the most records.

The second is a query on the data source `kafkalog`. With a state directory, tasks count the keys of parts of segments instead.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import absolute_path, plain_paths
from kops.forensics.inventory.replicas import Replica, list_kafkas
from kops.forensics.questions.reading import find_logs, parts_of
from kops.forensics.questions.stats import LogStats, merged, read_part, row_of, total_row
from kops.forensics.verify.parts import TASK_BYTES, Part
from kops.spark.jobs.replicas import choose
from kops.spark.jobs.results import DAMAGE
from kops.spark.jobs.tasks import answers_of, cut, frame_from, frame_of, parallelism, size_of_parts
from kops.spark.progress import plan_next
from kops.spark.remembered import Answers, State, Unit
from kops.spark.source.key_counts import KEY_COUNTS, count_keys
from kops.spark.source.options import FURTHEST
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
    parts = [part for number, each in enumerate(replicas) for part in parts_of(files, number, each, size)]
    kept = state.answers("stats", [deep], since=now_ms) if state is not None else None
    known = state.known(kept, map(_unit, parts)) if state is not None and kept is not None else [False] * len(parts)
    numbered = list(zip(parts, known, strict=True))
    work = cut(numbered, lambda each: 0 if each[1] else each[0].size, parallelism(spark), task_bytes)
    answers = answers_of(spark, work, partial(_read_part, now_ms=now_ms, deep=deep, kept=kept), "counts batches and records")
    by_replica: list[list[LogStats]] = [[] for _ in replicas]
    for part, answer in zip(parts, answers, strict=True):
        by_replica[part.number].append(answer)
    return [(each, merged(each, some, now_ms, deep=deep)) for each, some in zip(replicas, by_replica, strict=True)]


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
    from pyspark.sql import functions as f

    if state is None:
        records = read(spark, paths, "records", task_bytes, replicas=FURTHEST)
        if topics:
            records = records.filter(f.col("topic").isin(list(topics)))
        counted, damage = _counted(records), _damage_of(records)
    else:
        rows = _kept_counts(spark, paths, topics, task_bytes, state)
        counted, damage = _summed(rows), rows.filter("damage is not null").select("damage")
    ordered = counted.orderBy(f.col("records").desc(), "topic", "key")
    if top is not None:
        ordered = ordered.limit(top)
    return ordered.unionByName(damage, allowMissingColumns=True)


def _counted(records: DataFrame) -> DataFrame:
    """The counts of keys of these records."""
    from pyspark.sql import functions as f

    sizes = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    return (
        records.filter("damage is null")
        .groupBy("topic", "key")
        .agg(
            f.count(f.lit(1)).alias("records"),
            f.sum(sizes).cast("bigint").alias("bytes"),
            f.count_if(f.col("value").isNull()).alias("tombstones"),
            f.countDistinct("partition").alias("partitions"),
            f.min("offset").alias("first_offset"),
            f.max("offset").alias("last_offset"),
            f.unix_millis(f.max("timestamp")).alias("last_timestamp"),
        )
    )


def _summed(rows: DataFrame) -> DataFrame:
    """The counts of keys from those of parts."""
    from pyspark.sql import functions as f

    return (
        rows.filter("damage is null")
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
"""A task has the keys of a part in memory, to keep their counts."""


def _kept_counts(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], topics: Sequence[str], task_bytes: int, state: State
) -> DataFrame:
    """The counts of keys in parts of segments, and the damage."""
    files = driver_files()
    listing = list_kafkas(plain_paths(paths), files)
    live = [replace(each.directory, path=each.given) for each in listing.replicas if not each.directory.state]
    chosen = choose(spark, listing, [each for each in live if not topics or each.topic in topics], task_bytes, state)
    parts = [(part, each) for each in chosen for part in parts_of(files, 0, each, min(task_bytes, _KEYS_PART_BYTES))]
    kept = state.answers("keys", [])
    known = state.known(kept, (_unit(part) for part, _ in parts))
    work = [(*each, is_known) for each, is_known in zip(parts, known, strict=True)]
    tasks = cut(work, lambda each: 0 if each[2] else each[0].size, parallelism(spark), task_bytes)
    return frame_of(spark, tasks, partial(_count_rows, kept=kept), _COUNTS, "counts keys")


def _count_rows(work: tuple[Part, Replica, bool], *, kept: Answers) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    part, replica, _ = work
    topic, number = replica.key
    columns, damages = kept.of(_unit(part), lambda: count_keys(task_files(replica), part))
    for row in zip(*columns, strict=True):
        yield {"topic": topic, "partition": number, **dict(zip(KEY_COUNTS, row, strict=True))}
    for damage in damages:
        yield {"damage": {"file": absolute_path(part.path), **damage}}


def read(spark: SparkSession, paths: Sequence[str | os.PathLike[str]], mode: str, task_bytes: int, replicas: str) -> DataFrame:
    """Open the data source for these paths. The errors are those of `list_kafkas`."""
    from kops.spark.source.data_source import connected_source

    source = connected_source()
    spark.dataSource.register(source)
    plan_next(spark, f"reads {mode}")
    found = json.dumps([absolute_path(path) for path in list_kafkas(plain_paths(paths), driver_files()).paths])
    options: dict[str, Any] = {"mode": mode, "taskBytes": str(task_bytes), "replicas": replicas, "paths": found}
    return spark.read.format(source.name()).options(**options).load()


def _damage_of(rows: DataFrame) -> DataFrame:
    """The damage among rows of the data source."""
    return rows.filter("damage is not null").select(_damage().alias("damage"))


def _damage() -> Column:
    from pyspark.sql import functions as f

    fields = {"position": "position", "length": "length", "base_offset": "baseOffset", "last_offset": "lastOffset", "reason": "reason"}
    named = [f.col(f"damage.{theirs}").alias(ours) for ours, theirs in fields.items()]
    return f.struct(f.col("path").alias("file"), *named)
