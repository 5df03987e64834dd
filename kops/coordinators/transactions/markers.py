"""The markers that end transactions in their partitions: a queue for each broker, and the handling of answers.

Source: Kafka's TransactionMarkerChannelManager, TxnMarkerQueue and TransactionMarkerRequestCompletionHandler. Kafka sends a request to a
broker while an earlier one is unanswered. In kops markers wait for the answer, so one request carries more of them. When all partitions of
a transaction have their markers, its end is written to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from kops.coordinators.transactions.metadata import TransactionMetadata, Transition
from kops.coordinators.transactions.state import TransactionStateError
from kops.coordinators.transactions.state_manager import NONE, KnownId, TransactionStateManager
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker, WritableTxnMarkerTopic
from kops.records.log_offsets import TopicPartition, topic_partition

log = logging.getLogger(__name__)

_RETRIABLE: Final = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REQUEST_TIMED_OUT",
        "KAFKA_STORAGE_ERROR",
    }
)
_FENCED: Final = frozenset({"INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"})
_DONE: Final = frozenset({NONE, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_VERSION"})


class Broker(Protocol):
    """The address of a broker (`kops.metadata.image.metadata_cache.BrokerNode`); the id is -1 if it cannot be reached."""

    @property
    def id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass(eq=False, slots=True)
class PendingEnd:
    """A transaction whose decision is in the log and some of whose markers are not written yet."""

    coordinator_epoch: int
    metadata: TransactionMetadata
    target: Transition
    is_commit: bool

    @property
    def transactional_id(self) -> str:
        """The id of the transaction."""
        return self.metadata.transactional_id


class MarkerEntry(NamedTuple):
    """A marker for partitions that one broker leads."""

    pending: PendingEnd
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]

    def written(self) -> WritableTxnMarker:
        """Return the marker in the form of a request."""
        topics: dict[str, list[int]] = {}
        for topic, number in self.partitions:
            topics.setdefault(topic, []).append(number)
        return WritableTxnMarker(
            self.producer_id,
            self.producer_epoch,
            self.pending.is_commit,
            [WritableTxnMarkerTopic(topic, numbers) for topic, numbers in topics.items()],
            self.pending.coordinator_epoch,
            self.pending.metadata.client_version,
        )


class MarkerRequest(NamedTuple):
    """A request to a broker. Pass the answer to `TransactionMarkers.on_answer`."""

    broker: Broker
    entries: list[MarkerEntry]

    def message(self) -> WriteTxnMarkersRequest:
        """The request."""
        return WriteTxnMarkersRequest([entry.written() for entry in self.entries])


class _Queue:
    """The markers for one broker, by partition of the transaction log."""

    __slots__ = ("broker", "by_partition")

    def __init__(self, broker: Broker | None) -> None:
        self.broker = broker
        self.by_partition: dict[int, list[MarkerEntry]] = {}

    def take(self) -> list[MarkerEntry]:
        taken = [entry for entries in self.by_partition.values() for entry in entries]
        self.by_partition.clear()
        return taken


class TransactionMarkers:
    """All pending markers.

    `leader_of` returns the address of a partition's leader, with the id -1 if the leader cannot be reached, or None if the leader is
    unknown. `wake(is_retry)` is called when `take_requests` has requests, at once or after a pause. `on_complete(transactional_id)` is
    called when the end of a transaction is in the log.
    """

    def __init__(
        self, manager: TransactionStateManager, leader_of: Callable[[str, int], Broker | None], wake: Callable[[bool], object]
    ) -> None:
        self._manager = manager
        self._leader_of = leader_of
        self._wake = wake
        self.on_complete: Callable[[str], object] = lambda _transactional_id: None
        self._queues: dict[int, _Queue] = {}
        self._unreachable = _Queue(None)
        self._to_complete: list[PendingEnd] = []
        self._in_flight: set[int] = set()
        self._pending: dict[str, PendingEnd] = {}

    @property
    def pending_count(self) -> int:
        """The number of transactions that wait for markers."""
        return len(self._pending)

    def add(self, coordinator_epoch: int, metadata: TransactionMetadata, target: Transition, *, is_commit: bool) -> None:
        """Send the markers of a transaction whose decision is in the log, then write `target`."""
        pending = PendingEnd(coordinator_epoch, metadata, target, is_commit)
        self._pending[metadata.transactional_id] = pending
        self._enqueue(pending, metadata.producer_id, metadata.producer_epoch, list(metadata.partitions), is_retry=False)
        self._maybe_complete(metadata.transactional_id)

    def take_requests(self) -> list[MarkerRequest]:
        """Return the requests that can be sent now, including retries."""
        to_complete, self._to_complete = self._to_complete, []
        for pending in to_complete:
            self._write_completion(pending)
        for entry in self._unreachable.take():
            self._enqueue(entry.pending, entry.producer_id, entry.producer_epoch, entry.partitions, is_retry=True)
        requests = []
        for broker_id, queue in self._queues.items():
            if broker_id in self._in_flight or not queue.by_partition or queue.broker is None:
                continue
            self._in_flight.add(broker_id)
            requests.append(MarkerRequest(queue.broker, queue.take()))
        return requests

    def on_answer(self, request: MarkerRequest, response: WriteTxnMarkersResponse | None) -> None:
        """Handle a broker's answer. None means that the connection was lost or the broker cannot answer."""
        self._in_flight.discard(request.broker.id)
        queue = self._queues.get(request.broker.id)
        # New markers are sent at once. Failed ones wait a little. Otherwise they would be sent again and again to a broker that rejects
        # them at once.
        is_more = queue is not None and bool(queue.by_partition)
        errors = None if response is None else _errors_of(response)
        for entry in request.entries:
            known = self._known(entry)
            if known is None:
                self._forget(entry.pending)
            elif errors is None:
                self._enqueue(entry.pending, entry.producer_id, entry.producer_epoch, entry.partitions, is_retry=True)
            else:
                self._answered(entry, known.metadata, errors[entry.producer_id])
        if is_more:
            self._wake(False)

    def remove_partition(self, partition: int) -> None:
        """Drop the markers of a partition of the transaction log, because this broker no longer coordinates its ids or loads them again."""
        for queue in (self._unreachable, *self._queues.values()):
            for entry in queue.by_partition.pop(partition, ()):
                self._forget(entry.pending)

    # queues -----------------------------------------------------------------------------------------------------------------------

    def _enqueue(
        self, pending: PendingEnd, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition], *, is_retry: bool
    ) -> None:
        by_leader: dict[int | None, tuple[Broker | None, list[TopicPartition]]] = {}
        for partition in partitions:
            leader = self._leader_of(*partition)
            by_leader.setdefault(None if leader is None else leader.id, (leader, []))[1].append(partition)
        log_partition = self._manager.partition_for(pending.transactional_id)
        for leader, led in by_leader.values():
            if leader is None:
                self._skip(pending, led)
                continue
            entry = MarkerEntry(pending, producer_id, producer_epoch, tuple(led))
            queue = self._unreachable if leader.id < 0 else self._queues.setdefault(leader.id, _Queue(leader))
            queue.broker = leader
            queue.by_partition.setdefault(log_partition, []).append(entry)
            self._wake(is_retry or leader.id < 0)

    def _skip(self, pending: PendingEnd, partitions: list[TopicPartition]) -> None:
        """Skip partitions without a known leader, which have probably been deleted."""
        try:
            known = self._manager.get(pending.transactional_id)
        except ApiError:
            self._forget(pending)
            return
        if known is None:
            raise TransactionStateError(f"There is no metadata for {pending.transactional_id}, but its partition is still led")
        if known.coordinator_epoch != pending.coordinator_epoch:
            self._forget(pending)
            return
        log.info("No leader of %s is known: no markers for %s are sent there", partitions, pending.transactional_id)
        for partition in partitions:
            known.metadata.remove_partition(partition)
        self._maybe_complete(pending.transactional_id)

    def _forget(self, pending: PendingEnd) -> None:
        if self._pending.get(pending.transactional_id) is pending:
            del self._pending[pending.transactional_id]

    # answers ----------------------------------------------------------------------------------------------------------------------

    def _known(self, entry: MarkerEntry) -> KnownId | None:
        """Return the state of the entry's id, if this broker is still the coordinator that sent the marker."""
        transactional_id = entry.pending.transactional_id
        try:
            known = self._manager.get(transactional_id)
        except ApiError as error:
            log.info("No longer sending the markers of %s: %s", transactional_id, error.name)
            return None
        if known is None:
            raise TransactionStateError(f"There is no metadata for {transactional_id}, but its partition is still led")
        return known if known.coordinator_epoch == entry.pending.coordinator_epoch else None

    def _answered(self, entry: MarkerEntry, metadata: TransactionMetadata, errors: dict[TopicPartition, str]) -> None:
        retries = []
        is_fenced = False
        for partition, error in errors.items():
            if error in _DONE:
                metadata.remove_partition(partition)
            elif error in _RETRIABLE:
                retries.append(partition)
            elif error in _FENCED:
                log.info("The marker of %s in %s was rejected permanently: %s", metadata.transactional_id, partition, error)
                self._forget(entry.pending)
                is_fenced = True
            else:
                raise TransactionStateError(f"Unexpected error {error} while sending txn marker for {metadata.transactional_id}")
        if is_fenced:
            return
        if retries:
            self._enqueue(entry.pending, entry.producer_id, entry.producer_epoch, retries, is_retry=True)
        else:
            self._maybe_complete(metadata.transactional_id)

    # completion -------------------------------------------------------------------------------------------------------------------

    def _maybe_complete(self, transactional_id: str) -> None:
        pending = self._pending.get(transactional_id)
        if pending is None or pending.metadata.partitions:
            return
        del self._pending[transactional_id]
        try:
            known = self._manager.get(transactional_id)
        except ApiError as error:
            log.info("The end of %s is not written here: %s", transactional_id, error.name)
            return
        if known is None:
            raise TransactionStateError(f"There is no metadata for {transactional_id}, but its partition is still led")
        if known.coordinator_epoch == pending.coordinator_epoch:
            self._write_completion(pending)

    def _write_completion(self, pending: PendingEnd) -> None:
        def written(error: str) -> None:
            if error == "COORDINATOR_NOT_AVAILABLE":
                log.info("The end of %s could not be written; trying again", pending.transactional_id)
                self._to_complete.append(pending)
                self._wake(True)
            elif error == NONE:
                self.on_complete(pending.transactional_id)
            elif error not in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"):
                raise TransactionStateError(f"Unexpected error {error} while appending to transaction log for {pending.transactional_id}")

        self._manager.append(
            pending.transactional_id,
            pending.coordinator_epoch,
            pending.target,
            written,
            keeps_pending=lambda error: error == "COORDINATOR_NOT_AVAILABLE",
        )


def _errors_of(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, str]]:
    """The errors by producer id and partition."""
    found: dict[int, dict[TopicPartition, str]] = {}
    for marker in response.markers:
        errors = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                errors[topic_partition(topic.name, partition.partition_index)] = by_code(partition.error_code).name
    return found
