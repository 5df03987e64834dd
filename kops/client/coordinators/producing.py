"""The transaction of a producer: initializes the transactional id, adds partitions, commits or aborts.

Source: Kafka's TransactionManager with brokers without transaction version 2 (InitProducerId, AddPartitionsToTxn before the first
batch of a partition, EndTxn up to version 4). Brokers from 0.11 to 4.3 support this. One `Transaction` is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from kops.client.client import Client
from kops.client.coordinators.finding import KeyType, by_coordinator
from kops.client.topics import error_of
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.protocol.declaration import Message

T = TypeVar("T")
# Later versions are for requests between brokers (AddPartitionsToTxn) and for transaction version 2.
_ADD_VERSIONS: Final = range(4)
_END_VERSIONS: Final = range(5)


class Transaction:
    """A transaction of `transactional.id`. The constructor fences earlier producers with this id and aborts their open transaction.

    `is_open` is whether the coordinator may have an open transaction. All methods wait for the coordinator, at most for
    `default.api.timeout.ms`, and raise ApiError or UnreachableError.
    """

    def __init__(self, client: Client) -> None:
        from kops.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

        self._client = client
        self.transactional_id = client.settings.transactional_id
        self.timeout_ms = client.settings.transaction_timeout_ms
        self.is_open = False
        self._partitions: set[TopicPartition] = set()

        def handle(response: Message) -> tuple[int, int] | ApiError:
            assert isinstance(response, InitProducerIdResponse)
            error = error_of(response.error_code)
            if error is not None and error.name == "INVALID_TRANSACTION_TIMEOUT":
                words = f"transaction.timeout.ms={self.timeout_ms}: {error}; allowed: up to the brokers' transaction.max.timeout.ms"
                return ApiError(error.name, words)
            return error or (response.producer_id, response.producer_epoch)

        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        self.producer_id, self.producer_epoch = self._call("init producer id", request, handle)

    def add(self, keys: Iterable[TopicPartition]) -> None:
        """Add new partitions to the transaction, before the first batch is sent to them."""
        from kops.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
        from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic

        new = [key for key in keys if key not in self._partitions]
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for key in new:
            topics.setdefault(key.topic, []).append(key.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )

        def handle(response: Message) -> ApiError | None:
            assert isinstance(response, AddPartitionsToTxnResponse)
            errors: list[ApiError] = []
            for topic in response.results_by_topic_v3_and_below:
                for one in topic.results_by_partition:
                    error = error_of(one.partition_error_code)
                    if error is not None:
                        errors.append(ApiError(error.name, f"{topic.name}-{one.partition_index}: {error}"))
            # Partitions that were skipped because of errors of others have no error of their own.
            return next((error for error in errors if error.name != "OPERATION_NOT_ATTEMPTED"), errors[0] if errors else None)

        self.is_open = True  # even if the answer is lost
        self._call("add partitions to transaction", request, handle, _ADD_VERSIONS)
        self._partitions |= set(new)

    def end(self, *, commit: bool) -> None:
        """Commit or abort. If the answer was lost, call it again with the same decision."""
        from kops.protocol.messages import EndTxnRequest, EndTxnResponse

        if not self.is_open:
            return

        def handle(response: Message) -> ApiError | None:
            assert isinstance(response, EndTxnResponse)
            return error_of(response.error_code)

        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        self._call("commit" if commit else "abort", request, handle, _END_VERSIONS)
        self.is_open = False

    def _call(self, name: str, request: Message, handle: Callable[[Message], T | ApiError], versions: range | None = None) -> T:
        key = self.transactional_id

        def by_key(_: Node, response: Message) -> dict[str, T | ApiError]:
            return {key: handle(response)}

        found = by_coordinator(self._client, name, KeyType.TRANSACTION, [key], lambda _: request, by_key, versions=versions)[key]
        if isinstance(found, ApiError):
            raise found
        return found
