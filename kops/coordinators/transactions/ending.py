"""The end of a transaction: EndTxn, fencing and time-outs (Kafka's TransactionCoordinator.endTransaction, endTransactionWithTV1).

The decision is written first. When it is in the log, the client gets its answer, and the markers are sent to the partitions. In version 2
each end raises the epoch, and a client that did not get the answer may repeat the request with the previous epoch (KIP-890):

    =============  ===================  ==================  ====================  ===================
    state          abort, old epoch     abort, this epoch   commit, old epoch     commit, this epoch
    =============  ===================  ==================  ====================  ===================
    Empty          PRODUCER_FENCED      new epoch           PRODUCER_FENCED       INVALID_TXN_STATE
    CompleteAbort  NONE                 new epoch           INVALID_TXN_STATE     INVALID_TXN_STATE
    CompleteCommit INVALID_TXN_STATE    new epoch           NONE                  INVALID_TXN_STATE
    =============  ===================  ==================  ====================  ===================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mypy_extensions import mypyc_attr

from kops.coordinators.transactions.markers import TransactionMarkers
from kops.coordinators.transactions.metadata import TransactionMetadata, Transition, supports_epoch_bump
from kops.coordinators.transactions.state import (
    FINISHED,
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TV_0,
    TransactionState,
    TransactionStateError,
)
from kops.coordinators.transactions.state_manager import NONE, KnownId, TransactionStateManager
from kops.errors import ApiError

log = logging.getLogger(__name__)

EndCallback = Callable[[str, int, int], None]
"""Called with the name of the error, and the producer id and epoch for the next transaction, or -1 if they do not change."""
_S = TransactionState
_COMPLETE: Final = (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
_PREPARED: Final = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a transaction: a client's request, a fence or a time-out."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    client_version: int
    is_commit: bool
    is_from_client: bool
    done: EndCallback

    @property
    def is_version_2(self) -> bool:
        return supports_epoch_bump(self.client_version)

    @property
    def prepared(self) -> TransactionState:
        return _S.PREPARE_COMMIT if self.is_commit else _S.PREPARE_ABORT

    @property
    def completed(self) -> TransactionState:
        return _S.COMPLETE_COMMIT if self.is_commit else _S.COMPLETE_ABORT

    @property
    def summary(self) -> str:
        """Return what was asked for, for the log."""
        who = "its producer" if self.is_from_client else "the coordinator"
        what = "commit" if self.is_commit else "abort"
        return (
            f"{what} of {self.transactional_id} by {who} with id {self.producer_id}, epoch {self.producer_epoch}, TV{self.client_version}"
        )

    def refuse(self, error: str) -> None:
        self.done(error, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class _AlreadyEndedError(Exception):
    """The transaction has already ended in the same way."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TransactionEnding:
    """Ends transactions."""

    def __init__(self, manager: TransactionStateManager, markers: TransactionMarkers, new_producer_id: Callable[[], int]) -> None:
        self._manager = manager
        self._markers = markers
        self._new_producer_id = new_producer_id

    def end(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        client_version: int,
        done: EndCallback,
        *,
        is_commit: bool,
        is_from_client: bool,
    ) -> None:
        """Commit or abort a transaction."""
        end = _End(transactional_id or "", producer_id, producer_epoch, client_version, is_commit, is_from_client, done)
        if not transactional_id:
            end.refuse("INVALID_REQUEST")
            return
        known: KnownId | None = None
        try:
            known = self._manager.get(transactional_id)
            if known is None:
                raise ApiError("INVALID_PRODUCER_ID_MAPPING")
            metadata = known.metadata
            is_fence = metadata.pending is _S.PREPARE_EPOCH_FENCE
            before = metadata.producer_id, metadata.producer_epoch
            target = self._prepare_2(end, metadata, is_fence) if end.is_version_2 else self._prepare_1(end, metadata, is_fence)
        except _AlreadyEndedError:
            if end.is_version_2:
                done(NONE, *before)
            else:
                end.refuse(NONE)
            return
        except ApiError as error:
            found = "nothing" if known is None else known.metadata.summary
            log.debug("Rejected the %s: %s; found: %s", end.summary, error.name, found)
            end.refuse(error.name)
            return
        epoch = known.coordinator_epoch
        self._manager.append(transactional_id, epoch, target, lambda error: self._written(end, epoch, error, is_fence=is_fence))

    # version 1 ------------------------------------------------------------------------------------------------------------------

    def _prepare_1(self, end: _End, metadata: TransactionMetadata, is_fence: bool) -> Transition:
        if metadata.producer_id != end.producer_id:
            raise ApiError("INVALID_PRODUCER_ID_MAPPING")
        # A client's request does not raise the epoch.
        is_wrong = end.is_from_client and end.producer_epoch != metadata.producer_epoch
        if is_wrong or end.producer_epoch < metadata.producer_epoch:
            raise ApiError("PRODUCER_FENCED")
        if metadata.pending is not None and not is_fence:
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if metadata.state is end.completed:
            raise _AlreadyEndedError
        if metadata.state is end.prepared:
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if metadata.state is not _S.ONGOING:
            raise _wrong_state(end, metadata)
        if is_fence and not end.is_commit:
            # Clear the pending fence, and write the raised epoch with the abort.
            metadata.pending = None
            metadata.producer_epoch = end.producer_epoch
            metadata.last_producer_epoch = NO_PRODUCER_EPOCH
        now_ms = self._manager.now_ms()
        return metadata.prepare_abort_or_commit(end.prepared, TV_0, NO_PRODUCER_ID, now_ms, is_without_partitions=False)

    # version 2 ------------------------------------------------------------------------------------------------------------------

    def _prepare_2(self, end: _End, metadata: TransactionMetadata, is_fence: bool) -> Transition:
        # The first request exhausted the epochs, so the next producer id is in use.
        is_retry_on_overflow = (
            not is_fence
            and metadata.previous_producer_id == end.producer_id
            and end.producer_epoch == MAX_EPOCH - 1
            and metadata.producer_epoch == 0
        )
        is_retry_on_bump = not is_fence and metadata.producer_epoch == end.producer_epoch + 1
        is_retry = is_retry_on_bump or is_retry_on_overflow
        if metadata.pending is not None and not is_fence:
            # Check this first: the producer may already have the id that is pending here.
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if metadata.producer_id != end.producer_id and not is_retry_on_overflow:
            raise ApiError("INVALID_PRODUCER_ID_MAPPING")
        if not _is_valid_epoch(end, metadata, is_fence, is_retry_on_bump, is_retry):
            raise ApiError("PRODUCER_FENCED")
        state = metadata.state
        if state is _S.ONGOING:
            return self._prepare_end(end, metadata, is_fence, is_without_partitions=False)
        if state is end.prepared:
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if is_retry and state is end.completed:
            raise _AlreadyEndedError
        is_repeated = is_retry and state in _COMPLETE
        if state in FINISHED and not end.is_commit and not is_repeated:
            return self._prepare_end(end, metadata, is_fence, is_without_partitions=True)
        raise _wrong_state(end, metadata)

    def _prepare_end(self, end: _End, metadata: TransactionMetadata, is_fence: bool, *, is_without_partitions: bool) -> Transition:
        # The end raises the epoch, so the next producer id must be ready now, for a fence as well.
        error: ApiError | None = None
        next_producer_id = NO_PRODUCER_ID
        if metadata.is_epoch_exhausted:
            try:
                next_producer_id = self._new_producer_id()
            except ApiError as caught:
                error = caught
        if is_fence and not end.is_commit:
            metadata.pending = None
        if error is not None:
            raise error
        return metadata.prepare_abort_or_commit(
            end.prepared, end.client_version, next_producer_id, self._manager.now_ms(), is_without_partitions=is_without_partitions
        )

    # both -----------------------------------------------------------------------------------------------------------------------

    def _written(self, end: _End, coordinator_epoch: int, error: str, *, is_fence: bool) -> None:
        """Continue after the decision was written, or could not be written."""
        if error != NONE:
            log.info("Not sending the markers of %s: its end could not be written: %s", end.transactional_id, error)
            if is_fence and not end.is_version_2 and not end.is_commit:
                self._note_failed_fence(end.transactional_id, coordinator_epoch)
            end.refuse(error)
            return
        try:
            known = self._manager.get(end.transactional_id)
            if known is None:
                raise TransactionStateError(f"There is no metadata for {end.transactional_id}, but its partition is still led")
            target = self._prepare_complete(end, known, coordinator_epoch)
        except ApiError as refused:
            log.info("Not sending the markers of %s: %s", end.transactional_id, refused.name)
            end.refuse(refused.name)
            return
        # The client does not wait for the markers.
        if end.is_version_2:
            end.done(NONE, target.producer_id, target.producer_epoch)
        else:
            end.refuse(NONE)
        self._markers.add(coordinator_epoch, known.metadata, target, is_commit=end.is_commit)

    def _prepare_complete(self, end: _End, known: KnownId, coordinator_epoch: int) -> Transition:
        metadata = known.metadata
        if known.coordinator_epoch != coordinator_epoch:
            raise ApiError("NOT_COORDINATOR")
        if metadata.producer_id != end.producer_id:
            raise ApiError("INVALID_PRODUCER_ID_MAPPING")
        epochs = (end.producer_epoch, end.producer_epoch + 1) if end.is_version_2 else (end.producer_epoch,)
        if metadata.producer_epoch not in epochs:
            raise ApiError("PRODUCER_FENCED")
        if metadata.pending is not None:
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if metadata.state is not end.prepared:
            raise _wrong_state(end, metadata)
        return metadata.prepare_complete(self._manager.now_ms())

    def _note_failed_fence(self, transactional_id: str, coordinator_epoch: int) -> None:
        try:
            known = self._manager.get(transactional_id)
        except ApiError:
            return
        if known is not None and known.coordinator_epoch == coordinator_epoch:
            known.metadata.has_failed_epoch_fence = True


def _is_valid_epoch(end: _End, metadata: TransactionMetadata, is_fence: bool, is_retry_on_bump: bool, is_retry: bool) -> bool:
    is_same = end.producer_epoch == metadata.producer_epoch
    if is_fence:
        return (not end.is_from_client or is_same) and end.producer_epoch >= metadata.producer_epoch
    if metadata.state in _PREPARED:
        return is_retry_on_bump
    if metadata.state in _COMPLETE:
        return is_retry or is_same
    return is_same


def _wrong_state(end: _End, metadata: TransactionMetadata) -> ApiError | TransactionStateError:
    if metadata.state in (_S.DEAD, _S.PREPARE_EPOCH_FENCE):
        return TransactionStateError(f"Found transactionalId {end.transactional_id} with state {metadata.state.label}")
    log.warning("A transaction can't be ended as asked for: %s; it has %s", end.summary, metadata.summary)
    return ApiError("INVALID_TXN_STATE")
