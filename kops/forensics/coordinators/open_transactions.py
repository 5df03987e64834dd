"""The transactions in one partition's log: the open ones, and markers that ended no transaction.

Sources: Kafka's `ProducerAppendInfo` (a transaction begins with a producer's first transactional batch after its last marker, and ends with
its next marker), `ProducerStateManager` (snapshots have the open ones), `UnifiedLog.fetchLastStableOffset`.

A log is read as a whole, or in parts that are joined. Whether a part's first marker of a producer ends a transaction depends on the parts
before it; every later marker of that producer is judged by the part alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.forensics.coordinators.records import Lost, batches, marker_of
from kops.storage.formats.producer_snapshot import read_producer_snapshot

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import PartitionDir
    from kops.records import Batch


@dataclass(slots=True)
class OpenTransaction:
    """A transaction without a marker. `since_ms` is the time of its first batch; None if that batch is no longer there.

    `coordinator_epoch` is that of the producer's last marker before it. `lost` is damage after its beginning, which may hide its marker.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    since_ms: int | None
    last_timestamp: int
    records: int = 0
    coordinator_epoch: int | None = None
    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class EmptyTransaction:
    """A marker of a producer that has written nothing since its last marker."""

    producer_id: int
    producer_epoch: int
    offset: int
    timestamp: int
    is_commit: bool


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions in a partition's log. `end_offset` is the log end offset.

    In a part of a log, `unjudged` are the first markers of producers of which nothing precedes in the part, and `ended` the producers with
    a marker in it.
    """

    open: dict[int, OpenTransaction] = field(default_factory=dict)
    empty: list[EmptyTransaction] = field(default_factory=list)
    committed: int = 0
    aborted: int = 0
    end_offset: int = 0
    last_timestamp: int = -1
    lost: list[Lost] = field(default_factory=list)
    unjudged: dict[int, EmptyTransaction] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    is_part: bool = False
    has_batches: bool = False
    _epochs: dict[int, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: the first offset of the oldest open transaction, or the log end offset."""
        return min((one.first_offset for one in self.open.values()), default=self.end_offset)


def read_transactions(files: Files, partition: PartitionDir) -> PartitionTransactions:
    """Read a partition's live segments. Raises OSError if one cannot be read."""
    result = transactions_before(files, partition)
    _read(batches(files, partition), result)
    return result


def read_part_transactions(found: Iterable[Batch | Lost]) -> PartitionTransactions:
    """Read the batches of a part of a log, for `join_transactions`."""
    result = PartitionTransactions(is_part=True)
    _read(found, result)
    return result


def join_transactions(files: Files, partition: PartitionDir, parts: Iterable[PartitionTransactions]) -> PartitionTransactions:
    """Like `read_transactions`, from the parts of the log in their order."""
    result = transactions_before(files, partition)
    for part in parts:
        _extend(result, part)
    result.empty.sort(key=lambda one: one.offset)
    return result


def _read(found: Iterable[Batch | Lost], result: PartitionTransactions) -> None:
    for batch in found:
        if isinstance(batch, Lost):
            result.lost.append(batch)
            for one in result.open.values():
                one.lost = one.lost or batch
            continue
        result.has_batches = True
        result.end_offset = batch.next_offset
        result.last_timestamp = max(result.last_timestamp, batch.max_timestamp)
        if batch.is_control:
            _markers(batch, result)
        elif batch.is_transactional:
            _data(batch, result)


def _extend(result: PartitionTransactions, part: PartitionTransactions) -> None:
    """Add a part to all that precedes it."""
    for one in result.open.values():
        one.lost = one.lost or next(iter(part.lost), None)
    for producer_id, marker in part.unjudged.items():
        _end(result, producer_id, marker)
    for producer_id in part.ended - part.unjudged.keys():
        result.open.pop(producer_id, None)  # The part has counted its end.
    for producer_id, one in part.open.items():
        before = result.open.get(producer_id)
        if before is not None:
            _continue(before, one)
            continue
        if one.coordinator_epoch is None:
            one.coordinator_epoch = result._epochs.get(producer_id)
        result.open[producer_id] = one
    result.lost += part.lost
    result.empty += part.empty
    result.committed += part.committed
    result.aborted += part.aborted
    result._epochs |= part._epochs
    result.last_timestamp = max(result.last_timestamp, part.last_timestamp)
    if part.has_batches:
        result.end_offset = part.end_offset


def _continue(one: OpenTransaction, more: OpenTransaction) -> None:
    one.producer_epoch = more.producer_epoch
    one.last_offset = more.last_offset
    one.last_timestamp = max(one.last_timestamp, more.last_timestamp)
    one.records += more.records


def _end(result: PartitionTransactions, producer_id: int, marker: EmptyTransaction) -> None:
    """End the producer's transaction by a marker."""
    if result.open.pop(producer_id, None) is None:
        result.empty.append(marker)
    elif marker.is_commit:
        result.committed += 1
    else:
        result.aborted += 1


def transactions_before(files: Files, partition: PartitionDir) -> PartitionTransactions:
    """The transactions that were open at the log's start."""
    result = PartitionTransactions()
    _begin(files, partition, result)
    return result


def _begin(files: Files, partition: PartitionDir, result: PartitionTransactions) -> None:
    """Add transactions that were open at the current log start, from the producer snapshot of that offset."""
    live = partition.live_segments
    if not live:
        return
    result.end_offset = live[0].base_offset
    entry = live[0].files.get("snapshot")
    if live[0].base_offset == 0 or entry is None:
        return
    try:
        producers = read_producer_snapshot(files.read_all(entry.path), file=entry.path)
    except DecodeError:
        return  # kops log verify tells
    for one in producers:
        result._epochs[one.producer_id] = one.coordinator_epoch
        if one.current_txn_first_offset >= 0:
            last = max(one.last_offset, one.current_txn_first_offset)
            result.open[one.producer_id] = OpenTransaction(
                one.producer_id, one.producer_epoch, one.current_txn_first_offset, last, None, one.timestamp
            )


def _data(batch: Batch, result: PartitionTransactions) -> None:
    one = result.open.get(batch.producer_id)
    if one is None:
        one = OpenTransaction(
            batch.producer_id, batch.producer_epoch, batch.base_offset, batch.last_offset, batch.base_timestamp, batch.max_timestamp
        )
        one.coordinator_epoch = result._epochs.get(batch.producer_id)
        result.open[batch.producer_id] = one
    one.producer_epoch = batch.producer_epoch
    one.last_offset = batch.last_offset
    one.last_timestamp = max(one.last_timestamp, batch.max_timestamp)
    one.records += batch.count or 0


def _markers(batch: Batch, result: PartitionTransactions) -> None:
    try:
        records = batch.records()
    except DecodeError:
        return  # kops log verify tells
    for record in records:
        marker = marker_of(record, batch)
        if marker is None:
            continue
        if record.value is not None and len(record.value) >= 6:
            result._epochs[batch.producer_id] = int.from_bytes(record.value[2:6], "big", signed=True)
        ended = EmptyTransaction(batch.producer_id, batch.producer_epoch, record.offset, record.timestamp, marker.is_commit)
        is_first = batch.producer_id not in result.ended and batch.producer_id not in result.open
        if result.is_part and is_first:
            result.unjudged[batch.producer_id] = ended
        else:
            _end(result, batch.producer_id, ended)
        result.ended.add(batch.producer_id)
