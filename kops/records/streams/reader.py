"""Reads fields from a stream of pieces. Only the last piece is held in memory.

Source: Kafka's `ByteUtils` and `Utils.readFully` on an `InputStream`, `DefaultRecord.skipBytes`, `ChunkedBytesStream`. Like these classes,
the reader asks for a piece only when it needs a byte of it. So an error of the stream comes after everything that is readable before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kops.errors import DecodeError


class PieceReader:
    """A position in a stream of pieces. `taken` bytes came before the current piece. An empty piece ends the current read, but the next
    read continues (a wrong header in a snappy stream).

    For reads of `direct` bytes or more (unless `direct` is 0), Kafka bypasses its buffer, so the reader asks for exactly the bytes that it
    needs. Then `pieces` is a generator that accepts sizes (`kafka_pieces`).

    Each method raises the errors of the stream, and DecodeError `bad-records` if the stream ends within a field.
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
        """The number of bytes read or skipped since the beginning of the first piece."""
        return self.taken + self.position

    def more(self, wanted: int = 0) -> bool:
        """Hold the rest of the piece and the next piece. Returns False at an end. `wanted` is the number of bytes that the caller needs."""
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
        if not piece:
            return False
        self.taken += self.position
        self.data = self.data[self.position :] + piece if self.position < len(self.data) else piece
        self.position = 0
        return True

    def byte(self) -> int:
        """Return the next byte, or -1 at the end."""
        if self.position >= len(self.data) and not self.more():
            return -1
        value = self.data[self.position]
        self.position += 1
        return value

    def skip(self, size: int) -> None:
        """Skip `size` bytes."""
        if not self.passes(size):
            raise _ended()

    def passes(self, size: int) -> bool:
        """Skip `size` bytes. Returns False if there are fewer. Like Kafka, it asks the stream again at an end."""
        while size > 0:
            skipped = self._pass_once(size)
            size -= skipped
            if not skipped:
                if self.byte() < 0:
                    return False
                size -= 1
        return True

    def _pass_once(self, size: int) -> int:
        """Skip up to an end, and return the number of bytes."""
        left = size
        while True:
            step = min(len(self.data) - self.position, left)
            self.position += step
            left -= step
            if not left or not self.more():
                return size - left

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end. Like Kafka, it asks the stream again at an end within the field."""
        parts: list[bytes] = []
        has_new = False
        while size > 0:
            part = self.data[self.position : self.position + size]
            self.position += len(part)
            size -= len(part)
            parts.append(part)
            has_new = has_new or bool(part)
            if size and not self.more(size):
                if not has_new:
                    break
                has_new = False
        return b"".join(parts)

    def varint(self) -> int:
        """Read a signed 32-bit number."""
        raw = self._raw(28) & 0xFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        """Read a signed 64-bit number."""
        raw = self._raw(63) & 0xFFFFFFFFFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)

    def _raw(self, most: int) -> int:
        """Read a varint. At an end, Kafka treats the -1 as a byte that does not end the number."""
        value = shift = 0
        is_cut = False
        while True:
            byte = self.byte()
            is_cut = is_cut or byte < 0
            value |= (byte & 127) << shift
            if 0 <= byte < 128:
                return value
            shift += 7
            if shift > most:
                if is_cut:
                    raise _ended()
                raise DecodeError("a variable-length integer in a record does not end", code="bad-records")

    def rest(self) -> int:
        """Read to the end, and return the number of bytes."""
        size = 0
        while True:
            size += len(self.data) - self.position
            self.position = len(self.data)
            if not self.more():
                return size


def _ended() -> DecodeError:
    return DecodeError("the records end in the middle of a record", code="bad-records")
