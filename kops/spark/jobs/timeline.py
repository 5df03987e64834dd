"""`kops scan timeline`: the events of `kops log timeline`, for a whole cluster.

A task reads partitions. A partition that is much larger than others is read in parts, which the driver joins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files.urls import plain_paths
from kops.forensics.coordinators.records import Lost
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.reading import find_logs, parts_of, segments_of
from kops.forensics.questions.timeline import METADATA_TOPIC, ORDER, Choice, PartEvents, events_of, read_part, wanted_events
from kops.forensics.verify.parts import TASK_BYTES, Part
from kops.spark.jobs.replicas import bare, choose
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import answers_of, frame_of, most_bytes, parallelism, size_of_parts
from kops.spark.packed import PackedItems, cut, pack, unpack
from kops.spark.remembered import Answers, State, Unit
from kops.spark.stores.reading import driver_files, task_files

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
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    choice: Choice | None = None,
    *,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """Return the events by time, and a row for each damaged range. One of several replicas is read; deleted files are those of all.

    `time` is in milliseconds since 1970; null if the log has none. `state`: use and keep the events of segments there. Raises as
    `kops log timeline`.
    """
    return events_frame(spark, paths, choice, task_bytes=task_bytes, state=state).orderBy(*ORDER)


def events_frame(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    choice: Choice | None = None,
    *,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """Return the same rows, not in order."""
    wanted = choice or Choice()
    found = find_logs(plain_paths(paths), driver_files(), wanted.topics, needed=(METADATA_TOPIC,))
    live = choose(spark, found.listing, [replace(each.directory, path=each.given) for each in found.replicas], task_bytes, state)
    read_logs = {each.directory.path for each in live}
    dying = [each for each in found.listing.replicas if each.directory.state]
    most = most_bytes((each.size for each in live), parallelism(spark), task_bytes)
    large = [each for each in found.replicas if each.directory.path in read_logs and each.size > most and not _is_metadata(each)]
    kept = state.answers("timeline", [wanted.interval_ms]) if state is not None else None
    parts = _read_large(spark, large, partial(_read_one, interval_ms=wanted.interval_ms, kept=kept), task_bytes, state, kept)
    work = [_Work(each, each.directory.path in read_logs, parts.get(each.directory.path)) for each in (*found.replicas, *dying)]

    def size(each: _Work) -> int:
        if not each.is_read or each.packed is not None:
            return 0
        if state is None or kept is None or _is_metadata(each.replica):
            return each.replica.size
        return _unknown_bytes(state, kept, each.replica)

    tasks = cut(work, size, parallelism(spark), task_bytes)
    return frame_of(spark, tasks, partial(_events, choice=wanted, kept=kept), COLUMNS, "reads events")


class _Work(NamedTuple):
    """A replica, whether its log is read, and the packed events of its parts, if tasks have read them already."""

    replica: Replica
    is_read: bool
    packed: bytes | None


def _is_metadata(replica: Replica) -> bool:
    """The records of the metadata log mean something only in their order."""
    return replica.directory.topic == METADATA_TOPIC


def _unit(replica: Replica, part: Part) -> Unit:
    return Unit((replica.as_given(part.path), part.path, part.start, part.end), (part.path,), part.size)


def _unknown_bytes(state: State, kept: Answers, replica: Replica) -> int:
    """The bytes of segments whose events are not known."""
    logs = [segment.log for segment in segments_of(replica) if segment.log is not None]
    units = [_unit(replica, Part(0, log.path, 0, log.size)) for log in logs]
    return sum(unit.size for unit, known in zip(units, state.known(kept, units), strict=True) if not known)


def _read_large(
    spark: SparkSession,
    large: Sequence[Replica],
    read: Callable[[tuple[Part, Replica]], PartEvents],
    task_bytes: int,
    state: State | None,
    kept: Answers | None,
) -> dict[str, bytes]:
    """The packed events of the parts of large replicas, by their directories."""
    files = driver_files()
    size = size_of_parts((each.size for each in large), parallelism(spark), task_bytes)
    work = PackedItems((part, bare(replica)) for number, replica in enumerate(large) for part in parts_of(files, number, replica, size))
    known: Iterable[bool] = repeat(False, len(work))
    if state is not None and kept is not None:
        known = state.known(kept, (_unit(replica, part) for part, replica in work))
    sizes = (0 if is_known else part.size for (part, _), is_known in zip(work, known, strict=True))
    tasks = cut(work, sizes, parallelism(spark), task_bytes)
    answers = zip(work, answers_of(spark, tasks, read, "reads large partitions"), strict=True)
    by_directory = groupby(answers, key=lambda each: each[0][1].directory.path)
    return {path: pack([(part, answer) for (part, _), answer in some]) for path, some in by_directory}


def _read_one(work: tuple[Part, Replica], *, interval_ms: int, kept: Answers | None) -> PartEvents:
    """Runs in a task."""
    part, replica = work

    def read() -> PartEvents:
        return read_part(task_files(replica), replica, part, interval_ms)

    return read() if kept is None else kept.of(_unit(replica, part), read)


def _events(work: _Work, *, choice: Choice, kept: Answers | None) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    if work.packed is None:

        def read(part: Part) -> PartEvents:
            return _read_one((part, work.replica), interval_ms=choice.interval_ms, kept=kept)

        events = events_of(task_files(work.replica), work.replica, choice, is_read=work.is_read, read=read)
    else:
        events = wanted_events(work.replica, choice, unpack(work.packed))
    for found in events:
        yield {"damage": damage_value(found)} if isinstance(found, Lost) else found
