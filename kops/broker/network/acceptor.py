"""A listening socket, which accepts connections as fast as the limits allow.

Source: Kafka's Acceptor and ConnectionQuotas.inc (SocketServer.scala). When Kafka's acceptor thread would wait (for a rate or a free slot),
this one keeps the connection that it has accepted and accepts no other. The rest wait in the backlog of the kernel. Nodes of the same loop
connect with pipes, which have a backlog here.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from kops.broker.network.events.pipe import PipeEnd
from kops.broker.network.settings import DEFAULT_SEND_BUFFER, USE_OS_DEFAULT
from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.connection_limits import ConnectionLimits
    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.network.events.pipe import Stream
    from kops.broker.network.settings import ListenerSettings, NetworkSettings

log = logging.getLogger(__name__)

_ACCEPTS_A_TURN: Final = 100
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_MS: Final = 1000  # The pause after the system had no descriptor for another connection.


class BindError(KopsError):
    """A listener's address cannot be used: it is in use, not an address of this machine, or not allowed."""


class Acceptor:
    """The socket of one listener. `accepted(socket, address, port)` gets each accepted connection, which is already counted."""

    def __init__(
        self,
        loop: Loop,
        settings: NetworkSettings,
        listener: ListenerSettings,
        limits: ConnectionLimits,
        accepted: Callable[[Stream, str, int], object],
    ) -> None:
        """Bind the port, but do not listen yet. Raises BindError."""
        self.listener = listener
        self._loop = loop
        self._settings = settings
        self._limits = limits
        self._accepted = accepted
        self._held: tuple[Stream, str, int] | None = None
        self._timer: Timer | None = None
        self._refused: dict[Stream, Timer] = {}
        self._sock = self._bound_socket()
        self.port: int = self._sock.getsockname()[1]
        self._watch = loop.watch(self._sock, self._on_readable, lambda: None)
        self._pipes: deque[PipeEnd] = deque()  # They wait to be accepted.
        self._found_at: list[tuple[str, int]] = []  # The addresses at which nodes of this loop find it.

    def _bound_socket(self) -> socket.socket:
        host = self.listener.host
        address = (host, self.listener.port)
        try:
            is_dual = not host and socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if is_dual else socket.AF_INET
            if host:
                family, _, _, _, address = socket.getaddrinfo(host, address[1], type=socket.SOCK_STREAM)[0]  # type: ignore[assignment]
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if is_dual:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                # Accepted sockets inherit it. Set later, it would not affect the window offered at the start.
                if self._settings.socket_receive_buffer_bytes != USE_OS_DEFAULT:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.socket_receive_buffer_bytes)
                sock.bind(address)
            except OSError:
                sock.close()
                raise
        except OSError as error:
            raise self._bind_error(error) from error
        return sock

    def _bind_error(self, error: OSError) -> BindError:
        reason = os.strerror(error.errno) if error.errno and not isinstance(error, socket.gaierror) else str(error)
        return BindError(f"listener {self.listener.name} can't listen on {self.listener.host or '*'}:{self.listener.port}: {reason}")

    def start(self) -> None:
        """Listen. Raises BindError if another program was first."""
        try:
            self._sock.listen(self._settings.socket_listen_backlog_size)
        except OSError as error:
            raise self._bind_error(error) from error
        self._watch.want(reading=True)
        self._found_at = self._addresses()
        for address in self._found_at:
            self._loop.listen(address, self._offer)

    def _addresses(self) -> list[tuple[str, int]]:
        """The addresses at which nodes of this loop find the listener. One that listens at all addresses is found at the loopback ones."""
        host = self._sock.getsockname()[0]
        hosts = {"0.0.0.0": ["127.0.0.1"], "::": ["::1"] if self.listener.host else ["::1", "127.0.0.1"]}.get(host, [host])
        return [(each, self.port) for each in hosts]

    def close(self) -> None:
        """Stop listening. Connections that wait to be accepted or refused are closed."""
        for address in self._found_at:
            self._loop.end_listening(address)
        self._watch.close()
        self._sock.close()
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._held is not None:
            self._held[0].close()
            self._held = None
        for sock, timer in self._refused.items():
            timer.cancel()
            sock.close()
        self._refused.clear()

    def slot_freed(self) -> None:
        """A connection was closed or limits have changed: accept one that waits, if it fits now."""
        if self._held is not None and self._timer is None:
            self._loop.call_soon(self._go_on)

    # connections ------------------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            if self._held is not None:
                return
            try:
                sock, address = self._accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    return  # This connection ended before it was accepted.
                log.error("Listener %s can't accept connections for the moment: %s", self.listener.name, error)
                self._watch.want(reading=False)
                self._timer = self._loop.call_later(_PAUSE_MS, self._resume)
                return
            self._held = (sock, address[0].removeprefix("::ffff:"), address[1])
            delay_ms = self._limits.delay_ms(self.listener.name, self._now_ms())
            if delay_ms:
                self._watch.want(reading=False)
                self._timer = self._loop.call_later(delay_ms, self._resume)
            else:
                self._let_in_held()

    def _accept(self) -> tuple[Stream, tuple[str, int]]:
        if self._pipes:
            pipe = self._pipes.popleft()
            return pipe, pipe.getpeername()
        return self._sock.accept()

    def _offer(self, pipe: PipeEnd) -> bool:
        """Take a pipe into the backlog, unless that is full."""
        if len(self._pipes) >= max(self._settings.socket_listen_backlog_size, 1):
            return False
        self._pipes.append(pipe)
        self._loop.call_soon(self._accept_pipes)
        return True

    def _accept_pipes(self) -> None:
        if self._pipes and self._watch.is_reading:
            self._on_readable()
            if self._pipes:
                self._loop.call_soon(self._accept_pipes)

    def _now_ms(self) -> int:
        return int(self._loop.monotonic_ms())

    def _resume(self) -> None:
        self._timer = None
        self._watch.want(reading=True)
        self._go_on()

    def _go_on(self) -> None:
        self._let_in_held()
        self._accept_pipes()

    def _let_in_held(self) -> None:
        if self._held is None:
            return
        has_slot = self._limits.has_slot(self.listener.name)
        self._watch.want(reading=has_slot)
        if has_slot:
            (sock, address, port), self._held = self._held, None
            self._let_in(sock, address, port)

    def _let_in(self, sock: Stream, address: str, port: int) -> None:
        delay_ms = self._limits.address_delay_ms(self.listener.name, address, self._now_ms())
        if delay_ms:
            # Rejected late, to slow down a client that reconnects at once.
            log.debug("Closing a connection from %s in %d ms: it connects too often", address, delay_ms)
            self._refused[sock] = self._loop.call_later(delay_ms, functools.partial(self._refuse, sock))
            return
        if self._limits.is_full(address):
            log.info("Rejected a connection from %s, which has reached its limit of %d", address, self._limits.max_of(address))
            sock.close()
            return
        try:
            if not isinstance(sock, PipeEnd):
                self._set_up(cast("socket.socket", sock))
        except OSError as error:
            log.error("Closing a connection from %s that can't be set up: %s", address, error)
            sock.close()
            return
        self._limits.add(self.listener.name, address)
        self._accepted(sock, address, port)

    def _set_up(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        size = self._settings.socket_send_buffer_bytes
        if size not in (USE_OS_DEFAULT, DEFAULT_SEND_BUFFER):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def _refuse(self, sock: Stream) -> None:
        del self._refused[sock]
        sock.close()
