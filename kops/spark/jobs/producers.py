"""`kops scan producers`: shows the idempotent and transactional producers of each partition, and breaks in their sequences.

Source of the rule: Kafka's `ProducerAppendInfo`, through `kops.forensics.verify.facts.producers`. A task reads whole partitions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import plain_paths
from kops.forensics.coordinators.records import Lost, batches
from kops.forensics.inventory.replicas import Replica, list_kafkas
from kops.forensics.verify.facts.producers import Seen, sequence_break
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import choose, replica_unit
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import cut, frame_of, parallelism
from kops.spark.remembered import Answers, State
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kops.records import Batch

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "batches": "bigint",
    "records": "bigint",
    "transactional": "boolean",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "last_sequence": "int",
    "first_timestamp": "bigint",
    "last_timestamp": "bigint",
    "gaps": "bigint",
    "duplicates": "bigint",
    "epochs_back": "bigint",
    "first_break": "bigint",
    "broker": "int",
    "damage": DAMAGE,
}
_COUNTERS: Final = {"gap": "gaps", "duplicate": "duplicates", "epoch-back": "epochs_back"}
_MAX_INT: Final = 0x7FFFFFFF


def producers(
    spark: SparkSession, paths: Sequence[str | os.PathLike[str]], *, task_bytes: int = TASK_BYTES, state: State | None = None
) -> DataFrame:
    """Return a row for each producer of a partition, by its first offset, and a row for each damaged range. One replica is read.

    `gaps`, `duplicates` and `epochs_back` count the batches that do not follow the one before; `first_break` is the offset of the first of
    them. In a compacted partition gaps are no loss: the cleaner removes batches. `state`: use and keep the rows of partitions there.
    """
    listing = list_kafkas(plain_paths(paths), driver_files())
    chosen = choose(spark, listing, [each for each in listing.inventory.partitions() if not each.state], task_bytes)
    kept = state.answers("producers", []) if state is not None else None
    known = state.known(kept, map(replica_unit, chosen)) if state is not None and kept is not None else [False] * len(chosen)
    work = cut(list(zip(chosen, known, strict=True)), lambda each: 0 if each[1] else each[0].size, parallelism(spark), task_bytes)
    return frame_of(spark, work, partial(_kept_rows, kept=kept), COLUMNS, "reads the producers of partitions")


def _kept_rows(work: tuple[Replica, bool], *, kept: Answers | None) -> Iterable[dict[str, Any]]:
    """Runs in a task."""
    replica = work[0]
    return _rows(replica) if kept is None else kept.of(replica_unit(replica), lambda: list(_rows(replica)))


@dataclass(slots=True)
class _Producer:
    row: dict[str, Any]
    seen: Seen


def _rows(replica: Replica) -> Iterator[dict[str, Any]]:
    """Runs in a task."""
    found: dict[int, _Producer] = {}
    directory = replica.directory
    same = {"topic": directory.topic, "partition": directory.partition, "broker": replica.broker}
    for item in batches(task_files(replica), directory):
        if isinstance(item, Lost):
            yield {**same, "damage": damage_value(item._replace(file=replica.as_given(item.file)))}
        elif item.magic == 2 and item.producer_id >= 0:
            _add(found, item)
    for one in found.values():
        yield {**same, **one.row}


def _add(found: dict[int, _Producer], batch: Batch) -> None:
    sequence = -1 if batch.is_control else batch.base_sequence
    count = batch.last_offset - batch.base_offset
    last = -1 if sequence < 0 else (sequence + count) % (_MAX_INT + 1)
    seen = Seen(batch.producer_epoch, sequence, last, batch.base_offset, batch.last_offset, batch.position, batch.max_timestamp)
    one = found.get(batch.producer_id)
    if one is None:
        row: dict[str, Any] = dict.fromkeys(("gaps", "duplicates", "epochs_back", "batches", "records"), 0)
        one = found[batch.producer_id] = _Producer({**row, "producer_id": batch.producer_id, "first_offset": batch.base_offset}, seen)
        one.row |= {"first_timestamp": batch.base_timestamp, "transactional": False, "last_timestamp": -1}
    else:
        kind = sequence_break(one.seen, seen)
        if kind is not None:
            one.row[_COUNTERS[kind]] += 1
            one.row.setdefault("first_break", batch.base_offset)
        # A marker has no sequence. The sequence before it still counts unless the epoch rose.
        is_kept = sequence < 0 and seen.epoch <= one.seen.epoch
        one.seen = one.seen if is_kept else seen
    row = one.row
    row["batches"] += 1
    row["records"] += 0 if batch.is_control else batch.count or 0
    row["transactional"] = row["transactional"] or batch.is_transactional
    row["producer_epoch"] = one.seen.epoch
    row["last_offset"] = batch.last_offset
    row["last_sequence"] = None if one.seen.last_sequence < 0 else one.seen.last_sequence
    row["last_timestamp"] = max(row["last_timestamp"], batch.max_timestamp)
