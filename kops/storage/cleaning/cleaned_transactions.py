"""The transactions that the cleaner encounters in a log: which data was aborted, and which markers may be removed.

Source: Kafka's CleanedTransactionMetadata.

A marker may be removed if the cleaner saw no batch of its transaction. This module also writes the index of aborted transactions of the
cleaned segment.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kops.records.record import ABORT, COMMIT, CONTROL_TYPES, control_type_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.records import Batch
    from kops.storage.segment_files.transaction_index import AbortedTxn, TransactionIndex


@dataclass(slots=True)
class _Aborted:
    txn: AbortedTxn
    has_batches: bool = False


class CleanedTransactions:
    """The open transactions at the last batch that was read. `cleaned_index` receives the aborted transactions that remain."""

    def __init__(self) -> None:
        self.cleaned_index: TransactionIndex | None = None
        self._committed: set[int] = set()
        self._aborted: dict[int, _Aborted] = {}
        self._coming: list[tuple[int, int, AbortedTxn]] = []
        self._number = 0

    def add_aborted_transactions(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add the transactions from the indexes of the segments that are read next."""
        for txn in transactions:
            heapq.heappush(self._coming, (txn.first_offset, self._number, txn))
            self._number += 1

    def on_control_batch(self, batch: Batch) -> bool:
        """Process a control batch, and return whether it may be removed. Raises DecodeError if its record can't be read."""
        self._begin_up_to(batch.last_offset)
        records = batch.records()
        if not records:
            return True  # an earlier cleaning removed its record
        _, type_id = control_type_id(records[0].key)
        kind = CONTROL_TYPES[type_id] if 0 <= type_id < len(CONTROL_TYPES) else None
        if kind == COMMIT:
            is_seen = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not is_seen
        if kind != ABORT:
            return False
        aborted = self._aborted.pop(batch.producer_id, None)
        if aborted is None or not aborted.has_batches:
            return True
        if self.cleaned_index is not None:
            self.cleaned_index.append(aborted.txn)
        return False

    def on_batch(self, batch: Batch) -> bool:
        """Process a data batch, and return whether it belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.has_batches = True
        return True

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            txn = heapq.heappop(self._coming)[2]
            self._aborted.setdefault(txn.producer_id, _Aborted(txn))
