"""A leader's rules for the batches that it receives, with Kafka's error messages.

Source: Kafka's `LogValidator` (`validateBatch`, `validateRecord`, `processRecordErrors`), `AppendOrigin`, `LogConfig` and
`BrokerCompressionType`; KIP-467 for the errors of single records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from mypy_extensions import mypyc_attr

from kops.errors import ApiError, DecodeError
from kops.records.batch import CONTROL_MASK, MAX_LONG, TIMESTAMP_TYPE_MASK, Batch
from kops.records.compression import CODEC_IDS, CODEC_NAMES, GZIP, LZ4, NONE, ZSTD
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME

Buffer = bytes | bytearray | memoryview

NO_TIMESTAMP: Final = -1
DEFAULT_LZ4_LEVEL: Final = 9

InvalidKind = Literal["magic", "offset", "sequence", "checksum", "no-key"]
CountInvalid = Callable[[InvalidKind], None]
"""Called once for each error, for Kafka's meters InvalidMagicNumberRecordsPerSec, InvalidOffsetOrSequenceRecordsPerSec,
InvalidMessageCrcRecordsPerSec and NoKeyCompactedTopicRecordsPerSec."""


class AppendOrigin(Enum):
    """The origin of an append. Batches of clients are checked fully, those of coordinators partly, those of a replica's leader and of Raft
    not at all."""

    REPLICATION = "REPLICATION"
    COORDINATOR = "COORDINATOR"
    CLIENT = "CLIENT"
    RAFT_LEADER = "RAFT_LEADER"


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """The settings of a partition that concern an append. Times are in ms.

    `compression_type`: `producer`, `uncompressed` or a codec. The levels apply to the codec named there. `magic` is the format of the log.
    """

    topic_partition: str
    compacted: bool = False
    timestamp_type: str = CREATE_TIME
    timestamp_before_max_ms: int = MAX_LONG
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    gzip_level: int = -1
    lz4_level: int = DEFAULT_LZ4_LEVEL
    zstd_level: int = 3
    magic: int = 2

    def target(self, source: int) -> tuple[int, int | None]:
        """Return (codec, level or None for the default) for batches that have the codec `source`."""
        if self.compression_type == "producer":
            return source, None
        if self.compression_type == "uncompressed":
            return NONE, None
        codec = CODEC_IDS[self.compression_type]
        # At the default level of lz4, Kafka uses the fast compressor; at other levels, the high one.
        lz4_level = None if self.lz4_level == DEFAULT_LZ4_LEVEL else self.lz4_level
        return codec, {GZIP: self.gzip_level, LZ4: lz4_level, ZSTD: self.zstd_level}.get(codec)


@mypyc_attr(acyclic=True)
class ValidatedRecords:
    """The batches to append. `data` goes to disk, and `batches` are its batches. `next_offset` is the offset after the last record.

    `max_timestamp` (ms) is -1 without one. `log_append_time_ms` is -1 with CreateTime. `size_changed` means that `converted_count` records
    were rebuilt, so sizes may have changed. `temporary_memory_bytes` is the uncompressed size, 0 if nothing was decompressed.
    """

    __slots__ = (
        "batches",
        "converted_count",
        "data",
        "log_append_time_ms",
        "max_timestamp",
        "next_offset",
        "size_changed",
        "temporary_memory_bytes",
    )

    def __init__(
        self,
        data: bytes,
        batches: list[Batch],
        next_offset: int,
        max_timestamp: int,
        log_append_time_ms: int,
        size_changed: bool = False,
        converted_count: int = 0,
        temporary_memory_bytes: int = 0,
    ) -> None:
        self.data = data
        self.batches = batches
        self.next_offset = next_offset
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.size_changed = size_changed
        self.converted_count = converted_count
        self.temporary_memory_bytes = temporary_memory_bytes


def ignore(_: InvalidKind) -> None:
    """A counter that counts nothing."""


@mypyc_attr(acyclic=True)
class Append:
    """One append: the rules and the state of the partition, who appends, when, and the counter of invalid records. It is not changed."""

    __slots__ = ("count_invalid", "first_offset", "leader_epoch", "now_ms", "origin", "rules")

    def __init__(
        self, rules: ValidationRules, first_offset: int, now_ms: int, leader_epoch: int, origin: AppendOrigin, count_invalid: CountInvalid
    ) -> None:
        self.rules = rules
        self.first_offset = first_offset
        self.now_ms = now_ms
        self.leader_epoch = leader_epoch
        self.origin = origin
        self.count_invalid: CountInvalid = count_invalid

    @property
    def log_append_time_ms(self) -> int:
        return self.now_ms if self.rules.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP


class RecordErrors:
    """Collects the errors of single records. Kafka rejects the batch after it has checked all records."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, str]] = []
        self.bad_timestamp = False

    def add(self, index: int, message: str, *, timestamp: bool = False) -> None:
        self.errors.append((index, message))
        self.bad_timestamp = self.bad_timestamp or timestamp

    def __bool__(self) -> bool:
        return bool(self.errors)

    def raise_if_any(self) -> None:
        """Raise ApiError INVALID_TIMESTAMP if a timestamp is wrong, else INVALID_RECORD. Both have all `record_errors`."""
        if not self.errors:
            return
        found = tuple(self.errors)
        if self.bad_timestamp:
            message = "One or more records have been rejected due to invalid timestamp"
            raise ApiError("INVALID_TIMESTAMP", message, record_errors=found)
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in found[:3])
        message = f"One or more records have been rejected due to {len(found)} record errors in total, "
        message += f"and only showing the first three errors at most: [{shown}]"
        raise ApiError("INVALID_RECORD", message, record_errors=found)


