"""The checks of an append that concern producers.

Sources: Kafka's ProducerAppendInfo, UnifiedLog.analyzeAndValidateProducerState; KIP-98, KIP-890, KIP-1228.

`analyze_append` checks the batches of one append and returns the changes of the producers. It changes no producer, but it does end
verifications. The log writes the batches and then passes the result to `ProducerState.update`. A failed check raises `ApiError` with
Kafka's text. A stale epoch is always INVALID_PRODUCER_EPOCH, because only coordinators answer PRODUCER_FENCED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from mypy_extensions import mypyc_attr

from kops.config.values.java import INT_MAX
from kops.config.values.java_hash import hash_map_order
from kops.errors import ApiError
from kops.records.validation.validate import AppendOrigin
from kops.storage.failures.load_errors import InvalidRecordError, LoadError
from kops.storage.producers.append import NO_SEQUENCE, TV_UNKNOWN, ProducerAppendInfo
from kops.storage.producers.verification import NO_GUARD, VerificationGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.records import Batch
    from kops.storage.producers.append import BatchMetadata, CompletedTxn, ProducerStateEntry
    from kops.storage.producers.state import ProducerState
    from kops.storage.producers.verification import VerificationStateEntry

NO_EPOCH = -1
SHORT_MAX = 32_767
TV_2 = 2


@mypyc_attr(acyclic=True)
class ProducerAnalysis:
    """The changes that an append makes: the arguments of `ProducerState.update`, in order, followed by the transactions that end.

    If there is a `duplicate`, nothing must be written. The batch was appended before, and the answer has the offsets of that append.
    """

    __slots__ = ("completed", "duplicate", "updated")

    def __init__(self, updated: list[ProducerAppendInfo], completed: list[CompletedTxn], duplicate: BatchMetadata | None) -> None:
        self.updated = updated
        self.completed = completed
        self.duplicate = duplicate


def analyze_append(
    state: ProducerState,
    batches: Iterable[Batch],
    *,
    origin: AppendOrigin,
    guard: VerificationGuard = NO_GUARD,
    transaction_version: int = TV_UNKNOWN,
) -> ProducerAnalysis:
    """Check the batches of one append, with their final offsets, against the producers.

    `guard` is the result of `ProducerState.start_verification` for this append. `transaction_version` is that of the request that writes
    markers. Raises ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
    """
    updated: dict[int, CheckedAppendInfo] = {}
    asked: list[int] = []
    completed: list[CompletedTxn] = []
    for batch in batches:
        if batch.producer_id <= -1:
            continue
        producer_id = batch.producer_id
        if origin is AppendOrigin.CLIENT:
            duplicate = state.find_duplicate_batch(batch)
            if duplicate is not None:
                return ProducerAnalysis(_in_order(updated, asked), completed, duplicate)
        if batch.is_transactional and origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
            _check_transaction(state, batch, guard)
        asked.append(producer_id)
        info = updated.get(producer_id)
        if info is None:
            current = state.entry_or_empty(producer_id)
            verification = state.verifications.get(producer_id)
            info = updated[producer_id] = CheckedAppendInfo(current, origin, state.topic_partition, verification)
        ended = info.append(batch, transaction_version)
        if ended is not None:
            completed.append(ended)
        if batch.is_transactional:
            state.end_verification(batch)
    return ProducerAnalysis(_in_order(updated, asked), completed, None)


def _in_order(updated: dict[int, CheckedAppendInfo], asked: list[int]) -> list[ProducerAppendInfo]:
    """Return the producers in the iteration order of Java's map, which decides the order of new producers in a snapshot."""
    if len(updated) < 2:
        return list(updated.values())
    return [updated[producer_id] for producer_id in hash_map_order(asked)]


def _check_transaction(state: ProducerState, batch: Batch, guard: VerificationGuard) -> None:
    """For a transactional batch, require an open transaction or the guard of its verification."""
    producer_id, epoch = batch.producer_id, batch.producer_epoch
    if state.has_ongoing_transaction(producer_id, epoch):
        return
    state.check_not_older(producer_id, epoch)
    if state.verification_enabled and not batch.is_control and not state.verification_guard(producer_id).verify(guard):
        raise ApiError("INVALID_TXN_STATE", "Record was not part of an ongoing transaction")


