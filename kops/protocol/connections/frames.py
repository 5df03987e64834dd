"""Splits a stream into frames without unnecessary copies. A frame is a size of four bytes and that many bytes.

Source: Kafka's NetworkReceive (sizes below 0 or above the limit end the connection) and NetworkSend.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kops.errors import DecodeError
from kops.protocol.primitives import Buffer, size_of

if TYPE_CHECKING:
    from kops.protocol.structure import Encoded

SIZE: Final = Struct(">i")
MAX_SIZE: Final = 0x7FFF_FFFF
_NOTHING: Final = memoryview(b"")
_TRUSTED_SIZE: Final = 16 * 1024  # the maximum size that is allocated before any of a frame is received
_TRUSTED_TIMES: Final = 16  # a longer frame gets a buffer of this many times the received bytes, or as large as an earlier frame


class FrameReader:
    """Splits a stream into frames. A frame may have at most `max_size` bytes (`socket.request.max.bytes`)."""

    __slots__ = ("_filled", "_frame", "_frame_size", "_largest", "_left", "_max_size", "_stream_position")

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._max_size = max_size
        self._left = _NOTHING  # received bytes that belong to no frame yet
        self._frame: bytearray | None = None  # a started frame that is not complete yet
        self._frame_size = 0
        self._filled = 0
        self._largest = _TRUSTED_SIZE  # or the size of the largest frame that was received in parts
        self._stream_position = 0

    @property
    def is_empty(self) -> bool:
        """Whether all received bytes have been returned."""
        return self._left is _NOTHING and self._frame is None

    def receive_data(self, data: Buffer) -> None:
        """Take bytes from the stream. They are kept without a copy, so don't change them afterwards."""
        if self._left is _NOTHING and self._frame is None:
            if len(data):
                self._left = memoryview(data)
            return
        while len(data) and (space := self.space()) is not None:
            taken = min(len(data), len(space))
            space[:taken] = data[:taken]
            self.filled(taken)
            data = memoryview(data)[taken:]
        if len(data):
            self._left = memoryview(data) if not len(self._left) else memoryview(bytes(self._left) + bytes(data))

    def space(self) -> memoryview | None:
        """Return space for the missing bytes of a frame, for `recv_into`, or None if there is no such frame. Report the received bytes with
        `filled`."""
        if self._frame is None or self._filled == self._frame_size:
            return None
        if self._filled == len(self._frame):
            # This is a new buffer, because the caller may still hold views from earlier calls.
            frame = bytearray(min(_TRUSTED_TIMES * self._filled, self._frame_size))
            frame[: self._filled] = self._frame
            self._frame = frame
        return memoryview(self._frame)[self._filled :]

    def filled(self, size: int) -> None:
        """Report that this many bytes were received into `space`."""
        self._filled += size

    def next_size(self) -> int | None:
        """The size of the next frame from its first four bytes. None while it is unknown, and once the frame has started (see `space`)."""
        if self._frame is not None or len(self._left) < SIZE.size:
            return None
        size: int = SIZE.unpack_from(self._left)[0]
        return size

    def next_frame(self) -> memoryview | None:
        """Return the bytes of the next frame without its size, or None until more is received. Raises DecodeError for an invalid size."""
        left = self._left
        if self._frame is not None:
            return self._whole(self._frame) if self._filled == self._frame_size else None
        if left is _NOTHING or len(left) < SIZE.size:
            return None
        (size,) = SIZE.unpack_from(left)
        if not 0 <= size <= self._max_size:
            reason = f"Invalid receive (size = {size}{f' larger than {self._max_size}' if size > 0 else ''})"
            raise DecodeError(reason, code="bad-frame", position=self._stream_position)
        end = SIZE.size + size
        if end <= len(left):
            self._left = left[end:] if end < len(left) else _NOTHING
            self._stream_position += end
            return left[SIZE.size : end]
        self._frame = bytearray(min(size, max(self._largest, _TRUSTED_TIMES * len(left))))
        self._frame_size = size
        self._filled = len(left) - SIZE.size
        self._frame[: self._filled] = left[SIZE.size :]
        self._left = _NOTHING
        return None

    def _whole(self, frame: bytearray) -> memoryview:
        self._frame = None
        self._largest = max(self._largest, len(frame))
        self._stream_position += SIZE.size + len(frame)
        return memoryview(frame)


def framed(buffers: list[Encoded]) -> list[Encoded]:
    """Return the same buffers, after writing the size of the rest into the first four bytes, which are reserved for it."""
    first = buffers[0]
    assert isinstance(first, bytearray)
    SIZE.pack_into(first, 0, (len(first) if len(buffers) == 1 else sum(map(size_of, buffers))) - SIZE.size)
    return buffers
