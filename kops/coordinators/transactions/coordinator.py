"""Handles the requests of producers to the coordinator of their transactional id (Kafka's TransactionCoordinator).

InitProducerId fences earlier producers (KIP-360, KIP-588). AddPartitionsToTxn begins a transaction or verifies it (KIP-890). A timer
aborts transactions that have been open for too long. `kops.coordinators.transactions.ending` has EndTxn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from kops.coordinators.transactions.ending import EndCallback, TransactionEnding
from kops.coordinators.transactions.markers import TransactionMarkers
from kops.coordinators.transactions.metadata import TransactionMetadata, Transition, is_epoch_exhausted
from kops.coordinators.transactions.state import (
    FINISHED,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionState,
    TransactionStateError,
)
from kops.coordinators.transactions.state_manager import NONE, IdAndProducer, KnownId, PartitionLoad, TransactionStateManager
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages import ListTransactionsResponse
from kops.protocol.messages.describe_transactions_response import TopicData
from kops.protocol.messages.describe_transactions_response import TransactionState as DescribedTransaction
from kops.records.log_offsets import TopicPartition

log = logging.getLogger(__name__)

_INT_MAX: Final = 2**31 - 1
_COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
_PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class InitProducerIdResult(NamedTuple):
    """The producer id and epoch of a transactional id, or an error with -1 and -1."""

    producer_id: int
    producer_epoch: int
    error: str = NONE


def _refused(error: str) -> InitProducerIdResult:
    return InitProducerIdResult(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, error)


class TransactionCoordinator:
    """The coordinator. `new_producer_id()` raises ApiError while no id is available. `is_active` says whether the broker serves
    requests."""

    def __init__(self, manager: TransactionStateManager, markers: TransactionMarkers, new_producer_id: Callable[[], int]) -> None:
        self.manager = manager
        self.markers = markers
        self.is_active = True
        self._new_producer_id = new_producer_id
        self._ending = TransactionEnding(manager, markers, new_producer_id)

    # producers ------------------------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        done: Callable[[InitProducerIdResult], None],
        *,
        enables_two_phase_commit: bool = False,
        keeps_prepared: bool = False,
    ) -> None:
        """Handle InitProducerId: a producer starts, or continues after an error with the id and epoch it expects. An open transaction is
        aborted."""
        error = self._refusal(transactional_id, timeout_ms, enables_two_phase_commit, keeps_prepared)
        if error is not None:
            done(_refused(error))
            return
        try:
            if transactional_id is None:
                done(InitProducerIdResult(self._new_producer_id(), 0))
                return
            limit_ms = _INT_MAX if enables_two_phase_commit else timeout_ms
            coordinator_epoch, target = self._prepare_init(transactional_id, limit_ms, expected)
        except ApiError as refused:
            producer_id, epoch = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if expected is None else expected
            self._log_refused("initialize", transactional_id, producer_id, epoch, refused)
            done(_refused(refused.name))
            return
        if target.state is TransactionState.PREPARE_EPOCH_FENCE:

            def ended(error: str, _producer_id: int, _producer_epoch: int) -> None:
                done(_refused("CONCURRENT_TRANSACTIONS" if error == NONE else error))

            # Use the cluster's transaction version, because this end is not requested by a client.
            version = self.manager.transaction_version()
            self._ending.end(
                transactional_id, target.producer_id, target.producer_epoch, version, ended, is_commit=False, is_from_client=False
            )
            return

        def written(error: str) -> None:
            if error == NONE:
                log.info("Producer of %s has id %d and epoch %d", transactional_id, target.producer_id, target.producer_epoch)
            else:
                log.info("No producer id for %s, because it could not be written: %s", transactional_id, error)
            done(_refused(error) if error != NONE else InitProducerIdResult(target.producer_id, target.producer_epoch))

        self.manager.append(transactional_id, coordinator_epoch, target, written)

    def _refusal(self, transactional_id: str | None, timeout_ms: int, is_two_phase_commit: bool, keeps_prepared: bool) -> str | None:
        if transactional_id is None:
            return None
        if not transactional_id:
            return "INVALID_REQUEST"
        if is_two_phase_commit and not self.manager.config.two_phase_commit_enable:
            return "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        if keeps_prepared:
            return "UNSUPPORTED_VERSION"
        if not self.manager.is_valid_timeout(timeout_ms, is_two_phase_commit=is_two_phase_commit):
            return "INVALID_TRANSACTION_TIMEOUT"
        return None

    def _prepare_init(self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None) -> tuple[int, Transition]:
        manager = self.manager
        known = manager.get(transactional_id)
        if known is None:
            producer_id = self._new_producer_id()
            known = manager.put_if_absent(
                TransactionMetadata(transactional_id, producer_id, timeout_ms=timeout_ms, last_update_ms=manager.now_ms())
            )
        metadata = known.metadata
        if metadata.pending is not None:
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if expected is not None and not _is_expected(metadata, *expected):
            raise ApiError("PRODUCER_FENCED")
        if metadata.state in _PREPARED:
            raise ApiError("CONCURRENT_TRANSACTIONS")
        if metadata.state is TransactionState.ONGOING:
            # No client gets this epoch. The client must ask again, which raises the epoch a second time.
            return known.coordinator_epoch, metadata.prepare_fence_producer_epoch()
        if metadata.state not in FINISHED:
            raise TransactionStateError(f"Found transactionalId {transactional_id} with state {metadata.state.label}")
        now_ms = manager.now_ms()
        if metadata.is_epoch_exhausted and (expected is None or expected[1] == metadata.producer_epoch):
            target = metadata.prepare_producer_id_rotation(
                self._new_producer_id(), timeout_ms, now_ms, keep_last_epoch=expected is not None
            )
        else:
            target = self._prepare_increment(metadata, timeout_ms, None if expected is None else expected[1], now_ms)
        return known.coordinator_epoch, target

    def _prepare_increment(self, metadata: TransactionMetadata, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transition:
        try:
            return metadata.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms)
        except TransactionStateError as error:
            raise ApiError("UNKNOWN_SERVER_ERROR", str(error)) from error

    def add_partitions(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        done: Callable[[str], None],
    ) -> None:
        """Add partitions to a transaction. The first partitions begin it. `done` is called with the name of the error."""
        added = list(partitions)
        try:
            known = self._known(transactional_id)
            metadata = known.metadata
            if metadata.pending is not None:
                # Check this first: the producer may already have the id that is pending here.
                raise ApiError("CONCURRENT_TRANSACTIONS")
            _check_producer(metadata, producer_id, producer_epoch)
        except ApiError as error:
            self._log_refused("add partitions to", transactional_id, producer_id, producer_epoch, error)
            done(error.name)
            return
        if metadata.state is TransactionState.ONGOING and metadata.partitions.has_all(added):
            done(NONE)
            return
        target = metadata.prepare_add_partitions(added, self.manager.now_ms(), client_version)
        self.manager.append(metadata.transactional_id, known.coordinator_epoch, target, done)

    def verify_partitions(
        self, transactional_id: str | None, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Return the error of each partition: TRANSACTION_ABORTABLE if it is not in the transaction."""
        asked = list(partitions)
        try:
            metadata = self._known(transactional_id).metadata
            _check_producer(metadata, producer_id, producer_epoch)
        except ApiError as error:
            self._log_refused("verify", transactional_id, producer_id, producer_epoch, error)
            return dict.fromkeys(asked, error.name)
        return {each: NONE if each in metadata.partitions else "TRANSACTION_ABORTABLE" for each in asked}

    def _log_refused(self, what: str, transactional_id: str | None, producer_id: int, producer_epoch: int, error: ApiError) -> None:
        if not log.isEnabledFor(logging.DEBUG):
            return
        try:
            found = self._known(transactional_id).metadata.summary
        except ApiError:
            found = "nothing"
        asked = f"producer {producer_id} with epoch {producer_epoch}"
        log.debug("Rejected to %s the transaction of %s for %s: %s; found: %s", what, transactional_id, asked, error.name, found)

    def is_ending(self, transactional_id: str) -> bool:
        """Whether the id's last transaction is decided and its markers or its completion are still being written."""
        try:
            known = self.manager.get(transactional_id)
        except ApiError:
            return False
        return known is not None and known.metadata.pending in _COMPLETE

    def ending_for_ms(self, transactional_id: str) -> int:
        """Return how long ago the last transaction of an id was decided, if it `is_ending`. This uses the wall clock, so it may be
        negative."""
        known = self.manager.get(transactional_id)
        return 0 if known is None else self.manager.now_ms() - known.metadata.last_update_ms

    def _known(self, transactional_id: str | None) -> KnownId:
        if not transactional_id:
            raise ApiError("INVALID_REQUEST")
        known = self.manager.get(transactional_id)
        if known is None:
            raise ApiError("INVALID_PRODUCER_ID_MAPPING")
        return known

    def end_transaction(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        client_version: int,
        done: EndCallback,
        *,
        is_commit: bool,
    ) -> None:
        """Handle EndTxn. `done` is called with the name of the error and, in version 2, the producer id and epoch for the next
        transaction."""
        self._ending.end(transactional_id, producer_id, producer_epoch, client_version, done, is_commit=is_commit, is_from_client=True)

    # queries --------------------------------------------------------------------------------------------------------------------

    def list_transactions(
        self, producer_ids: Collection[int] = (), states: Collection[str] = (), duration_ms: int = -1, pattern: str | None = None
    ) -> ListTransactionsResponse:
        """Return the transactions that pass the filters. Raises ApiError INVALID_REGULAR_EXPRESSION."""
        if not self.is_active:
            return ListTransactionsResponse(error_code=by_name("COORDINATOR_NOT_AVAILABLE").code)
        return self.manager.list_transactions(producer_ids, states, duration_ms, pattern)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transaction, or return an error in its place."""
        try:
            metadata = self._described(transactional_id)
        except ApiError as error:
            return DescribedTransaction(by_name(error.name).code, transactional_id)
        topics: dict[str, TopicData] = {}
        for topic, number in metadata.partitions:
            topics.setdefault(topic, TopicData(topic)).partitions.append(number)
        return DescribedTransaction(
            0,
            transactional_id,
            metadata.state.label,
            metadata.timeout_ms,
            metadata.start_ms,
            metadata.producer_id,
            metadata.producer_epoch,
            list(topics.values()),
        )

    def _described(self, transactional_id: str) -> TransactionMetadata:
        if not self.is_active:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        if not transactional_id:
            raise ApiError("INVALID_REQUEST")
        known = self.manager.get(transactional_id)
        if known is None or known.metadata.state is TransactionState.DEAD:
            raise ApiError("TRANSACTIONAL_ID_NOT_FOUND")
        return known.metadata

    # time and leadership --------------------------------------------------------------------------------------------------------

    def abort_timed_out(self, done: Callable[[IdAndProducer], EndCallback] | None = None) -> None:
        """Abort transactions that have been open for too long. `done(transaction)` returns the callback for each."""
        for each in self.manager.timed_out():
            self._abort_timed_out(each, _tell(each) if done is None else done(each))

    def _abort_timed_out(self, each: IdAndProducer, done: EndCallback) -> None:
        try:
            known = self.manager.get(each.transactional_id)
        except ApiError:
            return
        if known is None or known.metadata.producer_id != each.producer_id:
            log.error("Could not find the producer whose transaction has timed out: %s", each)
            return
        if known.metadata.pending is not None:
            return
        target = known.metadata.prepare_fence_producer_epoch()
        version = self.manager.transaction_version()
        self._ending.end(
            each.transactional_id, target.producer_id, target.producer_epoch, version, done, is_commit=False, is_from_client=False
        )

    def begin_load(self, partition: int, coordinator_epoch: int) -> PartitionLoad:
        """Begin to load a partition, because this broker is now the coordinator of its ids."""
        self.markers.remove_partition(partition)
        return self.manager.begin_load(partition, coordinator_epoch)

    def end_load(self, load: PartitionLoad) -> None:
        """Finish a load: serve the ids, and send the markers that may not have been written."""
        for metadata in self.manager.end_load(load):
            is_commit = metadata.state is TransactionState.PREPARE_COMMIT
            target = metadata.prepare_complete(self.manager.now_ms())
            self.markers.add(load.coordinator_epoch, metadata, target, is_commit=is_commit)

    def resign(self, partition: int, coordinator_epoch: int | None) -> None:
        """Unload a partition, because another broker is the coordinator. Without an epoch, this broker no longer has a replica."""
        self.manager.remove(partition, coordinator_epoch)
        self.markers.remove_partition(partition)


def _is_expected(metadata: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Whether a producer may continue: its id is new or the known one, or it repeats a call that gave it a new id."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == metadata.producer_id
        or (producer_id == metadata.previous_producer_id and is_epoch_exhausted(epoch))
    )


def _check_producer(metadata: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if metadata.producer_id != producer_id:
        raise ApiError("INVALID_PRODUCER_ID_MAPPING")
    if metadata.producer_epoch != producer_epoch:
        raise ApiError("PRODUCER_FENCED")
    if metadata.state in _PREPARED:
        raise ApiError("CONCURRENT_TRANSACTIONS")


def _tell(each: IdAndProducer) -> EndCallback:
    def ended(error: str, _producer_id: int, _producer_epoch: int) -> None:
        if error == NONE:
            log.info("Completed rollback of ongoing transaction for transactionalId %s due to timeout", each.transactional_id)
        elif error in ("INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS"):
            log.debug("Rollback of %s has been cancelled due to error %s", each, error)
        else:
            log.warning("Rollback of ongoing transaction for transactionalId %s failed due to error %s", each.transactional_id, error)

    return ended
