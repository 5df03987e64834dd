"""Settings of topics, brokers, groups and client metrics: describe, change, list which have any.

Source: Kafka's KafkaAdminClient (describeConfigs, incrementalAlterConfigs, listConfigResources, listClientMetricsResources),
ConfigResource, ConfigEntry, AlterConfigOp.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import always, ask, ask_all, call, deadline_ms, in_order, is_a, of_controller
from kops.client.admin.core.results import Results, error_of, raise_error
from kops.client.admin.core.values import check_config
from kops.client.errors import KafkaError
from kops.errors import UsageError
from kops.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kops.protocol.messages.describe_configs_request import DescribeConfigsResource
from kops.protocol.messages.incremental_alter_configs_request import AlterableConfig, AlterConfigsResource

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.messages.describe_configs_response import DescribeConfigsResult


class ConfigResourceType(IntEnum):
    """The kinds of things that have settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ConfigResourceType:
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    """Something that has settings. A broker's name is its id; an empty name stands for all brokers."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """The settings of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """The settings of a broker, or the defaults of all brokers."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> ConfigResource:
        """The levels of a broker's loggers."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """The settings of a group."""
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """A subscription to metrics of clients."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """The type of a value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    """A setting that applies if those before it are not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting. The value of a sensitive one is None. Synonyms and documentation are there if they were asked for."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterConfigOpType(IntEnum):
    """How a setting changes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfigOp(NamedTuple):
    """A change of a setting. `append` and `subtract` change lists; `delete` brings the default back."""

    name: str
    value: str | None
    op_type: AlterConfigOpType = AlterConfigOpType.SET

    @classmethod
    def set(cls, name: str, value: str) -> AlterConfigOp:
        """Give a setting this value."""
        return cls(name, value)

    @classmethod
    def delete(cls, name: str) -> AlterConfigOp:
        """Take a setting back."""
        return cls(name, None, AlterConfigOpType.DELETE)

    @classmethod
    def append(cls, name: str, value: str) -> AlterConfigOp:
        """Add elements to a list."""
        return cls(name, value, AlterConfigOpType.APPEND)

    @classmethod
    def subtract(cls, name: str, value: str) -> AlterConfigOp:
        """Remove elements from a list."""
        return cls(name, value, AlterConfigOpType.SUBTRACT)


def _check_resource(given: object) -> None:
    if not isinstance(given, ConfigResource):
        raise UsageError(f"{given!r} is not a resource; allowed: ConfigResource, such as ConfigResource.topic('orders')")


def _node_of(resource: ConfigResource) -> int | None:
    """Return the node that has to be asked for a resource, or None for any."""
    if resource.type is ConfigResourceType.BROKER_LOGGER or (resource.type is ConfigResourceType.BROKER and resource.name):
        if not resource.name.isdecimal():
            raise UsageError(f"{resource.name!r} is not the id of a broker; allowed: 0 or more")
        return int(resource.name)
    return None


def describe_configs(
    client: Client,
    resources: Iterable[ConfigResource],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    timeout: float | None = None,
) -> Steps[Results[ConfigResource, dict[str, ConfigEntry]]]:
    """Return the settings of resources by name, also those with default values. A broker is asked for its own settings."""
    wanted = list(dict.fromkeys([resources] if isinstance(resources, ConfigResource) else resources))
    for resource in wanted:
        _check_resource(resource)
    deadline = deadline_ms(client, timeout)
    by_node: dict[int | None, list[ConfigResource]] = {}
    for resource in wanted:
        by_node.setdefault(_node_of(resource), []).append(resource)
    handle = is_a(DescribeConfigsResponse)
    calls = {}
    for node, some in by_node.items():
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=one.type, resource_name=one.name, configuration_keys=None) for one in some],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        to = Ask.BROKER_OR_CONTROLLER if node is None else node
        calls[node] = call(client, "describe configs", to, always(request), handle, deadline, asks_controllers=True)
    answers = yield from ask_all(calls)
    found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    for node, answer in answers.items():
        if isinstance(answer, KafkaError):
            found |= dict.fromkeys(by_node[node], answer)
            continue
        for one in answer.results:
            key = ConfigResource(ConfigResourceType(one.resource_type), one.resource_name)
            found[key] = error_of(one.error_code, one.error_message) or _entries(one)
    return in_order("describe configs", wanted, found)


def _entries(result: DescribeConfigsResult) -> dict[str, ConfigEntry]:
    return {
        one.name: ConfigEntry(
            one.name,
            one.value,
            ConfigSource(one.config_source),
            one.is_sensitive,
            one.read_only,
            tuple(ConfigSynonym(other.name, other.value, ConfigSource(other.source)) for other in one.synonyms),
            ConfigType(one.config_type),
            one.documentation,
        )
        for one in result.configs
    }


def incremental_alter_configs(
    client: Client,
    configs: Mapping[ConfigResource, Iterable[AlterConfigOp]],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> Steps[Results[ConfigResource, None]]:
    """Change settings, and leave all others as they are. The changes of one resource are made together, or none of them."""
    changes = {resource: list(operations) for resource, operations in configs.items()}
    for resource in changes:
        _check_resource(resource)
    for op in itertools.chain.from_iterable(changes.values()):
        if not isinstance(op, AlterConfigOp):
            raise UsageError(f"{op!r} is not a change of a setting; allowed: AlterConfigOp")
        check_config(op.name, op.value)
    deadline = deadline_ms(client, timeout)
    groups: dict[ConfigResource | None, list[ConfigResource]] = {}
    nodes: dict[ConfigResource | None, int | None] = {}
    for resource in changes:
        node = _node_of(resource)
        if client.asks_controllers and resource.type is not ConfigResourceType.BROKER_LOGGER:
            node = None
        group = None if node is None else resource
        groups.setdefault(group, []).append(resource)
        nodes[group] = node
    handle = of_controller(client, IncrementalAlterConfigsResponse, lambda response: (one.error_code for one in response.responses))
    calls = {}
    for group, some in groups.items():
        entries = [
            AlterConfigsResource(
                resource_type=one.type,
                resource_name=one.name,
                configs=[AlterableConfig(name=op.name, config_operation=op.op_type, value=op.value) for op in changes[one]],
            )
            for one in some
        ]
        request = IncrementalAlterConfigsRequest(resources=entries, validate_only=validate_only)
        node = nodes[group]
        to = Ask.BROKER_OR_CONTROLLER if node is None else node
        calls[group] = call(client, "alter configs", to, always(request), handle, deadline, asks_controllers=True)
    answers = yield from ask_all(calls)
    found: dict[ConfigResource, KafkaError | None] = {}
    for group, answer in answers.items():
        if isinstance(answer, KafkaError):
            found |= dict.fromkeys(groups[group], answer)
            continue
        for result in answer.responses:
            key = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
            found[key] = error_of(result.error_code, result.error_message)
    return in_order("alter configs", changes, found)


def list_config_resources(
    client: Client, config_resource_types: Iterable[ConfigResourceType] = (), *, timeout: float | None = None
) -> Steps[list[ConfigResource]]:
    """Return what may have settings: all resources of these types, or of all types."""
    request = ListConfigResourcesRequest(resource_types=[int(one) for one in config_resource_types])
    deadline = deadline_ms(client, timeout)
    handle = is_a(ListConfigResourcesResponse)
    response = yield from ask(client, "list config resources", Ask.BROKER, lambda _: request, handle, deadline)
    raise_error(response.error_code)
    return sorted(ConfigResource(ConfigResourceType(one.resource_type), one.resource_name) for one in response.config_resources)
