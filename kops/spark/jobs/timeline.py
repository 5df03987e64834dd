"""`kops scan timeline`: the events of `kops log timeline`, for a whole cluster. A task reads a partition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files import OsFiles
from kops.forensics.coordinators.records import Lost
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.reading import find_logs
from kops.forensics.questions.timeline import METADATA_TOPIC, Choice, events_of
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import choose
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import cut, frame_of, parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    "path": "string",
    "damage": DAMAGE,
}


def timeline(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], choice: Choice | None = None, *, task_bytes: int = TASK_BYTES
) -> DataFrame:
    """Return the events by time, and a row for each damaged range. One of several replicas is read; deleted files are those of all.

    `time` is in milliseconds since 1970; null if the log has none. Raises as `kops log timeline`.
    """
    wanted = choice or Choice()
    found = find_logs([os.fspath(path) for path in paths], OsFiles(read_only=True), wanted.topics, needed=(METADATA_TOPIC,))
    live = choose(spark, found.listing, [replace(each.directory, path=each.given) for each in found.replicas], task_bytes)
    read_logs = {each.directory.path for each in live}
    dying = [each for each in found.listing.replicas if each.directory.state]
    work = [(each, each.directory.path in read_logs) for each in (*found.replicas, *dying)]
    tasks = cut(work, lambda each: each[0].size if each[1] else 0, parallelism(spark), task_bytes)
    events = frame_of(spark, tasks, partial(_events, choice=wanted), COLUMNS)
    return events.orderBy("time", "topic", "partition", "offset", "event", "path", "broker", "detail") if tasks else events


def _events(work: tuple[Replica, bool], *, choice: Choice) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    replica, is_read = work
    for found in events_of(OsFiles(read_only=True), replica, choice, is_read=is_read):
        yield {"damage": damage_value(found)} if isinstance(found, Lost) else found
