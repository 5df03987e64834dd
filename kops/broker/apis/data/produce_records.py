"""Checks the records of a Produce request by the headers of its batches only (Kafka's ProduceRequest.validateRecords,
RequestUtils, ByteBufferLogInputStream.nextBatch). The log checks the records themselves.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.records.batch import CODEC_MASK, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MESSAGE_OVERHEAD_V0, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from kops.protocol.primitives import Buffer

_FIRST_VERSION_WITH_ZSTD: Final = 7
_MAGIC_V2: Final = 2
_ZSTD: Final = 4
_SIZE: Final = Struct(">i")
_HEAD: Final = Struct(">8xi4xb4xh")
_PRODUCER: Final = Struct(">43xqhi")
_NO_PRODUCER_ID: Final = -1


def check_records(records: Buffer | None, version: int) -> None:
    """Check that a partition's records are one batch that this version of the API accepts.

    Raises ApiError: INVALID_RECORD for no batch, another format or several batches, UNSUPPORTED_COMPRESSION_TYPE if clients of this version
    do not support the codec, CORRUPT_MESSAGE if the bytes are not a batch.
    """
    # Kafka never answers a request whose records are null.
    end = None if records is None else _batch_end(records, 0)
    if records is None or end is None:
        raise ApiError("INVALID_RECORD", f"Produce requests with version {version} must have at least one record batch per partition")
    _, magic, attributes = _HEAD.unpack_from(records)
    if magic != _MAGIC_V2:
        reason = f"Produce requests with version {version} are only allowed to contain record batches with magic version 2"
        raise ApiError("INVALID_RECORD", reason)
    if version < _FIRST_VERSION_WITH_ZSTD:
        _check_codec(attributes & CODEC_MASK, version)
    if end < len(records) and _batch_end(records, end) is not None:
        reason = f"Produce requests with version {version} are only allowed to contain exactly one record batch per partition"
        raise ApiError("INVALID_RECORD", reason)


def _check_codec(codec: int, version: int) -> None:
    if codec == _ZSTD:
        reason = f"Produce requests with version {version} are not allowed to use ZStandard compression"
        raise ApiError("UNSUPPORTED_COMPRESSION_TYPE", reason)
    if codec > _ZSTD:
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Unknown compression type id: {codec}")


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch belongs to a transaction. Raises ApiError CORRUPT_MESSAGE if it is not a batch."""
    if records is None or _batch_end(records, 0) is None:
        return False
    _, magic, attributes = _HEAD.unpack_from(records)
    return bool(magic == _MAGIC_V2 and attributes & TRANSACTIONAL_MASK)


def transactional_producer(records: Buffer | None) -> tuple[int, int, int] | None:
    """Return id, epoch and sequence of a transactional producer, or None. Raises ApiError UNKNOWN_SERVER_ERROR for a truncated header."""
    if records is None or not is_transactional(records):
        return None
    if len(records) < _PRODUCER.size:
        raise ApiError("UNKNOWN_SERVER_ERROR", "the batch ends within its header")
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records)
    return None if producer_id == _NO_PRODUCER_ID else (producer_id, epoch, sequence)


def _batch_end(records: Buffer, start: int) -> int | None:
    """Return the end of the batch at `start`, or None if it is incomplete."""
    left = len(records) - start
    if left < LOG_OVERHEAD:
        return None
    size: int = _SIZE.unpack_from(records, start + 8)[0]
    if size < MESSAGE_OVERHEAD_V0:
        raise ApiError("CORRUPT_MESSAGE", f"Record size {size} is less than the minimum record overhead ({MESSAGE_OVERHEAD_V0})")
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return None
    magic = records[start + HEADER_SIZE_UP_TO_MAGIC - 1]
    if magic > _MAGIC_V2:
        raise ApiError("CORRUPT_MESSAGE", f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}")
    end = start + LOG_OVERHEAD + size
    return end if end <= len(records) else None
