"""Rebuilds batches on a leader, in another codec or message format, and handles the formats v0 and v1.

Source: Kafka's `LogValidator` (`assignOffsetsNonCompressed`, `convertAndAssignOffsetsNonCompressed`,
`validateMessagesAndAssignOffsetsCompressed`, `buildRecordsAndAssignOffsets`), `MemoryRecordsBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from kops.errors import ApiError, DecodeError
from kops.records import _hot as hot
from kops.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_MASK,
    LOG_OVERHEAD,
    MAX_LONG,
    MESSAGE_OVERHEAD_V0,
    MESSAGE_OVERHEAD_V1,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Batch,
)
from kops.records.build import BatchBuilder, write_batch
from kops.records.compression import NONE, Compressor
from kops.records.record import LOG_APPEND_TIME, Record, java_string
from kops.records.streams.pieces import pieces
from kops.records.validation.each import Seen, check_record, readable
from kops.records.validation.legacy import Message, check_message, messages, patch
from kops.records.validation.rules import (
    NO_TIMESTAMP,
    Append,
    Buffer,
    RecordErrors,
    ValidatedRecords,
    check_batch,
    first_batch,
    timestamp_in_range,
    type_bit,
)
from kops.records.windows import WINDOW, RecordWindows

AnyRecord = Record | Message


def rebuild(data: Buffer, batches: list[Batch], source: int, target: int, level: int | None, append: Append) -> ValidatedRecords:
    """Implements `validate_records` for records that must change, and for the formats v0 and v1."""
    if source == NONE and target == NONE:
        if all(batch.magic == append.rules.magic for batch in batches):
            return _assign_messages(data, batches, append)
        return _convert(batches, append)
    return _recompress(data, batches, source, target, level, append)


def _assign_messages(data: Buffer, batches: list[Batch], append: Append) -> ValidatedRecords:
    """Validate uncompressed messages of v0 or v1 that keep their format."""
    first = first_batch(batches, NONE)
    written = bytearray(data)
    next_offset, latest, position = append.first_offset, NO_TIMESTAMP, 0
    for batch in batches:
        for message in _checked(batch, first, append):
            latest = max(latest, message.timestamp)
            own = max(NO_TIMESTAMP, message.timestamp)
            timestamp = append.now_ms if append.rules.timestamp_type == LOG_APPEND_TIME else own
            patch(written, position, batch, next_offset, append.rules.timestamp_type, timestamp)
        next_offset += 1
        position += batch.size
    if append.rules.magic and append.rules.timestamp_type == LOG_APPEND_TIME:
        latest = append.now_ms
    return _result(bytes(written), next_offset, latest, append)


def _convert(batches: list[Batch], append: Append) -> ValidatedRecords:
    """Convert uncompressed records to another format, uncompressed."""
    for batch in batches:
        for record in _read(batch):  # Kafka reads them to estimate the size
            _ = record.key, record.value
    first = first_batch(batches, NONE)
    if first.is_transactional and append.rules.magic < 2:
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Transactional records are not supported for magic {append.rules.magic}")
    built: Rebuilt | None = None
    for batch in batches:
        check_batch(batch, first, append.rules, append.origin, append.count_invalid)
        built = built or Rebuilt(first, NONE, None, append)
        errors = RecordErrors()
        for index, record in enumerate(_read(batch)):
            _check(record, index, batch, append, errors)
            if not errors:
                built.add(record)
        errors.raise_if_any()
    assert built is not None
    return built.finish(0)


def _recompress(data: Buffer, batches: list[Batch], source: int, target: int, level: int | None, append: Append) -> ValidatedRecords:
    """Rebuild a batch if the source or the target is compressed."""
    first = first_batch(batches, source)
    if first.magic == append.rules.magic == 2:
        kept = _pack_again(first, target, level, append)
        if kept is not None:
            return kept
    taken, expected, latest, size = 0, 0, NO_TIMESTAMP, 0
    in_place = source == target and first.magic == append.rules.magic > 0
    held: list[AnyRecord] = []
    for batch in batches:
        taken += _header_size(append.rules.magic, batch.compressed)
        for record in _checked(batch, first, append, whole=False):
            # Some old clients write wrong inner offsets in v1. Their sets are rebuilt.
            in_place = in_place and record.offset == expected
            expected += 1
            latest = max(latest, record.timestamp)
            taken += record.size
            size += record.size
            if size <= WINDOW:
                held.append(record)
            else:
                held.clear()  # they are read a second time
    if in_place:
        written = bytearray(data)
        next_offset = append.first_offset + expected
        latest = append.now_ms if append.rules.timestamp_type == LOG_APPEND_TIME else latest
        patch(written, 0, first, next_offset - 1, append.rules.timestamp_type, latest)
        return _result(bytes(written), next_offset, latest, append, taken=taken)
    built = Rebuilt(first, target, level, append)
    built.add_all(held if size <= WINDOW else chain.from_iterable(map(_read, batches)))
    return built.finish(taken)


def _pack_again(batch: Batch, target: int, level: int | None, append: Append) -> ValidatedRecords | None:
    """Return a v2 batch in another codec whose records keep their bytes, as nearly all do. Returns None if they would not, or if a record
    is bad."""
    count = batch.count or 0
    check_batch(batch, batch, append.rules, append.origin, append.count_invalid)
    if count <= 0 or batch.attributes & (TIMESTAMP_TYPE_MASK | CONTROL_MASK) or batch.base_offset or not _is_buildable(batch):
        return None
    survey = _survey(batch)
    if survey is None:
        return None
    least, most, keyless, size, held = survey
    least += batch.base_timestamp
    most += batch.base_timestamp
    if not _are_allowed(least, most, append) or (keyless and append.rules.compacted):
        return None
    latest = append.now_ms if append.rules.timestamp_type == LOG_APPEND_TIME else most
    written = write_batch(
        _recompressed(batch, held, target, level),
        base_offset=append.first_offset,
        last_offset=append.first_offset + count - 1,
        count=count,
        attributes=target | type_bit(append.rules.timestamp_type) | batch.attributes & TRANSACTIONAL_MASK,
        base_timestamp=batch.base_timestamp,
        max_timestamp=latest,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=append.leader_epoch,
    )
    return _result(written, append.first_offset + count, latest, append, taken=2 * (BATCH_OVERHEAD + size), converted=count, changed=True)


def _survey(batch: Batch) -> tuple[int, int, int, int, memoryview | None] | None:
    """Return (smallest timestamp delta, largest, number of records without a key, uncompressed size, the records if they are one window).

    Returns None if Kafka's builder would write other bytes, or if a record is unreadable.
    """
    held: memoryview | None = None
    windows = RecordWindows(batch, holds="nulls")
    least, most, keyless, done = MAX_LONG, -MAX_LONG - 1, 0, 0
    try:
        for data, start, end, found in windows:
            status, _, _, highest, lowest, without_key = hot.validate_records(data, start, end, found)
            if status != hot.OK or not windows.are_plain or not hot.are_plain(data, start, end, found, done):
                return None
            least, most, keyless, done = min(least, lowest), max(most, highest), keyless + without_key, done + found
            held = None if windows.is_streamed else memoryview(data)[start:end]
    except DecodeError:
        return None
    return least, most, keyless, windows.size, held


def _recompressed(batch: Batch, held: memoryview | None, target: int, level: int | None) -> bytes:
    """Return the unchanged records of a v2 batch in another codec."""
    compressor = Compressor(target, level=level)
    for piece in pieces(batch.attributes & 7, batch.data()[BATCH_OVERHEAD:]) if held is None else (held,):
        compressor.write(piece)
    return compressor.finish()


def _is_buildable(batch: Batch) -> bool:
    """Whether Kafka's builder accepts this producer."""
    if batch.producer_id == -1:
        return not batch.is_transactional
    return batch.producer_epoch != -1 and batch.base_sequence >= 0


