"""DescribeLogDirs, versions 1 to 5, and AlterReplicaLogDirs, versions 1 and 2 (Kafka's KafkaApis.handleDescribeLogDirsRequest and
handleAlterReplicaLogDirsRequest; KIP-113, KIP-827, KIP-1066). `kops.broker.replicas.log_dir_moves` has the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kops.protocol.errors import by_name
from kops.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kops.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.broker.replicas.log_dir_moves import ReplicaInDir
    from kops.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
    from kops.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest


def handle_describe_log_dirs(parts: BrokerParts, context: RequestContext) -> None:
    """Answer with all log directories of this broker, each with the requested replicas, or with all replicas if there is no list."""
    request = cast("DescribeLogDirsRequest", context.request.message)
    keys = None
    if request.topics is not None:
        keys = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    version = parts.cache.image.features.metadata_version
    knows_cordoned = version is not None and version.has_cordoned_log_dirs
    results = []
    for found in parts.replica_manager.describe_log_dirs(keys):
        code = by_name(found.error).code
        topics = _topics(found.replicas)
        results.append(
            DescribeLogDirsResult(code, found.log_dir, topics, found.total_bytes, found.usable_bytes, knows_cordoned and found.is_cordoned)
        )
    context.respond(DescribeLogDirsResponse(results=results))


def _topics(replicas: Iterable[ReplicaInDir]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in replicas:
        topic = topics.setdefault(replica.key.topic, DescribeLogDirsTopic(replica.key.topic))
        topic.partitions.append(DescribeLogDirsPartition(replica.key.partition, replica.size, replica.offset_lag, replica.is_future))
    return list(topics.values())


def handle_alter_replica_log_dirs(parts: BrokerParts, context: RequestContext) -> None:
    """Start to move replicas. The answer does not wait for the moves. If a partition is named twice, the last directory counts."""
    request = cast("AlterReplicaLogDirsRequest", context.request.message)
    moves = {TopicPartition(topic.name, number): one.path for one in request.dirs for topic in one.topics for number in topic.partitions}
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for key, error in parts.replica_manager.alter_replica_log_dirs(moves).items():
        topic = topics.setdefault(key.topic, AlterReplicaLogDirTopicResult(key.topic))
        topic.partitions.append(AlterReplicaLogDirPartitionResult(key.partition, by_name(error).code))
    context.respond(AlterReplicaLogDirsResponse(results=list(topics.values())))
