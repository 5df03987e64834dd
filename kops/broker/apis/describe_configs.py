"""DescribeConfigs: settings with their values, where those come from, and what they would be otherwise.

Source: Kafka's ConfigHelper. A broker tells of itself and of the defaults of all brokers, not of others. The texts about each setting
that can be asked for are Kafka's own, there are none here. No logger can be changed (`kops.broker.apis.alter_configs`), so there is none to
tell of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.config.broker_describe import DescribedSetting, describe_broker, describe_cluster, describe_topic
from kops.config.java import NumberFormatError, parse_int
from kops.errors import ApiError
from kops.metadata.controller.result import code, text
from kops.metadata.controller.topic_names import check_topic_name
from kops.metadata.image.configs import ResourceType
from kops.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from kops.protocol.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym

if TYPE_CHECKING:
    from kops.broker.parts import BrokerParts
    from kops.broker.socket_server import RequestContext
    from kops.protocol.messages.describe_configs_request import DescribeConfigsResource


def handle_describe_configs(parts: BrokerParts, context: RequestContext) -> None:
    """Answers at once; ApiError INVALID_REQUEST where the type of a resource is not known, else each resource has its own error."""
    request = context.request.message
    assert isinstance(request, DescribeConfigsRequest)
    for resource in request.resources:
        if ResourceType(resource.resource_type) is ResourceType.UNKNOWN:
            raise ApiError("INVALID_REQUEST", f"Unexpected resource type UNKNOWN for resource {resource.resource_name}")
    results = [_described(parts, resource, include_synonyms=request.include_synonyms) for resource in request.resources]
    context.respond(DescribeConfigsResponse(results=results))


def _described(parts: BrokerParts, resource: DescribeConfigsResource, *, include_synonyms: bool) -> DescribeConfigsResult:
    told = DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name)
    try:
        settings = _settings(parts, resource)
    except ApiError as error:
        told.error_code, told.error_message = code(error), text(error)
    else:
        told.configs = [_entry(setting, include_synonyms=include_synonyms) for setting in settings]
    return told


def _settings(parts: BrokerParts, resource: DescribeConfigsResource) -> list[DescribedSetting]:
    name, names = resource.resource_name, resource.configuration_keys
    config = parts.dynamic_config.settings
    match ResourceType(resource.resource_type):
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in parts.cache.image.topics.by_name:
                raise ApiError("UNKNOWN_TOPIC_OR_PARTITION")
            return describe_topic(config, parts.cache.config(ResourceType.TOPIC, name), names)
        case ResourceType.BROKER:
            if not name:
                return describe_cluster(config, names)
            _check_broker_id(parts, name, "expected {} or empty string, but received {}")
            return describe_broker(config, names)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise ApiError("INVALID_REQUEST", "Broker id must not be empty")
            _check_broker_id(parts, name, "expected {} but received {}")
            return []
        case other:
            raise ApiError("INVALID_REQUEST", f"Unsupported resource type: {other.name}")


def _check_broker_id(parts: BrokerParts, name: str, why: str) -> None:
    try:
        broker_id = parse_int(name)
    except NumberFormatError as error:
        raise ApiError("INVALID_REQUEST", f"Broker id must be an integer, but it is: {name}") from error
    if broker_id != parts.node_id:
        raise ApiError("INVALID_REQUEST", f"Unexpected broker id, {why.format(parts.node_id, name)}")


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
