"""Validation of what a leader is to append, and the assignment of its offsets: the batches as they go to disk.

Source: Kafka's `LogValidator` of 4.3. A batch of the log's own format and codec keeps its records as they are: only its base offset and
leader epoch change, and timestamp type, largest timestamp and checksum where they must. Everything else is built anew in
`kops.records.validation.rebuild`.
"""

from __future__ import annotations

import struct
from typing import Final

from kops.errors import ApiError, DecodeError
from kops.records import _hot as hot
from kops.records.batch import BATCH_OVERHEAD, MAX_INT, TIMESTAMP_TYPE_MASK, Batch
from kops.records.compression import DEFAULT_LIMIT
from kops.records.crc import crc32c_function
from kops.records.record import LOG_APPEND_TIME
from kops.records.validation.rules import (
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
    wrap64,
)

__all__ = ["AppendOrigin", "CountInvalid", "InvalidKind", "ValidatedRecords", "ValidationRules", "validate_records"]

_FRONT: Final = struct.Struct(">qii")
_CHECKED: Final = struct.Struct(">hiqq")
_KEPT_ATTRIBUTES: Final = 0x77
_SAFE: Final = 1 << 62
_survey: Final = hot.validate_records
_OK: Final = hot.OK
_IN_ANY_ORDER: Final = (hot.OK, hot.NOT_INCREASING)


def validate_records(
    data: Buffer,
    batches: list[Batch],
    rules: ValidationRules,
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
    target, level = (source, None) if rules.compression_type == "producer" else rules.target(source)
    append = Append(rules, first_offset, now_ms, leader_epoch, origin, count_invalid)
    if batches and batches[0].magic == rules.magic == 2 and (source == target or _control_stays(batches[0])):
        return _assign(data, batches[0] if len(batches) == 1 else first_batch(batches, source), target, append)
    from kops.records.validation import rebuild as validate_rebuild

    return validate_rebuild.rebuild(data, batches, source, target, level, append)


def _control_stays(batch: Batch) -> bool:
    """Whether the batch is an uncompressed control batch, which is not compressed for `compression.type` unless its offsets have gaps."""
    if not batch.is_control or batch.compressed:
        return False
    from kops.records.validation import each as validate_each

    return validate_each.is_consecutive(batch)


def _assign(data: Buffer, batch: Batch, target: int, append: Append) -> ValidatedRecords:
    """A batch of format v2 whose records stay as they are."""
    rules, first_offset, now_ms, leader_epoch, origin, count_invalid = append
    check_batch(batch, batch, rules, origin, count_invalid)
    count = batch.count or 0
    if count < 0:
        raise ApiError("INVALID_RECORD", f"Found invalid record count {count} in magic v2 batch")
    next_offset = first_offset + count
    base_offset = next_offset - 1 - batch.last_offset + batch.base_offset
    if not 0 <= base_offset < _SAFE:
        base_offset = wrap64(base_offset)
    is_append_time = rules.timestamp_type == LOG_APPEND_TIME
    # The header is written before the records are seen: then they need no copy of their own to be looked at. Nearly always it is right.
    latest = now_ms if is_append_time else batch.max_timestamp
    written = _write(data, batch, base_offset, leader_epoch, TIMESTAMP_TYPE_MASK if is_append_time else 0, latest)
    records, start = written.buffer, BATCH_OVERHEAD
    if batch.attributes & 7:
        records, start = _decompressed(batch, records) if count else b"", 0
    found = _check_records(records, start, count, batch, append) if count else NO_TIMESTAMP
    taken = BATCH_OVERHEAD + len(records) - start if target else 0
    if is_append_time:
        return ValidatedRecords(written.buffer, [written], next_offset, now_ms, now_ms, False, 0, taken)
    if found != latest or batch.attributes & TIMESTAMP_TYPE_MASK:
        written = _write(data, batch, base_offset, leader_epoch, 0, found)
    return ValidatedRecords(written.buffer, [written], next_offset, found, NO_TIMESTAMP, False, 0, taken)


def _write(data: Buffer, batch: Batch, base_offset: int, leader_epoch: int, timestamp_type: int, max_timestamp: int) -> Batch:
    """The batch with these fields, copied once. Where timestamp type and largest timestamp stay, so does the checksum."""
    view = memoryview(data)
    front = _FRONT.pack(base_offset, batch.size - 12, leader_epoch)
    attributes = batch.attributes
    if attributes & TIMESTAMP_TYPE_MASK == timestamp_type and batch.max_timestamp == max_timestamp:
        written = b"".join((front, view[16 : batch.size]))
        if base_offset < _SAFE and -1 <= batch.last_offset - batch.base_offset <= MAX_INT:
            return batch.moved(written, base_offset, leader_epoch)
        return Batch(written)  # offsets wrap
    attributes = attributes & _KEPT_ATTRIBUTES | timestamp_type
    checked = _CHECKED.pack(attributes, _signed32(batch.last_offset_delta), batch.base_timestamp, max_timestamp)
    rest = view[43 : batch.size]
    crc = crc32c_function()
    return Batch(b"".join((front, b"\x02", crc(rest, crc(checked, 0)).to_bytes(4, "big"), checked, rest)))


def _signed32(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def _decompressed(batch: Batch, written: bytes) -> bytes:
    from kops.records.compression import decompress

    try:
        return decompress(batch.attributes & 7, memoryview(written)[BATCH_OVERHEAD:], limit=DEFAULT_LIMIT)
    except DecodeError as error:
        raise read_error(error) from None


def _check_records(data: bytes, start: int, count: int, batch: Batch, append: Append) -> int:
    """Look at every record in `data` from `start` on (0: it was compressed). -> the largest timestamp, -1 without one.

    All is decided by what the loop tells of the records together; where that leaves a doubt, they are looked at one by one.
    """
    rules = append.rules
    end = len(data)
    status, _, last, most, least, keyless = _survey(data, start, end, count)
    if start == 0:
        # Only in what is compressed Kafka looks at the offsets. They rise from 0 to the count: so there is no gap.
        good = status == _OK and last == count - 1 and batch.base_offset == 0 and hot.place(data, 0, end)[2] == 0
    else:
        good = status in _IN_ANY_ORDER
    is_create_time = rules.timestamp_type != LOG_APPEND_TIME
    if batch.attributes & TIMESTAMP_TYPE_MASK:
        least = most = batch.max_timestamp
        good = good and is_create_time and most != NO_TIMESTAMP
    else:
        least += batch.base_timestamp
        most += batch.base_timestamp
    if is_create_time and not least == most == NO_TIMESTAMP:
        # Far enough from the ends of 64 bits for sums that don't wrap.
        now_ms = append.now_ms
        good = (
            good
            and -_SAFE <= least <= most <= _SAFE
            and now_ms - rules.timestamp_before_max_ms <= least
            and most <= now_ms + rules.timestamp_after_max_ms
        )
    if good and not (keyless and rules.compacted):
        return most if most > NO_TIMESTAMP else NO_TIMESTAMP
    from kops.records.validation import each as validate_each

    return validate_each.check_each(data, start, count, batch, append)
