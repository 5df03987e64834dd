"""Answers queries from the published metadata: APIs and features, addresses of the controllers, settings.

Source: Kafka's ControllerApis (handleApiVersionsRequest, handleDescribeCluster, handleDescribeConfigsRequest), SimpleApiVersionManager,
FeaturesPublisher, ControllerRegistrationsPublisher, DynamicConfigPublisher, AuthHelper.computeDescribeClusterResponse.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.broker.apis.api_versions import check_software
from kops.broker.apis.cluster.describe_configs import describe_configs
from kops.config.broker.dynamic import DynamicConfig
from kops.errors import ApiError
from kops.metadata.controller.cluster.feature_versions import KRAFT_FEATURE, production_features
from kops.metadata.image.metadata_cache import error_code
from kops.metadata.image.metadata_image import EMPTY
from kops.metadata.image.parts.configs import ResourceType
from kops.metadata.metadata_version import FEATURE_NAME, MINIMUM
from kops.protocol.api_keys import Listener
from kops.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
)
from kops.protocol.messages.api_versions_response import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey
from kops.protocol.messages.describe_cluster_response import DescribeClusterBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.socket_server import RequestContext
    from kops.broker.quorum.shared_server import SharedServer
    from kops.config.broker.dynamic import Change
    from kops.metadata.image.batch_loader import Manifest
    from kops.metadata.image.metadata_delta import MetadataDelta
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.protocol.api_keys import ApiKey

log = logging.getLogger(__name__)

_FEATURES_FROM_0_SINCE: Final = 4
_BROKERS, _CONTROLLERS = 1, 2
_NO_LEADER: Final = -1


class Questions:
    """A Publisher that keeps the newest features, controllers and settings. Calls `on_settings` when the node's own settings have
    changed."""

    def __init__(self, shared: SharedServer, served: tuple[ApiKey, ...], on_settings: Callable[[Change], None]) -> None:
        self._shared = shared
        self._on_settings = on_settings
        self._settings = DynamicConfig(shared.config)
        unstable = shared.config["unstable.api.versions.enable"]
        versions = [(api.key, api.advertised_versions(Listener.CONTROLLER, unstable=unstable)) for api in served]
        self._apis = [ApiVersion(key, known.start, known.stop - 1) for key, known in versions]
        self._levels = {FEATURE_NAME: MINIMUM.level}
        self._levels_offset = -1
        self._image = EMPTY

    def start(self) -> None:
        """Begin to receive metadata."""
        self._shared.install(self)

    def close(self) -> None:
        """Receive no more metadata."""
        self._image = EMPTY

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        """Keep the new features, controllers and settings."""
        self._image = image
        version = image.features.metadata_version
        if delta.has("features") and version is not None:
            levels = {**image.features.levels, FEATURE_NAME: version.level}
            if levels != self._levels or self._levels_offset < 0:
                self._levels, self._levels_offset = levels, image.offset
        if delta.has("configs"):
            self._take_settings(image)

    def _take_settings(self, image: MetadataImage) -> None:
        """Keep the new settings of all nodes and of this node. As in Kafka, invalid settings are logged and change nothing."""
        for name, known, update in (
            ("", self._settings.cluster, self._settings.update_cluster),
            (str(self._shared.config.node_id), self._settings.broker, self._settings.update_broker),
        ):
            settings = dict(image.configs.of(ResourceType.BROKER, name))
            if settings == known:
                continue
            try:
                change = update(settings)
            except ApiError as error:
                log.error("Settings of %s could not be applied: %s", name or "all nodes", error.__cause__ or error)
                continue
            if change.changed:
                self._on_settings(change)

    def describe_configs(self, context: RequestContext) -> None:
        """Answer with the settings of topics and of this node."""
        request = context.request.message
        assert isinstance(request, DescribeConfigsRequest)
        context.respond(describe_configs(request, self._shared.config.node_id, self._settings, self._image))

    def api_versions(self, context: RequestContext) -> None:
        """Answer with the served APIs, and the features of the node and the cluster."""
        request = context.request
        assert isinstance(request.message, ApiVersionsRequest)
        check_software(request.message, request.version)
        levels = {**self._levels, KRAFT_FEATURE: self._shared.raft.node.kraft_version}
        context.respond(
            ApiVersionsResponse(
                api_keys=self._apis,
                supported_features=[
                    SupportedFeatureKey(name, known.min, known.max)
                    for name, known in production_features().items()
                    if known.min or request.version >= _FEATURES_FROM_0_SINCE
                ],
                finalized_features_epoch=self._levels_offset,
                finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level],
            )
        )

    def describe_cluster(self, context: RequestContext) -> None:
        """Answer with the addresses of the controllers. Raises ApiError UNSUPPORTED_VERSION while controllers can't register."""
        request = context.request.message
        assert isinstance(request, DescribeClusterRequest)
        image = self._image
        version = image.features.metadata_version
        if version is None or not version.has_controller_registration:
            raise ApiError("UNSUPPORTED_VERSION", "Direct-to-controller communication is not supported with the current MetadataVersion.")
        error = _endpoint_error(request.endpoint_type, context.request.version)
        if error is not None:
            context.respond(error)
            return
        found = [(node.id, node.listeners.get(context.listener_name)) for node in image.cluster.controllers.values()]
        leader_id = self._shared.raft.node.leader_and_epoch.leader_id
        nodes = [DescribeClusterBroker(node_id, endpoint.host, endpoint.port) for node_id, endpoint in found if endpoint is not None]
        known = any(node.broker_id == leader_id for node in nodes)
        context.respond(
            DescribeClusterResponse(
                endpoint_type=_CONTROLLERS,
                cluster_id=self._shared.cluster_id,
                controller_id=leader_id if known and leader_id is not None else _NO_LEADER,
                brokers=nodes,
            )
        )


def _endpoint_error(wanted: int, version: int) -> DescribeClusterResponse | None:
    """The error response if the request does not ask for controllers; else None."""
    if wanted == _CONTROLLERS:
        return None
    if wanted == _BROKERS:
        name = "MISMATCHED_ENDPOINT_TYPE"
        message = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
    else:
        name, message = "UNSUPPORTED_ENDPOINT_TYPE", f"Unsupported endpoint type {wanted}"
    return DescribeClusterResponse(error_code=error_code("INVALID_REQUEST" if version == 0 else name), error_message=message)
