"""Messages of the formats v0 and v1 as a leader reads them: lazily, so that a field that Kafka never reads cannot fail.

Source: Kafka's `AbstractLegacyRecordBatch` with its `DeepRecordsIterator`, `LegacyRecord`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kops.errors import ApiError, DecodeError
from kops.records.batch import LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, TIMESTAMP_TYPE_MASK, Batch
from kops.records.compression import CODEC_NAMES, ZSTD
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE
from kops.records.streams.messages import InnerMessage, InnerSizeError, inner_messages
from kops.records.validation.rules import NO_TIMESTAMP, Append, RecordErrors, check_key, check_timestamp, read_error, type_bit, wrap64
from kops.records.windows import WINDOW


class Message:
    """A message, from its checksum. `outer_type` and `outer_timestamp` are those of the compressed set around it, if they apply.

    `inner` is its source in a compressed set. The `content` of a large message may then be only its beginning.
    """

    __slots__ = ("content", "inner", "offset", "outer_timestamp", "outer_type")

    def __init__(self, content: bytes, offset: int, outer_type: str | None = None, outer_timestamp: int = NO_TIMESTAMP) -> None:
        self.content = content
        self.inner: InnerMessage | None = None
        self.offset = offset
        self.outer_type = outer_type
        self.outer_timestamp = outer_timestamp

    @property
    def magic(self) -> int:
        magic = self.content[4]
        return magic - 256 if magic > 127 else magic

    @property
    def size(self) -> int:
        """The size of the message with its offset and its size field."""
        return LOG_OVERHEAD + (len(self.content) if self.inner is None else self.inner.size)

    @property
    def timestamp_type(self) -> str:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return self.outer_type or (LOG_APPEND_TIME if self.content[5] & TIMESTAMP_TYPE_MASK else CREATE_TIME)

    @property
    def timestamp(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP
        return self.outer_timestamp if self.outer_type == LOG_APPEND_TIME else int.from_bytes(self.content[6:14], "big", signed=True)

    @property
    def codec(self) -> int:
        """Raise ApiError UNKNOWN_SERVER_ERROR for a codec that Kafka does not have."""
        codec = self.content[5] & 7
        if codec >= len(CODEC_NAMES):
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown compression type id: {codec}")
        return codec

    def _size_at(self, position: int) -> int:
        field = self.content[position : position + 4]
        if len(field) < 4:
            raise ApiError("UNKNOWN_SERVER_ERROR", "a message ends within its fields")
        return int.from_bytes(field, "big", signed=True)

    def _field(self, position: int) -> memoryview | None:
        size = self._size_at(position)
        if size < 0:
            return None
        field = memoryview(self.content)[position + 4 : position + 4 + size]
        if len(field) < size:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"a message has a field of {size} bytes, {len(field)} are left")
        return field

    @property
    def key_size(self) -> int:
        return self._size_at(14 if self.magic else 6)

    @property
    def key(self) -> bytes | None:
        key = self._field(14 if self.magic else 6)
        return None if key is None else bytes(key)

    @property
    def value(self) -> memoryview | None:
        """The value, as a view of the content."""
        return self._field((18 if self.magic else 10) + max(0, self.key_size))

    def crc_ok(self) -> bool:
        return self.computed_crc() == int.from_bytes(self.content[:4], "big")

    def computed_crc(self) -> int:
        """The CRC-32 of the bytes after the checksum."""
        known = None if self.inner is None else self.inner.computed_crc
        return zlib.crc32(memoryview(self.content)[4:]) if known is None else known

    def describe(self) -> str:
        """Kafka's toString."""
        attributes = self.content[5]
        signed = attributes - 256 if attributes > 127 else attributes
        text = f"magic={self.magic}, attributes={signed}, compression={CODEC_NAMES[self.codec]}"
        text += f", crc={int.from_bytes(self.content[:4], 'big')}"
        if self.magic > 0:
            text += f", {self.timestamp_type}={self.timestamp}"
        if self.inner is None or self.inner.size == len(self.content):
            key_size, value_size = len(self.key or b""), len(self.value or b"")
        else:
            key_size = max(0, self.key_size)
            value_size = max(0, self._size_at((18 if self.magic else 10) + key_size))
        sizes = f"key={key_size} bytes, value={value_size} bytes"
        return f"LegacyRecordBatch(offset={self.offset}, Record({text}, {sizes}))"


def outer_message(batch: Batch) -> Message:
    """Return the message that makes up a batch of v0 or v1."""
    content = bytes(memoryview(batch.buffer)[batch.index + LOG_OVERHEAD : batch.index + batch.size])
    return Message(content, batch.last_offset)


