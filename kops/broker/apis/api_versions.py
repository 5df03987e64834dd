"""ApiVersions: the served APIs with their versions, and the features of node and cluster.

Source: Kafka's DefaultApiVersionManager, ApiVersionsResponse, ApiVersionsRequest.isValid (KIP-511, KIP-584); KafkaApis for the order of the
checks. The connection itself answers a request of an unknown version (`kops.protocol.connections.connection`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.controller.cluster.feature_versions import production_features
from kops.protocol.api_keys import Listener
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from kops.protocol.messages.api_versions_response import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey

if TYPE_CHECKING:
    from kops.broker.network.socket_server import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.protocol.api_keys import ApiKey
    from kops.protocol.connections.node_versions import NodeVersions

_SOFTWARE_SINCE: Final = 3
_FEATURES_FROM_0_SINCE: Final = 4  # Older Java clients cannot read a feature that begins at level 0 (KAFKA-17492).
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer_api_versions(parts: BrokerParts, context: RequestContext, served: list[ApiKey]) -> None:
    """Answer at once, with the versions of `served`. Raises ApiError INVALID_REQUEST if the name of the client's software is invalid."""
    request, version = context.request.message, context.request.version
    assert isinstance(request, ApiVersionsRequest)
    check_software(request, version)
    unstable = parts.config["unstable.api.versions.enable"]
    response = ApiVersionsResponse(api_keys=api_versions(served, parts.forwarding.controller_versions, unstable=unstable))
    add_features(response, parts.cache, parts.kraft_version(), version)
    context.respond(response)


def check_software(request: ApiVersionsRequest, version: int) -> None:
    """Raise ApiError INVALID_REQUEST if the name or version of the client's software is invalid."""
    names = (request.client_software_name, request.client_software_version)
    if version >= _SOFTWARE_SINCE and not all(map(_SOFTWARE.fullmatch, names)):
        raise ApiError("INVALID_REQUEST")


def api_versions(apis: list[ApiKey], controller: NodeVersions | None, *, unstable: bool) -> list[ApiVersion]:
    """The versions of these APIs. For forwarded APIs, while the controller is connected, only versions that it also supports."""
    known = None if controller is None else {entry.api_key: entry for entry in controller.response.api_keys}
    told = []
    for api in apis:
        versions = api.advertised_versions(Listener.BROKER, unstable=unstable)
        first, last = versions.start, versions.stop - 1
        if api.forwardable and known is not None:
            theirs = known.get(api.key)
            if theirs is None:
                continue
            first, last = max(first, theirs.min_version), min(last, theirs.max_version)
        if first <= last:
            told.append(ApiVersion(api.key, first, last))
    return told


def add_features(response: ApiVersionsResponse, cache: MetadataCache, kraft_version: int, version: int) -> None:
    """Add the features that the node supports and those that the cluster has finalized. Their epoch is the offset of the metadata."""
    response.supported_features = [
        SupportedFeatureKey(name, levels.min, levels.max)
        for name, levels in production_features().items()
        if levels.min or version >= _FEATURES_FROM_0_SINCE
    ]
    finalized = cache.finalized_features(kraft_version)
    response.finalized_features = [FinalizedFeatureKey(name, level, level) for name, level in finalized.items() if level]
    response.finalized_features_epoch = cache.image.offset
