"""Transactions and producers: list, describe, abort, fence.

Source: Kafka's ListTransactionsHandler, DescribeTransactionsHandler, DescribeProducersHandler, AbortTransactionHandler,
FenceProducersHandler, KafkaAdminClient.forceTerminateTransaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.admin.core.asking import by_topic, deadline_ms
from kops.client.admin.core.coordinated import LOADING_OR_CONCURRENT, Coordinated
from kops.client.admin.core.keyed import Lookup, Outcome, keyed
from kops.client.admin.core.lookups import Fixed, KeyType, Leaders, find_brokers
from kops.client.admin.core.results import Results, error_of, missing, of_partition
from kops.client.admin.core.values import Partition, as_names, as_partitions
from kops.client.errors import KafkaError, error_named
from kops.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kops.protocol.messages.describe_producers_request import TopicRequest
from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker, WritableTxnMarkerTopic
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.client.node import Node
    from kops.protocol.declaration import Message

_LEADER_AGAIN: Final = ("NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION")


class TransactionState(StrEnum):
    """The state of a transactional id."""

    UNKNOWN = "Unknown"
    ONGOING = "Ongoing"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_COMMIT = "PrepareCommit"
    COMPLETE_ABORT = "CompleteAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    EMPTY = "Empty"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. The start is in ms since the epoch, None without a transaction."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    topic_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers. Epoch of the coordinator and start of the transaction are None if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


class AbortTransactionSpec(NamedTuple):
    """A transaction that hangs in a partition, as `describe_producers` shows it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and the epoch that a transactional id has now."""

    producer_id: int
    epoch: int


# coordinators


class _ListTransactions:
    name = "list transactions"
    versions: range | None = None

    def __init__(self, brokers: Iterable[int], request: ListTransactionsRequest, versions: range) -> None:
        self.lookup: Lookup[int] = Fixed({broker: broker for broker in brokers})
        self.versions = versions
        self._request = request

    def build(self, keys: list[int]) -> tuple[list[int], Callable[[int], Message]]:
        return keys, lambda _: self._request

    def handle(self, broker: int, keys: list[int], response: Message) -> Outcome[int, list[TransactionListing]]:
        assert isinstance(response, ListTransactionsResponse)
        outcome = Outcome[int, list[TransactionListing]]()
        error = error_of(response.error_code)
        if error is None:
            outcome.completed[broker] = [
                TransactionListing(one.transactional_id, one.producer_id, TransactionState(one.transaction_state))
                for one in response.transaction_states
            ]
        elif error.name != "COORDINATOR_LOAD_IN_PROGRESS":
            outcome.failed[broker] = error_named(error.name, f"list transactions of broker {broker}: {error}")
        return outcome

    def unsupported(self, keys: list[int], error: KafkaError) -> dict[int, KafkaError]:
        return dict.fromkeys(keys, error)


def list_transactions(
    client: Client,
    *,
    states: Iterable[TransactionState | str] = (),
    producer_ids: Iterable[int] = (),
    duration_ms: int = -1,
    transactional_id_pattern: str | None = None,
    timeout: float | None = None,
) -> Steps[Results[int, list[TransactionListing]]]:
    """Return the transactional ids of each broker: all, or those of these states, producer ids or names (a regular expression), or with a
    transaction that lasts longer than `duration_ms`."""
    deadline = deadline_ms(client, timeout)
    request = ListTransactionsRequest(
        state_filters=[str(one) for one in states],
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=transactional_id_pattern or None,
    )
    first = 2 if transactional_id_pattern else 1 if duration_ms >= 0 else 0
    brokers = yield from find_brokers(client, "list transactions", deadline)
    handler = _ListTransactions(brokers, request, range(first, ListTransactionsRequest.VERSIONS.stop))
    return (yield from keyed(client, handler, brokers, deadline))


def describe_transactions(
    client: Client, transactional_ids: Iterable[str], *, timeout: float | None = None
) -> Steps[Results[str, TransactionDescription]]:
    """Describe transactional ids."""

    def read(node: Node, response: Message) -> Iterator[tuple[str, TransactionDescription | KafkaError]]:
        assert isinstance(response, DescribeTransactionsResponse)
        for one in response.transaction_states:
            yield (
                one.transactional_id,
                error_of(one.error_code)
                or TransactionDescription(
                    node.id,
                    TransactionState(one.transaction_state),
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_timeout_ms,
                    one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
                    frozenset(TopicPartition(topic.topic, part) for topic in one.topics for part in topic.partitions),
                ),
            )

    handler = Coordinated(
        client, "describe transactions", KeyType.TRANSACTION, lambda keys: DescribeTransactionsRequest(transactional_ids=keys), read
    )
    return (yield from keyed(client, handler, as_names(transactional_ids), deadline_ms(client, timeout)))


class _FenceProducers(Coordinated[ProducerIdAndEpoch]):
    def __init__(self, client: Client, timeout_ms: int) -> None:
        super().__init__(
            client, "fence producers", KeyType.TRANSACTION, self._request, self._answer, later=LOADING_OR_CONCURRENT, at_once=False
        )
        self._timeout_ms = timeout_ms

    def _request(self, keys: list[str]) -> Message:
        return InitProducerIdRequest(transactional_id=keys[0], transaction_timeout_ms=self._timeout_ms, producer_id=-1, producer_epoch=-1)

    def handle(self, broker: int, keys: list[str], response: Message) -> Outcome[str, ProducerIdAndEpoch]:
        self._asked = keys[0]
        return super().handle(broker, keys, response)

    def _answer(self, _: Node, response: Message) -> Iterator[tuple[str, ProducerIdAndEpoch | KafkaError]]:
        assert isinstance(response, InitProducerIdResponse)
        yield self._asked, error_of(response.error_code) or ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def fence_producers(
    client: Client, transactional_ids: Iterable[str], *, timeout: float | None = None
) -> Steps[Results[str, ProducerIdAndEpoch]]:
    """Fence the producers of transactional ids. Their open transactions are aborted."""
    timeout_ms = client.settings.request_timeout_ms if timeout is None else int(timeout * 1000)
    return (yield from keyed(client, _FenceProducers(client, timeout_ms), as_names(transactional_ids), deadline_ms(client, timeout)))


def force_terminate_transaction(client: Client, transactional_id: str, *, timeout: float | None = None) -> Steps[None]:
    """Abort the open transaction of a transactional id. Its producer is fenced."""
    found = yield from fence_producers(client, [transactional_id], timeout=timeout)
    found.all()


# partitions


class _DescribeProducers:
    name = "describe producers"
    versions: range | None = None

    def __init__(self, client: Client, keys: Iterable[TopicPartition], broker_id: int | None) -> None:
        self._client = client
        self._is_fixed = broker_id is not None
        self.lookup: Lookup[TopicPartition] = Leaders(client) if broker_id is None else Fixed(dict.fromkeys(keys, broker_id))

    def build(self, keys: list[TopicPartition]) -> tuple[list[TopicPartition], Callable[[int], Message]]:
        topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(keys).items()]
        return keys, lambda _: DescribeProducersRequest(topics=topics)

    def handle(self, broker: int, keys: list[TopicPartition], response: Message) -> Outcome[TopicPartition, list[ProducerState]]:
        assert isinstance(response, DescribeProducersResponse)
        outcome = Outcome[TopicPartition, list[ProducerState]]()
        for topic in response.topics:
            for part in topic.partitions:
                key, error = TopicPartition(topic.name, part.partition_index), error_of(part.error_code, part.error_message)
                if error is None:
                    outcome.completed[key] = [
                        ProducerState(
                            one.producer_id,
                            one.producer_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
                            one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
                        )
                        for one in part.active_producers
                    ]
                elif not self._is_fixed and (error.name == "NOT_LEADER_OR_FOLLOWER" or self._is_hurried(error)):
                    outcome.unmapped.append(key)
                elif error.name != "UNKNOWN_TOPIC_OR_PARTITION" or not self._client.is_patient:
                    outcome.failed[key] = of_partition(self._client, key, error)
        return outcome

    def _is_hurried(self, error: KafkaError) -> bool:
        """Whether a command looks for another leader, which shows whether the partition is gone. A program asks the same broker again."""
        return not self._client.is_patient and error.retriable

    def unsupported(self, keys: list[TopicPartition], error: KafkaError) -> dict[TopicPartition, KafkaError]:
        return dict.fromkeys(keys, error)


def describe_producers(
    client: Client, partitions: Iterable[Partition], *, broker_id: int | None = None, timeout: float | None = None
) -> Steps[Results[TopicPartition, list[ProducerState]]]:
    """Return the producers that the leaders of partitions remember, or that the broker `broker_id` does."""
    wanted = as_partitions(partitions)
    return (yield from keyed(client, _DescribeProducers(client, wanted, broker_id), wanted, deadline_ms(client, timeout)))


class _AbortTransaction:
    name = "abort transaction"
    versions: range | None = None

    def __init__(self, client: Client, spec: AbortTransactionSpec) -> None:
        self._spec = spec
        self.lookup: Lookup[TopicPartition] = Leaders(client)

    def build(self, keys: list[TopicPartition]) -> tuple[list[TopicPartition], Callable[[int], Message]]:
        spec, key = self._spec, self._spec.topic_partition
        marker = WritableTxnMarker(
            producer_id=spec.producer_id,
            producer_epoch=spec.producer_epoch,
            coordinator_epoch=spec.coordinator_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=key.topic, partition_indexes=[key.partition])],
        )
        return keys, lambda _: WriteTxnMarkersRequest(markers=[marker])

    def handle(self, broker: int, keys: list[TopicPartition], response: Message) -> Outcome[TopicPartition, None]:
        assert isinstance(response, WriteTxnMarkersResponse)
        outcome = Outcome[TopicPartition, None]()
        errors = {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code)
            for marker in response.markers
            if marker.producer_id == self._spec.producer_id
            for topic in marker.topics
            for one in topic.partitions
        }
        for key in keys:
            error = errors[key] if key in errors else missing(self.name, f"{key.topic}-{key.partition}")
            if error is None:
                outcome.completed[key] = None
            elif error.name in _LEADER_AGAIN:
                outcome.unmapped.append(key)
            else:
                outcome.failed[key] = error
        return outcome

    def unsupported(self, keys: list[TopicPartition], error: KafkaError) -> dict[TopicPartition, KafkaError]:
        return dict.fromkeys(keys, error)


def abort_transaction(client: Client, spec: AbortTransactionSpec, *, timeout: float | None = None) -> Steps[None]:
    """Write an abort marker into a partition where a transaction hangs that no coordinator knows any more."""
    found = yield from keyed(client, _AbortTransaction(client, spec), [spec.topic_partition], deadline_ms(client, timeout))
    found.all()
