"""A batch on disk or on the wire: the fields of its header, its checksum, its records.

Source: Kafka's `DefaultRecordBatch` (magic 2) and `AbstractLegacyRecordBatch` with `LegacyRecord` (magic 0 and 1, where a "batch" is one
outer message: a single record or a compressed set).

A hot module (see `kops._compiled`). When compiled, `Batch` is a native class, and other hot modules read its fields directly.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

from kops.errors import DecodeError
from kops.records.compression import DEFAULT_LIMIT, codec_name
from kops.records.crc import crc32c_function
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record

LOG_OVERHEAD: Final = 12
"""The size of the offset and the length at the beginning of every batch."""
HEADER_SIZE_UP_TO_MAGIC: Final = 17
BATCH_OVERHEAD: Final = 61
"""The size of a v2 batch before its records."""
MESSAGE_OVERHEAD_V0: Final = 14
MESSAGE_OVERHEAD_V1: Final = 22
MAX_INT: Final = 0x7FFFFFFF
MAX_LONG: Final = 0x7FFFFFFFFFFFFFFF

HEADER_V2: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_LEGACY: Final = struct.Struct(">qiIbb")

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40


FIELDS: Final = (
    "_base_offset",
    "attributes",
    "base_sequence",
    "base_timestamp",
    "buffer",
    "count",
    "crc",
    "index",
    "last_offset",
    "magic",
    "max_timestamp",
    "partition_leader_epoch",
    "position",
    "producer_epoch",
    "producer_id",
    "size",
)
"""The attributes of a `Batch`, because a compiled class does not list them."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Batch:
    """One batch, at `index` in `buffer` and at `position` in the file. `size` includes the 12 bytes of offset and length.

    The fields hold the header's values unchecked; see `crc_ok` and `check`. Times are in ms. A field that the format lacks is -1. In v0 and
    v1, `last_offset` is the offset of the outer message and `count` is None. `base_offset` needs decompression on first use. If that fails,
    it is `last_offset`; `read_base_offset` raises an error instead, as Kafka does.
    """

    __slots__ = FIELDS

    __deletable__ = ("max_timestamp",)  # for mypyc: `kops.storage.segment_files.file_records.FileBatch` deletes it

    _base_offset: int | None  # None: a compressed set of v0 or v1 that has not been decompressed yet
    attributes: int
    base_sequence: int
    base_timestamp: int
    count: int | None
    crc: int
    last_offset: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int
    producer_epoch: int
    producer_id: int
    size: int

    def __init__(self, buffer: bytes, index: int = 0, position: int | None = None) -> None:
        """Read the header at `index`. Raises DecodeError (`torn-tail`) if `buffer` ends within it."""
        self.buffer = buffer
        self.index = index
        self.position = index if position is None else position
        try:
            magic = buffer[index + 16]
            if 1 < magic < 128:
                if _COMPILED and 0 <= index <= len(buffer) - BATCH_OVERHEAD:
                    read_header(self, buffer, index)
                else:
                    self._unpack_header(buffer, index)
            else:
                # As in Kafka, a negative magic counts as an old format, because it is below 2.
                self._read_legacy_header(buffer, index, magic)
        except (struct.error, IndexError):
            raise DecodeError("the bytes end within a batch header", code="torn-tail", position=self.position) from None

    def _unpack_header(self, buffer: bytes, index: int) -> None:
        (
            base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER_V2.unpack_from(buffer, index)
        self._base_offset = base_offset
        self.last_offset = _last_offset(base_offset, last_offset_delta)
        self.size = length + LOG_OVERHEAD

    def _read_legacy_header(self, buffer: bytes, index: int, magic: int) -> None:
        offset, length, self.crc, self.magic, self.attributes = HEADER_LEGACY.unpack_from(buffer, index)
        self.size = length + LOG_OVERHEAD
        self.last_offset = offset
        self.max_timestamp = self.base_timestamp = struct.unpack_from(">q", buffer, index + 18)[0] if magic else -1
        self.partition_leader_epoch = self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.count = None
        self._base_offset = None if self.attributes & CODEC_MASK else offset

    def moved(self, buffer: bytes, base_offset: int, leader_epoch: int) -> Batch:
        """Return the v2 batch at the beginning of `buffer`, which is this batch with another base offset and leader epoch."""
        batch = Batch.__new__(Batch)
        batch.buffer = buffer
        batch.index = batch.position = 0
        batch._base_offset = base_offset
        batch.last_offset = base_offset + self.last_offset - self.base_offset
        batch.partition_leader_epoch = leader_epoch
        batch.size = self.size
        batch.magic = self.magic
        batch.crc = self.crc
        batch.attributes = self.attributes
        batch.base_timestamp = self.base_timestamp
        batch.max_timestamp = self.max_timestamp
        batch.producer_id = self.producer_id
        batch.producer_epoch = self.producer_epoch
        batch.base_sequence = self.base_sequence
        batch.count = self.count
        return batch

    def __repr__(self) -> str:
        return f"Batch(position={self.position}, size={self.size}, magic={self.magic}, last_offset={self.last_offset}, codec={self.codec})"

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
        base_offset = self._base_offset
        if base_offset is None:
            base_offset = self._base_offset = self._find_base_offset()
        return base_offset

    def _find_base_offset(self) -> int:
        try:
            return self.read_base_offset()
        except DecodeError:
            return self.last_offset

    @property
    def codec(self) -> str:
        """`none`, `gzip`, `snappy`, `lz4`, `zstd` or `unknown(n)`."""
        return codec_name(self.attributes & CODEC_MASK)

    @property
    def compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> str:
        """`NoTimestampType` (v0), `CreateTime` or `LogAppendTime`."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.magic > 1 and self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.magic > 1 and self.attributes & CONTROL_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop the batch's tombstones and markers. The header stores it in place of the base timestamp."""
        return self.base_timestamp if self.magic > 1 and self.attributes & DELETE_HORIZON_MASK else None

    @property
    def last_offset_delta(self) -> int:
        return _int64(self.last_offset - self.base_offset)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1 if there is none. It wraps from 2147483647 to 0."""
        return increment_sequence(self.base_sequence, self.last_offset_delta) if self.base_sequence != -1 else -1

    @property
    def next_offset(self) -> int:
        last_offset = self.last_offset
        return last_offset + 1 if last_offset < MAX_LONG else -MAX_LONG - 1

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.size

    def data(self) -> memoryview:
        """The whole batch, as a view."""
        return memoryview(self.buffer)[self.index : self.index + self.size]

    def computed_crc(self) -> int:
        """The CRC-32C of the available bytes from the attributes (v2), or their CRC-32 from the magic byte (v0, v1)."""
        view = memoryview(self.buffer)
        if self.magic > 1:
            return crc32c_function()(view[self.index + 21 : self.index + self.size], 0)
        return zlib.crc32(view[self.index + 16 : self.index + self.size])

    @property
    def crc_ok(self) -> bool:
        """Whether the size has room for a header, all bytes are present, and the checksum is correct (Kafka's `isValid`)."""
        least = BATCH_OVERHEAD if self.magic > 1 else LOG_OVERHEAD + MESSAGE_OVERHEAD_V0
        return self.size >= least and self.index + self.size <= len(self.buffer) and self.computed_crc() == self.crc

    def ensure_valid(self) -> None:
        """Raise DecodeError (`bad-length` or `crc-mismatch`) if Kafka's `ensureValid` throws CorruptRecordException."""
        if not self.crc_ok:
            least = BATCH_OVERHEAD if self.magic > 1 else LOG_OVERHEAD + MESSAGE_OVERHEAD_V0
            if self.size < least:
                raise DecodeError(f"a batch of {self.size} bytes, at least {least} are needed", code="bad-length", position=self.position)
            computed = self.computed_crc()
            reason = f"the batch's checksum is {self.crc}, its bytes give {computed}"
            raise DecodeError(reason, code="crc-mismatch", position=self.position)

    def records(self, limit: int = DEFAULT_LIMIT) -> list[Record]:
        """All records, held in memory. For batches of any size, use `iterate`.

        Raises DecodeError: `bad-records`, `bad-compression` or `unknown-codec` where Kafka's iteration throws, and `too-large` if the
        records decompress to more than `limit` bytes.
        """
        from kops.records import decode

        return decode.read_records(self, limit)

    def iterate(self, max_record_bytes: int = MAX_INT) -> Iterator[Record]:
        """Yield the records one by one, decompressing as needed. The batch may decompress to any size.

        Raises DecodeError as `records` does, but only after yielding the records before the error. `too-large` applies only to a record of
        more than `max_record_bytes`, in a batch that decompresses to more than 4 MiB.
        """
        from kops.records import decode

        return decode.iterate(self, max_record_bytes=max_record_bytes)

    def check(self) -> list[DecodeError]:
        """Check the contents except for the checksum, and return a list of errors. Raises nothing."""
        from kops.records import decode

        return decode.check_batch(self)

    def read_base_offset(self) -> int:
        """Return the offset of the first record. This decompresses v0 and v1 and raises DecodeError as `records` does."""
        if self.magic > 1 or not self.compressed:
            return self.base_offset
        from kops.records import decode

        return decode.read_base_offset(self)


def read_header(batch: Batch, buffer: bytes, index: i64) -> None:
    """Read a complete v2 header, as `Batch._unpack_header` does. Compiled, this takes a third of the time; interpreted, many times as
    long."""
    base_offset: i64 = _int64_at(buffer, index)
    delta: i64 = _int32_at(buffer, index + 23)
    batch._base_offset = base_offset
    if 0 <= base_offset <= MAX_LONG - MAX_INT:
        batch.last_offset = base_offset + delta
    else:
        batch.last_offset = _last_offset(base_offset, delta)
    batch.size = _int32_at(buffer, index + 8) + LOG_OVERHEAD
    batch.partition_leader_epoch = _int32_at(buffer, index + 12)
    batch.magic = buffer[index + 16]
    batch.crc = _int32_at(buffer, index + 17) & 0xFFFFFFFF
    batch.attributes = _int16_at(buffer, index + 21)
    batch.base_timestamp = _int64_at(buffer, index + 27)
    batch.max_timestamp = _int64_at(buffer, index + 35)
    batch.producer_id = _int64_at(buffer, index + 43)
    batch.producer_epoch = _int16_at(buffer, index + 51)
    batch.base_sequence = _int32_at(buffer, index + 53)
    batch.count = _int32_at(buffer, index + 57)


def _last_offset(base_offset: int, delta: int) -> int:
    return _int64(base_offset + delta)


def _int64(value: int) -> int:
    """A sum that wraps, as in Java."""
    return value if -MAX_LONG - 1 <= value <= MAX_LONG else (value + MAX_LONG + 1 & (1 << 64) - 1) - MAX_LONG - 1


def _int32(value: int) -> int:
    """A sum that wraps, as in Java."""
    return value if -MAX_INT - 1 <= value <= MAX_INT else (value + MAX_INT + 1 & 0xFFFFFFFF) - MAX_INT - 1


def _int16_at(buffer: bytes, index: i64) -> i64:
    high: i64 = buffer[index]
    low: i64 = buffer[index + 1]
    return ((high ^ 0x80) - 0x80) << 8 | low


def _int32_at(buffer: bytes, index: i64) -> i64:
    first: i64 = buffer[index]
    second: i64 = buffer[index + 1]
    third: i64 = buffer[index + 2]
    fourth: i64 = buffer[index + 3]
    return ((first ^ 0x80) - 0x80) << 24 | second << 16 | third << 8 | fourth


def _int64_at(buffer: bytes, index: i64) -> i64:
    return _int32_at(buffer, index) << 32 | (_int32_at(buffer, index + 4) & 0xFFFFFFFF)


def increment_sequence(sequence: int, increment: int) -> int:
    """`sequence + increment`, wrapping from 2147483647 to 0. Other numbers overflow as in Java."""
    if sequence > _int32(MAX_INT - increment):
        return _int32(increment - (MAX_INT - sequence) - 1)
    return _int32(sequence + increment)


def decrement_sequence(sequence: int, decrement: int) -> int:
    """`sequence - decrement`, wrapping from 0 to 2147483647. Other numbers overflow as in Java."""
    if sequence < decrement:
        return _int32(MAX_INT - (decrement - sequence) + 1)
    return _int32(sequence - decrement)


_COMPILED: Final = not hasattr(increment_sequence, "__code__")
