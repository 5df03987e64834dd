"""The state of one transactional id, and the transitions of its transaction (Kafka's TransactionMetadata, TxnTransitMetadata).

A transition is prepared, written to the log, and completed when it is in the log. Until then its target is the pending state, and no other
transition may begin. Epochs and producer ids follow KIP-360, KIP-588 and KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mypy_extensions import mypyc_attr

from kops.coordinators.transactions.partitions import PartitionSet
from kops.coordinators.transactions.state import (
    FINISHED,
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TV_0,
    TV_2,
    VALID_PREVIOUS,
    TransactionState,
    TransactionStateError,
)
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

_INT_MAX: Final = 2**31 - 1
_COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
# Names for the texts of the objects: a compiled class does not list its slots.
_FIELDS: Final = (
    "client_version",
    "has_failed_epoch_fence",
    "last_producer_epoch",
    "last_update_ms",
    "next_producer_id",
    "partitions",
    "pending",
    "previous_producer_id",
    "producer_epoch",
    "producer_id",
    "start_ms",
    "state",
    "timeout_ms",
    "transactional_id",
)
_TARGET_FIELDS: Final = (
    "state",
    "producer_id",
    "previous_producer_id",
    "next_producer_id",
    "producer_epoch",
    "last_producer_epoch",
    "timeout_ms",
    "partitions",
    "start_ms",
    "last_update_ms",
    "client_version",
)
_PREPARE: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@mypyc_attr(acyclic=True)
class Transition:
    """The target of a transition. Its fields are those of the record that is written for it."""

    __slots__ = _TARGET_FIELDS

    def __init__(
        self,
        state: TransactionState,
        producer_id: int,
        previous_producer_id: int,
        next_producer_id: int,
        producer_epoch: int,
        last_producer_epoch: int,
        timeout_ms: int,
        partitions: PartitionSet,
        start_ms: int,
        last_update_ms: int,
        client_version: int,
    ) -> None:
        self.state = state
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = last_producer_epoch
        self.timeout_ms = timeout_ms
        self.partitions = partitions
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.client_version = client_version

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _TARGET_FIELDS)
        return f"Transition({fields})"


class TransactionMetadata:
    """One transactional id. Times are in ms since the epoch. `start_ms` is -1 while no transaction is open.

    `previous_producer_id` is that of the last transaction, `next_producer_id` the one to use when the epochs are exhausted; -1 if there is
    none. `client_version` is the transaction version of the client that made the last transition. `has_failed_epoch_fence` means that an
    epoch was raised to fence a producer, but perhaps not written. It is not raised again.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        *,
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        last_producer_epoch: int = NO_PRODUCER_EPOCH,
        timeout_ms: int,
        state: TransactionState = TransactionState.EMPTY,
        partitions: Iterable[TopicPartition] = (),
        start_ms: int = NO_TIMESTAMP,
        last_update_ms: int,
        client_version: int = TV_0,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = last_producer_epoch
        self.timeout_ms = timeout_ms
        self.state = state
        self.partitions = PartitionSet(partitions)
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.client_version = client_version
        self.pending: TransactionState | None = None
        self.has_failed_epoch_fence = False

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in _FIELDS)
        return f"TransactionMetadata({fields})"

    @property
    def summary(self) -> str:
        """Return what decides about a producer's request, for the log."""
        pending = "" if self.pending is None else f", about to be {self.pending.label}"
        ids = f"producer id {self.producer_id} (before: {self.previous_producer_id})"
        return f"{ids}, epoch {self.producer_epoch} (before: {self.last_producer_epoch}), state {self.state.label}{pending}"

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the epochs of the producer id are exhausted."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def is_two_phase_commit(self) -> bool:
        """Whether an external coordinator decides the transaction, so that it has no time-out (KIP-939)."""
        return self.timeout_ms == _INT_MAX

    def remove_partition(self, partition: TopicPartition) -> None:
        """Remove a partition that has its marker. Raises TransactionStateError if no markers are pending."""
        if self.state not in _PREPARE:
            raise TransactionStateError(f"{self.transactional_id} is {self.state.label}: no marker can have been written")
        self.partitions.discard(partition)

    # preparing --------------------------------------------------------------------------------------------------------------------

    def prepare_fence_producer_epoch(self) -> Transition:
        """Raise the epoch, so that the producer of an open transaction is fenced and the transaction can be aborted."""
        is_kept = self.has_failed_epoch_fence or self.producer_epoch == MAX_EPOCH
        target = self._target(TransactionState.PREPARE_EPOCH_FENCE)
        target.producer_epoch = self.producer_epoch if is_kept else self.producer_epoch + 1
        return self._prepare(target)

    def prepare_increment_producer_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transition:
        """Raise the epoch for a producer that starts, or continues after an error with the epoch that it expects.

        Raises ApiError PRODUCER_FENCED if the expected epoch is neither this one nor the last one.
        """
        if self.is_epoch_exhausted:
            raise TransactionStateError(f"Cannot allocate any more producer epochs for producerId {self.producer_id}")
        target = self._target(TransactionState.EMPTY)
        if expected_epoch is None:
            target.producer_epoch, target.last_producer_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        elif self.producer_epoch == NO_PRODUCER_EPOCH or expected_epoch == self.producer_epoch:
            target.producer_epoch, target.last_producer_epoch = self.producer_epoch + 1, self.producer_epoch
        elif expected_epoch != self.last_producer_epoch:
            raise ApiError("PRODUCER_FENCED")
        # Otherwise a successful call was repeated: the epochs do not change.
        self._begin_anew(target, timeout_ms, now_ms)
        return self._prepare(target)

    def prepare_producer_id_rotation(self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool) -> Transition:
        """Switch to another producer id, because the epochs of this one are exhausted."""
        if self.state is TransactionState.ONGOING or self.state in _PREPARE:
            raise TransactionStateError("Cannot rotate producer ids while a transaction is still pending")
        target = self._target(TransactionState.EMPTY)
        target.producer_id, target.producer_epoch = producer_id, 0
        target.last_producer_epoch = self.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        self._begin_anew(target, timeout_ms, now_ms)
        return self._prepare(target)

    def prepare_add_partitions(self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int) -> Transition:
        """Add partitions, which begins a transaction if none is open."""
        target = self._target(TransactionState.ONGOING)
        target.partitions = PartitionSet(self.partitions)
        target.partitions.update(partitions)
        if self.state in FINISHED:
            target.start_ms = now_ms
        target.last_update_ms = now_ms
        target.client_version = client_version
        return self._prepare(target)

    def prepare_abort_or_commit(
        self, state: TransactionState, client_version: int, next_producer_id: int, now_ms: int, *, is_without_partitions: bool
    ) -> Transition:
        """End the transaction. In version 2, each end raises the epoch, and one without partitions may be aborted."""
        target = self._target(state)
        if supports_epoch_bump(client_version):
            # An abort succeeds even if the epoch cannot be raised, so that a broken id recovers.
            if self.producer_epoch != MAX_EPOCH or state is not TransactionState.PREPARE_ABORT:
                target.producer_epoch = _next_epoch(self.producer_epoch)
            target.last_producer_epoch = self.producer_epoch
        if is_without_partitions:
            target.start_ms = now_ms
        target.next_producer_id = next_producer_id
        target.last_update_ms = now_ms
        target.client_version = client_version
        return self._prepare(target)

    def prepare_complete(self, now_ms: int) -> Transition:
        """Complete the transaction: all partitions have their markers. If the epochs are exhausted, switch to the next producer id."""
        self.has_failed_epoch_fence = False
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        target = self._target(TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
        if supports_epoch_bump(self.client_version) and self.next_producer_id != NO_PRODUCER_ID:
            target.producer_id, target.producer_epoch = self.next_producer_id, 0
        target.next_producer_id = NO_PRODUCER_ID
        target.partitions = PartitionSet()
        target.last_update_ms = now_ms
        return self._prepare(target)

    def prepare_dead(self) -> Transition:
        """Expire the id."""
        target = self._target(TransactionState.DEAD)
        target.partitions = PartitionSet()
        return self._prepare(target)

    def _target(self, state: TransactionState) -> Transition:
        return Transition(
            state,
            self.producer_id,
            self.producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            self.partitions,
            self.start_ms,
            self.last_update_ms,
            self.client_version,
        )

    def _begin_anew(self, target: Transition, timeout_ms: int, now_ms: int) -> None:
        target.timeout_ms = timeout_ms
        target.partitions = PartitionSet()
        target.start_ms = NO_TIMESTAMP
        target.last_update_ms = now_ms

    def _prepare(self, target: Transition) -> Transition:
        if self.pending is not None:
            raise TransactionStateError(f"{self.transactional_id} already has a pending state: {self.pending.label}")
        if target.producer_id < 0:
            raise TransactionStateError(f"Illegal new producer id {target.producer_id}")
        if target.state is not TransactionState.DEAD and target.producer_epoch < 0:
            raise TransactionStateError(f"Illegal new producer epoch {target.producer_epoch}")
        if self.state not in VALID_PREVIOUS[target.state]:
            raise TransactionStateError(f"{self.transactional_id} cannot go from {self.state.label} to {target.state.label}")
        self.pending = target.state
        return target

    # completing -------------------------------------------------------------------------------------------------------------------

    def complete_transition(self, target: Transition) -> None:
        """Complete a transition that is in the log. Raises TransactionStateError if it does not match the state."""
        if self.pending is None or self.pending is not target.state or not self._is_valid(target):
            raise TransactionStateError(f"{self.transactional_id} failed transition to state {target}: it is {self}")
        self.producer_id = target.producer_id
        self.previous_producer_id = target.previous_producer_id
        self.next_producer_id = target.next_producer_id
        self.producer_epoch = target.producer_epoch
        self.last_producer_epoch = target.last_producer_epoch
        self.timeout_ms = target.timeout_ms
        self.partitions = target.partitions
        self.start_ms = target.start_ms
        self.last_update_ms = target.last_update_ms
        self.client_version = target.client_version
        self.pending = None
        self.state = target.state

    def _is_valid(self, target: Transition) -> bool:
        state = target.state
        if state is TransactionState.EMPTY:
            is_same_epoch = target.producer_epoch == self.producer_epoch
            return (is_same_epoch or self._is_bump(target)) and not target.partitions and target.start_ms == NO_TIMESTAMP
        if state not in _PREPARE and state not in _COMPLETE and state is not TransactionState.ONGOING:
            return False  # a fence or an expired id is never completed
        if target.timeout_ms != self.timeout_ms or not self._is_valid_producer(target):
            return False
        if state is TransactionState.ONGOING:
            return target.partitions.has_all(self.partitions)
        if state in _COMPLETE:
            return target.start_ms != NO_TIMESTAMP
        is_empty_abort = state is TransactionState.PREPARE_ABORT and supports_epoch_bump(target.client_version) and self.state in FINISHED
        return self.partitions == target.partitions and (self.start_ms == target.start_ms or is_empty_abort)

    def _is_valid_producer(self, target: Transition) -> bool:
        if supports_epoch_bump(target.client_version):
            if target.state in _COMPLETE and target.producer_epoch == 0:
                is_same_last = target.last_producer_epoch == self.last_producer_epoch
                return is_same_last and target.previous_producer_id == self.producer_id
            if target.state in _PREPARE:
                return target.last_producer_epoch == self.producer_epoch and target.producer_id == self.producer_id
        return target.producer_epoch == self.producer_epoch and target.producer_id == self.producer_id

    def _is_bump(self, target: Transition) -> bool:
        is_new_id = target.producer_epoch == 0 and target.producer_id != self.producer_id
        return is_new_id or target.producer_epoch == _next_epoch(self.producer_epoch)


def _next_epoch(epoch: int) -> int:
    return epoch + 1 if epoch < MAX_EPOCH else -MAX_EPOCH - 1  # a short, as in Java


def supports_epoch_bump(version: int) -> bool:
    """Whether each transaction ends with a new epoch."""
    return version >= TV_2


def is_epoch_exhausted(epoch: int) -> bool:
    """Whether the epochs of a producer id are exhausted. The last epoch is reserved for the coordinator, so that it can fence a
    producer."""
    return epoch >= MAX_EPOCH - 1
