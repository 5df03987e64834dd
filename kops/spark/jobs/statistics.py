"""`kops scan stats` and `kops scan keys`: sizes, codecs and producers of each replica, and the keys with the most records.

Both are queries over the data source `kafkalog`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kops.files import OsFiles
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.listing import list_kafkas
from kops.spark.source.options import ALL, FURTHEST

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def stats(spark: SparkSession, paths: Sequence[str | os.PathLike[str]], *, task_bytes: int = TASK_BYTES) -> DataFrame:
    """A row for each replica: segments, batches, records and bytes, codecs, producers, offsets, times and damage.

    A compressed batch of an old format counts as one record. Times are milliseconds since 1970.
    """
    from pyspark.sql import functions as f

    batches = read(spark, paths, "batches", task_bytes).withColumn("dir", f.regexp_replace("path", "/[^/]*$", ""))
    records = f.coalesce(f.col("count"), f.lit(1))
    is_good = f.col("damage").isNull()
    is_producer = f.when(f.col("producerId") >= 0, f.col("producerId"))
    counted = batches.groupBy("broker", "topic", "partition", "dir").agg(
        f.countDistinct("path").alias("segments"),
        f.count_if(is_good).alias("batches"),
        f.coalesce(f.sum(f.when(is_good, records)), f.lit(0)).alias("records"),
        f.coalesce(f.sum(f.when(is_good, f.col("size"))), f.lit(0)).alias("bytes"),
        f.max(f.when(is_good, f.col("size"))).alias("largest_batch"),
        f.min("baseOffset").alias("first_offset"),
        f.max("lastOffset").alias("last_offset"),
        f.unix_millis(f.min("baseTimestamp")).alias("first_timestamp"),
        f.unix_millis(f.max("maxTimestamp")).alias("last_timestamp"),
        f.array_sort(f.collect_set("codec")).alias("codecs"),
        f.countDistinct(is_producer).alias("producers"),
        f.count_if(f.col("isControl")).alias("control_batches"),
        f.count_if(~is_good).alias("damaged"),
        f.coalesce(f.sum(f.when(~is_good, f.col("size"))), f.lit(0)).alias("damaged_bytes"),
    )
    return counted.orderBy("topic", "partition", "broker", "dir")


def keys(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    topics: Sequence[str] = (),
    top: int | None = None,
    task_bytes: int = TASK_BYTES,
) -> DataFrame:
    """A row for each key of a topic, most records first, and a row for each damaged range (`damage`). One replica is read.

    `bytes` are those of keys and values, `tombstones` records without a value. Records without a key have the key null. `topics`: only
    these; `top`: only so many keys.
    """
    from pyspark.sql import functions as f

    records = read(spark, paths, "records", task_bytes, replicas=FURTHEST)
    if topics:
        records = records.filter(f.col("topic").isin(list(topics)))
    sizes = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    counted = (
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
    ordered = counted.orderBy(f.col("records").desc(), "topic", "key")
    if top is not None:
        ordered = ordered.limit(top)
    return with_damage(ordered, records)


def read(spark: SparkSession, paths: Sequence[str | os.PathLike[str]], mode: str, task_bytes: int, replicas: str = ALL) -> DataFrame:
    """The data source over these paths. Raises what `list_kafkas` does."""
    from kops.spark import register

    register(spark)
    found = json.dumps([os.path.abspath(path) for path in list_kafkas(paths, OsFiles(read_only=True)).paths])
    options: dict[str, Any] = {"mode": mode, "taskBytes": str(task_bytes), "replicas": replicas, "paths": found}
    return spark.read.format("kafkalog").options(**options).load()


def with_damage(answers: DataFrame, rows: DataFrame) -> DataFrame:
    """The answers, and behind them the damage among the rows that they were made of."""
    damage = rows.filter("damage is not null").select(_damage().alias("damage"))
    return answers.unionByName(damage, allowMissingColumns=True)


def _damage() -> Column:
    from pyspark.sql import functions as f

    fields = {"position": "position", "length": "length", "base_offset": "baseOffset", "last_offset": "lastOffset", "reason": "reason"}
    named = [f.col(f"damage.{theirs}").alias(ours) for ours, theirs in fields.items()]
    return f.struct(f.col("path").alias("file"), *named)
