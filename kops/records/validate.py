"""Validation of what a leader is to append, and the assignment of its offsets: the batches as they go to disk.

Source: Kafka's `LogValidator` of 4.3. A batch of the log's own format and codec keeps its records as they are: only its base offset and
leader epoch change, and timestamp type, largest timestamp and checksum where they must. Everything else is built anew in
`kops.records.validate_rebuild`.
"""

from __future__ import annotations

import struct
from typing import Final

from kops.errors import ApiError, DecodeError
from kops.records import _hot as hot
from kops.records.batch import BATCH_OVERHEAD, TIMESTAMP_TYPE_MASK, Batch
from kops.records.compression import DEFAULT_LIMIT, NONE
from kops.records.crc import crc32c_function
from kops.records.record import LOG_APPEND_TIME
from kops.records.validate_rules import (
    NO_TIMESTAMP,
    Append,
    AppendOrigin,
    Buffer,
    CountInvalid,
    InvalidKind,
    ValidatedRecords,
    ValidationRules,
    check_batch,
    first_batch,
    ignore,
    read_error,
    source_codec,
    timestamp_in_range,
    type_bit,
    wrap64,
)

__all__ = ["AppendOrigin", "CountInvalid", "InvalidKind", "ValidatedRecords", "ValidationRules", "validate_records"]

_FRONT: Final = struct.Struct(">qii")
_CHECKED: Final = struct.Struct(">hiqq")
_KEPT_ATTRIBUTES: Final = 0x77
_SAFE: Final = 1 << 62


def validate_records(
    data: Buffer,
    batches: list[Batch],
    rules: ValidationRules,
    *,
    first_offset: int,
    now_ms: int,
    leader_epoch: int,
    origin: AppendOrigin,
    count_invalid: CountInvalid = ignore,
) -> ValidatedRecords:
    """Check `data`, which is exactly `batches` (their checksums were seen to hold), and give its records the offsets from `first_offset`.

    ApiError: INVALID_RECORD and INVALID_TIMESTAMP (with `record_errors` where single records are wrong), CORRUPT_MESSAGE (the checksum of
    an inner message), UNSUPPORTED_FOR_MESSAGE_FORMAT, UNKNOWN_SERVER_ERROR (where Kafka's code fails with none of its own exceptions).
    """
    source = source_codec(batches)
    target, level = rules.target(source)
    append = Append(rules, first_offset, now_ms, leader_epoch, origin, count_invalid)
    if batches and batches[0].magic == rules.magic == 2 and (source == target or (source == NONE and batches[0].is_control)):
        return _assign(data, first_batch(batches, source), append)
    from kops.records import validate_rebuild

    return validate_rebuild.rebuild(data, batches, source, target, level, append)


def _assign(data: Buffer, batch: Batch, append: Append) -> ValidatedRecords:
    """A batch of format v2 whose records stay as they are."""
    rules = append.rules
    check_batch(batch, batch, rules, append.origin, append.count_invalid)
    count = batch.count or 0
    if count < 0:
        raise ApiError("INVALID_RECORD", f"Found invalid record count {count} in magic v2 batch")
    next_offset = append.first_offset + count
    base_offset = wrap64(next_offset - 1 - batch.last_offset_delta)
    timestamp_type = type_bit(rules.timestamp_type)
    # The header is written before the records are seen: then they need no copy of their own to be looked at. Nearly always it is right.
    latest = append.now_ms if timestamp_type else batch.max_timestamp
    written = _write_header(data, batch, base_offset, append.leader_epoch, timestamp_type, latest)
    records, start = written, BATCH_OVERHEAD
    if batch.attributes & 7 and count:
        records, start = _decompressed(batch, written), 0
    found = _check_records(records, start, count, batch, append)
    if not timestamp_type and (found != latest or batch.attributes & TIMESTAMP_TYPE_MASK):
        written = _write_header(data, batch, base_offset, append.leader_epoch, 0, found)
    return ValidatedRecords(
        written,
        [Batch(written)],
        next_offset,
        append.now_ms if timestamp_type else found,
        append.log_append_time_ms,
        temporary_memory_bytes=BATCH_OVERHEAD + len(records) if start == 0 else 0,
    )


def _write_header(data: Buffer, batch: Batch, base_offset: int, leader_epoch: int, timestamp_type: int, max_timestamp: int) -> bytes:
    """The batch with these fields, copied once. Where timestamp type and largest timestamp stay, so does the checksum."""
    view = memoryview(data)
    front = _FRONT.pack(base_offset, batch.size - 12, leader_epoch)
    if batch.attributes & TIMESTAMP_TYPE_MASK == timestamp_type and batch.max_timestamp == max_timestamp:
        return b"".join((front, view[16 : batch.size]))
    attributes = batch.attributes & _KEPT_ATTRIBUTES | timestamp_type
    checked = _CHECKED.pack(attributes, _signed32(batch.last_offset_delta), batch.base_timestamp, max_timestamp)
    rest = view[43 : batch.size]
    crc = crc32c_function()
    return b"".join((front, b"\x02", crc(rest, crc(checked, 0)).to_bytes(4, "big"), checked, rest))


def _signed32(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def _decompressed(batch: Batch, written: bytes) -> bytes:
    from kops.records.compression import decompress

    try:
        return decompress(batch.attributes & 7, memoryview(written)[BATCH_OVERHEAD:], limit=DEFAULT_LIMIT)
    except DecodeError as error:
        raise read_error(error) from None


def _check_records(data: bytes, start: int, count: int, batch: Batch, append: Append) -> int:
    """Look at every record in `data` from `start` on (0: it was compressed). -> the largest timestamp, -1 without one."""
    if count == 0:
        return NO_TIMESTAMP
    end = len(data)
    status, _, last, most, least, keyless = hot.validate_records(data, start, end, count)
    good = status == hot.OK or (status == hot.NOT_INCREASING and start > 0)
    if batch.attributes & TIMESTAMP_TYPE_MASK:
        least = most = batch.max_timestamp
        good = good and append.rules.timestamp_type != LOG_APPEND_TIME and least != NO_TIMESTAMP
    elif -_SAFE < batch.base_timestamp < _SAFE:
        least += batch.base_timestamp
        most += batch.base_timestamp
    else:
        good = False
    if good and append.rules.timestamp_type != LOG_APPEND_TIME and not least == most == NO_TIMESTAMP:
        good = least > -_SAFE and all(timestamp_in_range(timestamp, append.rules, append.now_ms) for timestamp in {least, most})
    if good and start == 0:
        # Kafka looks at the offsets of what is compressed only. Rising from 0 to the count: so there is no gap.
        good = last == count - 1 and batch.base_offset == 0 and hot.place(data, start, end)[2] == 0
    if not good or (keyless and append.rules.compacted):
        from kops.records import validate_each

        return validate_each.check_each(data, start, count, batch, append)
    return max(most, NO_TIMESTAMP)
