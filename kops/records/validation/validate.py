"""Validates the batches that a leader appends, and assigns their offsets. The result goes to disk.

Source: Kafka's `LogValidator` of 4.3. A batch in the format and codec of the log keeps its records. Only its base offset and leader epoch
change, and its timestamp type, largest timestamp and checksum if necessary. `kops.records.validation.rebuild` rebuilds all other batches.
"""

from __future__ import annotations

import struct
from typing import Final

from kops.errors import ApiError, DecodeError
from kops.records import _hot as hot
from kops.records.batch import BATCH_OVERHEAD, MAX_INT, TIMESTAMP_TYPE_MASK, Batch
from kops.records.crc import crc32c_function
from kops.records.record import LOG_APPEND_TIME
from kops.records.streams.pieces import check_opens, may_have_two_headers
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
from kops.records.windows import RecordWindows

__all__ = ["AppendOrigin", "CountInvalid", "InvalidKind", "ValidatedRecords", "ValidationRules", "validate_records"]

_FRONT: Final = struct.Struct(">qii")
_CHECKED: Final = struct.Struct(">hiqq")
_KEPT_ATTRIBUTES: Final = 0x77
_SAFE: Final = 1 << 62
_MAX64: Final = (1 << 63) - 1
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
    """Check `data`, and assign its records the offsets that begin at `first_offset`. `data` is exactly `batches`, whose checksums are
    correct.

    Raises ApiError: INVALID_RECORD and INVALID_TIMESTAMP (with `record_errors` if single records are wrong), CORRUPT_MESSAGE (the checksum
    of an inner message), UNSUPPORTED_FOR_MESSAGE_FORMAT, UNKNOWN_SERVER_ERROR (if Kafka fails with none of its own exceptions).
    """
    source = source_codec(batches)
    target, level = (source, None) if rules.compression_type == "producer" else rules.target(source)
    append = Append(rules, first_offset, now_ms, leader_epoch, origin, count_invalid)
    if batches and batches[0].magic == rules.magic == 2 and (source == target or _control_stays(batches[0])):
        return _assign(data, batches[0] if len(batches) == 1 else first_batch(batches, source), target, append)
    from kops.records.validation import rebuild as validate_rebuild

    return validate_rebuild.rebuild(data, batches, source, target, level, append)


def _control_stays(batch: Batch) -> bool:
    """Whether the batch is an uncompressed control batch. `compression.type` compresses it only if its offsets have gaps."""
    if not batch.is_control or batch.compressed:
        return False
    from kops.records.validation import each as validate_each

    return validate_each.is_consecutive(batch)


def _assign(data: Buffer, batch: Batch, target: int, append: Append) -> ValidatedRecords:
    """Validate a v2 batch whose records stay unchanged."""
    rules, now_ms, leader_epoch = append.rules, append.now_ms, append.leader_epoch
    check_batch(batch, batch, rules, append.origin, append.count_invalid)
    count = batch.count or 0
    if count < 0:
        if batch.attributes & 7:
            _open(batch)
        raise ApiError("INVALID_RECORD", f"Found invalid record count {count} in magic v2 batch")
    next_offset = append.first_offset + count
    base_offset = next_offset - 1 - batch.last_offset + batch.base_offset
    if not 0 <= base_offset < _SAFE:
        base_offset = wrap64(base_offset)
    is_append_time = rules.timestamp_type == LOG_APPEND_TIME
    # The header is written before the records are checked, so that the check needs no second copy of them. The header is nearly always
    # right.
    latest = now_ms if is_append_time else batch.max_timestamp
    written = _write(data, batch, base_offset, leader_epoch, TIMESTAMP_TYPE_MASK if is_append_time else 0, latest)
    found, taken = NO_TIMESTAMP, BATCH_OVERHEAD if target else 0
    if count and batch.attributes & 7:
        found, size = _check_compressed(written, count, batch, append)
        taken += size
    elif count:
        found = _check_records(written.buffer, BATCH_OVERHEAD, count, batch, append)
        taken += len(written.buffer) - BATCH_OVERHEAD if target else 0
    if is_append_time:
        return ValidatedRecords(written.buffer, [written], next_offset, now_ms, now_ms, False, 0, taken)
    if found != latest or batch.attributes & TIMESTAMP_TYPE_MASK:
        written = _write(data, batch, base_offset, leader_epoch, 0, found)
    return ValidatedRecords(written.buffer, [written], next_offset, found, NO_TIMESTAMP, False, 0, taken)


