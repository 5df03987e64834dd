"""DeleteRecords, versions 0 to 2 (Kafka's KafkaApis.handleDeleteRecordsRequest; KIP-107)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kops.protocol.errors import by_name
from kops.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kops.records.log_offsets import TopicPartition
from kops.replication.waiting.delayed import INVALID_LOW_WATERMARK, AwaitedDeletion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.delete_records_request import DeleteRecordsRequest


def handle_delete_records(parts: BrokerParts, context: RequestContext) -> None:
    """Move the start of logs. The answer is sent when all live replicas have deleted the records."""
    request = cast("DeleteRecordsRequest", context.request.message)
    offsets: dict[TopicPartition, int] = {}
    unknown: dict[TopicPartition, AwaitedDeletion] = {}
    for topic in request.topics:
        for one in topic.partitions:
            key = TopicPartition(topic.name, one.partition_index)
            if parts.cache.partition(*key) is None:
                unknown[key] = AwaitedDeletion(-1, INVALID_LOW_WATERMARK, "UNKNOWN_TOPIC_OR_PARTITION")
            else:
                offsets[key] = one.offset

    def answer(deleted: Mapping[TopicPartition, AwaitedDeletion]) -> None:
        context.respond(_response({**deleted, **unknown}))

    if offsets:
        parts.replica_manager.delete_records(offsets, request.timeout_ms, answer)
    else:
        answer({})


def _response(statuses: Mapping[TopicPartition, AwaitedDeletion]) -> DeleteRecordsResponse:
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for key, status in statuses.items():
        topic = topics.setdefault(key.topic, DeleteRecordsTopicResult(key.topic))
        topic.partitions.append(DeleteRecordsPartitionResult(key.partition, status.low_watermark, by_name(status.error).code))
    return DeleteRecordsResponse(topics=list(topics.values()))
