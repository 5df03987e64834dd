"""`kops log txns`: open transactions in partitions, which of them hang, which hold back the last stable offset, and how to end them.

Source: Kafka's `TransactionsCommand.FindHangingTransactionsCommand`: a transaction hangs if it is open in a partition and its coordinator
does not know that it is there, so that its marker will never be written. The coordinator's state is read from its log.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.errors import DecodeError
from kops.forensics.coordinators.internal_topics import (
    GROUP_TOPIC,
    INTERNAL,
    TRANSACTION_TOPIC,
    one_replica_each,
    open_inventory,
)
from kops.forensics.coordinators.open_transactions import EmptyTransaction, OpenTransaction, PartitionTransactions, read_transactions
from kops.forensics.coordinators.records import Lost, Raw, unread_line
from kops.forensics.coordinators.transactional_ids import PartitionIds, TransactionalId, read_ids
from kops.forensics.inventory.tree import refuse_foreign
from kops.storage.formats.names import parse_partition_dir

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import Inventory, PartitionDir

OPEN: Final = "open"
HANGING: Final = "hanging"
EMPTY: Final = "empty"
NO_TRANSACTION_LOG: Final = "no transaction log here"
NOT_KNOWN: Final = "not known"


class TransactionRow(NamedTuple):
    """A transaction in a partition. `coordinator` is the state in the transaction log, or why there is none.

    `holds_lso`: this transaction holds back the partition's last stable offset. `command` ends the transaction.
    `state` is `open`, `hanging` or `empty`; `note` says why that is uncertain.
    """

    dir: str
    topic: str | None
    partition: int
    state: str
    producer_id: int
    producer_epoch: int
    first_offset: int | None
    last_offset: int
    since_ms: int | None
    last_timestamp: int
    records: int
    coordinator_epoch: int | None
    transactional_id: str | None
    coordinator: str | None
    holds_lso: bool
    last_stable_offset: int
    end_offset: int
    command: str | None
    note: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return self._asdict()


@dataclass(slots=True)
class TransactionLog:
    """The transaction log below the same paths. `is_complete`: all its partitions are here, so an id that is not in it does not exist."""

    by_producer: dict[int, TransactionalId] = field(default_factory=dict)
    is_there: bool = False
    is_complete: bool = False
    raw: list[Raw] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


class TransactionSearch:
    """One search through the partitions below some paths. The errors are those of `open_inventory` and `refuse_foreign`.

    `unread` says which directories and logs could not be read, and why. `partitions` counts those that were.
    """

    def __init__(self, paths: Sequence[str], files: Files) -> None:
        self.files = files
        self.inventory = open_inventory(paths, files)
        refuse_foreign(paths, self.inventory, files)
        self.unread = [f"{each.path}: {each.reason}" for each in self.inventory.problems]
        self.replicas = one_replica_each(data_partitions(self.inventory), files)
        self.log = self._transaction_log()
        self.lost: list[Lost] = list(self.log.lost)
        self.partitions = 0
        self.committed = 0
        self.aborted = 0
        self.empty = 0

    def _transaction_log(self) -> TransactionLog:
        logs = one_replica_each(log_partitions(self.inventory), self.files).partitions
        read: list[tuple[PartitionDir, PartitionIds]] = []
        for each in logs:
            try:
                read.append((each, read_ids(self.files, each)))
            except OSError as error:
                self.unread.append(unread_line(each, error))
        return read_transaction_log(logs, read, self.inventory)

    def rows(self, *, with_empty: bool = False) -> Iterator[TransactionRow]:
        """The open and hanging transactions, partition by partition, by first offset. `unread` gets those that can't be read."""
        for partition in self.replicas.partitions:
            try:
                found = read_transactions(self.files, partition)
            except OSError as error:
                self.unread.append(unread_line(partition, error))
                continue
            self.partitions += 1
            self.lost += found.lost
            self.committed += found.committed
            self.aborted += found.aborted
            self.empty += len(found.empty)
            yield from Judge(self.log).rows(partition, found, with_empty=with_empty)


def read_transaction_log(
    logs: Sequence[PartitionDir], read: Sequence[tuple[PartitionDir, PartitionIds]], inventory: Inventory
) -> TransactionLog:
    """Return the transaction log if perhaps not all of its partitions `logs` could be read, nor all directories be listed."""
    log = transaction_log([each for each, _ in read], (found for _, found in read))
    log.is_there = bool(logs)
    log.is_complete = log.is_complete and len(read) == len(logs) and not any(_may_be_log(each.path) for each in inventory.problems)
    return log


def _may_be_log(path: str) -> bool:
    """Whether a path that can't be listed may hold a partition of the transaction log."""
    try:
        return parse_partition_dir(posixpath.basename(path)).topic == TRANSACTION_TOPIC
    except DecodeError:
        return True


