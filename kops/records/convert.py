"""Conversion between the message formats v0, v1 and v2, in every direction.

Source: Kafka's `RecordsUtil.downConvert` and `ConvertedRecords` (in Kafka up to 3.9, for the fetches of old clients), and its
`LogValidator` for the conversion to newer formats. Offsets and codec stay. The conversion drops what the older format cannot hold: headers,
producers, leader epochs, timestamps (v0), gaps at the ends of a batch, and control batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from kops.errors import ApiError, DecodeError
from kops.records.batch import Batch
from kops.records.build import BatchBuilder
from kops.records.compression import ZSTD
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record


class ConvertedRecords(NamedTuple):
    """`data` in the requested format. `converted_count` of its records were converted."""

    data: bytes
    converted_count: int


def convert_records(batches: Iterable[Batch], magic: int, *, first_offset: int = 0) -> ConvertedRecords:
    """Convert down, as an older broker does for a fetch from `first_offset`. Batches of format `magic` or older stay unchanged.

    Conversion to v0 and v1 leaves out uncompressed records below `first_offset`, because old clients expect that the first message is the
    one they asked for. Raises ApiError UNSUPPORTED_COMPRESSION_TYPE for zstd in formats that lack it, and DecodeError as `Batch.records`
    does and for a timestamp below -1.
    """
    parts: list[bytes] = []
    count = 0
    for batch in batches:
        if magic < 2 and batch.is_control:
            continue
        if batch.magic <= magic:
            parts.append(bytes(batch.data()))
            continue
        builder = _builder(batch, (record for record in _records(batch, magic) if batch.compressed or record.offset >= first_offset), magic)
        parts.append(builder.build())
        count += builder.count
    return ConvertedRecords(b"".join(parts), count)


def convert_batch(batch: Batch, magic: int) -> bytes:
    """Return the batch in format `magic`, older or newer, or b"" for a control batch in v0 and v1. Raises the errors of
    `convert_records`."""
    if batch.magic == magic:
        return bytes(batch.data())
    if magic < 2 and batch.is_control:
        return b""
    return _builder(batch, _records(batch, magic), magic).build()


def _records(batch: Batch, magic: int) -> Iterator[Record]:
    if magic < 2 and batch.attributes & 7 == ZSTD:
        raise ApiError("UNSUPPORTED_COMPRESSION_TYPE", "Down-conversion of zstandard-compressed batches is not supported")
    return batch.iterate()


def _builder(batch: Batch, records: Iterator[Record], magic: int) -> BatchBuilder:
    first = next(records, None)
    kind = CREATE_TIME if batch.timestamp_type == NO_TIMESTAMP_TYPE else batch.timestamp_type
    builder = BatchBuilder(
        magic=magic,
        codec=batch.attributes & 7,
        base_offset=0 if first is None else first.offset,
        timestamp_type=kind,
        log_append_time=batch.max_timestamp if kind == LOG_APPEND_TIME else -1,
    )
    try:
        for record in () if first is None else chain((first,), records):
            builder.append(record.timestamp, record.key, record.value, record.headers if magic > 1 else (), offset=record.offset)
    except ValueError as error:
        raise DecodeError(str(error), code="bad-records", position=batch.position) from None
    return builder
