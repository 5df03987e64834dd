"""DescribeProducers, version 0 (Kafka's KafkaApis.handleDescribeProducersRequest; KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kops.config.values.topic_names import check_topic_name
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.describe_producers_request import DescribeProducersRequest


def handle_describe_producers(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the idempotent and transactional producers that replicas on this broker know."""
    request = cast("DescribeProducersRequest", context.request.message)
    response = DescribeProducersResponse()
    for topic in request.topics:
        refusal = _refusal(parts, topic.name)
        partitions = [_partition(parts, TopicPartition(topic.name, index), refusal) for index in topic.partition_indexes]
        response.topics.append(TopicResponse(topic.name, partitions))
    context.respond(response)


def _refusal(parts: BrokerParts, topic: str) -> ApiError | None:
    try:
        check_topic_name(topic)
    except ApiError as error:
        return error
    known = parts.cache.partition_count(topic) is not None
    return None if known else ApiError("UNKNOWN_TOPIC_OR_PARTITION", by_name("UNKNOWN_TOPIC_OR_PARTITION").words)


def _partition(parts: BrokerParts, key: TopicPartition, refusal: ApiError | None) -> PartitionResponse:
    if refusal is not None:
        return PartitionResponse(key.partition, by_name(refusal.name).code, refusal.message)
    try:
        producers = parts.replica_manager.describe_producers(key)
    except ApiError as error:
        return PartitionResponse(key.partition, by_name(error.name).code)
    return PartitionResponse(key.partition, active_producers=[ProducerState(*producer) for producer in producers])
