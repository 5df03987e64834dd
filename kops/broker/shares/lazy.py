"""Creates the share partition manager when it is first needed, so that a node without share groups starts no slower.

Source: Kafka's BrokerServer (SharePartitionManager, ShareSessionCache), and BrokerMetadataPublisher for `share.version`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.shares.manager import SharePartitionManager
    from kops.metadata.image.metadata_cache import MetadataCache

FEATURE: Final = "share.version"


class Shares:
    """The manager of a broker, created by the first call of `manager`."""

    def __init__(self, cache: MetadataCache, make: Callable[[], SharePartitionManager]) -> None:
        self._cache = cache
        self._make = make
        self.known: SharePartitionManager | None = None
        """The manager, or None before its creation."""

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster's `share.version` supports share groups."""
        return self._cache.image.features.levels.get(FEATURE, 0) >= 1

    @property
    def manager(self) -> SharePartitionManager:
        """The manager."""
        if self.known is None:
            self.known = self._make()
        return self.known

    def on_disconnect(self, connection_id: str) -> None:
        """Handle the close of a client's connection."""
        if self.known is not None:
            self.known.sessions.on_disconnect(connection_id)

    def close(self) -> None:
        """Close the manager, if it was created."""
        if self.known is not None:
            self.known.close()

    def on_metadata_update(self) -> None:
        """Handle new metadata: share groups may have been disabled."""
        if self.known is not None and not self.is_enabled:
            self.known.switch_off()
