"""The first check of an append's batches, before offsets are assigned and anything is written.

Sources: Kafka's UnifiedLog.analyzeAndValidateRecords, LogAppendInfo, ByteBufferLogInputStream.

The check is shallow: it reads headers and checksums, but no records. Wrong bytes raise `ApiError` with Kafka's texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.errors import ApiError, DecodeError, KopsError
from kops.records.batch import BATCH_OVERHEAD, CODEC_MASK, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, Batch
from kops.records.compression import CODEC_NAMES
from kops.records.decode import iterate
from kops.records.log_offsets import UNKNOWN_OFFSET
from kops.records.log_offsets import UnexpectedAppendOffsetError as UnexpectedAppendOffsetError
from kops.records.validation.validate import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.storage.formats.leader_epoch_checkpoint import EpochEntry

_CURRENT_MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
_OFFSETS_TOLD: Final = 10
_memoryview: Final = memoryview  # bound here because compiled code looks up a builtin by name
_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION
OFFSETS_GIVEN: Final = (AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER)
"""The origins whose records arrive with their offsets."""


class OffsetsOutOfOrderError(KopsError):
    """The offsets of records that arrived with offsets do not increase (OffsetsOutOfOrderException)."""


@mypyc_attr(acyclic=True)
class LogAppendInfo:
    """The result of an append: offsets (-1 if unknown), times in ms (-1 for none), sizes in bytes.

    `first_offset` is unknown for a follower's batches of the formats 0 and 1. `log_append_time_ms` is set if the topic uses the log's time.
    For a duplicate, it is the time of the first append. `source_codec` is the last compression among the batches, 0 for none.
    `converted_count` and `temporary_memory_bytes` are those of `ValidatedRecords`.
    """

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        last_leader_epoch: int | None,
        max_timestamp: int,
        log_start_offset: int,
        source_codec: int,
        valid_bytes: int,
        last_offset_of_first_batch: int,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.last_leader_epoch = last_leader_epoch
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = NO_TIMESTAMP
        self.log_start_offset = log_start_offset
        self.source_codec = source_codec
        self.valid_bytes = valid_bytes
        self.last_offset_of_first_batch = last_offset_of_first_batch
        self.is_duplicate = False
        self.converted_count = 0
        self.temporary_memory_bytes = 0

    @property
    def first_or_last_offset_of_first_batch(self) -> int:
        """The first offset, or the last offset of the first batch if the first offset is unknown."""
        return self.first_offset if self.first_offset >= 0 else self.last_offset_of_first_batch

    @property
    def message_count(self) -> int:
        """The number of offsets that the append used."""
        return self.last_offset - self.first_offset + 1 if self.first_offset >= 0 and self.last_offset >= 0 else 0


def memory_batches(data: bytes) -> Iterator[Batch]:
    """Yield the batches of a request's bytes, up to one that is cut off. Raises ApiError CORRUPT_MESSAGE for an impossible size or
    format.
    """
    position = 0
    while (batch := _batch_at(data, position, len(data))) is not None:
        yield batch
        position += batch.size


def _batch_at(data: bytes, position: int, end: int) -> Batch | None:
    """Return the batch at a position, or None if it is not complete. Raises ApiError as `memory_batches` does."""
    left = end - position
    if left < LOG_OVERHEAD:
        return None
    if left >= BATCH_OVERHEAD and data[position + HEADER_SIZE_UP_TO_MAGIC - 1] == _CURRENT_MAGIC:
        batch = Batch(data, position)
        if BATCH_OVERHEAD <= batch.size <= left:
            return batch
    size = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
    if size < MESSAGE_OVERHEAD_V0:
        reason = f"Record size {size} is less than the minimum record overhead ({MESSAGE_OVERHEAD_V0})"
        raise ApiError("CORRUPT_MESSAGE", reason)
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return None
    magic = data[position + HEADER_SIZE_UP_TO_MAGIC - 1]
    if magic > _CURRENT_MAGIC:
        raise ApiError("CORRUPT_MESSAGE", f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}")
    if size + LOG_OVERHEAD > left:
        return None
    try:
        return Batch(data, position)
    except DecodeError as error:
        raise ApiError("CORRUPT_MESSAGE", f"Record batch is too small for its header: {size + LOG_OVERHEAD} bytes") from error


def _walk(data: bytes, position: int, end: int) -> None:
    """Check the sizes of the remaining batches, as Kafka does even though it uses none of them. Raises ApiError as `memory_batches`
    does."""
    while (batch := _batch_at(data, position, end)) is not None:
        position += batch.size


def analyze_records(
    data: bytes,
    origin: AppendOrigin,
    leader_epoch: int,
    topic_partition: str,
    log_start_offset: int,
    max_message_bytes: int,
    crc: Callable[[memoryview], int],
) -> tuple[LogAppendInfo, list[Batch]]:
    """Check the sizes, checksums and order of the batches. Returns what is known so far and the batches to write.

    `max_message_bytes` does not apply to a replica, which accepts any size. A replica stops at a batch with a later epoch than the one it
    follows. `crc` is CRC-32C. Raises ApiError: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE; OffsetsOutOfOrderError.
    """
    batches: list[Batch] = []
    valid_bytes = source_codec = 0
    max_timestamp = last_offset = -1
    monotonic = True
    replicated = origin is _REPLICATION
    view, end = _memoryview(data), len(data)
    while (batch := _batch_at(data, valid_bytes, end)) is not None:
        if not replicated:
            if origin is not _CLIENT or batch.base_offset:
                _check_origin(batch, origin, leader_epoch, topic_partition)
        elif batch.partition_leader_epoch > leader_epoch:
            _walk(data, valid_bytes, end)
            break
        if last_offset >= batch.last_offset:
            monotonic = False
        last_offset = batch.last_offset
        size = batch.size
        if size > max_message_bytes and not replicated:
            reason = (
                f"The record batch size in the append to {topic_partition} is {size} bytes "
                f"which exceeds the maximum configured value of {max_message_bytes})."
            )
            raise ApiError("MESSAGE_TOO_LARGE", reason)
        if batch.magic > 1 and size >= BATCH_OVERHEAD:
            is_valid = crc(view[valid_bytes + 21 : valid_bytes + size]) == batch.crc
        else:
            is_valid = batch.crc_ok
        if not is_valid:
            reason = f"Record is corrupt (stored crc = {batch.crc}) in topic partition {topic_partition}."
            raise ApiError("CORRUPT_MESSAGE", reason)
        if batch.max_timestamp > max_timestamp:
            max_timestamp = batch.max_timestamp
        valid_bytes += size
        if batch.attributes & CODEC_MASK:
            source_codec = _codec(batch)
        batches.append(batch)
        if not monotonic and origin in OFFSETS_GIVEN:
            offsets = ",".join(str(record.offset) for batch in memory_batches(data) for record in iterate(batch, holds="nulls"))
            raise OffsetsOutOfOrderError(f"Out of order offsets found in append to {topic_partition}: {offsets}")
    first = batches[0] if batches else None
    last_epoch = batches[-1].partition_leader_epoch if batches else -1
    return LogAppendInfo(
        first.base_offset if first is not None and first.magic > 1 else UNKNOWN_OFFSET,
        last_offset,
        last_epoch if last_epoch != -1 else None,
        max_timestamp,
        log_start_offset,
        source_codec,
        valid_bytes,
        -1 if first is None else first.last_offset,
    ), batches


def _check_origin(batch: Batch, origin: AppendOrigin, leader_epoch: int, topic_partition: str) -> None:
    if origin is AppendOrigin.CLIENT:
        if batch.base_offset != 0 and batch.magic > 1:
            reason = f"The baseOffset of the record batch in the append to {topic_partition} should be 0, but it is {batch.base_offset}"
            raise ApiError("INVALID_RECORD", reason)
    elif origin is AppendOrigin.RAFT_LEADER and batch.partition_leader_epoch != leader_epoch:
        reason = (
            f"Append from Raft leader did not set the batch epoch correctly, expected {leader_epoch} "
            f"but the batch has {batch.partition_leader_epoch}"
        )
        raise ApiError("INVALID_RECORD", reason)


def _codec(batch: Batch) -> int:
    codec = batch.attributes & CODEC_MASK
    if codec >= len(CODEC_NAMES):
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown compression type id: {codec}")
    return codec


def have_producers(batches: list[Batch]) -> bool:
    """Whether any of the batches has a producer id."""
    return any(batch.producer_id > -1 for batch in batches)


def continue_epoch(batches: list[Batch], latest: EpochEntry | None) -> bool:
    """Whether all batches have the latest leader epoch, so that no epoch must be assigned."""
    if latest is None:
        return False
    epoch, start_offset = latest
    return all(batch.magic > 1 and batch.partition_leader_epoch == epoch and batch.base_offset >= start_offset for batch in batches)


def check_given_offsets(info: LogAppendInfo, data: bytes, topic_partition: str, log_end_offset: int) -> None:
    """Raise UnexpectedAppendOffsetError if records that arrived with offsets begin before the end of the log. `data` is everything that was
    fetched.

    Raises ApiError INVALID_RECORD if the records for the error's text can't be read.
    """
    begin = info.first_or_last_offset_of_first_batch
    if begin >= log_end_offset:
        return
    known = info.first_offset != UNKNOWN_OFFSET
    batches = list(memory_batches(data))
    offsets: list[str] = []
    for batch in batches:
        if len(offsets) < _OFFSETS_TOLD:
            offsets.extend(_record_offsets(batch))
    what = "First offset" if known else "Last offset of the first batch"
    reason = (
        f"Unexpected offset in append to {topic_partition}. {what} {begin} is less than the next offset {log_end_offset}. "
        f"First 10 offsets in append: {', '.join(offsets[:_OFFSETS_TOLD])}, last offset in append: {info.last_offset}. "
        f"Log start offset = {info.log_start_offset}"
    )
    raise UnexpectedAppendOffsetError(reason, info.first_offset if known else batches[0].base_offset, info.last_offset)


def _record_offsets(batch: Batch) -> list[str]:
    try:
        return [str(record.offset) for record in iterate(batch, holds="nulls")]
    except DecodeError as error:
        raise ApiError("INVALID_RECORD", error.reason) from error
