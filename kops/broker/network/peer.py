"""A connection to another node, opened when it is needed and again after it breaks. In: requests. Out: answers or ApiErrors.

Source: Kafka's NetworkClient, ClusterConnectionStates, InFlightRequests, NodeApiVersions and InterBrokerSendThread (requests wait
for a connection). As in Kafka, a request that times out ends the connection: later answers on it could only be late.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from kops.broker.network.outbox import Outbox
from kops.broker.network.settings import USE_OS_DEFAULT
from kops.errors import ApiError, DecodeError
from kops.protocol import api_keys
from kops.protocol.api_keys import API_VERSIONS
from kops.protocol.connections.backoff import ConnectionAttempts, ExponentialBackoff
from kops.protocol.connections.connection import ClientConnection
from kops.protocol.connections.node_versions import NodeVersions
from kops.protocol.errors import by_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kops.broker.network.events.loop import Loop, Timer, Watch
    from kops.broker.network.events.pipe import Stream
    from kops.protocol.declaration import Message

log = logging.getLogger(__name__)

_READ_SIZE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The settings of connections to a node. Times in ms, buffer sizes in bytes (-1: the system's default); names and defaults are
    Kafka's."""

    client_id: str = "kops"
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    max_in_flight_requests_per_connection: int = 100
    send_buffer_bytes: int = 128 * 1024
    receive_buffer_bytes: int = 64 * 1024
    client_software_version: str = "unknown"  # Kafka's word for an unknown version.


class _State(Enum):
    DISCONNECTED = auto()
    CONNECTING = auto()
    CHECKING_VERSIONS = auto()
    READY = auto()
    CLOSED = auto()


class _Request:
    """A request on its way; `done` is called once, never from within `send`."""

    __slots__ = ("allowed", "done", "due_ms", "message")

    def __init__(self, message: Message, done: Callable[[Message | ApiError], object], allowed: range | None, due_ms: float) -> None:
        self.message: Message | None = message
        self.done = done
        self.allowed = allowed
        self.due_ms = due_ms


