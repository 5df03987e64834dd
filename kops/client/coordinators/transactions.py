"""Transactions: list, describe, producers of partitions, hanging ones, abort.

Source: Kafka's ListTransactionsHandler, DescribeTransactionsHandler, DescribeProducersHandler, AbortTransactionHandler,
FenceProducersHandler (which `forceTerminateTransaction` uses), TransactionsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.client.admin.core.operation import execute
from kops.client.admin.operations import transactions
from kops.client.client import Client, check
from kops.client.coordinators.finding import by_all_brokers
from kops.errors import ApiError, KopsError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message

_PARTITIONS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. `started_ms` is that of the last transaction; None if there was none."""

    transactional_id: str
    coordinator: int | None
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: list[TopicPartition] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or its markers are still being written."""
        return self.state == "Ongoing" or self.state.startswith("Prepare")


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer known to a partition. `txn_start_offset` is None without an open transaction. Other unknown values are -1."""

    key: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    txn_start_offset: int | None


def list_transactions(
    client: Client,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> tuple[list[TransactionListing], dict[int, KopsError]]:
    """Return (the ids of all coordinators, errors of brokers). A broker that does not support a filter has an error."""
    from kops.protocol.messages import ListTransactionsRequest, ListTransactionsResponse

    def handle(response: Message) -> list[tuple[str, int, str]]:
        assert isinstance(response, ListTransactionsResponse)
        check(response.error_code)
        return [(one.transactional_id, one.producer_id, one.transaction_state) for one in response.transaction_states]

    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )
    answers, errors = by_all_brokers(client, "list transactions", request, handle)
    found = [TransactionListing(*one, node_id) for node_id, listed in answers.items() for one in listed]
    return sorted(found, key=lambda one: one.transactional_id), errors


def describe_transactions(client: Client, ids: Iterable[str]) -> dict[str, TransactionDescription | ApiError]:
    """Describe transactional ids. An unknown id gives TRANSACTIONAL_ID_NOT_FOUND."""
    found = execute(client, transactions.describe_transactions(client, ids)).outcomes()
    return {
        transactional_id: one
        if isinstance(one, ApiError)
        else TransactionDescription(
            transactional_id,
            one.coordinator_id,
            one.producer_id,
            one.producer_epoch,
            str(one.state),
            one.transaction_timeout_ms,
            one.transaction_start_time_ms,
            sorted(one.topic_partitions),
        )
        for transactional_id, one in found.items()
    }


def describe_producers(
    client: Client, keys: Iterable[TopicPartition], *, broker_id: int | None = None
) -> dict[TopicPartition, list[Producer] | ApiError]:
    """Return the producers that the leaders of partitions remember, or that a given broker remembers."""
    wanted = list(keys)
    found: dict[TopicPartition, list[Producer] | ApiError] = {}
    for start in range(0, len(wanted), _PARTITIONS_AT_ONCE):
        some = execute(client, transactions.describe_producers(client, wanted[start : start + _PARTITIONS_AT_ONCE], broker_id=broker_id))
        for key, one in some.outcomes().items():
            found[key] = one if isinstance(one, ApiError) else [_producer(key, state) for state in one]
    return found


def _producer(key: TopicPartition, state: transactions.ProducerState) -> Producer:
    return Producer(
        key,
        state.producer_id,
        state.producer_epoch,
        -1 if state.coordinator_epoch is None else state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.current_transaction_start_offset,
    )


def find_hanging(
    client: Client, keys: Iterable[TopicPartition], *, now_ms: int, longer_than_ms: int, broker_id: int | None = None
) -> tuple[list[Producer], dict[str, KopsError]]:
    """Return (open transactions unknown to all coordinators, failed requests).

    Only transactions that were last written to more than `longer_than_ms` ago are candidates, because younger ones may not have reached the
    coordinator. If a request failed, a transaction of an unknown producer does not count as hanging.
    """
    errors: dict[str, KopsError] = {}
    open_: dict[int, list[Producer]] = {}
    for key, producers in describe_producers(client, keys, broker_id=broker_id).items():
        if isinstance(producers, ApiError):
            errors[f"{key.topic}-{key.partition}"] = producers
            continue
        for one in producers:
            if one.txn_start_offset is not None and now_ms - one.last_timestamp > longer_than_ms:
                open_.setdefault(one.producer_id, []).append(one)
    if not open_:
        return [], errors
    listed, failed = list_transactions(client, producer_ids=open_)
    errors |= {f"broker {node_id}": error for node_id, error in failed.items()}
    ids = {one.producer_id: one.transactional_id for one in listed if one.producer_id in open_}
    descriptions = describe_transactions(client, ids.values())
    found = []
    for producer_id, producers in open_.items():
        found += _hanging(producers, ids.get(producer_id), descriptions, errors, all_asked=not failed)
    return sorted(found, key=lambda one: (one.key, one.txn_start_offset or 0)), errors


def _hanging(
    producers: list[Producer],
    transactional_id: str | None,
    descriptions: Mapping[str, TransactionDescription | ApiError],
    errors: dict[str, KopsError],
    *,
    all_asked: bool,
) -> list[Producer]:
    if transactional_id is None:
        return producers if all_asked else []
    description = descriptions[transactional_id]
    if isinstance(description, TransactionDescription):
        return [one for one in producers if one.key not in description.partitions]
    if description.name == "TRANSACTIONAL_ID_NOT_FOUND":
        return producers
    errors[transactional_id] = description
    return []


def abort_in_partition(client: Client, key: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
    """Write an ABORT marker into a partition, in place of the coordinator. Raises ApiError.

    The coordinator epoch must not be below that of the producer's last marker; -1 counts as 0, as in Kafka's tool.
    """
    spec = transactions.AbortTransactionSpec(key, producer_id, producer_epoch, max(coordinator_epoch, 0))
    try:
        execute(client, transactions.abort_transaction(client, spec))
    except ApiError as error:
        raise ApiError(error.name, f"{key.topic}-{key.partition}: {error}") from error


def abort_transactional_id(client: Client, transactional_id: str) -> None:
    """Fence the producer of a transactional id, so that its coordinator aborts the open transaction. Raises ApiError."""
    execute(client, transactions.force_terminate_transaction(client, transactional_id))
