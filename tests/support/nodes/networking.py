"""A SocketServer on loopback with a loop in its own thread, and a client that only sends and receives frames."""

from __future__ import annotations

import errno
import gc
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from kops.broker.network.events.loop import Loop
from kops.broker.network.events.pipe import PipeEnd
from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.broker.network.socket_server import RequestContext, SocketServer
from kops.errors import KopsError
from kops.protocol.connections.connection import ClientConnection, Response
from kops.protocol.declaration import Message
from kops.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

PATIENCE_S = 120
Handler = Callable[[RequestContext], object]
Result = TypeVar("Result")


def has_come(sock: socket.socket, patience_s: float) -> bool:
    """Return whether there is something to receive.

    This uses poll(), because select() takes no descriptor from 1,024 on, and a worker with many brokers has such descriptors.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def reset_once() -> type[socket.socket]:
    """Return a class of sockets, the first of which is reset by its node right after it has connected without an error."""
    left = [OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))]

    class ResetOnce(socket.socket):
        def getpeername(self) -> Any:
            if left:
                raise left.pop()
            return super().getpeername()

    return ResetOnce


def loopback(*names: str) -> tuple[ListenerSettings, ...]:
    """Return listeners on loopback, on any free ports."""
    return tuple(ListenerSettings(name, "127.0.0.1", 0) for name in names or ("PLAINTEXT",))


class LoopFrom(Loop):
    """A loop whose wall clock starts at another time."""

    def __init__(self, clock_ms: int) -> None:
        super().__init__()
        self._behind_ms = super().now_ms() - clock_ms

    def now_ms(self) -> int:
        return super().now_ms() - self._behind_ms


class TcpLoop(Loop):
    """A loop without pipes: what runs on it is connected by TCP, as programs of their own are."""

    def pipe_to(self, address: tuple[str, int]) -> PipeEnd | None:
        return None


class LoopThread:
    """A loop in a thread. `close` raises what was raised in the thread."""

    def __init__(self, loop: Loop | None = None) -> None:
        self.loop = loop or Loop()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self._error = error
            raise

    def call(self, work: Callable[[], Result]) -> Result:
        """Run a function on the loop and return its result."""
        ended = threading.Event()
        results: list[Result] = []
        errors: list[KopsError | OSError] = []

        def run() -> None:
            try:
                results.append(work())
            except (KopsError, OSError) as error:
                errors.append(error)
            finally:
                ended.set()

        self.loop.call_from_thread(run)
        assert ended.wait(PATIENCE_S), "the loop does not turn"
        if errors:
            raise errors[0]
        assert results, "the loop has ended, `close` says why"
        return results[0]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked on the loop a hundred times a second."""
        reached, given_up = threading.Event(), threading.Event()

        def look() -> None:
            if holds():
                reached.set()
            elif not given_up.is_set():
                self.loop.call_later(10, look)

        self.loop.call_from_thread(look)
        try:
            assert reached.wait(PATIENCE_S), "it never came to hold"
        finally:
            given_up.set()

    def join(self) -> None:
        """Wait until the loop has been stopped."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        """Stop the loop, and raise what ended it before."""
        self.loop.call_from_thread(self.loop.stop)
        self.join()
        self.loop.close()
        if self._error is not None:
            raise self._error


class Served:
    """A server that runs until the end of a `with`, on a loop without pipes or the given one."""

    def __init__(self, handler: Handler, settings: NetworkSettings | None = None, *, loop: Loop | None = None) -> None:
        self.thread = LoopThread(loop or TcpLoop())
        self.loop = self.thread.loop
        settings = settings or NetworkSettings(listeners=loopback())
        try:
            self.server = self.thread.call(lambda: SocketServer(self.loop, settings, handler))
        except BaseException:
            self.thread.close()
            raise
        self.thread.call(self.server.start)

    def port(self, name: str = "PLAINTEXT") -> int:
        return self.server.bound_port(name)

    def client(self, name: str = "PLAINTEXT", *, receive_buffer_size: int | None = None) -> Client:
        """Return a new connection."""
        return Client(self.port(name), receive_buffer_size=receive_buffer_size)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked on the loop."""
        self.thread.wait_for(holds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.thread.call(self.server.stop)
            assert self.server.connection_count == self.server.limits.total == 0
            assert self.server.memory.available == self.server.memory.size
        finally:
            self.thread.close()


class Client:
    """A blocking connection that knows frames, correlation ids and the messages of kops."""

    def __init__(self, port: int | None, *, receive_buffer_size: int | None = None) -> None:
        """Connect to `port`. With None, do not connect yet."""
        self.sock = socket.socket()
        self.sock.settimeout(PATIENCE_S)
        if receive_buffer_size is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        if port is not None:
            self.sock.connect(("127.0.0.1", port))
        self._connection = ClientConnection("tests")

    def send(self, message: Message, version: int, *, expect_response: bool = True) -> None:
        self.sock.sendall(self.encoded(message, version, expect_response=expect_response))

    def encoded(self, message: Message, version: int, *, expect_response: bool = True) -> bytes:
        """Return the frame of a request and expect its response."""
        return b"".join(self._connection.send_request(message, version, expect_response=expect_response))  # type: ignore[arg-type]

    def receive(self) -> Response | None:
        """Return the next response, or None if the server has closed the connection."""
        while (response := self._connection.next_event()) is None:
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._connection.receive_data(data)
        return response

    def is_closed(self) -> bool:
        """Wait for the server to close the connection. Return False if it sends something instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.sock.close()


def reset(sock: socket.socket) -> None:
    """Reset a socket with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def open_fds(*, collect: bool = True) -> int:
    """Return how many descriptors this process has open.

    With `collect`, those that earlier tests have dropped without closing them do not count.
    """
    if collect:
        gc.collect()
    return len(os.listdir("/proc/self/fd"))


def echo(context: RequestContext) -> None:
    """Answer ApiVersions with nothing, and Metadata with a cluster id that is the first topic's name."""
    context.respond(answer_to(context.request.message))


def answer_to(message: Message) -> Message:
    """Return the answer of `echo`."""
    if isinstance(message, ApiVersionsRequest):
        return ApiVersionsResponse()
    assert isinstance(message, MetadataRequest)
    return MetadataResponse(cluster_id=message.topics[0].name if message.topics else None)


def metadata_request(name: str) -> Message:
    """Return a request that `echo` answers with its name."""
    from kops.protocol.messages.metadata_request import MetadataRequestTopic

    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])
