"""The first offset of a v0 or v1 message set, found as a broker finds it while it reads a segment (Kafka AbstractLegacyRecordBatch).

An uncompressed message has one offset. A compressed set has its last offset outside and the other offsets inside, absolute in v0 and
relative in v1, so the set must be decompressed. An error here aborts the broker's startup, so the exceptions are Kafka's.

This is the only reader besides `kops.records.decode`. Kafka checks less here (only the attributes of the first inner message, no fields of
the others) and in a different order, and the exception decides what a broker or consumer does next.
"""

from __future__ import annotations

from struct import error, unpack_from

from kops.config.values.java import to_int, to_long
from kops.errors import DecodeError
from kops.records import compression
from kops.records.batch import CODEC_MASK, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0
from kops.records.streams.messages import InnerMessage, InnerSizeError, inner_messages
from kops.storage.failures.load_errors import (
    INDEX_OUT_OF_BOUNDS,
    KAFKA_EXCEPTION,
    CorruptRecordError,
    InvalidRecordError,
    LoadError,
    illegal_argument,
)

_MAGIC = 4
_ATTRIBUTES = 5
_KEY_SIZE = (6, 14)
_LARGEST_ALLOCATION = 512 * 1024 * 1024
"""Kafka allocates the size that an inner message claims. kops assumes that a wrong size above this limit exceeds Kafka's heap."""
_SHORT = "a compressed message ends before its value"


def check_codec(codec: int) -> int:
    """Return the codec number if Kafka knows it (CompressionType.forId). An unknown number is an illegal argument."""
    if codec > compression.ZSTD:
        illegal_argument(f"Unknown compression type id: {codec}")
    return codec


def base_offset(offset: int, data: bytes) -> int:
    """Return the first offset of the message set `data` (with its 12 bytes of overhead) whose outer offset is `offset`."""
    record = data[LOG_OVERHEAD:]
    if len(record) <= _ATTRIBUTES:
        raise LoadError("", exception=INDEX_OUT_OF_BOUNDS)
    codec = check_codec(record[_ATTRIBUTES] & CODEC_MASK)
    if codec == compression.NONE:
        return offset
    magic = record[_MAGIC]
    if magic not in (0, 1):
        raise InvalidRecordError(f"Invalid wrapper magic found in legacy deep record iterator {magic - 256 if magic > 127 else magic}")
    if codec == compression.ZSTD:
        raise InvalidRecordError(f"Invalid wrapper compressionType found in legacy deep record iterator {magic}")
    value = _value(record, magic)
    if value is None:
        raise InvalidRecordError(f"Found invalid compressed record set with null value (magic = {magic})")
    return _first_inner_offset(offset, magic, codec, value)


def _value(record: bytes, magic: int) -> bytes | None:
    """Return the record's value. A wrong size raises the same errors as ByteBuffer."""
    try:
        position = _KEY_SIZE[magic]
        (key_size,) = unpack_from(">i", record, position)
        position = to_int(position + 4 + max(0, key_size))
        if position < 0:
            raise LoadError("", exception=INDEX_OUT_OF_BOUNDS, words=_SHORT)
        (size,) = unpack_from(">i", record, position)
    except error:
        raise LoadError("", exception=INDEX_OUT_OF_BOUNDS, words=_SHORT) from None
    if size < 0:
        return None
    capacity = len(record) - position - 4
    if size > capacity:
        words = f"a compressed message's value should have {size} bytes, but {capacity} are there"
        illegal_argument(f"newLimit > capacity: ({size} > {capacity})", words=words)
    return record[position + 4 : position + 4 + size]


def _check_claim(size: int) -> None:
    if size > _LARGEST_ALLOCATION:
        words = f"a message in a compressed message claims {size} bytes"
        raise LoadError("Java heap space", exception="java.lang.OutOfMemoryError", words=words)


def _first_inner_offset(offset: int, magic: int, codec: int, value: bytes) -> int:
    first: InnerMessage | None = None
    last_offset = 0
    try:
        for inner in inner_messages(codec, value, magic, whole=False, on_cut=_check_claim):
            first = first or inner
            last_offset = inner.offset
    except InnerSizeError as wrong:
        raise CorruptRecordError(f"Record size is less than the minimum record overhead ({MESSAGE_OVERHEAD_V0})") from wrong
    except DecodeError as broken:
        raise LoadError(f"java.io.IOException: {broken.reason}", exception=KAFKA_EXCEPTION, words=broken.reason) from broken
    if first is None:
        raise InvalidRecordError("Found invalid compressed record set with no inner records")
    first_offset = first.offset
    if magic == 1:
        if offset != 0 and offset < last_offset:
            raise InvalidRecordError(
                f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{offset}' is less than the last inner"
                f" message offset '{last_offset}' and it is not zero."
            )
        first_offset = to_long((offset - last_offset if offset else 0) + first_offset)
    if check_codec(first.content[_ATTRIBUTES] & CODEC_MASK) != compression.NONE:
        raise InvalidRecordError("Inner messages must not be compressed")
    return first_offset
