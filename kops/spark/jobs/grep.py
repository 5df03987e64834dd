"""`kops scan grep`: the records of a whole cluster that `kops log grep` finds. The driver plans, tasks search parts of segments."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import cloudpickle

from kops.files.urls import plain_paths
from kops.forensics.coordinators.records import Lost
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.outcomes import Outcomes, outcomes_of, producers_of
from kops.forensics.questions.reading import by_name, find_logs
from kops.forensics.questions.search import Search, row_of, search, segments_to_search
from kops.forensics.verify.parts import TASK_BYTES, Part, part_items, split_segment
from kops.spark.jobs.replicas import choose
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import answers_of, frame_from, frame_of, parallelism, size_of_parts
from kops.spark.packed import PackedItems, cut
from kops.spark.remembered import Answers, State, Unit
from kops.spark.source.rows import header_text
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "bigint",
    "key": "binary",
    "value": "binary",
    "decoded": "string",
    "headers": "array<struct<key: string, value: binary>>",
    "leader_epoch": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "path": "string",
    "broker": "int",
    "damage": DAMAGE,
}
COUNT_COLUMNS: Final = {"topic": "string", "partition": "int", "records": "bigint", "path": "string", "broker": "int"}


class _Work(NamedTuple):
    """A part to search, and how the transactions of its log ended, if that is asked for."""

    replica: Replica
    part: Part
    outcomes: Outcomes | None


def grep(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    wanted: Search | None = None,
    *,
    topics: Sequence[str] = (),
    transactional_id: str | None = None,
    limit: int | None = None,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """The records that match, in the order of partitions and offsets, and a row for each damaged range. One replica is read.

    `wanted` has the conditions of `kops log grep`; `decoded` is JSON. `limit`: only so many records. Raises as `kops log grep`.
    """
    frame, _ = search_rows(spark, paths, wanted or Search(), topics, transactional_id, task_bytes, state)
    if limit is None:
        return frame
    records = frame.filter("damage is null").orderBy("topic", "partition", "offset").limit(limit)
    return records.unionByName(frame.filter("damage is not null"))


def count(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    wanted: Search | None = None,
    *,
    topics: Sequence[str] = (),
    transactional_id: str | None = None,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """How many records match in each partition, also none, and a row for each damaged range."""
    from pyspark.sql import functions as f

    frame, replicas = search_rows(spark, paths, wanted or Search(), topics, transactional_id, task_bytes, state)
    dirs = {each.given: number for number, each in enumerate(replicas)}
    found = frame.filter("damage is null").groupBy(f.regexp_replace("path", "/[^/]*$", "").alias("path")).count().collect()
    counts = {row["path"]: row["count"] for row in found}
    rows = [
        {
            "topic": each.directory.topic,
            "partition": each.directory.partition if each.directory.topic is not None else None,
            "records": counts.get(each.given, 0),
            "path": each.given,
            "broker": each.broker,
        }
        for each in sorted(replicas, key=lambda each: dirs[each.given])
    ]
    damage = frame.filter("damage is not null").select("damage")
    return frame_from(spark, rows, COUNT_COLUMNS).unionByName(damage, allowMissingColumns=True)


def search_rows(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    wanted: Search,
    topics: Sequence[str],
    transactional_id: str | None,
    task_bytes: int,
    state: State | None,
) -> tuple[DataFrame, list[Replica]]:
    """The rows that tasks find, not in order, and the replicas that they read."""
    files = driver_files()
    found = find_logs(plain_paths(paths), files, topics)
    if transactional_id is not None:
        wanted = replace(wanted, producers=producers_of(files, found, transactional_id))
    replicas = by_name(choose(spark, found.listing, [replace(each.directory, path=each.given) for each in found.replicas], task_bytes))
    outcomes: Iterable[Outcomes | None] = [None] * len(replicas)
    if wanted.outcomes:
        outcomes = answers_of(
            spark, cut(replicas, lambda each: each.size, parallelism(spark), task_bytes), _outcomes, "reads how transactions ended"
        )
    work: PackedItems[_Work] = PackedItems()
    size = size_of_parts((each.size for each in replicas), parallelism(spark), task_bytes)
    for replica, ends in zip(replicas, outcomes, strict=True):
        for segment in segments_to_search(replica, wanted):
            assert segment.log is not None
            index = segment.files.get("index")
            index_path = None if index is None else index.path
            parts = split_segment(files, 0, segment.log.path, segment.log.size, index_path, size)
            for part in parts:
                work.append(_Work(_without_files(replica), part, ends))
    kept = state.answers("grep", _question(wanted)) if state is not None else None
    known = state.known(kept, map(_unit, work)) if state is not None and kept is not None else repeat(False, len(work))
    sizes = (0 if is_known else each.part.size for each, is_known in zip(work, known, strict=True))
    tasks = cut(work, sizes, parallelism(spark), task_bytes)
    return frame_of(spark, tasks, partial(_kept_rows, wanted=wanted, kept=kept), COLUMNS, "searches records"), replicas


def _question(wanted: Search) -> list[Any]:
    """What is searched for, as a value of JSON. A search that pickles to other bytes counts as another one."""
    sets = (sorted(wanted.producers) if wanted.producers is not None else None, sorted(wanted.outcomes))
    rest = cloudpickle.dumps(replace(wanted, producers=None, outcomes=frozenset()))
    return [*sets, hashlib.sha256(rest).hexdigest()]


def _unit(work: _Work) -> Unit:
    part, replica = work.part, work.replica
    ends = "" if work.outcomes is None else hashlib.sha256(repr(sorted(work.outcomes.markers.items())).encode()).hexdigest()
    about = (replica.as_given(part.path), replica.directory.topic, replica.directory.partition, replica.broker, ends)
    return Unit((part.path, part.start, part.end, *about), (part.path,), part.size)


def _kept_rows(work: _Work, *, wanted: Search, kept: Answers | None) -> Iterable[dict[str, Any]]:
    """Runs in a task."""
    return _rows(work, wanted=wanted) if kept is None else kept.of(_unit(work), lambda: list(_rows(work, wanted=wanted)))


def _without_files(replica: Replica) -> Replica:
    """Return the data for a row's replica; the list of segments stays on the driver."""
    return replace(replica, directory=replace(replica.directory, segments=[], files=[], unknown=[]))


def _outcomes(replica: Replica) -> Outcomes:
    """Runs in a task."""
    return outcomes_of(task_files(replica), replica)


def _rows(work: _Work, *, wanted: Search) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    replica = work.replica
    path = replica.as_given(work.part.path)
    same = {"topic": replica.directory.topic, "partition": replica.directory.partition, "path": path, "broker": replica.broker}
    with task_files().open(work.part.path) as file:
        for found in search(part_items(file, work.part), wanted, path, work.outcomes):
            if isinstance(found, Lost):
                yield {**same, "damage": damage_value(found)}
                continue
            row = row_of(replica, path, found)
            row["headers"] = [{"key": header_text(key), "value": value} for key, value in row["headers"]]
            row["decoded"] = None if row["decoded"] is None else json.dumps(row["decoded"])
            yield row
