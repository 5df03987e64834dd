"""The messages in a compressed message of format v0 or v1, read from its stream.

Source: Kafka's `AbstractLegacyRecordBatch.DataLogInputStream`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kops.errors import DecodeError
from kops.records.streams.codecs import Buffer
from kops.records.streams.pieces import KAFKA_SIZES, kafka_pieces
from kops.records.streams.reader import PieceReader

_FRONT: Final = struct.Struct(">qi")
_MIN_SIZE: Final = 14
_LARGE: Final = 1 << 20
MAX_RECORD: Final = 0x7FFFFFFF
"""The size of the largest record in Kafka: the length is a signed 32-bit number."""
_KEPT: Final = 64 * 1024


class InnerSizeError(DecodeError):
    """An inner message claims fewer bytes than the smallest possible message has."""


class InnerMessage(NamedTuple):
    """A message from its checksum, with its `offset` as written. If a large message was skipped, `content` is only its beginning."""

    offset: int
    size: int
    content: bytes
    computed_crc: int | None = None

    def crc_ok(self) -> bool:
        """Whether its checksum is correct."""
        computed = zlib.crc32(memoryview(self.content)[4:]) if self.computed_crc is None else self.computed_crc
        return computed == int.from_bytes(self.content[:4], "big")


def inner_messages(
    codec: int,
    data: Buffer,
    magic: int,
    *,
    whole: bool = True,
    max_bytes: int = MAX_RECORD,
    on_cut: Callable[[int], None] | None = None,
) -> Iterator[InnerMessage]:
    """Yield all messages. As in Kafka, a message that is cut off at the end is left out.

    Without `whole`, a message of more than 1 MiB is skipped, and only its first 64 KiB are returned. `on_cut` is called with the size that
    the cut message claims. Raises InnerSizeError and DecodeError: `too-large` for a message of more than `max_bytes`, and `bad-compression`
    where the stream breaks, after the messages that Kafka reads before the break.
    """
    reader = PieceReader(kafka_pieces(codec, data, magic=magic), direct=KAFKA_SIZES[codec])
    while True:
        front = reader.take(_FRONT.size)
        if len(front) < _FRONT.size:
            return
        offset, size = _FRONT.unpack(front)
        if size < _MIN_SIZE:
            raise InnerSizeError(f"an inner message of {size} bytes, at least {_MIN_SIZE} are needed", code="bad-records")
        if size > max_bytes:
            raise DecodeError(f"the message of offset {offset} takes {size} bytes, the limit is {max_bytes}", code="too-large")
        content = reader.take(size if whole or size <= _LARGE else _KEPT)
        computed = None
        left = size - len(content)
        if left and not whole and size > _LARGE:
            computed = zlib.crc32(memoryview(content)[4:])
            while part := reader.take(min(left, _LARGE)):
                computed = zlib.crc32(part, computed)
                left -= len(part)
        if left:
            if on_cut is not None:
                on_cut(size)
            return
        yield InnerMessage(offset, size, content, computed)
