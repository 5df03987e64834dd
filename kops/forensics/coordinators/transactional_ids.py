"""`kops log txnstate`: the transactional ids in partitions of `__transaction_state`, as of a time.

The code of the live coordinator reads the records. Source of the expiry: Kafka's `TransactionStateManager` (an id without an open
transaction that was not used for `transactional.id.expiration.ms` gets a tombstone).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.coordinators.transactions.metadata import TransactionMetadata
from kops.coordinators.transactions.state import TransactionState, TransactionStateError
from kops.coordinators.transactions.transaction_log import LoggedId, UnknownVersion, read_transaction_record
from kops.errors import DecodeError
from kops.forensics.coordinators.records import CoordinatorRecords, Decoded, Lost, Marker, Raw

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import PartitionDir

STATES: Final = tuple(state.label for state in TransactionState)
"""Kafka's names, by number."""
DELETED: Final = "Deleted"
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
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
    client_transaction_version: int | None = None
    record_offset: int = -1
    version: int = -1
    log: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or is ending and some of its markers are not written."""
        return self.state in OPEN_STATES

    @property
    def producer_ids(self) -> set[int]:
        """The producer ids that a transaction of this id may have in the partitions."""
        return {number for number in (self.producer_id, self.previous_producer_id) if number is not None and number != NO_ID}


@dataclass(slots=True)
class PartitionIds:
    """The contents of one partition of `__transaction_state`: the newest record of each id."""

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
    for item in CoordinatorRecords(files, partition, _decode):
        if isinstance(item, Lost):
            result.lost.append(item)
        elif (at_ms is not None and item.timestamp > at_ms) or isinstance(item, Marker):
            continue
        elif isinstance(item, Raw):
            result.raw.append(item)
        else:
            result.ids[item.key.transactional_id] = _id(item, partition.name, expiration_ms)
    return result


def producer_ids(files: Files, partition: PartitionDir, transactional_id: str) -> set[int]:
    """All producer ids that a transactional id had, as far as the partition's records say. OSError if a segment can't be read."""
    found: set[int] = set()
    for item in CoordinatorRecords(files, partition, _decode):
        if isinstance(item, Decoded) and item.key.transactional_id == transactional_id and item.value is not None:
            found |= _id(item, "", 0).producer_ids
    return found


def _decode(key: bytes, value: bytes | None) -> tuple[LoggedId, TransactionMetadata | None, int]:
    """Decode a record as the coordinator does. Raises DecodeError, also for unknown versions and states."""
    try:
        found = read_transaction_record(key, value)
    except TransactionStateError as error:
        raise DecodeError(str(error)) from None
    if isinstance(found, UnknownVersion):
        raise DecodeError(f"unknown version {found.version} of the {found.part}")
    return found, found.metadata, -1 if value is None else int.from_bytes(value[:2], "big")


def _id(record: Decoded, log: str, expiration_ms: int) -> TransactionalId:
    name, one = record.key.transactional_id, record.value
    if one is None:
        return TransactionalId(name, DELETED, updated_ms=record.timestamp, record_offset=record.offset, log=log)
    started = None if one.start_ms < 0 else one.start_ms
    is_overdue_some_day = one.state is TransactionState.ONGOING and started is not None
    return TransactionalId(
        name,
        one.state.label,
        one.producer_id,
        one.producer_epoch,
        tuple(sorted((key.topic, key.partition) for key in one.partitions)),
        one.timeout_ms,
        started,
        one.last_update_ms,
        (started or 0) + one.timeout_ms if is_overdue_some_day else None,
        one.last_update_ms + expiration_ms if one.state.may_expire else None,
        one.previous_producer_id,
        one.next_producer_id,
        one.client_version,
        record.offset,
        record.version,
        log,
    )