def _are_allowed(least: int, most: int, append: Append) -> bool:
    """Whether all timestamps between these two are allowed."""
    if append.rules.timestamp_type == LOG_APPEND_TIME or least == most == NO_TIMESTAMP:
        return NO_TIMESTAMP <= least <= most <= MAX_LONG
    return 0 <= least <= most <= MAX_LONG and all(timestamp_in_range(timestamp, append.rules, append.now_ms) for timestamp in (least, most))


class Rebuilt:
    """Builds one set in the format of the log: in v0 and v1 without a codec, a message for each record. Raises ApiError
    UNKNOWN_SERVER_ERROR for anything that Kafka's builder rejects."""

    def __init__(self, first: Batch, target: int, level: int | None, append: Append) -> None:
        rules = append.rules
        self.append = append
        self.target = target
        try:
            self.builder = BatchBuilder(
                magic=rules.magic,
                codec=target,
                base_offset=append.first_offset,
                timestamp_type=rules.timestamp_type,
                log_append_time=append.now_ms,
                producer_id=first.producer_id,
                producer_epoch=first.producer_epoch,
                base_sequence=first.base_sequence,
                transactional=first.is_transactional,
                partition_leader_epoch=append.leader_epoch,
                level=level,
            )
        except ValueError as error:
            raise ApiError("UNKNOWN_SERVER_ERROR", str(error)) from None

    def add(self, record: AnyRecord) -> None:
        headers = _headers(record) if isinstance(record, Record) else []
        try:
            self.builder.append(record.timestamp, record.key, record.value, headers)
        except ValueError as error:
            raise ApiError("UNKNOWN_SERVER_ERROR", str(error)) from None

    def add_all(self, records: Iterable[AnyRecord]) -> None:
        """Add each record. No record is held in memory afterwards."""
        for record in records:
            self.add(record)

    def finish(self, taken: int) -> ValidatedRecords:
        """Return the result. `taken` is the size of the records before the rebuild."""
        builder, append = self.builder, self.append
        if not builder.count and append.rules.timestamp_type == LOG_APPEND_TIME and (append.rules.magic > 1 or self.target != NONE):
            raise ApiError("UNKNOWN_SERVER_ERROR", "a set without records has no last offset")
        data = builder.build() if builder.count else b""
        latest = append.now_ms if append.rules.timestamp_type == LOG_APPEND_TIME else builder.max_timestamp
        taken += _header_size(append.rules.magic, self.target != NONE) + builder.uncompressed_size
        return _result(data, append.first_offset + builder.count, latest, append, taken=taken, converted=builder.count, changed=True)


