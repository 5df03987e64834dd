"""Reads the messages in a v0 or v1 batch one by one, as Kafka's iteration does. A bad message does not affect those before it.

Source: Kafka's `AbstractLegacyRecordBatch.DeepRecordsIterator`, `LegacyRecord`. A compressed set is split as a whole, so a bad length makes
all of it unreadable. The fields of a message are read when its turn comes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from kops.errors import DecodeError
from kops.records import Batch
from kops.records.compression import LZ4
from kops.records.streams.messages import InnerMessage, inner_messages
from kops.records.windows import MAX_RECORD, WINDOW

CODE: Final = "bad-records"


def legacy_messages(batch: Batch, max_record_bytes: int = MAX_RECORD) -> Iterator[tuple[bytes, int, int]]:
    """Yield (message from its checksum on, offset, timestamp) of each message.

    DecodeError if Kafka's iteration throws, and for a message of more than `max_record_bytes` in a set of more than 4 MiB.
    """
    message = batch.buffer[batch.index + 12 : batch.index + batch.size]
    if not batch.compressed:
        yield message, batch.last_offset, batch.max_timestamp
        return
    codec, value = _packed(batch, message)
    size, last = 0, None
    held: list[InnerMessage] = []
    for inner in inner_messages(codec, value, batch.magic, whole=False):
        last = inner.offset
        size += inner.size
        if size <= WINDOW and inner.computed_crc is None:
            held.append(inner)
        else:
            size = max(size, WINDOW + 1)
            held.clear()  # They are decompressed a second time.
    if last is None:
        raise DecodeError("a compressed message that holds no message", code=CODE)
    base = 0
    if batch.magic == 1 and batch.last_offset != 0:  # 0 comes from old versions of librdkafka, whose inner offsets are absolute.
        base = batch.last_offset - last
        if base < 0:
            raise DecodeError(f"the outer offset {batch.last_offset} is below the last inner offset {last}", code=CODE)
    for inner in held or inner_messages(codec, value, batch.magic, max_bytes=max_record_bytes):
        if inner.content[5] & 7:
            raise DecodeError("an inner message that is itself compressed", code=CODE)
        yield inner.content, base + inner.offset, _timestamp(batch, inner.content)


def _packed(batch: Batch, message: bytes) -> tuple[int, bytes]:
    """-> (codec, compressed bytes) of a compressed set."""
    codec = batch.attributes & 7
    if codec > LZ4:
        raise DecodeError(f"compression {batch.codec} in message format v{batch.magic}", code="unknown-codec")
    _, position = delimited(message, 6 if message[4] == 0 else 14)
    value, _ = delimited(message, position)
    if value is None:
        raise DecodeError("a compressed message without a value", code=CODE)
    return codec, value


def _timestamp(batch: Batch, inner: bytes) -> int:
    magic = inner[4]
    if magic == 0:
        return -1
    if magic == 1 and batch.timestamp_type == "LogAppendTime":
        return batch.max_timestamp
    if len(inner) < 14:
        raise DecodeError("a message ends within its fields", code=CODE)
    return int.from_bytes(inner[6:14], "big", signed=True)


def crc_ok(message: bytes) -> bool:
    """Whether a message's own checksum is correct."""
    return zlib.crc32(memoryview(message)[4:]) == int.from_bytes(message[:4], "big")


def int_at(message: bytes, position: int) -> int:
    """An int32 in a message. DecodeError where the message ends before it."""
    if not 0 <= position <= len(message) - 4:
        raise DecodeError("a message ends within its fields", code=CODE)
    return int.from_bytes(message[position : position + 4], "big", signed=True)


def delimited(message: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a field that follows its length (negative: null). Returns it and the position after it."""
    size = int_at(message, position)
    position += 4
    if size < 0:
        return None, position
    if position + size > len(message):
        raise DecodeError(f"a message has a field of {size} bytes, but {len(message) - position} are left", code=CODE)
    return message[position : position + size], position + size