class Peer:
    """One node. `draw()` returns random numbers in [0, 1) for the back-off. Call all methods from the loop's thread."""

    def __init__(self, loop: Loop, host: str, port: int, *, draw: Callable[[], float], settings: PeerSettings | None = None) -> None:
        self.host = host
        self.port = port
        self.versions: NodeVersions | None = None  # while connected
        self._settings = settings = settings or PeerSettings()
        self._loop = loop
        self._attempts = ConnectionAttempts(
            ExponentialBackoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, draw),
            ExponentialBackoff(settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms, draw),
        )
        self._state = _State.DISCONNECTED
        self._waiting: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._addresses: list[tuple[int, tuple[str, int]]] = []
        self._next_correlation_id = 0
        self._timer: Timer | None = None  # The timer of a connection's setup, or of the next attempt.
        self._timeout: Timer | None = None  # The timer of the first request that is due, which may have been answered since.
        self._is_scheduled = self._is_reading = False
        self._outbox = Outbox()
        self._sock: Stream | None = None
        self._watch: Watch | None = None
        self._connection = ClientConnection()

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent at once."""
        return self._state is _State.READY

    @property
    def in_flight_count(self) -> int:
        """The number of requests that are sent but not answered."""
        return len(self._in_flight)

    @property
    def unfinished_count(self) -> int:
        """The number of requests whose `done` has not been called yet."""
        return len(self._in_flight) + len(self._waiting)

    def send(
        self,
        message: Message,
        done: Callable[[Message | ApiError], object],
        *,
        timeout_ms: int | None = None,
        versions: range | None = None,
    ) -> None:
        """Send a request in the latest version that both nodes support (and `versions` has), as soon as there is a connection.

        `done` gets the response, or an ApiError: NETWORK_EXCEPTION if the connection failed or ended, REQUEST_TIMED_OUT if no response came
        within `timeout_ms` (default: `request_timeout_ms`), including the wait for a connection, UNSUPPORTED_VERSION, or the error of
        writing the message.
        """
        if self._state is _State.CLOSED:
            self._loop.call_soon(lambda: done(ApiError("NETWORK_EXCEPTION", f"The connection to {self} was closed")))
            return
        request = self._new_request(message, done, versions, self._settings.request_timeout_ms if timeout_ms is None else timeout_ms)
        self._waiting.append(request)
        # Requests of one turn are sent with one write. Requests that result from an answer are sent right after it.
        if not self._is_reading:
            self._schedule()

    def _new_request(
        self, message: Message, done: Callable[[Message | ApiError], object], versions: range | None, timeout_ms: int
    ) -> _Request:
        """Make a request and start its time-out. One timer serves all requests, because nearly all are answered long before."""
        delay_ms = max(timeout_ms, 0)
        due_ms = self._loop.monotonic_ms() + delay_ms
        timeout = self._timeout
        if timeout is None or timeout.due_ms > due_ms:
            if timeout is not None:
                timeout.cancel()
            self._timeout = self._loop.call_later(delay_ms, self._look_for_timed_out)
        return _Request(message, done, versions, due_ms)

    def close(self) -> None:
        """Close the connection for good. Unanswered requests end with NETWORK_EXCEPTION within this call."""
        if self._state is not _State.CLOSED:
            self._drop_connection()
            self._state = _State.CLOSED
            if self._timeout is not None:
                self._timeout.cancel()
                self._timeout = None
            self._fail_all(ApiError("NETWORK_EXCEPTION", f"The connection to {self} was closed"))

    # connecting -------------------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if self._state is _State.READY:
            self._send_waiting()
        elif self._state is _State.DISCONNECTED and self._waiting and self._timer is None:
            delay_ms = self._attempts.delay_ms(self._loop.monotonic_ms())
            if delay_ms:
                self._timer = self._loop.call_later(delay_ms, self._back_off_over)
            else:
                self._start_connecting()

    def _back_off_over(self) -> None:
        self._timer = None
        self._go_on()

    def _start_connecting(self) -> None:
        self._state = _State.CONNECTING
        self._attempts.connecting(self._loop.monotonic_ms())
        self._timer = self._loop.call_later(self._attempts.setup_timeout_ms, self._setup_timed_out)
        if not self._addresses and _is_address(self.host):
            self._addresses = _resolve(self.host, self.port)
        if self._addresses:
            self._connect(*self._addresses.pop(0))
        else:
            attempt = self._timer
            # Resolving a name may block for seconds.
            self._loop.in_thread(lambda: _resolve(self.host, self.port), lambda future: self._resolved(attempt, future))

    def _resolved(self, attempt: Timer, future: Future[list[tuple[int, tuple[str, int]]]]) -> None:
        if self._timer is not attempt:
            return  # This attempt was abandoned.
        error = future.exception()
        if error is None:
            self._addresses = future.result()
            self._connect(*self._addresses.pop(0))
        elif isinstance(error, OSError):
            self._disconnected(str(error))
        else:
            raise error

    def _connect(self, family: int, address: tuple[str, int]) -> None:
        # The address of IPv6 has two more parts.
        self._sock = pipe = self._loop.pipe_to((address[0], address[1]))
        if pipe is None:
            self._connect_socket(family, address)
        else:
            self._watch_connecting(pipe)

    def _connect_socket(self, family: int, address: tuple[str, int]) -> None:
        try:
            self._sock = sock = self._loop.new_socket(family)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in (
                (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
                (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
            ):
                if size != USE_OS_DEFAULT:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            status = sock.connect_ex(address)
        except OSError as error:
            self._disconnected(str(error))
            return
        if status not in (0, errno.EINPROGRESS):
            self._disconnected(os.strerror(status))
            return
        self._watch_connecting(sock)

    def _watch_connecting(self, sock: Stream) -> None:
        self._watch = self._loop.watch(sock, self._on_readable, self._on_writable)
        self._watch.want(writing=True)

    def _setup_timed_out(self) -> None:
        self._timer = None
        self._disconnected("no connection in time")

    def _connected(self) -> None:
        assert self._sock is not None
        assert self._watch is not None
        status = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            self._disconnected(os.strerror(status))
            return
        # If no program listens on a port in the range for clients, a connection can connect to itself.
        try:
            is_own = self._sock.getsockname() == self._sock.getpeername()
        except OSError as error:  # the node has reset it since the line before
            self._disconnected(str(error))
            return
        if is_own:
            self._disconnected(os.strerror(errno.ECONNREFUSED))
            return
        self._attempts.connected()
        self._addresses.clear()
        self._stop_timer()
        self._state = _State.CHECKING_VERSIONS
        self._connection = ClientConnection(self._settings.client_id, first_correlation_id=self._next_correlation_id)
        self._watch.want(reading=True, writing=False)
        self._ask_for_versions(api_keys.by_key(API_VERSIONS).versions.stop - 1)

    def _ask_for_versions(self, version: int) -> None:
        from kops.protocol.messages import ApiVersionsRequest

        message = ApiVersionsRequest(client_software_name="kops", client_software_version=self._settings.client_software_version)
        timeout_ms = self._settings.request_timeout_ms
        self._write(self._new_request(message, lambda result: self._versions_came(version, result), None, timeout_ms), version)
        self._flush()

    def _versions_came(self, asked: int, result: Message | ApiError) -> None:
        if isinstance(result, ApiError):
            return  # The connection has ended and its waiting calls have failed.
        from kops.protocol.messages import ApiVersionsResponse

        assert isinstance(result, ApiVersionsResponse)
        versions = NodeVersions(result)
        answer = by_code(result.error_code).name
        if answer == "NONE":
            self.versions = versions
            self._attempts.ready()
            self._state = _State.READY
            self._send_waiting()
        elif answer == "UNSUPPORTED_VERSION" and asked:
            try:
                self._ask_for_versions(min(versions.latest(API_VERSIONS), asked - 1))
            except ApiError:
                self._ask_for_versions(0)
        else:
            self._disconnected(f"it answers ApiVersions with {answer}")

    # requests and responses -------------------------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        assert self.versions is not None
        refused: list[tuple[_Request, ApiError]] = []
        while self._waiting and len(self._in_flight) < self._settings.max_in_flight_requests_per_connection:
            request = self._waiting.popleft()
            assert request.message is not None
            assert request.message.API_KEY is not None
            try:
                self._write(request, self.versions.latest(request.message.API_KEY, request.allowed))
            except ApiError as error:
                refused.append((request, error))
        self._flush()
        for request, reason in refused:
            request.done(reason)

    def _write(self, request: _Request, version: int) -> None:
        assert request.message is not None
        self._outbox.add(self._connection.send_request(request.message, version))
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFF_FFFF
        request.message = None  # Its records need not be kept until the answer comes.
        self._in_flight.append(request)

    def _flush(self) -> None:
        if self._sock is None or self._watch is None:
            return
        try:
            self._watch.want(writing=not self._outbox.flush(self._sock))
        except OSError as error:
            self._disconnected(str(error))

    def _on_writable(self) -> None:
        if self._state is _State.CONNECTING:
            self._connected()
        else:
            self._flush()

    def _on_readable(self) -> None:
        assert self._sock is not None
        connection = self._connection
        frames = connection.frames
        space = frames.space()
        try:
            if space is None:
                data = self._sock.recv(_READ_SIZE)
                size = len(data)
                frames.receive_data(data)
            else:
                size = self._sock.recv_into(space)
                frames.filled(size)
        except BlockingIOError:
            return
        except OSError as error:
            self._disconnected(str(error))
            return
        if size:
            self._read_responses(connection)
        else:
            self._disconnected("the node closed it")

    def _read_responses(self, connection: ClientConnection) -> None:
        self._is_reading = True
        # A callback may close this connection.
        while connection is self._connection:
            try:
                response = connection.next_event()
            except DecodeError as error:
                self._disconnected(f"the answer is not a response: {error}")
                break
            if response is None:
                break
            self._in_flight.popleft().done(response.message)
            if connection.frames.is_empty:
                break
        self._is_reading = False
        if not self._waiting or self._is_scheduled:
            return
        if self._state is _State.READY:
            self._send_waiting()
        else:
            self._schedule()

    # the end of a connection ------------------------------------------------------------------------------------------------------

    def _look_for_timed_out(self) -> None:
        """End the requests that were not answered in time, and set the timer for the next ones."""
        now_ms = self._loop.monotonic_ms()
        self._end_timed_out(now_ms)
        left = [request.due_ms for request in (*self._in_flight, *self._waiting)]
        if left and self._timeout is None:
            self._timeout = self._loop.call_later(min(left) - now_ms, self._look_for_timed_out)

    def _end_timed_out(self, now_ms: float) -> None:
        self._timeout = None
        due = [request for request in (*self._in_flight, *self._waiting) if request.due_ms <= now_ms]
        for request in due:
            self._timed_out(request)  # A new request that follows from it may set the timer.

    def _timed_out(self, request: _Request) -> None:
        error = ApiError("REQUEST_TIMED_OUT", f"No answer from {self} in time")
        if request in self._waiting:
            self._waiting.remove(request)
            request.done(error)
        elif request in self._in_flight:
            self._in_flight.remove(request)
            self._disconnected("a request was not answered in time")
            request.done(error)

    def _disconnected(self, reason: str) -> None:
        was_connected = self._state is not _State.CONNECTING
        log.info("The connection to %s %s: %s", self, "ended" if was_connected else "could not be made", reason)
        self._drop_connection()
        self._attempts.disconnected(self._loop.monotonic_ms(), was_connected=was_connected)
        self._state = _State.DISCONNECTED
        self._fail_all(ApiError("NETWORK_EXCEPTION", f"The connection to {self} ended: {reason}"))

    def _drop_connection(self) -> None:
        self._stop_timer()
        self.versions = None
        self._outbox.clear()
        self._connection = ClientConnection()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail_all(self, error: ApiError) -> None:
        failed = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for request in failed:
            request.done(error)


class Peers:
    """Connections to other nodes, one to each."""

    def __init__(self, loop: Loop, *, draw: Callable[[], float], settings: PeerSettings | None = None) -> None:
        self._loop = loop
        self._draw = draw
        self._settings = settings
        self._by_id: dict[int, Peer] = {}

    def get(self, node_id: int, host: str, port: int) -> Peer:
        """A node's connection. If the node had another address before, that connection is closed."""
        peer = self._by_id.get(node_id)
        if peer is None or (peer.host, peer.port) != (host, port):
            self.forget(node_id)
            peer = self._by_id[node_id] = Peer(self._loop, host, port, draw=self._draw, settings=self._settings)
        return peer

    def forget(self, node_id: int) -> None:
        """Close a node's connection."""
        peer = self._by_id.pop(node_id, None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        """Close all of them."""
        for node_id in list(self._by_id):
            self.forget(node_id)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _resolve(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """(family, address) of a host, in the order to try them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]
