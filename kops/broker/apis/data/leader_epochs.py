"""OffsetForLeaderEpoch, versions 2 to 4 (Kafka's KafkaApis.handleOffsetForLeaderEpochRequest; KIP-101, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kops.protocol.errors import by_name
from kops.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest


def handle_offset_for_leader_epoch(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with the ends of the requested epochs, for the partitions that this broker leads."""
    request = cast("OffsetForLeaderEpochRequest", context.request.message)
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            end = parts.replica_manager.end_offset_for_epoch(
                TopicPartition(topic.topic, one.partition), one.current_leader_epoch, one.leader_epoch
            )
            answers.append(EpochEndOffset(by_name(end.error).code, one.partition, end.leader_epoch, end.end_offset))
        response.topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    context.respond(response)
