"""Adds partitions to transactions, or verifies them, for the producers that write to them (Kafka's AddPartitionsToTxnManager; KIP-890).

The broker that leads a partition asks the coordinator of the transactional id. While a coordinator has enough requests to answer, new
questions wait and share the next request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kops.coordinators.transactions.markers import Broker
from kops.coordinators.transactions.support import TransactionSupport
from kops.errors import ApiError
from kops.protocol.errors import by_code
from kops.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from kops.records.log_offsets import TopicPartition, topic_partition

log = logging.getLogger(__name__)

VerifiedCallback = Callable[[dict[TopicPartition, str]], None]
"""Called with the errors of partitions that are not in the transaction. Other partitions have no error."""
FIRST_BROKER_VERSION: Final = 4
"""The first version of AddPartitionsToTxn for brokers."""


class _Waiting(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    done: VerifiedCallback
    since_ms: int

    def all_with(self, error: str) -> dict[TopicPartition, str]:
        return {topic_partition(topic.name, number): error for topic in self.transaction.topics for number in topic.partitions}


@dataclass(slots=True)
class VerificationRequest:
    """A request to a coordinator. Pass its answer to `TransactionVerifications.on_answer`. `support` is that of the first client in it.

    `lane` is the number of its connection.
    """

    broker: Broker
    support: TransactionSupport
    waiting: dict[str, _Waiting]
    lane: int = 0

    def message(self) -> AddPartitionsToTxnRequest:
        """The request."""
        return AddPartitionsToTxnRequest([each.transaction for each in self.waiting.values()])


class TransactionVerifications:
    """All questions that wait for coordinators. `coordinator_of(transactional_id)` returns None while there is none. `wake` is called for
    new requests.

    A coordinator has at most `lanes` requests to answer (in Kafka one), each on its own connection. `failure_count` counts partitions with
    an error; `took` gets the milliseconds from each question to its answer. Neither includes questions for which there is no coordinator.
    """

    def __init__(
        self,
        coordinator_of: Callable[[str], Broker | None],
        wake: Callable[[], object],
        *,
        now_ms: Callable[[], int],
        took: Callable[[int], object],
        lanes: int = 1,
    ) -> None:
        self._coordinator_of = coordinator_of
        self._wake = wake
        self._now_ms = now_ms
        self._took = took
        self._lanes = range(lanes)
        self.failure_count = 0
        self._requests: dict[Broker, VerificationRequest] = {}
        self._in_flight: dict[Broker, dict[int, VerificationRequest]] = {}

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        support: TransactionSupport,
        done: VerifiedCallback,
    ) -> None:
        """Ask the coordinator to add partitions to the transaction, or to verify that they are in it."""
        broker = self._coordinator_of(transactional_id)
        if broker is None:
            done(dict.fromkeys(partitions, "COORDINATOR_NOT_AVAILABLE"))
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, number in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(number)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id, producer_id, producer_epoch, not support.adds_partitions, list(topics.values())
        )
        self._add(broker, _Waiting(transaction, done, self._now_ms()), support)

    def _add(self, broker: Broker, added: _Waiting, support: TransactionSupport) -> None:
        request = self._requests.setdefault(broker, VerificationRequest(broker, support, {}))
        transaction = added.transaction
        before = request.waiting.get(transaction.transactional_id)
        if before is not None:
            epoch = before.transaction.producer_epoch
            log.debug(
                "Two verifications for %s: epoch %d waits, epoch %d is new", transaction.transactional_id, epoch, transaction.producer_epoch
            )
            if epoch > transaction.producer_epoch:
                self._fail(added, "INVALID_PRODUCER_EPOCH")
                return
            # The old producer is fenced, or the same producer repeats its request.
            del request.waiting[transaction.transactional_id]
            self._fail(before, "INVALID_PRODUCER_EPOCH" if epoch < transaction.producer_epoch else "NETWORK_EXCEPTION")
        request.waiting[transaction.transactional_id] = added
        self._wake()

    def take_requests(self) -> list[VerificationRequest]:
        """Return the requests to coordinators that have a free lane. A transactional id has one request in flight; the next one waits for
        it."""
        taken = []
        for broker, queued in list(self._requests.items()):
            busy = self._in_flight.get(broker, {})
            lane = next((each for each in self._lanes if each not in busy), None)
            asked = {each for request in busy.values() for each in request.waiting}
            ready = {name: each for name, each in queued.waiting.items() if name not in asked}
            if lane is None or not ready:
                continue
            queued.waiting = {name: each for name, each in queued.waiting.items() if name in asked}
            if not queued.waiting:
                del self._requests[broker]
            request = VerificationRequest(broker, queued.support, ready, lane)
            self._in_flight.setdefault(broker, {})[lane] = request
            taken.append(request)
        return taken

    def on_answer(self, request: VerificationRequest, answer: AddPartitionsToTxnResponse | ApiError) -> None:
        """Handle a coordinator's answer, or the failure of the request."""
        busy = self._in_flight.get(request.broker, {})
        busy.pop(request.lane, None)
        if not busy:
            self._in_flight.pop(request.broker, None)
        if isinstance(answer, ApiError):
            log.warning("No verification of transactions by broker %d: %s", request.broker.id, answer)
            if answer.name == "UNSUPPORTED_VERSION":  # an older broker, which cannot verify
                for each in request.waiting.values():
                    self._end(each, {})
            else:
                self._fail_all(request, "NETWORK_EXCEPTION")
        elif answer.error_code:
            error = by_code(answer.error_code).name
            log.warning("Broker %d does not verify transactions: %s", request.broker.id, error)
            self._fail_all(request, "INVALID_TXN_STATE" if error == "CLUSTER_AUTHORIZATION_FAILED" else error)
        else:
            self._tell_results(request, answer)
        if self._requests:
            self._wake()

    def _fail_all(self, request: VerificationRequest, error: str) -> None:
        for each in request.waiting.values():
            self._fail(each, error)

    def _fail(self, waiting: _Waiting, error: str) -> None:
        self._end(waiting, waiting.all_with(error))

    def _end(self, waiting: _Waiting, errors: dict[TopicPartition, str]) -> None:
        self.failure_count += len(errors)
        self._took(self._now_ms() - waiting.since_ms)
        waiting.done(errors)

    def _tell_results(self, request: VerificationRequest, answer: AddPartitionsToTxnResponse) -> None:
        for result in answer.results_by_transaction:
            unverified = {
                topic_partition(topic.name, each.partition_index): _told(by_code(each.partition_error_code).name, request.support)
                for topic in result.topic_results
                for each in topic.results_by_partition
                if each.partition_error_code
            }
            waiting = request.waiting[result.transactional_id]
            if unverified:
                _log_unverified(waiting.transaction, unverified)
            self._end(waiting, unverified)


def _log_unverified(transaction: AddPartitionsToTxnTransaction, errors: dict[TopicPartition, str]) -> None:
    # A producer ends after this error, and nothing else tells why.
    level = logging.INFO if "INVALID_TXN_STATE" in errors.values() else logging.DEBUG
    who = f"{transaction.transactional_id} with producer id {transaction.producer_id} and epoch {transaction.producer_epoch}"
    log.log(level, "Partitions are not in the transaction of %s: %s", who, errors)


def _told(error: str, support: TransactionSupport) -> str:
    """Convert the error into one that the producer expects."""
    if error == "PRODUCER_FENCED":
        return "INVALID_PRODUCER_EPOCH"
    if error == "TRANSACTION_ABORTABLE" and support is TransactionSupport.DEFAULT_ERROR:
        return "INVALID_TXN_STATE"
    return error