def _write(data: Buffer, batch: Batch, base_offset: int, leader_epoch: int, timestamp_type: int, max_timestamp: int) -> Batch:
    """Return a copy of the batch with these fields. If the timestamp type and the largest timestamp stay the same, so does the checksum."""
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


def _open(batch: Batch) -> None:
    """Raise ApiError UNKNOWN_SERVER_ERROR if the stream cannot be opened. Kafka opens it before it checks the record count."""
    try:
        check_opens(batch.attributes & 7, memoryview(batch.buffer)[batch.index + BATCH_OVERHEAD : batch.index + batch.size])
    except DecodeError as error:
        raise read_error(error) from None


def _check_compressed(written: Batch, count: int, batch: Batch, append: Append) -> tuple[int, int]:
    """Check the records a window at a time. Returns (the result of `_check_records`, the uncompressed size)."""
    windows = RecordWindows(written, holds="nulls")
    last, most, least, keyless = -1, -_MAX64 - 1, _MAX64, 0
    records = memoryview(batch.buffer)[batch.index + BATCH_OVERHEAD : batch.index + batch.size]
    good = not may_have_two_headers(batch.attributes & 7, records)
    try:
        only = windows.whole()
        if only is not None and good:
            return _check_records(only[0], 0, count, batch, append), windows.size
        for data, start, end, found in windows if only is None else ():
            status, _, end_delta, highest, lowest, without_key = _survey(data, start, end, found)
            # The offsets rise from 0 to the count, so there is no gap.
            good = good and status == _OK and hot.place(data, start, end)[2] == last + 1
            last, most, least, keyless = end_delta, max(most, highest), min(least, lowest), keyless + without_key
    except DecodeError:
        good = False  # reading them one by one finds the error
    good = good and last == count - 1 and batch.base_offset == 0
    return _largest_timestamp(b"", 0, count, batch, append, good, most, least, keyless), windows.size


def _check_records(data: bytes, start: int, count: int, batch: Batch, append: Append) -> int:
    """Check every record in `data` from `start` (0: it was compressed). Returns the largest timestamp, or -1 if there is none.

    The summary of the hot loop decides. If it is inconclusive, the records are checked one by one.
    """
    end = len(data)
    status, _, last, most, least, keyless = _survey(data, start, end, count)
    if start == 0:
        # Kafka checks offsets only in compressed batches. They rise from 0 to the count, so there is no gap.
        good = status == _OK and last == count - 1 and batch.base_offset == 0 and hot.place(data, 0, end)[2] == 0
    else:
        good = status in _IN_ANY_ORDER
    return _largest_timestamp(data, start, count, batch, append, good, most, least, keyless)


def _largest_timestamp(
    data: bytes, start: int, count: int, batch: Batch, append: Append, good: bool, most: int, least: int, keyless: int
) -> int:
    """Return the result of `_check_records` from the summary if it is conclusive. `good` says that the bytes and offsets of the records are
    right."""
    rules = append.rules
    is_create_time = rules.timestamp_type != LOG_APPEND_TIME
    if batch.attributes & TIMESTAMP_TYPE_MASK:
        least = most = batch.max_timestamp
        good = good and is_create_time and most != NO_TIMESTAMP
    else:
        least += batch.base_timestamp
        most += batch.base_timestamp
    if is_create_time and not least == most == NO_TIMESTAMP:
        # This is far enough from the limits of 64 bits that sums do not wrap.
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
