"""`kops scan txns`: shows open and hanging transactions, like `kops log txns`, from the directories of all brokers.

Tasks read the logs of partitions, large ones in parts. Of the transaction log they return only the ids whose producers have a transaction
to judge. The driver judges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files.urls import plain_paths
from kops.forensics.coordinators.hanging import (
    Judge,
    TransactionLog,
    TransactionRow,
    data_partitions,
    log_partitions,
    read_transaction_log,
)
from kops.forensics.coordinators.internal_topics import refuse_files
from kops.forensics.coordinators.open_transactions import (
    PartitionTransactions,
    join_transactions,
    read_part_transactions,
    read_transactions,
)
from kops.forensics.coordinators.records import Lost, unread_line
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

    `partitions` were read. For the replicas in `left_out`, another one reaches further. `unread` says which directories and logs could not
    be read, and why.
    """

    rows: list[TransactionRow] = field(default_factory=list)
    committed: int = 0
    aborted: int = 0
    empty: int = 0
    partitions: int = 0
    has_log: bool = False
    lost: list[Lost] = field(default_factory=list)
    left_out: list[tuple[PartitionDir, PartitionDir]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class Unread(NamedTuple):
    """A log that a task could not read, and why."""

    line: str


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
    partitions there. Raises NotFoundError, UsageError, and OSError if a directory or a log can't be read.
    """
    found = scan_txns(spark, paths, empty=empty, task_bytes=task_bytes, state=state)
    if found.unread:
        raise OSError(found.unread[0])  # A frame without its transactions would look complete.
    return transactions_frame(spark, found, hanging=hanging)


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
    inventory = refuse_files(listing.inventory)
    refuse_foreign(listing.paths, inventory, files)
    chosen = competition(spark, listing, data_partitions(inventory), task_bytes, state)
    replicas = replicas_of(listing, chosen.partitions)
    kept = state.answers("txns", [empty]) if state is not None else None
    what = "reads transactions of large partitions"
    parts = read_in_parts(spark, replicas, _read_part, what, task_bytes=task_bytes, state=state, kept=kept, keep=_is_read)
    tasks = work_of(spark, replicas, parts, task_bytes, state, kept)
    contents = answers_of(spark, tasks, partial(_contents, empty=empty, kept=kept), "reads transactions")
    result = TransactionScan(left_out=chosen.left_out, unread=[f"{each.path}: {each.reason}" for each in inventory.problems])
    read = (found for found in contents if not isinstance(found, Unread))
    wanted = {one for found in read for one in (*found.open, *(each.producer_id for each in found.empty))}
    log = _read_log(spark, listing, frozenset(wanted), task_bytes, result.unread)
    result.has_log = log.is_there
    result.lost += log.lost
    judge = Judge(log)
    for directory, found in zip(chosen.partitions, contents, strict=True):
        if isinstance(found, Unread):
            result.unread.append(found.line)
            continue
        result.partitions += 1
        result.lost += found.lost
        result.committed += found.committed
        result.aborted += found.aborted
        result.empty += found.empty_count
        result.rows += judge.rows(directory, found, with_empty=empty)
    return result


def _read_log(spark: SparkSession, listing: Listing, wanted: frozenset[int], task_bytes: int, unread: list[str]) -> TransactionLog:
    chosen = competition(spark, listing, log_partitions(listing.inventory), task_bytes)
    tasks = cut(replicas_of(listing, chosen.partitions), lambda each: each.size, parallelism(spark), task_bytes)
    answers = answers_of(spark, tasks, partial(_read_ids, wanted=wanted), "replays __transaction_state")
    read: list[tuple[PartitionDir, PartitionIds]] = []
    for directory, found in zip(chosen.partitions, answers, strict=True):
        if isinstance(found, Unread):
            unread.append(found.line)
        else:
            read.append((directory, found))
    return read_transaction_log(chosen.partitions, read, listing.inventory)


def _is_read(answer: object) -> bool:
    """Whether an answer may be kept: a log that can't be read today may be readable tomorrow."""
    return not isinstance(answer, Unread)


def _unread(replica: Replica, error: OSError) -> Unread:
    if error.filename is not None:
        error.filename = replica.as_given(error.filename)
    return Unread(unread_line(replace(replica.directory, path=replica.given), error))


class _Contents(PartitionTransactions):
    """`empty_count` is the number of empty transactions, even if `empty` does not list them."""

    empty_count = 0


def _read_part(found: Iterator[Batch | Lost], replica: Replica) -> PartitionTransactions | Unread:
    """Runs in a task."""
    try:
        return read_part_transactions(found)
    except OSError as error:
        return _unread(replica, error)


def _contents(work: Work, *, empty: bool, kept: Answers | None) -> _Contents | Unread:
    """Runs in a task."""
    replica, parts = work.replica, work.parts
    unread = next((each for each in parts or () if isinstance(each, Unread)), None)
    if unread is not None:
        return unread

    def read() -> _Contents | Unread:
        try:
            return _read_partition(replica, parts, empty=empty)
        except OSError as error:
            return _unread(replica, error)

    return read() if parts is not None or kept is None else kept.of(replica_unit(replica), read, keep=_is_read)


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


def _read_ids(replica: Replica, *, wanted: frozenset[int]) -> PartitionIds | Unread:
    """Runs in a task."""
    try:
        found = read_ids(task_files(replica), replica.directory)
    except OSError as error:
        return _unread(replica, error)
    ids = {name: one for name, one in found.ids.items() if one.producer_ids & wanted}
    return PartitionIds(ids, found.raw, list(_named(replica, found.lost)))


def _named(replica: Replica, lost: Sequence[Lost]) -> Iterator[Lost]:
    for one in lost:
        yield one._replace(file=replica.as_given(one.file))
