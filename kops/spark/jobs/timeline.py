"""`kops scan timeline`: shows what happened to the partitions of a cluster over time, according to their logs.

Events: `appends` (records of an interval), `leader-epoch` (the first batch of an epoch, so an election before it), `roll` (the first batch
of a segment), `commit` and `abort` (markers of transactions), `deleted` (files that wait for their deletion, when they last changed).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.errors import DecodeError
from kops.files import OsFiles
from kops.forensics.coordinators.records import Lost, batches, marker_of
from kops.forensics.inventory.replicas import Replica, list_kafkas
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import choose
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import cut, frame_of, parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kops.records import Batch

HOUR_MS: Final = 3_600_000
COLUMNS: Final = {
    "time": "bigint",
    "event": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "last_offset": "bigint",
    "records": "bigint",
    "bytes": "bigint",
    "leader_epoch": "int",
    "producer_id": "bigint",
    "detail": "string",
    "broker": "int",
    "damage": DAMAGE,
}


def timeline(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], *, interval_ms: int = HOUR_MS, task_bytes: int = TASK_BYTES
) -> DataFrame:
    """Return the events by time; damage comes last. One of several replicas is read; deleted files are those of all brokers.

    `time` is in milliseconds since 1970; null if the log has none. `interval_ms`: the interval over which appends are summed, from `time`
    on.
    """
    files = OsFiles(read_only=True)
    listing = list_kafkas(paths, files)
    live = choose(spark, listing, [each for each in listing.inventory.partitions() if not each.state], task_bytes)
    read_logs = {each.directory.path for each in live}
    work = [(each, each.directory.path in read_logs) for each in listing.replicas]
    tasks = cut(work, lambda each: each[0].size if each[1] else 0, parallelism(spark), task_bytes)
    events = frame_of(spark, tasks, partial(_events, interval_ms=interval_ms), COLUMNS)
    return events.orderBy("time", "topic", "partition", "offset", "event") if tasks else events


def _events(work: tuple[Replica, bool], *, interval_ms: int) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    replica, is_read = work
    same = {"topic": replica.directory.topic, "partition": replica.directory.partition, "broker": replica.broker}
    for event in (*_deleted(replica), *(_log(replica, interval_ms) if is_read else ())):
        yield {**same, **event}


def _deleted(replica: Replica) -> Iterator[dict[str, Any]]:
    directory = replica.directory
    for segment in directory.segments:
        log = segment.log
        if log is not None and (segment.suffix or directory.state == "delete"):
            yield {
                "time": log.mtime_ms,
                "event": "deleted",
                "offset": segment.base_offset,
                "bytes": log.size,
                "detail": replica.as_given(log.path),
            }


def _log(replica: Replica, interval_ms: int) -> Iterator[dict[str, Any]]:
    appends: dict[int | None, dict[str, Any]] = {}
    bases = {each.base_offset: each for each in replica.directory.live_segments[1:]}
    epoch: int | None = None
    for item in batches(OsFiles(read_only=True), replica.directory):
        if isinstance(item, Lost):
            yield {"damage": damage_value(item._replace(file=replica.as_given(item.file)))}
            continue
        first = item.read_base_offset()
        about = {"time": _time(item.base_timestamp if item.magic == 2 else item.max_timestamp), "offset": first}
        if item.magic == 2 and item.partition_leader_epoch >= 0 and item.partition_leader_epoch != epoch:
            epoch = item.partition_leader_epoch
            yield {**about, "event": "leader-epoch", "leader_epoch": epoch}
        if first in bases:
            log = bases.pop(first).log
            yield {**about, "event": "roll", "detail": None if log is None else log.name}
        if item.is_control:
            yield from _markers(item)
        else:
            _append(appends, item, first, interval_ms)
    yield from appends.values()


def _append(appends: dict[int | None, dict[str, Any]], batch: Batch, first: int, interval_ms: int) -> None:
    time = _time(batch.max_timestamp)
    start = None if time is None else time - time % interval_ms
    row = appends.setdefault(start, {"time": start, "event": "appends", "offset": first, "records": 0, "bytes": 0})
    row["records"] += 1 if batch.count is None else batch.count
    row["bytes"] += batch.size
    row["last_offset"] = batch.last_offset


def _markers(batch: Batch) -> Iterator[dict[str, Any]]:
    try:
        for record in batch.iterate():
            marker = marker_of(record, batch)
            if marker is not None:
                event = "commit" if marker.is_commit else "abort"
                yield {"time": _time(marker.timestamp), "event": event, "offset": marker.offset, "producer_id": marker.producer_id}
    except DecodeError:
        return  # `kops scan verify` reports it.


def _time(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp
