"""ListOffsets, versions 1 to 11 (Kafka's KafkaApis.handleListOffsetRequest, ReplicaManager.fetchOffset; KIP-79, KIP-207, KIP-734,
KIP-405, KIP-1005, KIP-1023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest

from kops.records.log_offsets import TopicPartition

_FIRST_VERSIONS: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamps (latest, earliest, of the largest timestamp, earliest local, latest tiered, earliest pending) by version."""
_FIRST_VERSION_WITH_EPOCHS: Final = 4
_FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5
_ISOLATION_LEVELS: Final = (0, 1)


def handle_list_offsets(parts: BrokerParts, context: RequestContext) -> None:
    """Answer each partition once, even if it is requested twice. Raises ApiError UNKNOWN_SERVER_ERROR for an unknown isolation level."""
    request = cast("ListOffsetsRequest", context.request.message)
    if request.topics and request.isolation_level not in _ISOLATION_LEVELS:
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown isolation level {request.isolation_level}")
    asked: dict[TopicPartition, ListOffsetsPartition | None] = {}
    for topic in request.topics:
        for one in topic.partitions:
            key = TopicPartition(topic.name, one.partition_index)
            asked[key] = None if key in asked else one
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for key, partition in asked.items():
        answer = ListOffsetsPartitionResponse(key.partition)
        try:
            if partition is None:
                raise ApiError("INVALID_REQUEST", "the partition is requested twice")
            _find(parts, context.request.version, request, key, partition, answer)
        except ApiError as error:
            answer.error_code = by_name(error.name).code
        topics.setdefault(key.topic, ListOffsetsTopicResponse(key.topic)).partitions.append(answer)
    context.respond(ListOffsetsResponse(topics=list(topics.values())))


def _find(
    parts: BrokerParts,
    version: int,
    request: ListOffsetsRequest,
    key: TopicPartition,
    partition: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    if partition.timestamp < 0 and version < _FIRST_VERSIONS.get(partition.timestamp, version + 1):
        raise ApiError("UNSUPPORTED_VERSION", f"timestamp {partition.timestamp} has no meaning in version {version}")
    epoch = partition.current_leader_epoch
    try:
        found = parts.replica_manager.list_offsets(
            key,
            partition.timestamp,
            replica_id=request.replica_id,
            isolation_level=request.isolation_level,
            current_leader_epoch=None if epoch == -1 else epoch,
        )
    except ApiError as error:
        if error.name == "OFFSET_NOT_AVAILABLE" and version < _FIRST_VERSION_WITH_NOT_AVAILABLE:
            raise ApiError("LEADER_NOT_AVAILABLE", error.message) from error
        raise
    answer.timestamp, answer.offset = found.timestamp, found.offset
    if found.leader_epoch is not None and version >= _FIRST_VERSION_WITH_EPOCHS:
        answer.leader_epoch = found.leader_epoch
