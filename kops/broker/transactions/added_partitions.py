"""AddPartitionsToTxn, from clients and from brokers (Kafka's KafkaApis.handleAddPartitionsToTxnRequest, AddPartitionsToTxnResponse)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.config.values.topic_names import INTERNAL_TOPICS
from kops.coordinators.transactions.state import TV_0, TV_2
from kops.errors import KopsError
from kops.protocol.errors import by_name
from kops.protocol.messages import AddPartitionsToTxnResponse
from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTransaction
from kops.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kops.records.log_offsets import TopicPartition, topic_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kops.coordinators.transactions.coordinator import TransactionCoordinator
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

    WaitForEnd = Callable[[str, Callable[[], object]], object]

log = logging.getLogger(__name__)

FIRST_BATCHED_VERSION: Final = 4
_FIRST_WITH_FENCED: Final = 2


def answer_add_partitions(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    version: int,
    done: Callable[[AddPartitionsToTxnResponse], None],
    wait_for_end: WaitForEnd,
) -> None:
    """Add the partitions of all transactions in a request, or verify them. `done` gets the response when all have been handled.

    A broker's request waits while the previous transaction is still ending (`kops.broker.transactions.end_waits`).
    """
    transactions = _transactions(request, version)
    results: dict[str, AddPartitionsToTxnResult] = {}

    def tell(result: AddPartitionsToTxnResult) -> None:
        transactional_id = result.transactional_id
        results[transactional_id] = result
        if len(results) < len(transactions):
            return
        if version < FIRST_BATCHED_VERSION:
            done(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[transactional_id].topic_results))
        else:
            done(AddPartitionsToTxnResponse(results_by_transaction=list(results.values())))

    if not transactions:  # Kafka never answers it.
        done(AddPartitionsToTxnResponse())
    for transaction in transactions.values():
        _answer(coordinator, cache, transaction, version, tell, wait_for_end)


def _transactions(request: AddPartitionsToTxnRequest, version: int) -> dict[str, AddPartitionsToTxnTransaction]:
    if version >= FIRST_BATCHED_VERSION:
        return {transaction.transactional_id: transaction for transaction in request.transactions}
    only = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )
    return {only.transactional_id: only}


def _answer(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    transaction: AddPartitionsToTxnTransaction,
    version: int,
    tell: Callable[[AddPartitionsToTxnResult], None],
    wait_for_end: WaitForEnd,
) -> None:
    transactional_id = transaction.transactional_id
    partitions = partitions_of(transaction.topics)
    is_from_broker = version >= FIRST_BATCHED_VERSION
    refusals = {key: _refusal(cache, key, is_from_broker=is_from_broker) for key in partitions}
    if any(refusals.values()):
        # One partition that is refused fails the whole transaction.
        tell(_result(transactional_id, {key: error or "OPERATION_NOT_ATTEMPTED" for key, error in refusals.items()}))
        return
    producer = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        tell(_result(transactional_id, coordinator.verify_partitions(transactional_id, *producer, partitions)))
        return
    client_version = TV_2 if is_from_broker else TV_0

    def added(error: str) -> None:
        is_old = version < _FIRST_WITH_FENCED and error == "PRODUCER_FENCED"
        tell(_same_for_all(transaction, "INVALID_PRODUCER_EPOCH" if is_old else error))

    def add_again() -> None:
        try:
            coordinator.add_partitions(transactional_id, *producer, partitions, client_version, added)
        except KopsError:
            # No other code would answer the request.
            log.exception("Error adding partitions to the transaction of %s", transactional_id)
            added("UNKNOWN_SERVER_ERROR")

    if is_from_broker and coordinator.is_ending(transactional_id):
        wait_for_end(transactional_id, add_again)
    else:
        coordinator.add_partitions(transactional_id, *producer, partitions, client_version, added)


def _refusal(cache: MetadataCache, key: TopicPartition, *, is_from_broker: bool) -> str | None:
    """Return why a partition can't be added, or None. Only brokers may add internal topics, even without an authorizer."""
    if not is_from_broker and key.topic in INTERNAL_TOPICS:
        return "TOPIC_AUTHORIZATION_FAILED"
    return None if cache.partition(*key) is not None else "UNKNOWN_TOPIC_OR_PARTITION"


def partitions_of(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """Return the partitions of a request, without duplicates."""
    return list(dict.fromkeys(topic_partition(topic.name, number) for topic in topics for number in topic.partitions))


def _same_for_all(transaction: AddPartitionsToTxnTransaction, error: str) -> AddPartitionsToTxnResult:
    """Return one error for everything that the request names, as it names it: also topics without partitions, and partitions again."""
    code = by_name(error).code
    topics = [
        AddPartitionsToTxnTopicResult(topic.name, [AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions])
        for topic in transaction.topics
    ]
    return AddPartitionsToTxnResult(transaction.transactional_id, topics)


def _result(transactional_id: str, errors: Mapping[TopicPartition, str]) -> AddPartitionsToTxnResult:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for key, error in errors.items():
        topic = topics.setdefault(key.topic, AddPartitionsToTxnTopicResult(key.topic))
        topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(key.partition, by_name(error).code))
    return AddPartitionsToTxnResult(transactional_id, list(topics.values()))
