"""The server side of a node's network: its listeners, its connections, and the limits on both.

Source: Kafka's SocketServer, Processor and Selector (idle connections, excess connections). Kafka's processors put requests into a queue
for handlers. Here one loop reads, handles and writes, so a request is handled as soon as it is read. `queued.max.requests` limits the
requests of one connection in a turn. As in Kafka, a broker and a controller in one process have a server each.
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kops.broker.network.acceptor import Acceptor
from kops.broker.network.channel import Channel, RequestContext
from kops.broker.network.connection_limits import ConnectionLimits
from kops.broker.network.memory_pool import MemoryPool
from kops.broker.network.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.network.events.pipe import Stream
    from kops.broker.network.settings import ListenerSettings, NetworkSettings

log = logging.getLogger(__name__)
_last_active_ms: Final = attrgetter("last_active_ms")

__all__ = ["RequestContext", "SocketServer"]


class SocketServer:
    """Listens as its settings say; `handler(context)` is called for each request, see RequestContext.

    The constructor binds the ports (BindError; then nothing stays open). Connections are accepted from `start` on. This class answers an
    ApiVersions request of an unknown version. An exception of the handler propagates out of the loop.
    """

    def __init__(self, loop: Loop, settings: NetworkSettings, handler: Callable[[RequestContext], object]) -> None:
        self.loop = loop
        self.settings = settings
        self.memory = MemoryPool(settings.queued_max_request_bytes)
        self.limits = ConnectionLimits(settings, _addresses(settings))
        self.handler = handler
        self._acceptors: dict[str, Acceptor] = {}
        # Each with the timer that closes it when it is idle, or None without a limit.
        self._channels: dict[Channel, Timer | None] = {}
        self._lost: set[Channel] = set()  # Without a socket, but with requests that are still to be handled.
        self._next_index = 0
        self._is_started = False
        self.requests = RequestMetrics()
        # Called before a request is handled: the rates must be computed before the request changes the counters.
        self.on_request: Callable[[float], object] | None = None
        # Called with the id of each closed connection.
        self.on_disconnect: Callable[[str], object] | None = None
        try:
            for listener in settings.listeners:
                self._bind(listener)
        except BaseException:
            self.stop()
            raise

    def _bind(self, listener: ListenerSettings) -> Acceptor:
        def accepted(sock: Stream, address: str, port: int) -> None:
            self._open_channel(listener, sock, address, port)

        acceptor = self._acceptors[listener.name] = Acceptor(self.loop, self.settings, listener, self.limits, accepted)
        return acceptor

    # life -------------------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Accept connections and handle requests. Raises BindError if another program already listens on a port."""
        self._is_started = True
        for acceptor in self._acceptors.values():
            acceptor.start()

    def stop(self) -> None:
        """Close listeners and connections. Handles no more requests and drops answers. A second call does nothing."""
        for acceptor in self._acceptors.values():
            acceptor.close()
        self._acceptors.clear()
        for channel in [*self._channels, *self._lost]:
            channel.close("the server stops")

    def add_listener(self, listener: ListenerSettings) -> None:
        """Add a listener, which is served at once if the others are. Raises BindError."""
        self.limits.add_listener(listener)
        try:
            acceptor = self._bind(listener)
            if self._is_started:
                acceptor.start()
        except BaseException:
            self.remove_listener(listener.name)
            raise

    def remove_listener(self, name: str) -> None:
        """Close a listener and its connections."""
        acceptor = self._acceptors.pop(name, None)
        if acceptor is not None:
            acceptor.close()
        for channel in [*self._channels, *self._lost]:
            if channel.listener.name == name:
                channel.close(f"listener {name} was removed")
        self.limits.remove_listener(name)

    def update_limits(self, settings: NetworkSettings) -> None:
        """Apply the settings that change at run time: limits on connections and their rates, of the node and of its listeners."""
        self.limits.update(settings, _addresses(settings))
        for listener in settings.listeners:
            if listener.name in self._acceptors:
                self.limits.add_listener(listener)
        self._slot_freed()
        self._close_excess()

    # facts ------------------------------------------------------------------------------------------------------------------------

    def bound_port(self, name: str) -> int:
        """The port of a listener, even if the system chose it."""
        return self._acceptors[name].port

    def advertised_address(self, name: str) -> tuple[str, int]:
        """Host and port of a listener, as clients see it. Without a configured host it is this machine's name, as in Kafka."""
        listener = self._acceptors[name].listener
        host = listener.advertised_host or listener.host or socket.getfqdn()
        return host, self.bound_port(name) if listener.advertised_port is None else listener.advertised_port

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._channels)

    # Owner ------------------------------------------------------------------------------------------------------------------------

    def has_closed(self, channel: Channel) -> None:
        """Its socket is closed."""
        timer = self._channels.pop(channel)
        if timer is not None:
            timer.cancel()
        self._lost.add(channel)
        self.limits.remove(channel.listener.name, channel.client_host)
        self._slot_freed()
        if self.on_disconnect is not None:
            self.on_disconnect(channel.connection_id)

    def has_finished(self, channel: Channel) -> None:
        """Nothing more comes from it."""
        self._lost.discard(channel)

    def _open_channel(self, listener: ListenerSettings, sock: Stream, address: str, port: int) -> None:
        try:
            local_address, local_port = sock.getsockname()[:2]
        except OSError as error:
            log.debug("A connection from %s ended at once: %s", address, error)
            sock.close()
            self.limits.remove(listener.name, address)
            return
        local_address = local_address.removeprefix("::ffff:")
        connection_id = f"{local_address}:{local_port}-{address}:{port}-0-{self._next_index}"
        self._next_index = (self._next_index + 1) & 0x7FFF_FFFF
        channel = Channel(self, sock, listener, connection_id=connection_id, client_host=address, client_port=port)
        self._channels[channel] = None
        if self.settings.connections_max_idle_ms >= 0:
            self._close_if_idle(channel)
        self._close_excess()

    def _slot_freed(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.slot_freed()

    def _close_excess(self) -> None:
        """Make room for a connection between brokers: close the least recently used one of another listener."""
        while self.limits.is_exceeded():
            candidates = [channel for channel in self._channels if not self.limits.is_protected(channel.listener.name)]
            if not candidates:
                return
            min(candidates, key=_last_active_ms).close("there are more connections than the node may have")

    def _close_if_idle(self, channel: Channel) -> None:
        """Close a connection if it was idle too long, else look again when it may have been."""
        max_idle_ms = self.settings.connections_max_idle_ms
        left_ms = channel.last_active_ms + max_idle_ms - self.loop.monotonic_ms()
        if left_ms > 0:
            self._channels[channel] = self.loop.call_later(left_ms, partial(self._close_if_idle, channel))
        else:
            channel.lose(f"idle for {max_idle_ms} ms")


def _addresses(settings: NetworkSettings) -> dict[str, int]:
    """Return `max.connections.per.ip.overrides` by address; host names are resolved. Raises OSError if one is unknown, as at Kafka's
    start."""
    return {str(socket.getaddrinfo(host, None)[0][4][0]): count for host, count in settings.max_connections_per_ip_overrides.items()}