def source_codec(batches: list[Batch]) -> int:
    """Return the codec of the last compressed batch, or `NONE` if there is none. Raises ApiError UNKNOWN_SERVER_ERROR for an unknown
    codec."""
    found = NONE
    for batch in batches:
        codec = batch.attributes & 7
        if codec:
            if codec >= len(CODEC_NAMES):
                raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown compression type id: {codec}")
            found = codec
    return found


def first_batch(batches: list[Batch], source: int) -> Batch:
    """Return the first batch. Raises ApiError INVALID_RECORD if there is none, or if a second one follows a v2 or compressed one."""
    if not batches:
        raise ApiError("INVALID_RECORD", "Record batch has no batches at all")
    if len(batches) > 1 and (batches[0].magic > 1 or source != NONE):
        raise ApiError("INVALID_RECORD", "Compressed outer record has more than one batch")
    return batches[0]


def read_error(error: DecodeError) -> ApiError:
    """Return the error for unreadable records. For a failed decompression, Kafka throws none of its own exceptions."""
    return ApiError("UNKNOWN_SERVER_ERROR" if error.code in ("bad-compression", "unknown-codec") else "INVALID_RECORD", error.reason)


def check_batch(batch: Batch, first: Batch, rules: ValidationRules, origin: AppendOrigin, count_invalid: CountInvalid) -> None:
    """Check the header of a batch. Raises ApiError INVALID_RECORD or UNSUPPORTED_FOR_MESSAGE_FORMAT."""
    if batch.magic != first.magic:
        count_invalid("magic")
        message = f"Batch magic {batch.magic} is not the same as the first batch's magic byte {first.magic}"
        raise ApiError("INVALID_RECORD", f"{message} in topic partition {rules.topic_partition}")
    if batch.magic < 2:
        return
    if origin is AppendOrigin.CLIENT:
        _check_client_batch(batch, rules, count_invalid)
    if rules.magic < 2:
        if batch.is_transactional:
            message = f"Transactional records cannot be used with magic version {rules.magic}"
            raise ApiError("UNSUPPORTED_FOR_MESSAGE_FORMAT", message)
        if batch.producer_id > -1:
            message = f"Idempotent records cannot be used with magic version {rules.magic}"
            raise ApiError("UNSUPPORTED_FOR_MESSAGE_FORMAT", message)


def _check_client_batch(batch: Batch, rules: ValidationRules, count_invalid: CountInvalid) -> None:
    count = batch.count or 0
    span = batch.last_offset - batch.base_offset + 1
    if span != count:
        span = wrap64(span)
    if span == count > 0 and not batch.attributes & CONTROL_MASK and (batch.producer_id < 0 or batch.base_sequence >= 0):
        return
    where = f"in topic partition {rules.topic_partition}"
    offsets = f"[{batch.base_offset}, {batch.last_offset}]"
    if span <= 0:
        kind, message = "offset", f"Batch has an invalid offset range: {offsets} {where}"
    elif count <= 0:
        kind, message = "offset", f"Invalid reported count for record batch: {count} {where}"
    elif span != count:
        kind, message = "offset", f"Inconsistent batch offset range {offsets} and count of records {count} {where}"
    elif batch.is_control:
        kind, message = "offset", f"Clients are not allowed to write control records {where}"
    else:
        number = f"Invalid sequence number {batch.base_sequence}"
        kind, message = "sequence", f"{number} in record batch with producerId {batch.producer_id} {where}"
    count_invalid("offset" if kind == "offset" else "sequence")
    raise ApiError("INVALID_RECORD", message)


def check_key(has_key: bool, index: int, rules: ValidationRules, errors: RecordErrors, count_invalid: CountInvalid) -> bool:
    """Whether the topic accepts a record with or without a key. Adds the error to `errors` if it does not."""
    if has_key or not rules.compacted:
        return True
    count_invalid("no-key")
    errors.add(index, f"Compacted topic cannot accept message without key in topic partition {rules.topic_partition}")
    return False


def check_timestamp(
    batch: Batch,
    timestamp: int,
    offset: int,
    index: int,
    describe: Callable[[], str],
    rules: ValidationRules,
    now_ms: int,
    errors: RecordErrors,
) -> bool:
    """Whether the timestamp of a record is allowed. Adds the error to `errors` if it is not. `describe` is Kafka's toString of the
    record."""
    if rules.timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP:
        if timestamp_in_range(timestamp, rules, now_ms):
            return True
        earliest, latest = wrap64(now_ms - rules.timestamp_before_max_ms), wrap64(now_ms + rules.timestamp_after_max_ms)
        message = f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        errors.add(index, f"{message}The timestamp should be within [{earliest}, {latest}]", timestamp=True)
        return False
    if batch.magic > 0 and batch.attributes & TIMESTAMP_TYPE_MASK:
        message = f"Invalid timestamp type in message {describe()}. "
        errors.add(index, f"{message}Producer should not set timestamp type to LogAppendTime.", timestamp=True)
        return False
    return True


def timestamp_in_range(timestamp: int, rules: ValidationRules, now_ms: int) -> bool:
    """Whether `message.timestamp.before.max.ms` and `after.max.ms` allow the timestamp. Sums wrap at 64 bits, as in Kafka."""
    age = wrap64(now_ms - timestamp)
    return age <= rules.timestamp_before_max_ms and wrap64(-age) <= rules.timestamp_after_max_ms


def wrap64(value: int) -> int:
    """Return a sum as a Java long, which wraps at 64 bits."""
    return value if -MAX_LONG - 1 <= value <= MAX_LONG else (value + MAX_LONG + 1 & (1 << 64) - 1) - MAX_LONG - 1


def type_bit(timestamp_type: str) -> int:
    """Return the bit of a timestamp type in the attributes."""
    return TIMESTAMP_TYPE_MASK if timestamp_type == LOG_APPEND_TIME else 0
