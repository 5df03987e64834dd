"""The messages in a v0 or v1 batch one by one, as Kafka's iteration returns them. A bad message does not affect those before it.

Source: Kafka's `AbstractLegacyRecordBatch.DeepRecordsIterator`, `LegacyRecord`. A compressed set is split as a whole (a bad length
spoils all of it). The fields of a message are read when its turn comes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from kops.errors import DecodeError
from kops.records import Batch, decompress
from kops.records.compression import LZ4

CODE: Final = "bad-records"
_OVERHEAD: Final = struct.Struct(">qi")
_MIN_SIZE: Final = 14


def legacy_messages(batch: Batch) -> Iterator[tuple[bytes, int, int]]:
    """(message from its checksum on, offset, timestamp) of each message. DecodeError if Kafka's iteration throws."""
    message = batch.buffer[batch.index + 12 : batch.index + batch.size]
    if not batch.compressed:
        yield message, batch.last_offset, batch.max_timestamp
        return
    found = _inner(batch, message)
    base = 0
    if batch.magic == 1 and batch.last_offset != 0:  # 0 comes from old librdkafka, whose inner offsets are absolute
        base = batch.last_offset - found[-1][0]
        if base < 0:
            raise DecodeError(f"the outer offset {batch.last_offset} is below the last inner offset {found[-1][0]}", code=CODE)
    for offset, inner in found:
        if inner[5] & 7:
            raise DecodeError("an inner message that is itself compressed", code=CODE)
        yield inner, base + offset, _timestamp(batch, inner)


def _inner(batch: Batch, message: bytes) -> list[tuple[int, bytes]]:
    """(offset as written, message) of the messages in a compressed one; a cut one at the end is left out."""
    codec = batch.attributes & 7
    if codec > LZ4:
        raise DecodeError(f"compression {batch.codec} in message format v{batch.magic}", code="unknown-codec")
    _, position = delimited(message, 6 if message[4] == 0 else 14)
    value, _ = delimited(message, position)
    if value is None:
        raise DecodeError("a compressed message without a value", code=CODE)
    data = decompress(codec, value, magic=batch.magic)
    found = []
    position = 0
    while position + 12 <= len(data):
        offset, size = _OVERHEAD.unpack_from(data, position)
        if size < _MIN_SIZE:
            raise DecodeError(f"an inner message of {size} bytes, at least {_MIN_SIZE} are needed", code=CODE)
        position += 12
        if position + size > len(data):
            break
        found.append((offset, data[position : position + size]))
        position += size
    if not found:
        raise DecodeError("a compressed message that holds no message", code=CODE)
    return found


def _timestamp(batch: Batch, inner: bytes) -> int:
    magic = inner[4]
    if magic == 0:
        return -1
    if magic == 1 and batch.timestamp_type == "LogAppendTime":
        return batch.max_timestamp
    if len(inner) < _MIN_SIZE:
        raise DecodeError("a message ends within its fields", code=CODE)
    return int.from_bytes(inner[6:14], "big", signed=True)


def crc_ok(message: bytes) -> bool:
    """Whether a message's own checksum holds."""
    return zlib.crc32(memoryview(message)[4:]) == int.from_bytes(message[:4], "big")


def int_at(message: bytes, position: int) -> int:
    """An int32 in a message. DecodeError where the message ends before it."""
    if not 0 <= position <= len(message) - 4:
        raise DecodeError("a message ends within its fields", code=CODE)
    return int.from_bytes(message[position : position + 4], "big", signed=True)


def delimited(message: bytes, position: int) -> tuple[bytes | None, int]:
    """A field with its length in front (negative: null), and the position behind it."""
    size = int_at(message, position)
    position += 4
    if size < 0:
        return None, position
    if position + size > len(message):
        raise DecodeError(f"a message has a field of {size} bytes where {len(message) - position} are left", code=CODE)
    return message[position : position + size], position + size
