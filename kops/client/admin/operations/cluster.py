"""The cluster: its nodes, brokers that leave for good, features.

Source: Kafka's KafkaAdminClient (describeCluster, unregisterBroker, describeFeatures, updateFeatures), FeatureUpdate, FeatureMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import ask, deadline_ms, in_order, is_a, of_controller
from kops.client.admin.core.results import Results, error_of, raise_error
from kops.client.admin.core.values import AclOperation, authorized_operations
from kops.client.errors import KafkaError
from kops.client.node import Node
from kops.errors import ApiError, UsageError
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kops.protocol.messages.update_features_request import FeatureUpdateKey

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client
    from kops.protocol.declaration import Message

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_WITH_FENCED: Final = 2  # version of DescribeCluster


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster. A fenced broker takes no part at the moment."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster: its brokers, or its controllers for a client of controllers. `authorized_operations` is None unless asked for."""

    cluster_id: str | None
    controller: ClusterNode | None
    nodes: tuple[ClusterNode, ...]
    authorized_operations: frozenset[AclOperation] | None


class UpgradeType(IntEnum):
    """How the version of a feature may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The version that a feature gets. Version 0 disables it."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The first and the last version."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The features in force in the cluster, and those that the node supports. The epoch is None if the node does not know it."""

    finalized_features: dict[str, VersionRange]
    finalized_features_epoch: int | None
    supported_features: dict[str, VersionRange]


def describe_cluster(
    client: Client, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False, timeout: float | None = None
) -> Steps[ClusterDescription]:
    """Describe the cluster. `include_fenced_brokers` is not possible with `bootstrap.controllers`."""
    if client.asks_controllers and include_fenced_brokers:
        raise UsageError("include_fenced_brokers: not with bootstrap.controllers")
    deadline = deadline_ms(client, timeout)
    try:
        return (yield from _describe(client, include_authorized_operations, include_fenced_brokers, deadline))
    except KafkaError as error:
        if error.name != "UNSUPPORTED_VERSION" or client.asks_controllers or include_fenced_brokers:
            raise
    response = yield from _metadata(client, "describe cluster", include_authorized_operations, deadline)
    nodes = tuple(ClusterNode(one.node_id, one.host, one.port, one.rack) for one in response.brokers)
    controller = next((node for node in nodes if node.id == response.controller_id), None)
    return ClusterDescription(response.cluster_id, controller, nodes, authorized_operations(response.cluster_authorized_operations))


def _describe(client: Client, with_operations: bool, with_fenced: bool, deadline: float) -> Steps[ClusterDescription]:
    def build(_: int) -> Message:
        return DescribeClusterRequest(
            include_cluster_authorized_operations=with_operations,
            endpoint_type=_CONTROLLERS if client.asks_controllers else _BROKERS,
            include_fenced_brokers=with_fenced,
        )

    versions = range(_WITH_FENCED if with_fenced else 0, DescribeClusterRequest.VERSIONS.stop)
    handle = is_a(DescribeClusterResponse)
    response = yield from ask(client, "describe cluster", Ask.BROKER_OR_CONTROLLER, build, handle, deadline, versions=versions)
    raise_error(response.error_code, response.error_message)
    nodes = tuple(ClusterNode(one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in response.brokers)
    controller = next((node for node in nodes if node.id == response.controller_id), None)
    return ClusterDescription(response.cluster_id, controller, nodes, authorized_operations(response.cluster_authorized_operations))


def _metadata(client: Client, name: str, with_operations: bool, deadline: float) -> Steps[MetadataResponse]:
    def build(_: int) -> Message:
        return MetadataRequest(topics=[], include_cluster_authorized_operations=with_operations)

    response = yield from ask(client, name, Ask.BROKER, build, is_a(MetadataResponse), deadline)
    raise_error(response.error_code)
    return response


def fetch_nodes(client: Client, name: str, deadline: float) -> Steps[dict[int, Node]]:
    """Return the brokers by id."""
    response = yield from _metadata(client, name, False, deadline)
    return {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}


def unregister_broker(client: Client, broker_id: int, *, timeout: float | None = None) -> Steps[None]:
    """Remove a broker that does not run from the cluster, so that it no longer counts when features are upgraded."""

    def handle(response: Message) -> UnregisterBrokerResponse:
        assert isinstance(response, UnregisterBrokerResponse)
        if by_code(response.error_code).name == "REQUEST_TIMED_OUT":
            raise ApiError("REQUEST_TIMED_OUT", response.error_message or "")
        return response

    deadline = deadline_ms(client, timeout)
    request = UnregisterBrokerRequest(broker_id=broker_id)
    response = yield from ask(client, "unregister broker", Ask.BROKER_OR_CONTROLLER, lambda _: request, handle, deadline)
    raise_error(response.error_code, response.error_message)


def describe_features(client: Client, *, node_id: int | None = None, timeout: float | None = None) -> Steps[FeatureMetadata]:
    """Return the features of the cluster as some node knows them, or as the node `node_id` does."""
    deadline = deadline_ms(client, timeout)
    node = Ask.BROKER_OR_CONTROLLER if node_id is None else node_id

    def build(_: int) -> Message:
        return ApiVersionsRequest(client_software_name="kops", client_software_version="unknown")

    response = yield from ask(client, "describe features", node, build, is_a(ApiVersionsResponse), deadline, asks_controllers=True)
    raise_error(response.error_code)
    return FeatureMetadata(
        {one.name: VersionRange(one.min_version_level, one.max_version_level) for one in response.finalized_features},
        response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
        {one.name: VersionRange(one.min_version, one.max_version) for one in response.supported_features},
    )


def update_features(
    client: Client, feature_updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False, timeout: float | None = None
) -> Steps[Results[str, None]]:
    """Change the versions of features. If one change is not possible, none is made."""
    if not feature_updates or not all(name.strip() for name in feature_updates):
        raise UsageError("feature_updates: allowed: at least one feature with a name")

    def build(timeout_ms: int) -> Message:
        updates = [
            FeatureUpdateKey(feature=name, max_version_level=one.max_version_level, upgrade_type=one.upgrade_type)
            for name, one in feature_updates.items()
        ]
        return UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=updates, validate_only=validate_only)

    deadline = deadline_ms(client, timeout)
    handle = of_controller(client, UpdateFeaturesResponse, lambda response: (response.error_code,))
    response = yield from ask(client, "update features", Ask.CONTROLLER, build, handle, deadline)
    error = error_of(response.error_code, response.error_message)
    if error is not None or not response.results:
        return Results(dict.fromkeys(feature_updates, error))
    found = {one.feature: error_of(one.error_code, one.error_message) for one in response.results}
    return in_order("update features", feature_updates, found)
