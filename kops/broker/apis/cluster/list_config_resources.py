"""ListConfigResources: answers with the resources that have settings (KIP-1142). Source: Kafka's KafkaApis.handleListConfigResources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from kops.protocol.messages.list_config_resources_response import ConfigResource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts

_ONLY_CLIENT_METRICS: Final = (ResourceType.CLIENT_METRICS,)
_ALL: Final = (ResourceType.GROUP, ResourceType.CLIENT_METRICS, ResourceType.BROKER_LOGGER, ResourceType.BROKER, ResourceType.TOPIC)


def handle_list_config_resources(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once. Raises ApiError UNSUPPORTED_VERSION for a type that the request's version does not have."""
    request = context.request.message
    assert isinstance(request, ListConfigResourcesRequest)
    supported = _ALL if context.request.version else _ONLY_CLIENT_METRICS
    if not {one.value for one in supported}.issuperset(request.resource_types):
        raise ApiError("UNSUPPORTED_VERSION")
    wanted = request.resource_types or [one.value for one in supported]
    told = [
        ConfigResource(name, kind.value)
        for kind in supported
        if kind.value in wanted
        for name in _names(parts, kind, context.listener_name)
    ]
    context.respond(ListConfigResourcesResponse(config_resources=told))


def _names(parts: BrokerParts, kind: ResourceType, listener: str) -> Iterable[str]:
    if kind is ResourceType.TOPIC:
        return parts.cache.image.topics.by_name
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(node.id) for node in parts.cache.broker_nodes(listener)]
    return sorted(name for resource, name in parts.cache.image.configs.resources if resource is kind)
