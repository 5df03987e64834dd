"""Metadata: answers with brokers, topics, partitions and leaders from the image; creates missing topics if that is allowed.

Source: Kafka's KafkaApis.handleTopicMetadataRequest and getTopicMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.broker.apis.cluster.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kops.metadata.image.metadata_cache import named_topics
from kops.protocol.messages import MetadataRequest

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages import MetadataResponse

_CLUSTER_OPERATIONS_IN: Final = range(8, 11)
_TOPIC_OPERATIONS_SINCE: Final = 8


def handle_metadata(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once. A topic that is being created is reported as unknown, and the client asks again."""
    request, version = context.request.message, context.request.version
    assert isinstance(request, MetadataRequest)
    response = parts.cache.metadata(
        request,
        version,
        context.listener_name,
        cluster_id=parts.cluster_id,
        controller_id=parts.cache.random_alive_broker(lambda count: int(parts.draw() * count)),
    )
    if request.allow_auto_topic_creation and parts.config["auto.create.topics.enable"] and named_topics(request, version) is not None:
        _create_missing(parts, context, response)
    if version in _CLUSTER_OPERATIONS_IN and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if version >= _TOPIC_OPERATIONS_SINCE and request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    context.respond(response)


def _create_missing(parts: BrokerParts, context: RequestContext, response: MetadataResponse) -> None:
    """Start to create missing topics, and replace their entries in the response with the result."""
    missing = [topic.name for topic in response.topics if topic.name is not None and not topic.partitions]
    if missing:
        there = [topic for topic in response.topics if topic.name is None or topic.partitions]
        response.topics = there + parts.auto_topics.create(missing, context)
