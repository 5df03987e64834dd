"""One connection to a broker of kops or Kafka, for requests of any version. It returns answers as plain values that can be compared."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kops.protocol.connections.connection import ClientConnection
from kops.protocol.declaration import Message, Struct
from kops.records.batch import LOG_OVERHEAD, Batch

PATIENCE_S = 120
_UUID_SIZE = 16


class RawClient:
    """A connection that sends a request and reads its answer. It connects again after the broker has closed it."""

    def __init__(self, bootstrap: str, *, client_id: str = "raw") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = (host, int(port))
        self.client_id = client_id
        self._sock: socket.socket | None = None
        self._connection = ClientConnection(client_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def send(self, message: Message, version: int, *, expect_response: bool = True) -> None:
        """Send a request without waiting."""
        if self._sock is None:
            self._sock = self._connect()
            self._connection = ClientConnection(self.client_id)
        self._sock.sendall(b"".join(self._connection.send_request(message, version, expect_response=expect_response)))  # type: ignore[arg-type]

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(self.address, PATIENCE_S)
        if sock.getsockname() == sock.getpeername():
            # Nobody listens there yet, and this end got the same port: the socket is connected to itself.
            sock.close()
            raise ConnectionRefusedError(f"nobody listens at {self.address}")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def receive(self) -> Message | None:
        """Return the next answer, or None if the broker closes the connection instead."""
        assert self._sock is not None
        while (response := self._connection.next_event()) is None:
            try:
                data = self._sock.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self.close()
                return None
            self._connection.receive_data(data)
        return response.message

    def ask(self, message: Message, version: int) -> Message | None:
        """Send a request and return its answer."""
        self.send(message, version)
        return self.receive()


def plain(value: Any, mask: Callable[[str, Any], Any] = lambda _name, value: value) -> Any:
    """Return a message as dicts, lists and values. `mask` sees every field's name and value first.

    Records become what their batches contain.
    """
    if isinstance(value, Struct):
        return {field.name: plain(mask(field.name, getattr(value, field.name)), mask) for field in value.FIELDS}
    if isinstance(value, list):
        return [plain(each, mask) for each in value]
    if isinstance(value, bytes | bytearray | memoryview) and len(value) != _UUID_SIZE:
        return _plain_records(bytes(value))
    return value


def _plain_records(data: bytes) -> list[Any]:
    """Return the contents of each whole batch, and the number of bytes of an incomplete one."""
    fields = ("base_offset", "last_offset", "magic", "attributes", "producer_id", "producer_epoch", "base_sequence", "count", "size")
    batches: list[Any] = []
    position = 0
    while len(data) - position > LOG_OVERHEAD:
        end = position + LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big")
        if end > len(data):
            break
        batch = Batch(data, position)
        batches.append({name: getattr(batch, name) for name in fields})
        position = end
    return [*batches, len(data) - position] if position < len(data) else batches
