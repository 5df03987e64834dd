"""The persister of a broker: it uses connections to other brokers, and calls this broker's own share coordinator directly.

Source: BrokerServer.createShareStatePersister, NetworkUtils.buildNetworkClient, PersisterStateManager.SendThread,
ShareCoordinatorMetadataCacheHelperImpl.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.broker.network.peer import Peers, PeerSettings
from kops.coordinators.share.persister.calls import Node
from kops.coordinators.share.persister.default import DefaultPersister
from kops.coordinators.share.persister.manager import Lookup, StateManager, StateRequest
from kops.errors import ApiError, KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop
    from kops.broker.share_state.coordinator import ShareCoordinator
    from kops.config import BrokerConfig
    from kops.coordinators.share.key import SharePartitionKey
    from kops.metadata.image.metadata_cache import BrokerNode, MetadataCache
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

SHARE_TOPIC: Final = "__share_group_state"
_BACKOFF_MS: Final = 50
_REQUEST_TIMEOUT_MS: Final = 30_000
_LOOKUP_VERSIONS: Final = range(6, 7)
"""The lowest versions of the APIs. Older brokers do not support share groups."""


def peer_settings(config: BrokerConfig, prefix: str) -> PeerSettings:
    """Return the settings of connections to other brokers for a purpose."""
    return PeerSettings(
        client_id=f"{prefix}-client-{config.node_id}",
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        reconnect_backoff_ms=_BACKOFF_MS,
        reconnect_backoff_max_ms=_BACKOFF_MS,
        socket_connection_setup_timeout_ms=config["socket.connection.setup.timeout.ms"],
        socket_connection_setup_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
        max_in_flight_requests_per_connection=1,
        receive_buffer_bytes=config["socket.receive.buffer.bytes"],
    )


class NetworkPersister(DefaultPersister):
    """See Persister. `draw()` returns random numbers in [0, 1)."""

    def __init__(
        self, loop: Loop, config: BrokerConfig, cache: MetadataCache, coordinator: ShareCoordinator, draw: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._config = config
        self._cache = cache
        self._coordinator = coordinator
        self._draw = draw
        self._peers = Peers(loop, draw=draw, settings=peer_settings(config, "Persister"))
        self._is_waking = self._is_closed = False
        self._state = StateManager(self._find, self._any_node, self._wake, self._call_later)
        super().__init__(self._state, draw)

    def close(self) -> None:
        """Stop sending. Pending calls get no answer."""
        self._is_closed = True
        self._peers.close()

    # finding a coordinator --------------------------------------------------------------------------------------------------------

    def _find(self, key: SharePartitionKey) -> Node | None:
        if self._cache.partition_count(SHARE_TOPIC) is None or not self._coordinator.is_active:
            return None
        found = self._cache.partition(SHARE_TOPIC, self._coordinator.partition_for(key))
        if found is None or found.leader < 0:
            return None
        return _node(self._cache.alive_broker(found.leader, self._config.inter_broker_listener_name))

    def _any_node(self) -> Node | None:
        nodes = self._cache.alive_brokers(self._config.inter_broker_listener_name)
        return _node(nodes[int(self._draw() * len(nodes))]) if nodes else None

    # sending ----------------------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._send)

    def _call_later(self, delay_ms: int, run: Callable[[], object]) -> None:
        self._loop.call_later(delay_ms, lambda: None if self._is_closed else run())

    def _send(self) -> None:
        self._is_waking = False
        if self._is_closed:
            return
        for request in self._state.take_requests():
            if isinstance(request, Lookup):
                self._send_lookup(request)
            elif request.node.id == self._config.node_id:
                self._ask_own_coordinator(request)
            else:
                self._send_request(request)

    def _send_lookup(self, lookup: Lookup) -> None:
        def answered(answer: Message | ApiError) -> None:
            if not self._is_closed:
                self._state.on_lookup(lookup, answer)

        peer = self._peers.get(lookup.node.id, lookup.node.host, lookup.node.port)
        peer.send(lookup.message(), answered, versions=_LOOKUP_VERSIONS)

    def _send_request(self, request: StateRequest) -> None:
        def answered(answer: Message | ApiError) -> None:
            if not self._is_closed:
                self._state.on_answer(request, answer)

        self._peers.get(request.node.id, request.node.host, request.node.port).send(request.message(), answered)

    def _ask_own_coordinator(self, request: StateRequest) -> None:
        def answered(answer: Message | None, error: KopsError | None) -> None:
            if not self._is_closed:
                known = error if isinstance(error, ApiError) else ApiError("UNKNOWN_SERVER_ERROR", str(error))
                self._state.on_answer(request, known if answer is None else answer)

        self._coordinator.answer(request.message()).when_done(answered)


def _node(broker: BrokerNode | None) -> Node | None:
    return None if broker is None else Node(broker.id, broker.host, broker.port)