class CheckedAppendInfo(ProducerAppendInfo):
    """Batches of one producer that are about to be appended to the log."""

    __slots__ = ("current", "origin", "topic_partition", "verification")

    def __init__(
        self, current: ProducerStateEntry, origin: AppendOrigin, topic_partition: str, verification: VerificationStateEntry | None
    ) -> None:
        super().__init__(current)
        self.current = current
        self.origin = origin
        self.topic_partition = topic_partition
        self.verification = verification

    def append(self, batch: Batch, transaction_version: int = TV_UNKNOWN) -> CompletedTxn | None:
        """Check and add a v2 batch with its final offsets, and return the transaction that it ends. Raises the same ApiErrors as
        `analyze_append`.
        """
        try:
            if batch.is_control:
                return self._append_control(batch, transaction_version)
            self._check_epoch(batch.producer_epoch, batch.base_offset, TV_UNKNOWN)
            if self.origin is AppendOrigin.CLIENT:
                self._check_sequence(batch.producer_epoch, batch.base_sequence, batch.base_offset)
            return super().append(batch)
        except LoadError as error:
            code = "INVALID_RECORD" if isinstance(error, InvalidRecordError) else "UNKNOWN_SERVER_ERROR"
            raise ApiError(code, error.reason) from error

    def _check_marker(self, batch: Batch, coordinator_epoch: int, transaction_version: int) -> None:
        offset = batch.base_offset
        if transaction_version == TV_UNKNOWN and self.origin is not AppendOrigin.REPLICATION:
            reason = f"transactionVersion must be explicitly specified, cannot use default value TV_UNKNOWN for origin {self.origin.name}"
            raise ApiError("UNKNOWN_SERVER_ERROR", reason)
        self._check_epoch(batch.producer_epoch, offset, max(transaction_version, 0))
        known = self.entry.coordinator_epoch
        if known > coordinator_epoch and self.origin is not AppendOrigin.REPLICATION:
            raise ApiError(
                "TRANSACTION_COORDINATOR_FENCED",
                f"Invalid coordinator epoch for producerId {self.entry.producer_id} at offset {offset} in partition "
                f"{self.topic_partition}: {coordinator_epoch} (zombie), {known} (current)",
            )

    def _check_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        """Require an epoch that is not older than the last one seen. A marker of transaction version 2 needs a newer epoch unless it is a
        repeated write.
        """
        last = self.entry.producer_epoch
        must_grow = transaction_version >= TV_2
        if self.origin is AppendOrigin.REPLICATION or epoch > last or (epoch == last and not must_grow):
            return
        is_open = self.entry.current_txn_first_offset is not None
        if epoch == last and (not is_open or epoch == SHORT_MAX):
            return
        raise ApiError(
            "INVALID_PRODUCER_EPOCH",
            f"Epoch of producer {self.entry.producer_id} at offset {offset} in {self.topic_partition} is {epoch}, "
            f"which is {'<=' if must_grow else '<'} the last seen epoch {last} (TV{transaction_version})",
        )

    def _check_sequence(self, epoch: int, sequence: int, offset: int) -> None:
        """Check the sequence (ProducerAppendInfo.checkSequence). An unknown producer may begin with any sequence, except in transaction
        version 2.
        """
        verification = self.verification
        if verification is not None:
            if verification.supports_epoch_bump and sequence != 0 and not self.current.batches:
                self._out_of_order(
                    f"Invalid sequence number for producer {{}} at offset {offset} in partition {{}}: {sequence} (incoming seq. number). "
                    "Expected sequence 0 for transactions v2 idempotent producer with no existing state."
                )
            if sequence > verification.lowest_sequence:
                self._out_of_order(
                    f"Out of order sequence number for producer {{}} at offset {offset} in partition {{}}: {sequence} "
                    f"(incoming seq. number), {verification.lowest_sequence} (earliest seen sequence)"
                )
        known_epoch = self.entry.producer_epoch
        if epoch != known_epoch:
            if sequence != 0 and known_epoch != NO_EPOCH:
                self._out_of_order(
                    f"Invalid sequence number for new epoch of producer {{}}at offset {offset} in partition {{}}: {epoch} (request epoch), "
                    f"{sequence} (seq. number), {known_epoch} (current producer epoch)"
                )
            return
        last = self._last_sequence(epoch)
        is_next = sequence == last + 1 or (sequence == 0 and last == INT_MAX)
        if self.current.producer_epoch != NO_EPOCH and not is_next:
            self._out_of_order(
                f"Out of order sequence number for producer {{}} at offset {offset} in partition {{}}: {sequence} (incoming seq. number), "
                f"{last} (current end sequence number)"
            )

    def _last_sequence(self, epoch: int) -> int:
        if self.entry.batches:
            return self.entry.last_sequence
        return self.current.last_sequence if epoch == self.current.producer_epoch else NO_SEQUENCE

    def _out_of_order(self, text: str) -> NoReturn:
        raise ApiError("OUT_OF_ORDER_SEQUENCE_NUMBER", text.format(self.entry.producer_id, self.topic_partition))

    def _refuse_plain_batch(self, offset: int) -> NoReturn:
        place = f"(offset={offset}, segment=[-1:-1])"
        raise ApiError(
            "INVALID_TXN_STATE",
            f"Expected transactional write from producer {self.entry.producer_id} at offset {place} in partition {self.topic_partition}",
        )
