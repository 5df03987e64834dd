"""Runs a controller: its listeners, its APIs, and the QuorumController above the Raft node.

Source: Kafka's ControllerServer. Its ports are bound before the Raft node starts, because that has to tell other nodes the addresses.
Requests are read when all parts exist.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Final

from kops.broker.controller.dispatch import ControllerApis
from kops.broker.controller.quorum_controller import QuorumController
from kops.broker.controller.registration import ControllerRegistrationManager
from kops.broker.controller_link.channel import ControllerChannel, raft_controller
from kops.broker.network.socket_server import SocketServer
from kops.broker.parts.settings import channel_settings
from kops.broker.quorum.node_settings import controller_settings, network_settings
from kops.metadata.broker_registration import Endpoint
from kops.metadata.controller.controller import Controller
from kops.metadata.raft.voters.replica import Address, Endpoints
from kops.protocol.api_keys import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.quorum.shared_server import SharedServer
    from kops.config.broker.dynamic import Change

log = logging.getLogger(__name__)

# For the node, for an address, or for a listener (`listener.name.<name>.…`).
_CONNECTION_LIMITS: Final = (
    "max.connections",
    "max.connection.creation.rate",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
)
_REGISTRATION_TIMEOUT_MS: Final = 5_000
_DRAWS: Final = 1 << 30


class ControllerServer:
    """The constructor binds the ports (BindError). `start` raises what `SharedServer.start` does. All methods are for the loop's thread."""

    def __init__(self, shared: SharedServer) -> None:
        self.shared = shared
        self.apis = ControllerApis(shared, self._settings_changed)
        self.socket_server = SocketServer(shared.loop, network_settings(shared.config, Listener.CONTROLLER), self.apis.handle)
        self._quorum_controller: QuorumController | None = None
        self._channel: ControllerChannel | None = None
        self._registration: ControllerRegistrationManager | None = None

    @property
    def controller(self) -> QuorumController:
        """The controller, from `start` on."""
        assert self._quorum_controller is not None, "the controller server is not started"
        return self._quorum_controller

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, as far as it knows."""
        return self._quorum_controller is not None and self._quorum_controller.is_active

    def bound_port(self, listener: str) -> int:
        """The port of a listener."""
        return self.socket_server.bound_port(listener)

    def listeners(self) -> dict[str, Endpoint]:
        """The addresses for other nodes: each listener's reachable host and bound port."""
        found = {}
        for endpoint in self.shared.config.advertised_controller_listeners:
            host = endpoint.host.strip() or socket.getfqdn()
            found[endpoint.name] = Endpoint(endpoint.name, host, endpoint.port or self.bound_port(endpoint.name))
        return found

    # life -------------------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the quorum and serve."""
        shared = self.shared
        log.info("[ControllerServer id=%d] Starting controller", shared.config.node_id)
        try:
            shared.start(Endpoints({name: Address(endpoint.host, endpoint.port) for name, endpoint in self.listeners().items()}))
            settings = controller_settings(shared.config, shared.cluster_id, shared.directories.bootstrap)
            raft = shared.raft

            def upgrade(version: int, validate_only: bool) -> None:
                raft.upgrade_kraft_version(controller.epoch, version, validate_only=validate_only)

            controller = Controller(
                shared.config.node_id,
                settings,
                shared.draws,
                kraft_version=lambda: raft.node.kraft_version,
                upgrade_kraft_version=upgrade,
            )
            self._quorum_controller = QuorumController(shared.loop, raft, controller, shared.records)
            raft.register(self._quorum_controller)
            self.apis.start(self._quorum_controller)
            self._register()
            self.socket_server.start()
        except BaseException:
            self.socket_server.stop()
            shared.abandon()
            raise

    def _register(self) -> None:
        shared, config = self.shared, self.shared.config

        def draw() -> float:
            return shared.draws.next_int(_DRAWS) / _DRAWS

        self._channel = ControllerChannel(
            shared.loop,
            raft_controller(shared.raft, config.controller_listener_names[0]),
            draw=draw,
            settings=channel_settings(config),
            retry_timeout_ms=_REGISTRATION_TIMEOUT_MS,
        )
        self._registration = ControllerRegistrationManager(
            shared.loop, self._channel, config.node_id, shared.draws.uuid(), self.listeners(), draw=draw
        )
        shared.install(self._registration)

    def _settings_changed(self, change: Change) -> None:
        if any(name.endswith(_CONNECTION_LIMITS) for name in change.changed):
            self.socket_server.update_limits(network_settings(change.new, Listener.CONTROLLER))

    def shut_down(self, done: Callable[[], object]) -> None:
        """Hand over leadership, then close. Other nodes can still send requests until then. Calls `done` once."""
        log.info("[ControllerServer id=%d] Shutting down", self.shared.config.node_id)
        self.shared.stop_raft(lambda: self._finish(done))

    def _finish(self, done: Callable[[], object]) -> None:
        self.close()
        done()

    def close(self) -> None:
        """Close listeners and connections at once. A second call does nothing."""
        if self._registration is not None:
            self._registration.close()
        if self._channel is not None:
            self._channel.close()
        if self._quorum_controller is not None:
            self._quorum_controller.shut_down()
        self.apis.close()
        self.socket_server.stop()
