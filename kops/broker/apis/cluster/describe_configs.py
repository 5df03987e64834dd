"""DescribeConfigs: answers with settings, their values, the sources of the values, and the values that they override.

Source: Kafka's ConfigHelper. A broker describes itself and the defaults of all brokers, but not other brokers. Kafka's documentation texts
of settings are not included, even if requested. There are no loggers to describe (see `kops.broker.apis.cluster.alter_configs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.config.broker.describe import (
    DescribedSetting,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from kops.config.values.java import NumberFormatError, parse_int
from kops.config.values.topic_names import check_topic_name
from kops.errors import ApiError
from kops.metadata.controller.base.result import code, text
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from kops.protocol.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.config.broker.dynamic import DynamicConfig
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.protocol.messages.describe_configs_request import DescribeConfigsResource


def handle_describe_configs(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once. The errors are those of `describe_configs`."""
    request = context.request.message
    assert isinstance(request, DescribeConfigsRequest)
    context.respond(describe_configs(request, parts.node_id, parts.dynamic_config.settings, parts.cache.image))


def describe_configs(request: DescribeConfigsRequest, node_id: int, config: DynamicConfig, image: MetadataImage) -> DescribeConfigsResponse:
    """Return the answer of a broker or controller. Raises ApiError INVALID_REQUEST for an unknown type of resource. Any other error belongs
    to one resource."""
    for resource in request.resources:
        if ResourceType(resource.resource_type) is ResourceType.UNKNOWN:
            raise ApiError("INVALID_REQUEST", f"Unexpected resource type UNKNOWN for resource {resource.resource_name}")
    teller = _Teller(node_id, config, image)
    results = [_described(teller, resource, include_synonyms=request.include_synonyms) for resource in request.resources]
    return DescribeConfigsResponse(results=results)


class _Teller(NamedTuple):
    """The answering node, with its data."""

    node_id: int
    config: DynamicConfig
    image: MetadataImage


def _described(teller: _Teller, resource: DescribeConfigsResource, *, include_synonyms: bool) -> DescribeConfigsResult:
    told = DescribeConfigsResult(0, "", resource.resource_type, resource.resource_name)
    try:
        settings = _settings(teller, resource)
    except ApiError as error:
        told.error_code, told.error_message = code(error), text(error) or ""
    else:
        told.configs = [_entry(setting, include_synonyms=include_synonyms) for setting in settings]
    return told


def _settings(teller: _Teller, resource: DescribeConfigsResource) -> list[DescribedSetting]:
    name, names = resource.resource_name, resource.configuration_keys
    _, config, image = teller
    match ResourceType(resource.resource_type):
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in image.topics.by_name:
                raise ApiError("UNKNOWN_TOPIC_OR_PARTITION")
            return describe_topic(config, image.configs.of(ResourceType.TOPIC, name), names)
        case ResourceType.BROKER:
            if not name:
                return describe_cluster(config, names)
            _check_broker_id(teller.node_id, name, "expected {} or empty string, but received {}")
            return describe_broker(config, names)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise ApiError("INVALID_REQUEST", "Broker id must not be empty")
            _check_broker_id(teller.node_id, name, "expected {} but received {}")
            return []
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise ApiError("INVALID_REQUEST", "Client metrics subscription name must not be empty")
            return describe_client_metrics(image.configs.of(ResourceType.CLIENT_METRICS, name), names)
        case ResourceType.GROUP:
            if not name:
                raise ApiError("INVALID_REQUEST", "Group name must not be empty")
            return describe_group(config, image.configs.of(ResourceType.GROUP, name), names)
        case other:
            raise ApiError("INVALID_REQUEST", f"Unsupported resource type: {other.name}")


def _check_broker_id(node_id: int, name: str, why: str) -> None:
    try:
        broker_id = parse_int(name)
    except NumberFormatError as error:
        raise ApiError("INVALID_REQUEST", f"Broker id must be an integer, but it is: {name}") from error
    if broker_id != node_id:
        raise ApiError("INVALID_REQUEST", f"Unexpected broker id, {why.format(node_id, name)}")


def _entry(setting: DescribedSetting, *, include_synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        setting.name,
        setting.value,
        setting.is_read_only,
        setting.source,
        setting.is_sensitive,
        [DescribeConfigsSynonym(*synonym) for synonym in setting.synonyms] if include_synonyms else [],
        setting.type_id,
        None,
    )
