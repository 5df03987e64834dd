"""Produce, versions 3 to 13 (Kafka's KafkaApis.handleProduceRequest, ReplicaManager.handleProduceAppend; KIP-467, KIP-516, KIP-951).

The bytes of the records are passed to the log without a copy. The request drops them once they are appended, so waiting requests hold none.
The first records of a transaction wait until its coordinator has verified it (KIP-890).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.data.leaders import current_leader
from kops.broker.apis.data.produce_records import check_records, is_transactional, transactional_producer
from kops.errors import ApiError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import BY_NAME
from kops.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kops.records.log_offsets import TopicPartition, topic_partition
from kops.replication.waiting.delayed import PartitionResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.produce_request import ProduceRequest, TopicProduceData
    from kops.protocol.primitives import Buffer
    from kops.storage.producers.verification import VerificationGuard

log = logging.getLogger(__name__)

ADMIN_CLIENT_ID: Final = "__admin_client"
_FIRST_VERSION_WITH_LEADERS: Final = 10
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_NO_GUARDS: Final[Mapping[TopicPartition, VerificationGuard]] = {}

Statuses = dict[TopicPartition, PartitionResponse]


def handle_produce(parts: BrokerParts, context: RequestContext) -> None:
    """Append the records, and answer when the replicas that `acks` requires have them.

    Raises ApiError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transaction without an id, CORRUPT_MESSAGE, INVALID_PRODUCER_ID_MAPPING.
    """
    request = cast("ProduceRequest", context.request.message)
    if _has_transaction(request) and request.transactional_id is None:
        raise ApiError("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    produce = _Produce(parts, context, request)
    records = produce.take(request.topic_data)
    if records and request.transactional_id is not None:
        _verify(parts, context, produce, records, request.transactional_id)
    else:
        produce.append(records)


def _verify(
    parts: BrokerParts, context: RequestContext, produce: _Produce, records: dict[TopicPartition, Buffer], transactional_id: str
) -> None:
    """Append the records after their transaction has been verified."""
    from kops.broker.transactions.verified_appends import Producer, Verified, verify_for_produce
    from kops.coordinators.transactions.support import produce_error, support_of_produce

    found = {key: producer for key, batch in records.items() if (producer := transactional_producer(batch)) is not None}
    producers = {(producer_id, epoch) for producer_id, epoch, _ in found.values()}
    if len(producers) > 1:
        raise ApiError("INVALID_PRODUCER_ID_MAPPING", "Transactional records contained more than one producer ID")
    if not producers:
        produce.append(records)
        return
    support = support_of_produce(produce.version)

    def verified(result: Verified) -> None:
        for key, error in result.errors.items():
            produce.refuse(key, *produce_error(error, support))
        produce.append({key: batch for key, batch in records.items() if key not in result.errors}, result.guards)
        context.release_next()

    # The producer's next batches may already have arrived. They must not overtake this one.
    context.hold_next()
    verify_for_produce(
        parts.transactions,
        parts.replica_manager,
        Producer(transactional_id, *producers.pop()),
        {key: sequence for key, (_, _, sequence) in found.items()},
        support,
        verified,
        is_verification_enabled=parts.config["transaction.partition.verification.enable"],
    )


def _has_transaction(request: ProduceRequest) -> bool:
    return any(is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data)  # type: ignore[arg-type]


class _Produce:
    """A request in progress: the partitions rejected before the append, and `ids`, the topic ids of its version by name."""

    __slots__ = ("_acks", "_context", "_parts", "_refused", "_timeout_ms", "_unknown_ids", "ids", "version")

    def __init__(self, parts: BrokerParts, context: RequestContext, request: ProduceRequest) -> None:
        self._parts = parts
        self._context = context
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self.version = context.request.version
        self.ids: dict[str, bytes] = {}
        self._refused: Statuses = {}
        self._unknown_ids: list[tuple[bytes, int]] = []

    def take(self, topics: list[TopicProduceData]) -> dict[TopicPartition, Buffer]:
        """Take the records of all existing partitions out of the request."""
        taken: dict[TopicPartition, Buffer] = {}
        by_id = self.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        images = self._parts.cache.image.topics
        for topic in topics:
            image = images.by_id.get(topic.topic_id) if by_id else images.by_name.get(topic.name)
            if image is None and by_id:
                self._unknown_ids += [(topic.topic_id, data.index) for data in topic.partition_data]
                continue
            name = topic.name if image is None else image.name
            if by_id:
                self.ids[name] = topic.topic_id
            for data in topic.partition_data:
                key = topic_partition(name, data.index)
                if image is None or image.partitions.get(data.index) is None:
                    self._refused[key] = PartitionResponse("UNKNOWN_TOPIC_OR_PARTITION")
                    continue
                records = cast("Buffer", data.records)  # A view of the bytes that were read.
                data.records = None
                try:
                    check_records(records, self.version)
                except ApiError as error:
                    if error.name == "UNKNOWN_SERVER_ERROR":
                        raise
                    self._refused[key] = PartitionResponse(error.name)
                else:
                    taken[key] = records
        return taken

    def refuse(self, key: TopicPartition, error: str, text: str | None) -> None:
        """Reject a partition whose transaction could not be verified."""
        self._refused[key] = PartitionResponse(error, error_message=text)

    def append(self, records: Mapping[TopicPartition, Buffer], guards: Mapping[TopicPartition, VerificationGuard] = _NO_GUARDS) -> None:
        """Append to the partitions that were not rejected, and answer when the records are replicated."""
        if not records:
            self.answer({})
            return
        self._parts.replica_manager.append_records(
            records,
            self._acks,
            self._timeout_ms,
            self.answer,
            internal_topics_allowed=self._context.client_id == ADMIN_CLIENT_ID,
            guards=guards,
            topic_ids=self.ids,
            count_conversion=self._context.count_conversion,
        )

    def answer(self, appended: Mapping[TopicPartition, PartitionResponse]) -> None:
        """Answer the client."""
        statuses = {**appended, **self._refused} if self._refused else appended
        if self._acks == 0:
            self._end(statuses)
            return
        response = ProduceResponse()
        topics: dict[str, TopicProduceResponse] = {}
        nodes: dict[int, NodeEndpoint] = {}
        for key, status in statuses.items():
            topic = topics.get(key.topic)
            if topic is None:
                topic = topics[key.topic] = TopicProduceResponse(name=key.topic, topic_id=self.ids.get(key.topic, ZERO_UUID))
            topic.partition_responses.append(self._partition(key, status, nodes))
        response.responses = [*topics.values(), *self._unknown_topics()]
        response.node_endpoints = list(nodes.values())
        self._context.respond(response)

    def _partition(self, key: TopicPartition, status: PartitionResponse, nodes: dict[int, NodeEndpoint]) -> PartitionProduceResponse:
        answer = PartitionProduceResponse(
            key.partition, BY_NAME[status.error].code, status.base_offset, status.log_append_time_ms, status.log_start_offset
        )
        answer.error_message = status.error_message
        if status.record_errors:
            answer.record_errors = [BatchIndexAndErrorMessage(index, reason) for index, reason in status.record_errors]
        if status.error == "NOT_LEADER_OR_FOLLOWER" and self.version >= _FIRST_VERSION_WITH_LEADERS:
            leader = current_leader(self._parts, key, self._context.listener_name)
            answer.current_leader = LeaderIdAndEpoch(leader.id, leader.epoch)
            if leader.node is not None:
                nodes[leader.id] = NodeEndpoint(leader.id, leader.node.host, leader.node.port, leader.node.rack)
        return answer

    def _unknown_topics(self) -> list[TopicProduceResponse]:
        topics: dict[bytes, TopicProduceResponse] = {}
        code = BY_NAME["UNKNOWN_TOPIC_ID"].code
        for topic_id, index in dict.fromkeys(self._unknown_ids):
            topic = topics.setdefault(topic_id, TopicProduceResponse(topic_id=topic_id))
            topic.partition_responses.append(PartitionProduceResponse(index, code, -1))
        return list(topics.values())

    def _end(self, statuses: Mapping[TopicPartition, PartitionResponse]) -> None:
        """End a request with acks=0, which gets no answer. If there was an error, close its connection."""
        errors = {key: status.error for key, status in statuses.items() if status.error != "NONE"}
        if not errors and not self._unknown_ids:
            self._context.respond_nothing()
            return
        what = ", ".join(f"{key.topic}-{key.partition}: {error}" for key, error in errors.items())
        log.info(
            "Closing the connection of %s for errors of a Produce with acks=0: %s", self._context.client_id, what or "UNKNOWN_TOPIC_ID"
        )
        self._context.close_connection()
