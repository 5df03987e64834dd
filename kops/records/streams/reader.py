"""Fields read from a stream of pieces, of which only the last one is held.

Source: Kafka's `ByteUtils` on an `InputStream`, `ChunkedBytesStream.skip`. As there, a piece is asked for only when a byte of it is needed:
so an error of the stream comes after everything that can be known before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kops.errors import DecodeError


class PieceReader:
    """A stream of pieces, none of them empty, with a place in it. `taken` bytes came before the piece that is held.

    `direct`, where it is not 0, is the size from which on Kafka reads past its buffer: then only what is wanted is asked for. `pieces` is a
    generator that takes sizes then (`kafka_pieces`).

    Each method raises what the stream raises; DecodeError `bad-records` where the stream ends within what is read.
    """

    __slots__ = ("_direct", "_pieces", "data", "position", "taken")

    def __init__(self, pieces: Iterator[bytes], data: bytes = b"", *, direct: int = 0) -> None:
        self._pieces = pieces
        self._direct = direct
        self.data = data
        self.position = 0
        self.taken = 0

    @property
    def consumed(self) -> int:
        """Bytes read or skipped since the beginning of the first piece."""
        return self.taken + self.position

    def more(self, wanted: int = 0) -> bool:
        """Hold what is left and the next piece; False at the end. `wanted`: the bytes that are asked for."""
        if wanted >= self._direct > 0 and isinstance(self._pieces, Generator) and (self.taken or self.data):
            try:
                piece = self._pieces.send(wanted)
            except StopIteration:
                return False
        else:
            found = next(self._pieces, None)
            if found is None:
                return False
            piece = found
        self.taken += self.position
        self.data = self.data[self.position :] + piece if self.position < len(self.data) else piece
        self.position = 0
        return True

    def byte(self) -> int:
        """The next byte, -1 at the end."""
        if self.position >= len(self.data) and not self.more():
            return -1
        value = self.data[self.position]
        self.position += 1
        return value

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""
        if not self.passes(size):
            raise _ended()

    def passes(self, size: int) -> bool:
        """Pass over `size` bytes; False where there are fewer."""
        while size > 0:
            left = len(self.data) - self.position
            if size <= left:
                self.position += size
                return True
            size -= left
            self.position = len(self.data)
            if not self.more():
                return False
        return True

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""
        parts: list[bytes] = []
        while size > 0:
            part = self.data[self.position : self.position + size]
            self.position += len(part)
            size -= len(part)
            parts.append(part)
            if size and not self.more(size):
                break
        return b"".join(parts)

    def varint(self) -> int:
        """A signed number of 32 bits."""
        raw = self._raw(28) & 0xFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        """A signed number of 64 bits."""
        raw = self._raw(63) & 0xFFFFFFFFFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def _raw(self, most: int) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            if byte < 0:
                raise _ended()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > most:
                raise DecodeError("a number in a record does not end", code="bad-records")

    def rest(self) -> int:
        """Read to the end -> how many bytes that were."""
        size = 0
        while True:
            size += len(self.data) - self.position
            self.position = len(self.data)
            if not self.more():
                return size


def _ended() -> DecodeError:
    return DecodeError("the records end within one of them", code="bad-records")
