"""`kops log txnstate`: the transactional ids in partitions of `__transaction_state`, as of a time.

Sources: Kafka's `TransactionLog.read`, `TransactionMetadata`, `TransactionState`, `TransactionStateManager` (expiry: an id without an open
transaction that was not used for `transactional.id.expiration.ms` gets a tombstone).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.forensics.coordinators.records import CoordinatorRecords, Decoded, Lost, Marker, Raw
from kops.protocol.registry import TRANSACTION_RECORDS

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import PartitionDir

STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
"""Kafka's names, by number."""
DELETED: Final = "Deleted"
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_MAY_EXPIRE: Final = ("Empty", "CompleteCommit", "CompleteAbort")
DEFAULT_EXPIRATION_MS: Final = 7 * 24 * 60 * 60 * 1000
NO_ID: Final = -1


class TransactionalId(NamedTuple):
    """The newest record of a transactional id. Times in ms; `started_ms` is None if no transaction was started.

    `timeout_ms` is the client's limit for one transaction, and `overdue_ms` the time at which an open one reaches it. `expires_ms` is None
    as long as a transaction is open. `partitions` are `(topic, partition)`. A deleted id has only `updated_ms`.
    """

    transactional_id: str
    state: str
    producer_id: int | None = None
    producer_epoch: int | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    timeout_ms: int | None = None
    started_ms: int | None = None
    updated_ms: int | None = None
    overdue_ms: int | None = None
    expires_ms: int | None = None
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    next_producer_epoch: int | None = None
    client_transaction_version: int | None = None
    record_offset: int = -1
    version: int = -1
    log: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or ends while not all markers are written."""
        return self.state in OPEN_STATES

    @property
    def producer_ids(self) -> set[int]:
        """The producer ids that a transaction of this id may have in the partitions."""
        return {number for number in (self.producer_id, self.previous_producer_id) if number is not None and number != NO_ID}


@dataclass(slots=True)
class PartitionIds:
    """What one partition of `__transaction_state` holds: the newest record of each id."""

    ids: dict[str, TransactionalId] = field(default_factory=dict)
    raw: list[Raw] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)

    def sorted_ids(self) -> Iterator[TransactionalId]:
        """The ids, sorted."""
        yield from (self.ids[name] for name in sorted(self.ids))


def read_ids(
    files: Files, partition: PartitionDir, *, at_ms: int | None = None, expiration_ms: int = DEFAULT_EXPIRATION_MS
) -> PartitionIds:
    """Replay a partition: all of it, or the records with timestamps up to `at_ms`. OSError if a segment can't be read."""
    result = PartitionIds()
    for item in CoordinatorRecords(files, partition, TRANSACTION_RECORDS):
        if isinstance(item, Lost):
            result.lost.append(item)
        elif (at_ms is not None and item.timestamp > at_ms) or isinstance(item, Marker):
            continue
        elif isinstance(item, Raw):
            result.raw.append(item)
        else:
            problem = _replay(result, item, partition.name, expiration_ms)
            if problem is not None:
                result.raw.append(problem)
    return result


def _replay(result: PartitionIds, record: Decoded, log: str, expiration_ms: int) -> Raw | None:
    """Take over a record. -> the record as a raw one if its state has no meaning."""
    name, value = record.key.transactional_id, record.value
    if value is None:
        result.ids[name] = TransactionalId(name, DELETED, updated_ms=record.timestamp, record_offset=record.offset, log=log)
        return None
    if not 0 <= value.transaction_status < len(STATES):
        return Raw(log, record.offset, record.timestamp, None, None, f"{name}: the state {value.transaction_status} is not known")
    result.ids[name] = _id(name, record, value, log, expiration_ms)
    return None


def _id(name: str, record: Decoded, value: Any, log: str, expiration_ms: int) -> TransactionalId:
    state = STATES[value.transaction_status]
    # As in Kafka, an id in state Empty has no partitions, whatever the record says.
    groups = () if state == "Empty" else value.transaction_partitions or ()
    partitions = sorted((group.topic, number) for group in groups for number in group.partition_ids)
    started = None if value.transaction_start_timestamp_ms < 0 else value.transaction_start_timestamp_ms
    updated = value.transaction_last_update_timestamp_ms
    overdue = started + value.transaction_timeout_ms if state == "Ongoing" and started is not None else None
    return TransactionalId(
        name,
        state,
        value.producer_id,
        value.producer_epoch,
        tuple(partitions),
        value.transaction_timeout_ms,
        started,
        updated,
        overdue,
        updated + expiration_ms if state in _MAY_EXPIRE else None,
        value.previous_producer_id,
        value.next_producer_id,
        value.next_producer_epoch,
        value.client_transaction_version,
        record.offset,
        record.version,
        log,
    )
