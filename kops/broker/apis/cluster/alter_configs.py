"""AlterConfigs and IncrementalAlterConfigs: the broker checks its own settings, the controller handles the rest.

Source: Kafka's ConfigAdminManager, KafkaApis.handleAlterConfigsRequest and handleIncrementalAlterConfigsRequest, RuntimeLoggerManager. Like
a Kafka without log4j's core (NoOpController), kops has no loggers whose level a client could change.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kops.broker.controller_link.forwarding import respond_forwarded
from kops.config.values.java import NumberFormatError, parse_int
from kops.errors import ApiError
from kops.metadata.controller.base.result import code, text
from kops.metadata.image.metadata_cache import error_code
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    alter_configs_response,
    incremental_alter_configs_response,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.declaration import Message

Outcome = tuple[int, str | None]
_DONE: Final[Outcome] = (0, None)
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OPERATIONS: Final = ("SET", "DELETE", "APPEND", "SUBTRACT")
_LEFT_TO_CONTROLLER: Final = (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP)


def handle_alter_configs(parts: BrokerParts, context: RequestContext) -> None:
    """Answers when the controller has, or at once where nothing is left for it."""
    request = context.request.message
    assert isinstance(request, AlterConfigsRequest)
    checked = _check(parts, request.resources, lambda resource: _check_legacy(parts, resource))

    def answer(told: Message | None) -> None:
        assert told is None or isinstance(told, AlterConfigsResponse)
        made = alter_configs_response.AlterConfigsResourceResponse
        results = None if told is None else _put_together(request.resources, checked, told.responses)
        response = None if results is None else AlterConfigsResponse(responses=[made(*result) for result in results])
        respond_forwarded(context, response)

    left = [resource for resource in request.resources if id(resource) not in checked]
    if left:
        parts.forwarding.forward(context, answer, AlterConfigsRequest(left, request.validate_only))
    else:
        answer(AlterConfigsResponse())


def handle_incremental_alter_configs(parts: BrokerParts, context: RequestContext) -> None:
    """Answers when the controller has, or at once where nothing is left for it."""
    request = context.request.message
    assert isinstance(request, IncrementalAlterConfigsRequest)
    checked = _check(parts, request.resources, lambda resource: _check_incremental(parts, resource))

    def answer(told: Message | None) -> None:
        assert told is None or isinstance(told, IncrementalAlterConfigsResponse)
        made = incremental_alter_configs_response.AlterConfigsResourceResponse
        results = None if told is None else _put_together(request.resources, checked, told.responses)
        response = None if results is None else IncrementalAlterConfigsResponse(responses=[made(*result) for result in results])
        respond_forwarded(context, response)

    left = [resource for resource in request.resources if id(resource) not in checked]
    if left:
        parts.forwarding.forward(context, answer, IncrementalAlterConfigsRequest(left, request.validate_only))
    else:
        answer(IncrementalAlterConfigsResponse())


def _check(parts: BrokerParts, resources: list[Any], check: Callable[[Any], bool]) -> dict[int, Outcome]:
    """The outcomes decided here, by the resource's `id`. `check` returns whether a resource is done; an error that it raises is an outcome,
    too."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    checked: dict[int, Outcome] = {}
    for resource in resources:
        if counts[resource.resource_type, resource.resource_name] > 1:
            checked[id(resource)] = (error_code("INVALID_REQUEST"), "Each resource must appear at most once.")
            continue
        try:
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise ApiError("INVALID_REQUEST", "Error due to duplicate config keys")
            if check(resource):
                checked[id(resource)] = _DONE
        except ApiError as error:
            checked[id(resource)] = (code(error), text(error))
    return checked


def _put_together(resources: list[Any], checked: dict[int, Outcome], told: list[Any]) -> list[tuple[int, str | None, int, str]]:
    """The results for all resources in their order: those decided here, and those from the controller."""
    by_resource = {(one.resource_name, one.resource_type): (one.error_code, one.error_message) for one in told}
    results = []
    for resource in resources:
        outcome = checked.get(id(resource)) or by_resource.get((resource.resource_name, resource.resource_type))
        number, why = outcome or (error_code("UNKNOWN_SERVER_ERROR"), None)
        results.append((number, why, resource.resource_type, resource.resource_name))
    return results


