"""DescribeCluster and DescribeTopicPartitions: answers with the cluster and its topics from the image.

Source: Kafka's KafkaApis.handleDescribeCluster, AuthHelper.computeDescribeClusterResponse, DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.broker.apis.cluster.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kops.protocol.messages import DescribeClusterRequest, DescribeTopicPartitionsRequest

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts


def handle_describe_cluster(parts: BrokerParts, context: RequestContext) -> None:
    """Answers at once."""
    request = context.request.message
    assert isinstance(request, DescribeClusterRequest)
    response = parts.cache.describe_cluster(
        request,
        context.request.version,
        context.listener_name,
        cluster_id=parts.cluster_id,
        controller_id=parts.cache.random_alive_broker(lambda count: int(parts.draw() * count)),
    )
    if request.include_cluster_authorized_operations and not response.error_code:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    context.respond(response)


def handle_describe_topic_partitions(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once. Raises ApiError INVALID_REQUEST for an invalid cursor."""
    request = context.request.message
    assert isinstance(request, DescribeTopicPartitionsRequest)
    limit = parts.config["max.request.partition.size.limit"]
    response = parts.cache.describe_topic_partitions(request, context.listener_name, max_partitions=limit)
    for topic in response.topics:
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    context.respond(response)
