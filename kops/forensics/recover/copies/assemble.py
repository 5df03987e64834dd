"""Assembles one batch from records of several: a part of a batch whose other offsets are of a newer history, or what two cleaners left.

The batch keeps the fields of the first one: producer, sequences, flags, codec, leader epoch. Source of the fields: Kafka's
DefaultRecordBatch, and MemoryRecords.filterTo, which also writes a part of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from kops.records import Batch, BatchBuilder, Record, compress, increment_sequence
from kops.records.build import write_batch, write_record

__all__ = ["assemble", "records_between"]


def records_between(batch: Batch, low: int, high: int) -> dict[int, Record]:
    """The records at these offsets (both inclusive), by offset."""
    return {record.offset: record for record in batch.iterate() if low <= record.offset <= high}


def assemble(batches: Sequence[Batch], low: int, high: int) -> bytes | None:
    """Make a batch of the records at offsets `low` to `high`, each from the first batch that has it. None if there is no record."""
    found: dict[int, Record] = {}
    for batch in batches:
        for offset, record in records_between(batch, low, high).items():
            found.setdefault(offset, record)
    if not found:
        return None
    first = batches[0]
    records = [found[offset] for offset in sorted(found)]
    return _legacy(first, records) if first.magic < 2 else _modern(first, records, low, high)


def _legacy(first: Batch, records: Sequence[Record]) -> bytes:
    builder = BatchBuilder(
        magic=first.magic,
        codec=first.codec,
        base_offset=records[0].offset,
        timestamp_type=first.timestamp_type,
        log_append_time=first.max_timestamp,
    )
    for record in records:
        builder.append(record.timestamp, record.key, record.value, offset=record.offset)
    return builder.build()


def _modern(first: Batch, records: Sequence[Record], low: int, high: int) -> bytes:
    """Its offsets are those of `first` within the range, so each record keeps its sequence."""
    base, last = max(low, first.base_offset), min(high, first.last_offset)
    body = b"".join(
        write_record(record.offset - base, record.timestamp - first.base_timestamp, record.key, record.value, record.headers)
        for record in records
    )
    is_fixed = bool(first.attributes & 8)
    return write_batch(
        compress(first.codec, body),
        base_offset=base,
        last_offset=max(last, records[-1].offset),
        count=len(records),
        attributes=first.attributes,
        base_timestamp=first.base_timestamp,
        max_timestamp=first.max_timestamp if is_fixed else max(record.timestamp for record in records),
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence if first.base_sequence < 0 else increment_sequence(first.base_sequence, base - first.base_offset),
        partition_leader_epoch=first.partition_leader_epoch,
    )
