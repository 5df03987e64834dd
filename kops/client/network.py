"""Connections to the nodes of a cluster. `send` queues a request, and `poll` processes the connections in the caller's thread.

Source: Kafka's NetworkClient (least loaded node, time-outs that end the connection, idle connections), ClusterConnectionStates,
InFlightRequests, NodeApiVersions; KIP-511 (ApiVersions first), KIP-219 (throttling). There is one thread and no lock. As in Kafka,
resolving a name blocks.
"""

from __future__ import annotations

import errno
import os
import random
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.client.connection import NEVER, Connection, Done, Request, State
from kops.client.node import Node
from kops.errors import ApiError, DecodeError
from kops.protocol import api_keys
from kops.protocol.api_keys import API_VERSIONS
from kops.protocol.connections.backoff import ConnectionAttempts, ExponentialBackoff
from kops.protocol.connections.connection import ClientConnection
from kops.protocol.connections.node_versions import FinalizedFeatures, NodeVersions
from kops.protocol.connections.throttling import throttle_ms
from kops.protocol.errors import by_code

if TYPE_CHECKING:
    import threading

    from kops.client.metrics.network import NetworkMetrics
    from kops.client.settings import ClientSettings
    from kops.protocol.declaration import Message

_READ_SIZE: Final = 256 * 1024
_MAX_BUFFERS: Final = 256
_UNWRITABLE: Final = (AttributeError, TypeError, ValueError, OverflowError, struct.error)
SLOW_MS: Final = 2000  # the time after which another node is tried