def messages(batch: Batch, *, whole: bool = True) -> Iterator[Message]:
    """Yield the message, or the messages in a compressed one with their absolute offsets. Without `whole`, large messages may lack their
    end.

    Raises ApiError: INVALID_RECORD, CORRUPT_MESSAGE (an impossible inner size), UNKNOWN_SERVER_ERROR (decompression fails).
    """
    outer = outer_message(batch)
    if not outer.codec:
        yield outer
        return
    last, held = _look_through(outer)
    base = 0
    if outer.magic == 1 and outer.offset != 0:
        if outer.offset < last:
            message = f"wrapper offset '{outer.offset}' is less than the last inner message offset '{last}' and it is not zero."
            raise ApiError("INVALID_RECORD", f"Found invalid wrapper offset in compressed v1 message set, {message}")
        base = outer.offset - last
    for found in held or _inner_messages(outer, whole=whole):
        inner = Message(found.content, wrap64(base + found.offset) if outer.magic == 1 else found.offset)
        inner.inner = found
        if inner.magic == 1:
            inner.outer_type, inner.outer_timestamp = outer.timestamp_type, outer.timestamp
        if inner.codec:
            raise ApiError("INVALID_RECORD", "Inner messages must not be compressed")
        yield inner


def _look_through(outer: Message) -> tuple[int, list[InnerMessage]]:
    """Return (the last inner offset as written; the messages, or none if they are too large to be held in memory)."""
    held: list[InnerMessage] = []
    size, last = 0, None
    for inner in _inner_messages(outer, whole=False):
        last = inner.offset
        size += LOG_OVERHEAD + inner.size
        if size <= WINDOW and inner.computed_crc is None:
            held.append(inner)
        else:
            size = max(size, WINDOW + 1)
            held.clear()
    if last is None:
        raise ApiError("INVALID_RECORD", "Found invalid compressed record set with no inner records")
    return last, held


def _inner_messages(outer: Message, *, whole: bool) -> Iterator[InnerMessage]:
    """Yield the inner messages with their offsets as written."""
    if outer.codec == ZSTD:
        raise ApiError("INVALID_RECORD", f"Invalid wrapper compressionType found in legacy deep record iterator {outer.magic}")
    value = outer.value
    if value is None:
        raise ApiError("INVALID_RECORD", f"Found invalid compressed record set with null value (magic = {outer.magic})")
    try:
        yield from inner_messages(outer.codec, value, outer.magic, whole=whole)
    except InnerSizeError:
        raise ApiError("CORRUPT_MESSAGE", f"Record size is less than the minimum record overhead ({MESSAGE_OVERHEAD_V0})") from None
    except DecodeError as error:
        raise read_error(error) from None


def check_message(message: Message, index: int, batch: Batch, append: Append, errors: RecordErrors) -> bool:
    """Whether a message is valid. Adds the error to `errors` if it is not. Raises ApiError CORRUPT_MESSAGE if its checksum is wrong."""
    where = f"in topic partition {append.rules.topic_partition}"
    if message.magic != batch.magic:
        append.count_invalid("magic")
        errors.add(index, f"Record {message.describe()}'s magic does not match outer magic {batch.magic} {where}")
        return False
    if batch.compressed and not message.crc_ok():
        append.count_invalid("checksum")
        computed = message.computed_crc()
        stored = int.from_bytes(message.content[:4], "big")
        raise ApiError("CORRUPT_MESSAGE", f"Record is corrupt (stored crc = {stored}, computed crc = {computed})")
    has_key = not append.rules.compacted or message.key_size >= 0
    return check_key(has_key, index, append.rules, errors, append.count_invalid) and check_timestamp(
        batch, message.timestamp, message.offset, index, message.describe, append.rules, append.now_ms, errors
    )


def patch(target: bytearray, position: int, batch: Batch, last_offset: int, timestamp_type: str, timestamp: int) -> None:
    """Set the offset of the message at `position` and, in v1, its timestamp. The checksum is updated if the timestamp fields change."""
    target[position : position + 8] = last_offset.to_bytes(8, "big", signed=True)
    if batch.magic == 0 or (batch.timestamp_type == timestamp_type and batch.max_timestamp == timestamp):
        return
    target[position + 17] = batch.attributes & 7 | type_bit(timestamp_type)
    target[position + 18 : position + 26] = timestamp.to_bytes(8, "big", signed=True)
    with memoryview(target) as view:
        crc = zlib.crc32(view[position + 16 : position + batch.size])
    target[position + 12 : position + 16] = crc.to_bytes(4, "big")
