"""Connections between nodes that share a loop. The two ends are in memory and behave as the sockets of one TCP connection.

A message takes no system call, and the kernel's loopback does not carry it. What is written to one end can be read from the other one in
the next turn of the loop. An end is no file, so nothing that needs a descriptor works with it. Other programs, and clients in this
process, use TCP.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kops.broker.network.events.loop import Loop, Watch
    from kops.protocol.primitives import Buffer

LIMIT: Final = 256 * 1024
"""An end with this many unread bytes accepts no more. A buffer that it accepts is kept as it is, also if it is longer."""


class Stream(Protocol):
    """The part of `socket.socket` that connections of nodes use."""

    def send(self, data: Buffer, /) -> int: ...
    def sendmsg(self, buffers: list[Buffer], ancillary: Sequence[tuple[int, int, bytes]] = (), flags: int = 0, /) -> int: ...
    def recv(self, size: int, /) -> Buffer: ...
    def recv_into(self, space: memoryview, /) -> int: ...
    def getsockname(self) -> tuple[Any, ...]: ...
    def getpeername(self) -> tuple[Any, ...]: ...
    def getsockopt(self, level: int, option: int, /) -> int: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class PipeEnd:
    """One end of a connection. Its methods are those of a non-blocking socket, with the same errors.

    `send` keeps bytes and bytearrays without a copy, so the caller must not change them afterwards. `watch` is the watch that the loop has
    for this end while some event is wanted.
    """

    __slots__ = ("_address", "_chunks", "_is_ended", "_is_reset", "_loop", "_other", "_peer_address", "_size", "watch")

    def __init__(self, loop: Loop, address: tuple[str, int], peer_address: tuple[str, int]) -> None:
        self._loop = loop
        self._address = address
        self._peer_address = peer_address
        self._chunks: deque[Buffer] = deque()  # The bytes to be read here.
        self._size = 0  # Their number.
        self._other: PipeEnd | None = None
        self._is_ended = False
        self._is_reset = False
        self.watch: Watch | None = None

    def connect(self, other: PipeEnd) -> None:
        """Make this end and another one a connection."""
        self._other = other
        other._other = self

    # for the loop -----------------------------------------------------------------------------------------------------------------

    @property
    def is_readable(self) -> bool:
        """Whether `recv` would not block."""
        return self._size > 0 or self._is_ended

    @property
    def is_writable(self) -> bool:
        """Whether `send` would not block."""
        other = self._other
        return other is None or other._size < LIMIT

    # socket.socket ----------------------------------------------------------------------------------------------------------------

    def send(self, data: Buffer) -> int:
        """Send bytes and return their number. Of a memoryview, only as many bytes are sent as there is room for."""
        other = self._other
        if other is None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = LIMIT - other._size
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if isinstance(data, memoryview):
            data = bytes(data[:room])  # What it shows may change.
        size = len(data)
        if size:
            other._chunks.append(data)
            other._size += size
            if other.watch is not None:
                self._loop.look_at(other)
        return size

    def sendmsg(self, buffers: list[Buffer], ancillary: Sequence[tuple[int, int, bytes]] = (), flags: int = 0) -> int:
        """Send as many bytes of some buffers as there is room for. The flags have no effect: all is read in the next turn anyway."""
        other = self._other
        left = LIMIT if other is None else LIMIT - other._size
        parts: list[Buffer] = []
        for buffer in buffers:
            if left <= 0:
                break
            parts.append(buffer if len(buffer) <= left else memoryview(buffer)[:left])
            left -= len(buffer)
        return self.send(b"".join(parts))

    def recv(self, size: int) -> Buffer:
        """Return up to `size` bytes, b"" at the end."""
        chunks = self._chunks
        if not chunks:
            return self._end()
        first = chunks[0]
        length = len(first)
        if length > size:
            chunks[0] = memoryview(first)[size:]
            first = memoryview(first)[:size]
            length = size
        else:
            chunks.popleft()
            if chunks and length + len(chunks[0]) <= size:
                parts = [first]
                while chunks and length + len(chunks[0]) <= size:
                    part = chunks.popleft()
                    parts.append(part)
                    length += len(part)
                first = b"".join(parts)
        self._took(length)
        return first

    def recv_into(self, space: memoryview) -> int:
        """Read into a buffer. Returns the number of bytes, 0 at the end."""
        chunks = self._chunks
        if not chunks:
            return len(self._end())
        filled = 0
        free = len(space)
        while chunks and filled < free:
            first = chunks[0]
            length = len(first)
            if length > free - filled:
                length = free - filled
                chunks[0] = memoryview(first)[length:]
                first = memoryview(first)[:length]
            else:
                chunks.popleft()
            space[filled : filled + length] = first
            filled += length
        self._took(filled)
        return filled

    def _end(self) -> bytes:
        """Return what `recv` returns when nothing is left to be read."""
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if self._is_ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _took(self, size: int) -> None:
        was_full = self._size >= LIMIT
        self._size -= size
        if was_full and self._other is not None:
            self._loop.look_at(self._other)

    def getsockname(self) -> tuple[str, int]:
        """The address of this end."""
        return self._address

    def getpeername(self) -> tuple[str, int]:
        """The address of the other end."""
        return self._peer_address

    def getsockopt(self, level: int, option: int) -> int:
        """The option SO_ERROR, the only one that a pipe has: it is made connected, so there is no error."""
        return 0

    def fileno(self) -> int:
        """Raise ENOTSUP, as sendfile does for a file that it can't send. The data is then read and sent."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def close(self) -> None:
        """Close the connection. The other end can read what was sent. If something was unread here, it then gets a reset, as with TCP."""
        other = self._other
        is_unread = self._size > 0
        self._chunks.clear()
        self._size = 0
        self._is_ended = True
        self.watch = None
        if other is not None:
            self._other = other._other = None
            other._is_ended = True
            other._is_reset = is_unread
            self._loop.look_at(other)
