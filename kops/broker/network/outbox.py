"""The data to send on one socket: buffers and slices of files, sent with few calls.

Source: Kafka's NetworkSend, ByteBufferSend, MultiRecordsSend and FileRecords.writeTo (a file that has become shorter ends the connection).
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

from kops.protocol.primitives import size_of

if TYPE_CHECKING:
    from kops.broker.network.events.pipe import Stream
    from kops.protocol.structure import Encoded

_IN_MEMORY: Final = (bytes, bytearray, memoryview)
_MAX_BUFFERS: Final = 256  # Buffers in one sendmsg; Linux accepts 1024.
_READ_SIZE: Final = 16 * 1024  # Slices up to this size are sent with their neighbours in one sendmsg instead of a sendfile of their own.
_FILE_PIECE: Final = 1024 * 1024
_TURN_SIZE: Final = 4 * 1024 * 1024  # The bytes sent on one connection before others have their turn.
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class _Source(Protocol):
    def fileno(self) -> int: ...

    def read(self, position: int, size: int) -> bytes: ...


class _Slice(Protocol):
    """A slice of a file as `kops.storage.segment_files.file_records.LogView` is one."""

    source: _Source
    path: str
    start: int
    size: int


class Outbox:
    """A queue of buffers. `size` is the number of bytes still to be sent."""

    __slots__ = ("_buffers", "_sent_of_first", "size")

    def __init__(self) -> None:
        self._buffers: deque[Encoded] = deque()
        self._sent_of_first = 0
        self.size = 0

    def add(self, buffers: list[Encoded]) -> None:
        """Append buffers. They are kept, not copied."""
        if len(buffers) == 1 and isinstance(only := buffers[0], bytearray) and only:
            self._buffers.append(only)
            self.size += len(only)
            return
        for buffer in buffers:
            size = size_of(buffer)
            if size:
                self._buffers.append(buffer)
                self.size += size

    def clear(self) -> None:
        """Drop everything."""
        self._buffers.clear()
        self._sent_of_first = self.size = 0

    def flush(self, sock: Stream) -> bool:
        """Send as much as the socket accepts. Returns whether nothing is left. Raises OSError if the connection or a file fails."""
        buffers = self._buffers
        if len(buffers) == 1 and isinstance(only := buffers[0], bytearray) and not self._sent_of_first:
            return self._send_only(sock, only)
        left_of_turn = _TURN_SIZE
        while buffers:
            if left_of_turn <= 0:
                return False
            first = buffers[0]
            try:
                if isinstance(first, _IN_MEMORY) or first.size <= _READ_SIZE:
                    sent, is_full = self._send_buffers(sock)
                else:
                    sent, is_full = self._send_file(sock, cast("_Slice", first)), False
            except BlockingIOError:
                return False
            self._advance(sent)
            left_of_turn -= sent
            if is_full:
                return False
        return True

    def _send_only(self, sock: Stream, buffer: bytearray) -> bool:
        """Send a single buffer. Returns whether all of it is sent. Nearly every request and most answers are one buffer."""
        try:
            sent = sock.send(buffer)
        except BlockingIOError:
            return False
        if sent == len(buffer):
            self._buffers.clear()
            self.size = 0
            return True
        self._advance(sent)
        return False

    def _send_buffers(self, sock: Stream) -> tuple[int, bool]:
        """Send the buffers before the next slice for sendfile. Returns (bytes sent, whether the socket accepted less than it was given)."""
        gathered: list[bytes | bytearray | memoryview] = []
        size = 0
        is_more = False
        for index, buffer in enumerate(self._buffers):
            if len(gathered) == _MAX_BUFFERS or size >= _TURN_SIZE:
                break
            if not isinstance(buffer, _IN_MEMORY):
                if buffer.size > _READ_SIZE:
                    is_more = True
                    break
                buffer = self._buffers[index] = _read(cast("_Slice", buffer), 0, buffer.size)
            part = memoryview(buffer)[self._sent_of_first :] if index == 0 and self._sent_of_first else buffer
            gathered.append(part)
            size += len(part)
        if is_more:
            # Without the flag the header of a fetch would be a packet of its own before its records.
            sent = sock.sendmsg(gathered, [], _MORE)
        elif size <= _READ_SIZE:
            sent = sock.send(b"".join(gathered))  # Copying a few bytes is cheaper than describing where they are.
        else:
            sent = sock.sendmsg(gathered)
        return sent, sent < size

    def _send_file(self, sock: Stream, part: _Slice) -> int:
        position = part.start + self._sent_of_first
        size = min(part.size - self._sent_of_first, _FILE_PIECE)
        try:
            sent = os.sendfile(sock.fileno(), part.source.fileno(), position, size)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
                raise
            # The file has no descriptor, or its file system does not support sendfile.
            return sock.send(_read(part, self._sent_of_first, size))
        if not sent:
            raise _shrunk(part)
        return sent

    def _advance(self, sent: int) -> None:
        if sent == self.size:
            self.clear()
            return
        self.size -= sent
        sent += self._sent_of_first
        while self._buffers and sent >= (size := size_of(self._buffers[0])):
            sent -= size
            self._buffers.popleft()
        self._sent_of_first = sent


def _read(part: _Slice, position: int, size: int) -> bytes:
    data = part.source.read(part.start + position, size)
    if len(data) < size:
        raise _shrunk(part)
    return data


def _shrunk(part: _Slice) -> OSError:
    return OSError(errno.EIO, f"{part.path} is shorter than the {part.size} bytes from position {part.start} that were to be sent")
