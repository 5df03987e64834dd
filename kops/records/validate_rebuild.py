"""Batches built anew by the leader: recompressed, or in another message format than they came in.

Source: Kafka's `LogValidator.convertAndAssignOffsetsNonCompressed`, `validateMessagesAndAssignOffsetsCompressed` and
`buildRecordsAndAssignOffsets`, `MemoryRecordsBuilder`.
"""

from __future__ import annotations

from kops.errors import ApiError
from kops.records.batch import BATCH_OVERHEAD, Batch
from kops.records.build import BatchBuilder
from kops.records.compression import NONE
from kops.records.record import LOG_APPEND_TIME, Record
from kops.records.scan import read_batches
from kops.records.validate_each import checked
from kops.records.validate_rules import Append, Buffer, ValidatedRecords, check_batch, first_batch


def rebuild(data: Buffer, batches: list[Batch], source: int, target: int, level: int | None, append: Append) -> ValidatedRecords:
    """What `validate_records` does where records can't stay as they are, and for the formats v0 and v1."""
    first = first_batch(batches, source)
    check_batch(first, first, append.rules, append.origin, append.count_invalid)
    records = checked(first, append)
    taken = BATCH_OVERHEAD + sum(record.size for record in records)
    return build(records, first, target, level, taken, append)


def build(records: list[Record], first: Batch, target: int, level: int | None, taken: int, append: Append) -> ValidatedRecords:
    """One set of the log's format of these records (of v0 and v1 without a codec: a message each)."""
    rules = append.rules
    if not records:
        return ValidatedRecords(b"", [], append.first_offset, append.log_append_time_ms, append.log_append_time_ms, True, 0, taken)
    try:
        builder = BatchBuilder(
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
        for record in records:
            builder.append(record.timestamp, record.key, record.value, _headers(record))
        data = builder.build()
    except ValueError as error:
        raise ApiError("UNKNOWN_SERVER_ERROR", str(error)) from None
    latest = append.now_ms if rules.timestamp_type == LOG_APPEND_TIME else builder.max_timestamp
    next_offset = append.first_offset + len(records)
    batches = [Batch(data)] if rules.magic > 1 or target != NONE else read_batches(data)
    return ValidatedRecords(data, batches, next_offset, latest, append.log_append_time_ms, True, len(records), taken)


def _headers(record: Record) -> list[tuple[str | bytes, bytes | None]]:
    """The headers as Java gives them back: what is not UTF-8 in a name has become U+FFFD."""
    if all(isinstance(name, str) for name, _ in record.headers):
        return record.headers
    return [(name if isinstance(name, str) else name.decode(errors="replace"), value) for name, value in record.headers]