class Judge:
    """Decides which transactions of a partition hang, from the contents of the transaction log."""

    def __init__(self, log: TransactionLog) -> None:
        self.log = log

    def rows(self, partition: PartitionDir, found: PartitionTransactions, *, with_empty: bool = False) -> list[TransactionRow]:
        """The transactions that were found in a partition, by first offset."""
        rows = [self._open(partition, found, one) for one in found.open.values()]
        if with_empty:
            rows += [self._empty(partition, found, one) for one in found.empty]
        return sorted(rows, key=lambda row: row.last_offset if row.first_offset is None else row.first_offset)

    def _open(self, partition: PartitionDir, found: PartitionTransactions, one: OpenTransaction) -> TransactionRow:
        known = self.log.by_producer.get(one.producer_id)
        hangs, note = self._judge(partition, one, known)
        return TransactionRow(
            dir=partition.path,
            topic=partition.topic,
            partition=partition.partition,
            state=HANGING if hangs else OPEN,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            first_offset=one.first_offset,
            last_offset=one.last_offset,
            since_ms=one.since_ms,
            last_timestamp=one.last_timestamp,
            records=one.records,
            coordinator_epoch=one.coordinator_epoch,
            transactional_id=None if known is None else known.transactional_id,
            coordinator=self._coordinator(known),
            holds_lso=one.first_offset == found.last_stable_offset,
            last_stable_offset=found.last_stable_offset,
            end_offset=found.end_offset,
            command=_command(partition, one, None if hangs else known),
            note=note,
        )

    def _empty(self, partition: PartitionDir, found: PartitionTransactions, one: EmptyTransaction) -> TransactionRow:
        known = self.log.by_producer.get(one.producer_id)
        return TransactionRow(
            dir=partition.path,
            topic=partition.topic,
            partition=partition.partition,
            state=EMPTY,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            first_offset=None,
            last_offset=one.offset,
            since_ms=None,
            last_timestamp=one.timestamp,
            records=0,
            coordinator_epoch=None,
            transactional_id=None if known is None else known.transactional_id,
            coordinator=self._coordinator(known),
            holds_lso=False,
            last_stable_offset=found.last_stable_offset,
            end_offset=found.end_offset,
            command=None,
            note="committed" if one.is_commit else "aborted",
        )

    def _coordinator(self, known: TransactionalId | None) -> str | None:
        if known is not None:
            return known.state
        return NOT_KNOWN if self.log.is_there else NO_TRANSACTION_LOG

    def _judge(self, partition: PartitionDir, one: OpenTransaction, known: TransactionalId | None) -> tuple[bool, str | None]:
        """Return (whether it hangs, why that is uncertain)."""
        damage = None if one.lost is None else f"a marker may have been in the damage at {one.lost.file}:{one.lost.position}"
        if known is None:
            if not self.log.is_there:
                return False, damage
            if not self.log.is_complete:
                return False, damage or "its transactional id may be in a partition of the transaction log that is not here or was not read"
            return damage is None, damage
        is_known_here = known.is_open and (partition.topic, partition.partition) in known.partitions
        # A transaction that ends has the next epoch in the log. A later epoch means that a younger transaction of the same producer is
        # open.
        if is_known_here and (known.state != "Ongoing" or one.producer_epoch >= (known.producer_epoch or 0)):
            return False, damage
        if known.producer_epoch is not None and one.producer_epoch > known.producer_epoch:
            return False, damage or "its epoch is newer than the transaction log"
        return damage is None, damage


def _command(partition: PartitionDir, one: OpenTransaction, known: TransactionalId | None) -> str | None:
    """Return the command that ends the transaction: through the coordinator if it knows the transaction, else by a marker."""
    if known is not None and known.is_open:
        return f"kops txn abort --transactional-id {shlex.quote(known.transactional_id)}"
    if partition.topic is None:
        return None
    return f"kops txn abort --topic {shlex.quote(partition.topic)} --partition {partition.partition} --start-offset {one.first_offset}"


def data_partitions(inventory: Inventory) -> list[PartitionDir]:
    """Return all live replicas of partitions that may have transactions, including those of __consumer_offsets."""
    apart = set(INTERNAL) - {GROUP_TOPIC}
    named = [each for each in inventory.partitions() if not each.state and each.topic not in apart]
    return named + [each for each in inventory.loose_partitions if each.state and each.topic not in apart]


def log_partitions(inventory: Inventory) -> list[PartitionDir]:
    """All live replicas of the transaction log's partitions."""
    return [each for each in inventory.partitions() if each.topic == TRANSACTION_TOPIC and not each.state]


def transaction_log(partitions: Sequence[PartitionDir], contents: Iterable[PartitionIds]) -> TransactionLog:
    """Build the transaction log from the contents of its partitions, one replica of each, in the same order."""
    log = TransactionLog()
    for found in contents:
        log.raw += found.raw
        log.lost += found.lost
        for one in found.sorted_ids():
            for producer_id in one.producer_ids:
                before = log.by_producer.get(producer_id)
                # An id that has switched to another producer id counts only if no other id has this producer id now.
                if before is None or one.producer_id == producer_id:
                    log.by_producer[producer_id] = one
    numbers = {each.partition for each in partitions}
    log.is_there = bool(partitions)
    # These files do not contain the number of partitions. If the numbers from 0 have no gap, all partitions are assumed to be here.
    log.is_complete = log.is_there and not log.lost and not log.raw and numbers == set(range(len(numbers)))
    return log