def _check_legacy(parts: BrokerParts, resource: Any) -> bool:
    _refuse_nulls([config.name for config in resource.configs if config.value is None])
    kind = ResourceType(resource.resource_type)
    if kind is ResourceType.BROKER:
        _check_broker_id(parts, resource.resource_name)
        parts.dynamic_config.validate({config.name: config.value for config in resource.configs}, per_broker=bool(resource.resource_name))
    elif kind not in _LEFT_TO_CONTROLLER:
        raise ApiError("INVALID_REQUEST", f"Unknown resource type {resource.resource_type}")
    return False


def _check_incremental(parts: BrokerParts, resource: Any) -> bool:
    _refuse_nulls([config.name for config in resource.configs if config.value is None and config.config_operation != _DELETE])
    kind = ResourceType(resource.resource_type)
    if kind is ResourceType.BROKER_LOGGER:
        _check_loggers(parts, resource)
        return True
    if kind is ResourceType.BROKER:
        _check_broker_id(parts, resource.resource_name)
        _check_broker_change(parts, resource)
    elif kind not in _LEFT_TO_CONTROLLER:
        raise ApiError("INVALID_REQUEST", f"Unknown resource type {resource.resource_type}")
    return False


def _refuse_nulls(names: list[str]) -> None:
    if names:
        raise ApiError("INVALID_REQUEST", f"Null value not supported for : {', '.join(names)}")


def _check_broker_id(parts: BrokerParts, name: str) -> None:
    """Raise ApiError INVALID_REQUEST unless it is this broker, or empty (the settings of all brokers)."""
    if not name:
        return
    try:
        node_id = parse_int(name)
    except NumberFormatError as error:
        raise ApiError("INVALID_REQUEST", f"Node id must be an integer, but it is: {name}") from error
    if node_id != parts.node_id:
        raise ApiError("INVALID_REQUEST", f"Unexpected broker id, expected {parts.node_id}, but received {name}")


def _check_broker_change(parts: BrokerParts, resource: Any) -> None:
    per_broker = bool(resource.resource_name)
    persistent = parts.cache.config(ResourceType.BROKER, resource.resource_name)
    settings = dict(parts.dynamic_config.from_persistent(persistent, per_broker=per_broker))
    for config in resource.configs:
        if config.config_operation not in range(len(_OPERATIONS)):
            raise ApiError("INVALID_REQUEST", f"Unknown operations type {config.config_operation}")
    for config in resource.configs:
        _apply(parts, settings, config.name, config.config_operation, config.value)
    parts.dynamic_config.validate(settings, per_broker=per_broker)


def _apply(parts: BrokerParts, settings: dict[str, str], name: str, operation: int, value: str | None) -> None:
    """Apply one operation to the settings (ConfigAdminManager.prepareIncrementalConfigs)."""
    if operation == _DELETE:
        settings.pop(name, None)
        return
    assert value is not None
    if operation == _SET:
        settings[name] = value
        return
    key = parts.config.definition.keys.get(name)
    if key is None:
        raise ApiError("INVALID_CONFIG", f"Unknown config name: {name}")
    if key.kind != "list":
        word = _OPERATIONS[operation].lower()
        raise ApiError("INVALID_CONFIG", f"Config value {word} is not allowed for config key: {name}")
    old = settings.get(name, ",".join(key.default) if isinstance(key.default, list) else "")
    kept = old.split(",") if old else []
    elements = value.split(",")
    if operation == _APPEND:
        kept += [element for element in elements if element not in kept]
    else:
        for element in elements:
            if element in kept:
                kept.remove(element)
    settings[name] = ",".join(kept)


def _check_loggers(parts: BrokerParts, resource: Any) -> None:
    name = resource.resource_name
    try:
        node_id = parse_int(name)
    except NumberFormatError as error:
        raise ApiError("INVALID_REQUEST", f"Node id must be an integer, but it is: {name}") from error
    if node_id != parts.node_id:
        raise ApiError("INVALID_REQUEST", f"Unexpected node id. Expected {parts.node_id}, but received {node_id}")
    for config in resource.configs:
        operation = config.config_operation
        if operation in (_SET, _DELETE):
            raise ApiError("INVALID_CONFIG", f"Logger {config.name} does not exist!")
        known = operation in range(len(_OPERATIONS))
        what = f"{_OPERATIONS[operation]} operation" if known else f"Unknown operation type {operation}"
        raise ApiError("INVALID_REQUEST", f"{what} is not allowed for the BROKER_LOGGER resource")
