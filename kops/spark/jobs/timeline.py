"""`kops scan timeline`: the events of `kops log timeline`, for a whole cluster.

A task reads partitions. A partition that is much larger than others is read in parts, which the driver joins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files import OsFiles
from kops.forensics.coordinators.records import Lost
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.reading import find_logs, parts_of
from kops.forensics.questions.timeline import METADATA_TOPIC, ORDER, Choice, PartEvents, events_of, read_part, wanted_events
from kops.forensics.verify.parts import TASK_BYTES, Part
from kops.spark.jobs.replicas import choose
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import answers_of, cut, frame_of, most_bytes, parallelism

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
    return events_frame(spark, paths, choice, task_bytes=task_bytes).orderBy(*ORDER)


def events_frame(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], choice: Choice | None = None, *, task_bytes: int = TASK_BYTES
) -> DataFrame:
    """Return the same rows, not in order."""
    wanted = choice or Choice()
    found = find_logs([os.fspath(path) for path in paths], OsFiles(read_only=True), wanted.topics, needed=(METADATA_TOPIC,))
    live = choose(spark, found.listing, [replace(each.directory, path=each.given) for each in found.replicas], task_bytes)
    read_logs = {each.directory.path for each in live}
    dying = [each for each in found.listing.replicas if each.directory.state]
    most = most_bytes((each.size for each in live), parallelism(spark), task_bytes)
    large = [each for each in found.replicas if each.directory.path in read_logs and each.size > most and not _is_metadata(each)]
    parts = _read_large(spark, large, wanted, task_bytes)
    work = [_Work(each, each.directory.path in read_logs, parts.get(each.directory.path)) for each in (*found.replicas, *dying)]
    tasks = cut(work, lambda each: each.size, parallelism(spark), task_bytes)
    return frame_of(spark, tasks, partial(_events, choice=wanted), COLUMNS, "reads events")


class _Work(NamedTuple):
    """A replica, whether its log is read, and the events of its parts, if tasks have read them already."""

    replica: Replica
    is_read: bool
    parts: list[tuple[Part, PartEvents]] | None

    @property
    def size(self) -> int:
        """The bytes to read."""
        return self.replica.size if self.is_read and self.parts is None else 0


def _is_metadata(replica: Replica) -> bool:
    """The records of the metadata log mean something only in their order."""
    return replica.directory.topic == METADATA_TOPIC


def _read_large(spark: SparkSession, large: Sequence[Replica], choice: Choice, task_bytes: int) -> dict[str, list[tuple[Part, PartEvents]]]:
    """The parts of large replicas, by their directories."""
    files = OsFiles(read_only=True)
    work = [(part, replica) for number, replica in enumerate(large) for part in parts_of(files, number, replica, task_bytes)]
    tasks = cut(work, lambda each: each[0].size, parallelism(spark), task_bytes)
    answers = answers_of(spark, tasks, partial(_read_one, interval_ms=choice.interval_ms), "reads large partitions")
    found: dict[str, list[tuple[Part, PartEvents]]] = {}
    for (part, replica), answer in zip(work, answers, strict=True):
        found.setdefault(replica.directory.path, []).append((part, answer))
    return found


def _read_one(work: tuple[Part, Replica], *, interval_ms: int) -> PartEvents:
    """Runs in a task."""
    part, replica = work
    return read_part(OsFiles(read_only=True), replica, part, interval_ms)


def _events(work: _Work, *, choice: Choice) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    if work.parts is None:
        events = events_of(OsFiles(read_only=True), work.replica, choice, is_read=work.is_read)
    else:
        events = wanted_events(work.replica, choice, work.parts)
    for found in events:
        yield {"damage": damage_value(found)} if isinstance(found, Lost) else found
