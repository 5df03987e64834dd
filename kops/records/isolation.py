"""Selects the batches of a partition that a consumer gets, for both isolation levels.

Source: Kafka's `CompletedFetch` (consumer) and `ProducerAppendInfo.appendEndTxnMarker` (which transaction an ABORT marker ends).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kops.records.batch import Batch
from kops.records.record import ABORT, CONTROL_TYPES, ControlRecord, control_type_id, read_control_record

AbortedTransaction = tuple[int, int]
"""(producer id, offset of the transaction's first record)"""


def control_record(batch: Batch) -> ControlRecord | None:
    """Return the first control record of a control batch, or None for an empty one. Raises DecodeError as `Batch.records` does."""
    records = batch.records()
    return read_control_record(records[0]) if records else None


def _aborts(batch: Batch) -> bool:
    """Whether a control batch aborts a transaction. A consumer checks only the key (CompletedFetch.containsAbortMarker)."""
    records = batch.records()
    return bool(records) and control_type_id(records[0].key)[1] == CONTROL_TYPES.index(ABORT)


def aborted_transactions(batches: Iterable[Batch]) -> list[AbortedTransaction]:
    """Return the aborted transactions in these batches, sorted by first offset, as in `.txnindex`. The batches begin with the log's first
    one."""
    open_since: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    for batch in batches:
        if batch.is_control and batch.has_producer_id:
            marker = control_record(batch)
            if marker is not None and marker.coordinator_epoch is not None:
                first = open_since.pop(batch.producer_id, None)
                if marker.type == ABORT and first is not None:
                    aborted.append((batch.producer_id, first))
        elif batch.is_transactional:
            open_since.setdefault(batch.producer_id, batch.base_offset)
    return sorted(aborted, key=lambda transaction: transaction[1])


def read_uncommitted(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches whose records a consumer gets: all except control batches."""
    return (batch for batch in batches if not batch.is_control)


def read_committed(
    batches: Iterable[Batch], aborted: Iterable[AbortedTransaction], last_stable_offset: int | None = None
) -> Iterator[Batch]:
    """Yield the batches whose records a consumer with `isolation.level=read_committed` gets: below the last stable offset, not aborted.

    `aborted` comes from `aborted_transactions` or from the `.txnindex` files, in any order. Raises DecodeError for an unreadable control
    batch.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    producers: set[int] = set()
    for batch in batches:
        if last_stable_offset is not None and batch.last_offset >= last_stable_offset:
            return
        if batch.has_producer_id:
            while waiting and waiting[-1][1] <= batch.last_offset:
                producers.add(waiting.pop()[0])
            if batch.is_control:
                if _aborts(batch):
                    producers.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in producers:
                continue
        if not batch.is_control:
            yield batch
