"""Creates the share coordinator and the persister of a broker when they are first needed, so that other nodes start no slower.

Source: BrokerServer.createShareStatePersister.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.broker.share_state.coordinator import ShareCoordinator
from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.broker.share_state.end_offsets import EndOffsets
    from kops.broker.share_state.network_persister import NetworkPersister
    from kops.config import BrokerConfig
    from kops.coordinators.share.persister.no_op import NoOpPersister
    from kops.metadata.image.metadata_cache import MetadataCache

_DEFAULT_PERSISTER: Final = "org.apache.kafka.server.share.persister.DefaultStatePersister"
_NO_OP_PERSISTER: Final = "org.apache.kafka.server.share.persister.NoOpStatePersister"


class ShareState:
    """The objects of a broker for the state of share partitions. `draw()` returns random numbers in [0, 1)."""

    def __init__(self, loop: Loop, config: BrokerConfig, replicas: ReplicaManager, cache: MetadataCache, draw: Callable[[], float]) -> None:
        self._loop = loop
        self._config = config
        self._replicas = replicas
        self._cache = cache
        self._draw = draw
        self._persister: NetworkPersister | NoOpPersister | None = None
        self._end_offsets: EndOffsets | None = None
        self._persister_class = config["group.share.persister.class.name"]
        if self._persister_class not in ("", _DEFAULT_PERSISTER, _NO_OP_PERSISTER):
            # Kafka does not accept other classes either.
            raise KopsError(f"Unknown persister specified {self._persister_class}")
        self.coordinator = ShareCoordinator(loop, config, replicas, cache)

    @property
    def persister(self) -> NetworkPersister | NoOpPersister:
        """The persister that stores the state at share coordinators, or the no-op persister, according to the settings."""
        if self._persister is None and self._persister_class != _DEFAULT_PERSISTER:
            from kops.coordinators.share.persister.no_op import NoOpPersister

            self._persister = NoOpPersister()
        elif self._persister is None:
            from kops.broker.share_state.network_persister import NetworkPersister

            self._persister = NetworkPersister(self._loop, self._config, self._cache, self.coordinator, self._draw)
        return self._persister

    @property
    def end_offsets(self) -> EndOffsets:
        """The object that looks up the ends of partitions."""
        if self._end_offsets is None:
            from kops.broker.share_state.end_offsets import EndOffsets

            self._end_offsets = EndOffsets(self._loop, self._config, self._cache, self._replicas, self._draw)
        return self._end_offsets

    def close(self) -> None:
        """Close everything that was created."""
        self.coordinator.shutdown()
        for part in (self._persister, self._end_offsets):
            if part is not None:
                part.close()
