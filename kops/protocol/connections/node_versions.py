"""The API versions and features that a node reports. Source: Kafka's NodeApiVersions and ApiVersionsResponse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kops.errors import ApiError
from kops.protocol import api_keys

if TYPE_CHECKING:
    from kops.protocol.messages import ApiVersionsResponse


class FinalizedFeatures(NamedTuple):
    """The levels of a cluster's finalized features, and the epoch of this state: -1 if it is not known."""

    epoch: int
    levels: Mapping[str, int]


class NodeVersions:
    """The contents of a node's ApiVersions response: versions of its APIs, its features."""

    def __init__(self, response: ApiVersionsResponse) -> None:
        self.response = response
        self._latest: dict[tuple[int, range | None], int] = {}
        self._ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    def latest(self, api_key: int, allowed: range | None = None) -> int:
        """Return the latest version of an API that both sides know, within `allowed` versions. Raises ApiError (UNSUPPORTED_VERSION) if
        there is none."""
        found = self._latest.get((api_key, allowed))
        return self._find_latest(api_key, allowed) if found is None else found

    def _find_latest(self, api_key: int, allowed: range | None) -> int:
        api = api_keys.by_key(api_key)
        ours = api.versions if allowed is None else allowed
        known = self._ranges.get(api_key)
        if known is None:
            raise ApiError("UNSUPPORTED_VERSION", f"The node does not support {api.constant}")
        first, last = max(known[0], ours.start), min(known[1], ours.stop - 1)
        if first > last:
            reason = f"The node does not support {api.constant} with version in range [{ours.start},{ours.stop - 1}]."
            raise ApiError("UNSUPPORTED_VERSION", f"{reason} The supported range is [{known[0]},{known[1]}].")
        self._latest[api_key, allowed] = last
        return last

    def finalized_feature(self, name: str) -> int:
        """Return the level of a finalized feature, or 0 if it has none."""
        return next((entry.max_version_level for entry in self.response.finalized_features if entry.name == name), 0)

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """The finalized features."""
        levels = {entry.name: entry.max_version_level for entry in self.response.finalized_features}
        return FinalizedFeatures(self.response.finalized_features_epoch, levels)

    def known(self, api_key: int) -> int:
        """Return the latest version of an API that the node knows, or -1."""
        return self._ranges.get(api_key, (0, -1))[1]
