"""`kops scan txns`: shows open and hanging transactions, like `kops log txns`, from the directories of all brokers.

Tasks read the logs of partitions, large ones in parts. Of the transaction log they return only the ids whose producers have a transaction
to judge. The driver judges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kops.files.urls import plain_paths
from kops.forensics.coordinators.hanging import Judge, TransactionLog, TransactionRow, data_partitions, log_partitions, transaction_log
from kops.forensics.coordinators.internal_topics import checked_inventory
from kops.forensics.coordinators.open_transactions import (
    PartitionTransactions,
    join_transactions,
    read_part_transactions,
    read_transactions,
)
from kops.forensics.coordinators.records import Lost
from kops.forensics.coordinators.transactional_ids import PartitionIds, read_ids
from kops.forensics.inventory.replicas import Listing, Replica, list_replicas
from kops.forensics.inventory.tree import PartitionDir, refuse_foreign
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.replicas import Work, competition, read_in_parts, replica_unit, replicas_of, work_of
from kops.spark.jobs.results import DAMAGE, damage_value
from kops.spark.jobs.tasks import answers_of, frame_from, parallelism
from kops.spark.packed import cut
from kops.spark.remembered import Answers, State
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kops.records import Batch

COLUMNS: Final = {
    "name": "string",
    "dir": "string",
    "topic": "string",
    "partition": "int",
    "state": "string",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "since_ms": "bigint",
    "last_timestamp": "bigint",
    "records": "bigint",
    "coordinator_epoch": "int",
    "transactional_id": "string",
    "coordinator": "string",
    "holds_lso": "boolean",
    "last_stable_offset": "bigint",
    "end_offset": "bigint",
    "command": "string",
    "note": "string",
    "damage": DAMAGE,
}


@dataclass(slots=True)
class TransactionScan:
    """The result: `rows` partition by partition, the number of transactions by their end, and the damage.

    `partitions` were read. For the replicas in `left_out`, another one reaches further.
    """

    rows: list[TransactionRow] = field(default_factory=list)
    committed: int = 0
    aborted: int = 0
    empty: int = 0
    partitions: int = 0
    has_log: bool = False
    lost: list[Lost] = field(default_factory=list)
    left_out: list[tuple[PartitionDir, PartitionDir]] = field(default_factory=list)


def txns(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    hanging: bool = False,
    empty: bool = False,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> DataFrame:
    """Return open and hanging transactions as a DataFrame, with the columns of `kops log txns --format jsonl`.

    `hanging`: only those that hang. `empty`: also markers of producers that wrote nothing. `state`: use and keep what tasks find in
    partitions there. The errors are those of `kops log txns`.
    """
    return transactions_frame(spark, scan_txns(spark, paths, empty=empty, task_bytes=task_bytes, state=state), hanging=hanging)


def transactions_frame(spark: SparkSession, found: TransactionScan, *, hanging: bool = False) -> DataFrame:
    """Return the result as a DataFrame; damage comes last."""
    rows = [_row(each) for each in found.rows if not hanging or each.state == "hanging"]
    return frame_from(spark, [*rows, *({"state": "damage", "damage": damage_value(each)} for each in found.lost)], COLUMNS)


def _row(row: TransactionRow) -> dict[str, Any]:
    return {"name": f"{row.topic}-{row.partition}" if row.topic is not None else row.dir, **row.to_json()}


def scan_txns(
    spark: SparkSession,
    paths: Sequence[str | os.PathLike[str]],
    *,
    empty: bool = False,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
) -> TransactionScan:
    """Read all partitions below the paths, one replica of each. The errors are those of `kops log txns`."""
    files = driver_files()
    listing = list_replicas(plain_paths(paths), files)
    inventory = checked_inventory(listing.inventory)
    refuse_foreign(listing.paths, inventory, files)
    chosen = competition(spark, listing, data_partitions(inventory), task_bytes, state)
    replicas = replicas_of(listing, chosen.partitions)
    kept = state.answers("txns", [empty]) if state is not None else None
    what = "reads transactions of large partitions"
    parts = read_in_parts(spark, replicas, _read_part, what, task_bytes=task_bytes, state=state, kept=kept)
    tasks = work_of(spark, replicas, parts, task_bytes, state, kept)
    contents = answers_of(spark, tasks, partial(_contents, empty=empty, kept=kept), "reads transactions")
    result = TransactionScan(partitions=len(contents), left_out=chosen.left_out)
    wanted = {one for found in contents for one in (*found.open, *(each.producer_id for each in found.empty))}
    log = _read_log(spark, listing, frozenset(wanted), task_bytes)
    result.has_log = log.is_there
    result.lost += log.lost
    judge = Judge(log)
    for directory, found in zip(chosen.partitions, contents, strict=True):
        result.lost += found.lost
        result.committed += found.committed
        result.aborted += found.aborted
        result.empty += found.empty_count
        result.rows += judge.rows(directory, found, with_empty=empty)
    return result


def _read_log(spark: SparkSession, listing: Listing, wanted: frozenset[int], task_bytes: int) -> TransactionLog:
    chosen = competition(spark, listing, log_partitions(listing.inventory), task_bytes)
    tasks = cut(replicas_of(listing, chosen.partitions), lambda each: each.size, parallelism(spark), task_bytes)
    answers = answers_of(spark, tasks, partial(_read_ids, wanted=wanted), "replays __transaction_state")
    return transaction_log(chosen.partitions, answers)


class _Contents(PartitionTransactions):
    """`empty_count` is the number of empty transactions, even if `empty` does not list them."""

    empty_count = 0


def _read_part(found: Iterator[Batch | Lost], _: Replica) -> PartitionTransactions:
    """Runs in a task."""
    return read_part_transactions(found)


def _contents(work: Work, *, empty: bool, kept: Answers | None) -> _Contents:
    """Runs in a task."""
    replica = work.replica
    if work.packed is not None or kept is None:
        return _read_partition(replica, work.parts, empty=empty)
    return kept.of(replica_unit(replica), lambda: _read_partition(replica, None, empty=empty))


def _read_partition(replica: Replica, parts: Sequence[PartitionTransactions] | None, *, empty: bool) -> _Contents:
    """Runs in a task."""
    files, directory = task_files(replica), replica.directory
    found = read_transactions(files, directory) if parts is None else join_transactions(files, directory, parts)
    result = _Contents(
        open=found.open,
        empty=found.empty if empty else [],
        committed=found.committed,
        aborted=found.aborted,
        end_offset=found.end_offset,
        last_timestamp=found.last_timestamp,
        lost=list(_named(replica, found.lost)),
    )
    for one in result.open.values():
        if one.lost is not None:
            one.lost = one.lost._replace(file=replica.as_given(one.lost.file))
    result.empty_count = len(found.empty)
    return result


def _read_ids(replica: Replica, *, wanted: frozenset[int]) -> PartitionIds:
    """Runs in a task."""
    found = read_ids(task_files(replica), replica.directory)
    ids = {name: one for name, one in found.ids.items() if one.producer_ids & wanted}
    return PartitionIds(ids, found.raw, list(_named(replica, found.lost)))


def _named(replica: Replica, lost: Sequence[Lost]) -> Iterator[Lost]:
    for one in lost:
        yield one._replace(file=replica.as_given(one.file))
