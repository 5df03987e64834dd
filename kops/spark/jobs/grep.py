"""`kops scan grep`: the records whose key, value, headers, offsets, times or producer fit, with the filters of `kops log dump`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.errors import DecodeError
from kops.files import OsFiles
from kops.forensics.coordinators.records import Lost
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.inventory.replicas import Replica, list_kafkas
from kops.forensics.verify.parts import TASK_BYTES, Part, part_items, split_segment
from kops.records import Batch, Damage, Record
from kops.spark.jobs.replicas import choose
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import cut, frame_of, parallelism
from kops.spark.source.rows import header_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
    "leader_epoch": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "path": "string",
    "broker": "int",
    "damage": DAMAGE,
}


def grep(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    wanted: RecordFilter | None = None,
    *,
    value: re.Pattern[bytes] | None = None,
    topics: Sequence[str] = (),
    task_bytes: int = TASK_BYTES,
) -> DataFrame:
    """The records that fit, in the order of partitions and offsets, and a row for each damaged range. One replica is read.

    `wanted`: the conditions of `kops log dump`; `value` is searched in the value's bytes. Control records are left out unless `wanted` asks
    for them.
    """
    files = OsFiles(read_only=True)
    listing = list_kafkas(paths, files)
    named = [each for each in listing.inventory.partitions() if not each.state and (not topics or each.topic in topics)]
    parts: list[tuple[Replica, Part]] = []
    for replica in choose(spark, listing, named, task_bytes):
        for segment in replica.directory.live_segments:
            assert segment.log is not None
            index = segment.files.get("index")
            parts += [
                (_without_files(replica), part)
                for part in split_segment(files, 0, segment.log.path, segment.log.size, None if index is None else index.path, task_bytes)
            ]
    read_part = partial(_rows, wanted=wanted or RecordFilter(control=False), value=value)
    return frame_of(spark, cut(parts, lambda each: each[1].size, parallelism(spark), task_bytes), read_part, COLUMNS)


def _without_files(replica: Replica) -> Replica:
    """What a row says of its replica; the segments stay with the driver."""
    from dataclasses import replace

    return replace(replica, directory=replace(replica.directory, segments=[], files=[], unknown=[]))


def _rows(work: tuple[Replica, Part], *, wanted: RecordFilter, value: re.Pattern[bytes] | None) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    replica, part = work
    path = replica.as_given(part.path)
    same = {"topic": replica.directory.topic, "partition": replica.directory.partition, "path": path, "broker": replica.broker}
    with OsFiles(read_only=True).open(part.path) as file:
        for item in part_items(file, part):
            if isinstance(item, Damage):
                lost = Lost(path, item.position, item.length, item.base_offset, item.last_offset, item.reason)
                yield {**same, "damage": damage_value(lost)}
            elif wanted.batch_may_match(item):
                try:
                    for record in item.iterate():
                        if wanted.record_matches(record) and (value is None or _found(value, record)):
                            yield {**same, **_record(item, record)}
                except DecodeError as error:
                    lost = Lost(path, item.position, item.size, item.base_offset, item.last_offset, error.reason)
                    yield {**same, "damage": damage_value(lost)}


def _found(pattern: re.Pattern[bytes], record: Record) -> bool:
    return record.value is not None and pattern.search(record.value) is not None


def _record(batch: Batch, record: Record) -> dict[str, Any]:
    is_v2 = batch.magic == 2
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": header_text(key), "value": value} for key, value in record.headers],
        "leader_epoch": batch.partition_leader_epoch if is_v2 else None,
        "producer_id": batch.producer_id if is_v2 else None,
        "producer_epoch": batch.producer_epoch if is_v2 else None,
        "sequence": record.sequence,
    }