@mypyc_attr(allow_interpreted_subclasses=True)
class NetworkClient:
    """The connections of a client. `now_ms()` is a monotonic clock, and `draw()` returns random numbers from 0 up to 1.

    `warn(text)` reports the first failed attempt to connect to a node since its last answer.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        draw: Callable[[], float] = random.random,
        software_version: str = "unknown",  # Kafka's name for an unknown version
        warn: Callable[[str], object] = lambda text: None,
        metrics: NetworkMetrics | None = None,
    ) -> None:
        self.now_ms = now_ms
        self._metrics = metrics
        self._software_version = software_version
        self.settings = settings
        self._draw = draw
        self._warn = warn
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._finished: deque[tuple[Done, Message | ApiError]] = deque()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._client_id = settings.client_id or "kops"
        self.has_answer = False  # whether any node has ever sent its versions
        self._idle_limit_ms = settings.connections_max_idle_ms if settings.connections_max_idle_ms >= 0 else NEVER
        self.waits_until_ms = 0.0  # the time at which a `poll` that waits ends without an event
        self.busy: threading.Lock | None = None
        """A lock that the thread which polls holds, except while it waits for sockets. Another thread that holds it may send and push."""
        self._due_ms = NEVER  # nothing is too late before: no deadline is earlier
        self._features = FinalizedFeatures(-1, {})

    # queries

    def send(
        self,
        node: Node,
        message: Message,
        done: Done,
        *,
        timeout_ms: float | None = None,
        versions: range | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request as soon as there is a connection, in the latest version that both sides support (and that `versions` contains).

        `poll` calls `done` with the response or with an ApiError: NETWORK_EXCEPTION (no connection, or it ended), REQUEST_TIMED_OUT
        (`timeout_ms`, else `request.timeout.ms`; the connection is also closed), UNSUPPORTED_VERSION, or the error of writing the message.
        Without `expects_response`, it is called with the request once that is written.
        """
        connection = self._connection(node)
        deadline_ms = self.now_ms() + (self.settings.request_timeout_ms if timeout_ms is None else timeout_ms)
        connection.waiting.append(Request(message, done, deadline_ms, versions, expects_response))
        self._expect(deadline_ms)

    def versions(self, node: Node) -> NodeVersions | None:
        """The API versions of a node while there is a connection."""
        connection = self._connections.get(node.id)
        return None if connection is None or connection.node[:3] != node[:3] else connection.versions

    def latest_version(self, node: Node, api_key: int) -> int:
        """The latest version of an API that a node knows. -1 if there is no connection or the node does not know the API."""
        versions = self.versions(node)
        return -1 if versions is None else versions.known(api_key)

    def features(self) -> FinalizedFeatures:
        """The latest finalized features that any node has reported (Kafka's ApiVersions)."""
        return self._features

    def is_ready(self, node: Node) -> bool:
        """Whether a node takes a request at once: connected, and with no bytes left to write. Begins to connect if it may be tried."""
        connection = self._connection(node)
        if connection.state is State.DISCONNECTED and not connection.attempts.delay_ms(self.now_ms()):
            self._connect(connection)
        is_free = connection.state is State.READY and not connection.outbox and not connection.waiting
        return is_free and connection.throttled_until_ms <= self.now_ms()

    def retry_ms(self, node: Node) -> float:
        """The time until a node may be tried again, or is no longer throttled. Otherwise infinite: an event will tell."""
        connection = self._connections.get(node.id)
        if connection is None:
            return 0.0
        if connection.state is State.DISCONNECTED:
            return connection.attempts.delay_ms(self.now_ms())
        throttled_ms = connection.throttled_until_ms - self.now_ms()
        return throttled_ms if throttled_ms > 0 else float("inf")

    def load(self, node: Node) -> int:
        """The number of requests to this node whose `done` has not been called yet."""
        connection = self._connections.get(node.id)
        return 0 if connection is None else len(connection.in_flight) + len(connection.waiting)

    def failing_ms(self, node: Node) -> float:
        """How long the client has tried to reach a node that has never answered, or 0 for a node that has answered or was not used."""
        connection = self._connections.get(node.id)
        if connection is None or connection.has_answered or connection.failing_since_ms is None:
            return 0
        return self.now_ms() - connection.failing_since_ms

    def has_answered(self, node: Node) -> bool:
        """Whether a node has answered and has not failed since."""
        connection = self._connections.get(node.id)
        return connection is not None and connection.has_answered and connection.failing_since_ms is None

    def is_slow(self, node: Node) -> bool:
        """Whether connecting or the answer to ApiVersions takes longer than usual."""
        connection = self._connections.get(node.id)
        if connection is None or connection.state not in (State.CONNECTING, State.CHECKING_VERSIONS):
            return False
        return connection.failing_since_ms is not None and self.now_ms() - connection.failing_since_ms >= SLOW_MS

    def withdraw(self, node: Node, done: Done) -> bool:
        """Withdraw the request with this `done`. Returns False if it was already sent."""
        connection = self._connections.get(node.id)
        if connection is None:
            return False
        count = len(connection.waiting)
        connection.waiting = deque(request for request in connection.waiting if request.done != done)
        return len(connection.waiting) < count

    def reason(self, node: Node) -> str:
        """Why a node could not be reached."""
        connection = self._connections.get(node.id)
        return "not tried" if connection is None else connection.reason

    def is_backing_off(self, node: Node) -> bool:
        """Whether the last connection failed and a new one may not be tried yet."""
        connection = self._connections.get(node.id)
        return connection is not None and connection.state is State.DISCONNECTED and connection.attempts.delay_ms(self.now_ms()) > 0

    def is_failing(self, node: Node) -> bool:
        """Whether the last attempt to connect has failed."""
        connection = self._connections.get(node.id)
        return connection is not None and connection.state is State.DISCONNECTED and connection.failed_attempts > 0

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        """Return the best node for a request, or None if every node has failed and may not be tried again yet.

        The order is: the connected node with the fewest requests in flight, a connecting one, the one that was not tried for the longest
        time, a slow one, one that throttles this client.
        """
        candidates = list(nodes)
        offset = int(self._draw() * len(candidates))
        best: tuple[int, float] | None = None
        chosen: Node | None = None
        for node in candidates[offset:] + candidates[:offset]:
            connection = self._connections.get(node.id)
            if connection is None or connection.state is State.DISCONNECTED:
                if connection is not None and connection.attempts.delay_ms(self.now_ms()) > 0:
                    continue
                rank = (2, 0.0 if connection is None else connection.tried_ms)
            else:
                kind = 0 if connection.state is State.READY else 3 if self.is_slow(node) else 1
                rank = (kind, len(connection.in_flight) + len(connection.waiting))
                if connection.throttled_until_ms > self.now_ms():
                    rank = (4, connection.throttled_until_ms)
            if best is None or rank < best:
                best, chosen = rank, node
        return chosen

    def watch(self, fd: int, callback: Callable[[], object]) -> None:
        """Let `poll` call back whenever a descriptor is readable. Raises PermissionError for one that can't be polled (a plain file)."""
        self._selector.register(fd, selectors.EVENT_READ)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor."""
        self._selector.unregister(fd)
        del self._callbacks[fd]

    def forget(self, keep: Iterable[Node]) -> None:
        """Close the connections to all other nodes that have no request in flight."""
        wanted = {node.id: node[:3] for node in keep}
        for connection in list(self._connections.values()):
            node = connection.node
            if wanted.get(node.id) != node[:3] and not connection.in_flight and not connection.waiting:
                self._drop(connection)
                del self._connections[node.id]

    def close(self) -> None:
        """Close all connections. Requests in flight are never called back."""
        for connection in self._connections.values():
            self._drop(connection)
        self._connections.clear()
        self._selector.close()

    # one turn

    def poll(self, timeout_ms: float) -> None:
        """Connect, send, receive and call back. Waits up to `timeout_ms` if nothing happens."""
        self.push()
        now_ms = self.now_ms()
        until_ms = now_ms if timeout_ms <= 0 or self._finished else min(now_ms + timeout_ms, self.next_event_ms())
        self.waits_until_ms = until_ms
        while self._look(max(until_ms - now_ms, 0)) and (now_ms := self.now_ms()) < until_ms:
            continue
        now_ms = self.now_ms()
        if now_ms >= self._due_ms:
            self._expire(now_ms)
        self._call_back()

    def _call_back(self) -> None:
        for _ in range(len(self._finished)):
            done, result = self._finished.popleft()
            done(result)

    def push(self) -> bool:
        """Connect, and send what sockets take at once, as `poll` does first. Returns whether `poll` already has something to call back."""
        for connection in list(self._connections.values()):
            if connection.waiting or connection.outbox:
                self._drive(connection)
        return bool(self._finished)

    def look(self) -> bool:
        """Process the sockets that are ready. Returns whether only parts of answers came, so that `poll` has nothing to call back."""
        return self._look(0) and not self._finished

    def _look(self, wait_ms: float) -> bool:
        """Wait for the sockets, and process those that are ready. Returns whether only parts of answers came."""
        started_ns = time.perf_counter_ns()
        if self.busy is None or wait_ms <= 0:
            found = self._selector.select(wait_ms / 1000)
        else:
            self.busy.release()
            try:
                found = self._selector.select(wait_ms / 1000)
            finally:
                self.busy.acquire()
        polled_ns = time.perf_counter_ns()
        are_parts = bool(found)
        for key, mask in found:
            if key.data is None:
                callback = self._callbacks.get(key.fd)
                if callback is not None:
                    callback()
                are_parts = False
                continue
            connection = key.data
            if connection.sock is key.fileobj and mask & selectors.EVENT_WRITE:
                self._on_writable(connection)
                are_parts = False
            if connection.sock is key.fileobj and mask & selectors.EVENT_READ:
                are_parts &= self._on_readable(connection)
        if self._metrics is not None:
            self._metrics.polled(polled_ns - started_ns, time.perf_counter_ns() - polled_ns, self.now_ms())
        return are_parts

    # a turn of a thread that waits for one answer, while another one polls

    def reserve(self, node: Node) -> int:
        """Leave the socket of a node to the calling thread, if exactly one request is in flight there. Returns its descriptor, or -1.

        `poll` does not wait for that socket until the answer is received, or until `give_back`. Call these methods with `busy` held.
        """
        connection = self._connections.get(node.id)
        if connection is None or connection.sock is None or connection.is_reserved or connection.state is not State.READY:
            return -1
        if len(connection.in_flight) != 1 or connection.waiting or connection.outbox:
            return -1
        self._selector.unregister(connection.sock)
        connection.is_reserved = True
        return connection.sock.fileno()

    def receive(self, node: Node) -> bool:
        """Receive from a reserved socket, and call back. Returns whether it is still reserved, because the answer is not complete."""
        connection = self._connections.get(node.id)
        if connection is None or not connection.is_reserved:
            return False
        started_ns = time.perf_counter_ns()
        self._on_readable(connection)
        self._call_back()
        if self._metrics is not None:
            self._metrics.worked(time.perf_counter_ns() - started_ns, self.now_ms())
        if not connection.in_flight:
            self.give_back(node)
        return connection.is_reserved

    def give_back(self, node: Node) -> None:
        """Let `poll` wait for the socket of a node again, if it is reserved."""
        connection = self._connections.get(node.id)
        if connection is not None and connection.is_reserved and connection.sock is not None:
            self._selector.register(connection.sock, connection.events, connection)
            connection.is_reserved = False

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to do."""
        return self._selector.fileno()

    def next_event_ms(self) -> float:
        """Return the time of the next event that no socket announces, or an earlier one."""
        next_ms = self._due_ms
        for connection in self._connections.values():
            if connection.waiting:
                now_ms = self.now_ms()
                if connection.state is State.DISCONNECTED:
                    next_ms = min(next_ms, now_ms + connection.attempts.delay_ms(now_ms))
                elif connection.state is State.READY and connection.throttled_until_ms > now_ms:
                    next_ms = min(next_ms, connection.throttled_until_ms)
        return next_ms

    def _expire(self, now_ms: float) -> None:
        """End what is too late, and find out when the next thing is."""
        for connection in list(self._connections.values()):
            late = [request for request in connection.waiting if request.deadline_ms <= now_ms]
            for request in late:
                connection.waiting.remove(request)
                self._finish(request, ApiError("REQUEST_TIMED_OUT", f"no answer from {connection.node.address}: {connection.reason}"))
            if any(request.deadline_ms <= now_ms for request in connection.in_flight):
                self._disconnected(connection, "a request was not answered in time", "REQUEST_TIMED_OUT")
            elif connection.state in (State.CONNECTING, State.CHECKING_VERSIONS) and connection.setup_deadline_ms <= now_ms:
                self._disconnected(connection, "no connection in time")
            elif connection.is_idle(now_ms, self._idle_limit_ms):
                self._drop(connection)
        self._due_ms = min(
            (connection.deadline_ms(now_ms, self._idle_limit_ms) for connection in self._connections.values()), default=NEVER
        )

    def _expect(self, deadline_ms: float) -> None:
        """Look for what is too late at this time, if not earlier."""
        self._due_ms = min(self._due_ms, deadline_ms)

    # connecting

    def _connection(self, node: Node) -> Connection:
        connection = self._connections.get(node.id)
        if connection is not None and connection.node is not node and connection.node[:3] != node[:3]:
            self._disconnected(connection, "the node has another address now")
            connection = None
        if connection is None:
            settings = self.settings
            pauses = ExponentialBackoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._draw)
            limits_ms = settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms
            attempts = ConnectionAttempts(pauses, ExponentialBackoff(*limits_ms, self._draw))
            connection = self._connections[node.id] = Connection(node, attempts, self.now_ms())
        return connection

    def _drive(self, connection: Connection) -> None:
        if connection.state is State.READY:
            if connection.waiting or connection.outbox:
                self._send_waiting(connection)
        elif connection.state is State.DISCONNECTED and connection.waiting and not connection.attempts.delay_ms(self.now_ms()):
            self._connect(connection)

    def _connect(self, connection: Connection) -> None:
        now_ms = self.now_ms()
        connection.attempts.connecting(now_ms)
        connection.tried_ms = now_ms
        connection.state = State.CONNECTING
        connection.setup_deadline_ms = now_ms + connection.attempts.setup_timeout_ms
        self._expect(connection.setup_deadline_ms)
        if connection.failing_since_ms is None:
            connection.failing_since_ms = now_ms
        try:
            if not connection.addresses:
                found = socket.getaddrinfo(connection.node.host, connection.node.port, type=socket.SOCK_STREAM)
                connection.addresses = [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]
            family, address = connection.addresses.pop(0)
            connection.sock = sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sizes = self.settings.send_buffer_bytes, self.settings.receive_buffer_bytes
            for option, size in zip((socket.SO_SNDBUF, socket.SO_RCVBUF), sizes, strict=True):
                if size >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            status = sock.connect_ex(address)
        except OSError as error:
            self._disconnected(connection, error.strerror or str(error))
            return
        if status not in (0, errno.EINPROGRESS):
            self._disconnected(connection, os.strerror(status))
            return
        connection.events = selectors.EVENT_WRITE
        self._selector.register(sock, connection.events, connection)

    def _connected(self, connection: Connection) -> None:
        sock = connection.sock
        assert sock is not None
        status = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # If no process listens on an ephemeral port, a socket that connects to it may be connected to itself.
        try:
            if not status and sock.getsockname() == sock.getpeername():
                status = errno.ECONNREFUSED
        except OSError as error:  # the node has reset it since the line before
            status = error.errno or errno.ENOTCONN
        if status:
            self._disconnected(connection, os.strerror(status))
            return
        connection.attempts.connected()
        if self._metrics is not None:
            self._metrics.opened(connection.node.id, self.now_ms())
        connection.is_open = True
        connection.addresses.clear()
        connection.state = State.CHECKING_VERSIONS
        connection.reason = "it accepted the connection but does not answer"
        connection.setup_deadline_ms = self.now_ms() + self.settings.request_timeout_ms
        self._expect(connection.setup_deadline_ms)
        connection.protocol = ClientConnection(self._client_id)
        self._ask_for_versions(connection, api_keys.by_key(API_VERSIONS).versions.stop - 1)

    def _ask_for_versions(self, connection: Connection, version: int) -> None:
        from kops.protocol.messages import ApiVersionsRequest

        message = ApiVersionsRequest(client_software_name="kops", client_software_version=self._software_version)

        def came(result: Message | ApiError) -> None:
            if not isinstance(result, ApiError):
                self._versions_came(connection, version, result)

        self._write(connection, Request(message, came, connection.setup_deadline_ms, None, True), version)
        self._flush(connection)

    def _versions_came(self, connection: Connection, asked: int, result: Message) -> None:
        from kops.protocol.messages import ApiVersionsResponse

        assert isinstance(result, ApiVersionsResponse)
        versions = NodeVersions(result)
        answer = by_code(result.error_code).name
        if answer == "NONE":
            connection.versions = versions
            connection.attempts.ready()
            connection.state = State.READY
            connection.has_answered = self.has_answer = True
            self._expect(connection.used_ms + self._idle_limit_ms + 1)
            features = versions.finalized_features
            if features.epoch > self._features.epoch:
                self._features = features
            connection.failing_since_ms = None
            connection.failed_attempts = 0
            self._send_waiting(connection)
        elif answer == "UNSUPPORTED_VERSION" and asked:
            try:
                self._ask_for_versions(connection, min(versions.latest(API_VERSIONS), asked - 1))
            except ApiError:
                self._ask_for_versions(connection, 0)
        else:
            self._disconnected(connection, f"it answers ApiVersions with {answer}")

    # requests and responses

    def _send_waiting(self, connection: Connection) -> None:
        assert connection.versions is not None
        if connection.throttled_until_ms > self.now_ms():
            return
        while connection.waiting:
            request = connection.waiting.popleft()
            assert request.message is not None
            assert request.message.API_KEY is not None
            try:
                self._write(connection, request, connection.versions.latest(request.message.API_KEY, request.versions))
            except ApiError as error:
                self._finish(request, error)
        self._flush(connection)

    def _write(self, connection: Connection, request: Request, version: int) -> None:
        message = request.message
        assert message is not None
        try:
            buffers = connection.protocol.send_request(message, version, expect_response=request.expects_response)
        except _UNWRITABLE as error:  # a program's value of a wrong type: only its request fails, and no other
            raise ApiError("INVALID_REQUEST", f"{type(message).__name__} can't be written: {error}") from error
        views = [memoryview(buffer) for buffer in buffers]  # type: ignore[arg-type]  # records are in memory
        connection.outbox.extend(views)
        connection.used_ms = self.now_ms()
        if self._metrics is not None:
            self._metrics.asked(connection.node.id, sum(map(len, views)), connection.used_ms)
        request.message = None
        if request.expects_response:
            connection.in_flight.append(request)
        else:
            self._finish(request, message)

    def _flush(self, connection: Connection) -> None:
        outbox, sock = connection.outbox, connection.sock
        if sock is None:
            return
        try:
            while outbox:
                sent = sock.sendmsg([outbox[i] for i in range(min(len(outbox), _MAX_BUFFERS))])
                if self._metrics is not None:
                    self._metrics.sent(connection.node.id, sent, self.now_ms())
                while outbox and sent >= len(outbox[0]):
                    sent -= len(outbox.popleft())
                if sent:
                    outbox[0] = outbox[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._disconnected(connection, error.strerror or str(error))
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if outbox else 0)
        if connection.events != wanted:
            connection.events = wanted
            if connection.is_reserved:
                self.give_back(connection.node)  # the other thread does not wait until more can be written
            else:
                self._selector.modify(sock, wanted, connection)

    def _on_writable(self, connection: Connection) -> None:
        if connection.state is State.CONNECTING:
            self._connected(connection)
        else:
            self._flush(connection)

    def _on_readable(self, connection: Connection) -> bool:
        """Receive. Returns whether that was only a part of an answer."""
        sock, frames = connection.sock, connection.protocol.frames
        assert sock is not None
        space = frames.space()
        try:
            if space is not None:
                size = sock.recv_into(space)
                frames.filled(size)
            else:
                data = sock.recv(_READ_SIZE)
                size = len(data)
                connection.protocol.receive_data(data)
        except BlockingIOError:
            return True
        except OSError as error:
            self._disconnected(connection, error.strerror or str(error))
            return False
        if not size:
            self._disconnected(connection, "the node closed the connection")
            return False
        if self._metrics is not None:
            self._metrics.received(connection.node.id, size, self.now_ms())
        return not self._read_responses(connection)

    def _read_responses(self, connection: Connection) -> bool:
        """Read the answers that have come. Returns whether there was any, or the connection has ended."""
        protocol = connection.protocol
        has_answer = False
        # A callback may close this connection.
        while connection.protocol is protocol:
            try:
                response = protocol.next_event()
            except DecodeError as error:
                self._disconnected(connection, f"the answer is not a response of a Kafka server: {error}")
                return True
            if response is None:
                return has_answer
            has_answer = True
            request = connection.in_flight.popleft()
            connection.used_ms = self.now_ms()
            pause_ms = throttle_ms(response)
            if pause_ms:
                connection.throttled_until_ms = max(connection.throttled_until_ms, connection.used_ms + pause_ms)
            if self._metrics is not None:
                self._metrics.answered(connection.node.id, connection.used_ms)
            if connection.state is State.CHECKING_VERSIONS:
                request.done(response.message)
            else:
                self._finish(request, response.message)
        return True

    # the end

    def _finish(self, request: Request, result: Message | ApiError) -> None:
        self._finished.append((request.done, result))

    def _disconnected(self, connection: Connection, reason: str, error: str = "NETWORK_EXCEPTION") -> None:
        was_connected = connection.state not in (State.CONNECTING, State.DISCONNECTED)
        if connection.state is not State.READY:
            connection.failed_attempts += 1
            if connection.failed_attempts == 1:
                self._warn(f"{connection.node.address}: no connection, trying again: {reason}")
        self._drop(connection)
        now_ms = self.now_ms()
        connection.attempts.disconnected(now_ms, was_connected=was_connected)
        connection.reason = reason
        if connection.failing_since_ms is None:
            connection.failing_since_ms = now_ms
        failed = [*connection.in_flight, *connection.waiting]
        connection.in_flight.clear()
        connection.waiting.clear()
        for request in failed:
            self._finish(request, ApiError(error, f"{connection.node.address}: {reason}"))

    def _drop(self, connection: Connection) -> None:
        connection.state = State.DISCONNECTED
        connection.versions = None
        connection.outbox.clear()
        connection.protocol = ClientConnection()
        if connection.is_open and self._metrics is not None:
            self._metrics.closed(self.now_ms())
        connection.is_open = False
        if connection.sock is not None:
            if connection.sock.fileno() in self._selector.get_map():
                self._selector.unregister(connection.sock)
            connection.sock.close()
            connection.sock = None
            connection.is_reserved = False