def _result(
    data: bytes, next_offset: int, latest: int, append: Append, *, taken: int = 0, converted: int = 0, changed: bool = False
) -> ValidatedRecords:
    batches: list[Batch] = []
    position = 0
    while position < len(data):
        batches.append(Batch(data, position))
        position += batches[-1].size
    return ValidatedRecords(data, batches, next_offset, latest, append.log_append_time_ms, changed, converted, taken)


def _header_size(magic: int, compressed: bool) -> int:
    if magic > 1:
        return BATCH_OVERHEAD
    return LOG_OVERHEAD + (MESSAGE_OVERHEAD_V1 if magic else MESSAGE_OVERHEAD_V0) if compressed else 0


def _read(batch: Batch, *, whole: bool = True) -> Iterator[AnyRecord]:
    yield from readable(batch) if batch.magic > 1 else messages(batch, whole=whole)


def _checked(batch: Batch, first: Batch, append: Append, *, whole: bool = True) -> Iterator[AnyRecord]:
    """Yield the records of a batch. Raises ApiError as Kafka does; errors of single records come after the last record.

    Without `whole`, large messages of v0 and v1 may lack their end.
    """
    check_batch(batch, first, append.rules, append.origin, append.count_invalid)
    errors = RecordErrors()
    for index, record in enumerate(_read(batch, whole=whole)):
        _check(record, index, batch, append, errors)
        yield record
    errors.raise_if_any()


def _check(record: AnyRecord, index: int, batch: Batch, append: Append, errors: RecordErrors) -> None:
    if isinstance(record, Message):
        check_message(record, index, batch, append, errors)
    else:
        check_record(Seen.of(record), index, batch, append, errors)


def _headers(record: Record) -> list[tuple[str | bytes, bytes | None]]:
    """Return the headers as Java does: bytes of a name that are not UTF-8 become U+FFFD."""
    if all(isinstance(name, str) for name, _ in record.headers):
        return record.headers
    return [(name if isinstance(name, str) else java_string(name), value) for name, value in record.headers]
