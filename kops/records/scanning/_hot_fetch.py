"""The hot loop over the batches of a fetch response. The same typed source is interpreted, or compiled by mypyc (see `kops._compiled`).

Source: Kafka's `CompletedFetch` (nextFetchedRecord, fetchRecords). A response has many small batches, and almost all are plain: magic 2,
complete, uncompressed, with records, no control batch. `read_plain` reads these, and stops before any other one. The caller reads that one
step by step, which also finds what is wrong with it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from kops.records._hot import ConsumerRow, decode_for_consumer
from kops.records.batch import BATCH_OVERHEAD, CODEC_MASK, CONTROL_MASK, TIMESTAMP_TYPE_MASK, Batch
from kops.records.record import CREATE_TIME, LOG_APPEND_TIME

_MOST_RECORDS: Final = 16384  # kops.records.decode.CHUNK: a larger batch is read in parts


def read_plain(
    buffer: bytes,
    index: int,
    first_offset: int,
    most: int,
    topic: str,
    partition: int,
    checks_crcs: bool,
    stops_at_producers: bool,
    rows: list[ConsumerRow],
) -> tuple[int, Batch | None]:
    """Append the records from `first_offset` on of the plain batches at `index`, until there are at least `most` rows.

    Returns (index after these batches, the last of them or None). With `checks_crcs`, a batch with a wrong checksum is not plain; with
    `stops_at_producers`, neither is one of a producer with an id. All rows after the first `most` are of the last batch.
    """
    last: Batch | None = None
    size: i64 = len(buffer)
    at: i64 = index
    while len(rows) < most and at + BATCH_OVERHEAD <= size and buffer[at + 16] == 2:
        batch = Batch(buffer, at)
        attributes: i64 = batch.attributes
        count = batch.count
        end: i64 = at + batch.size
        if end > size or batch.size < BATCH_OVERHEAD or count is None or not 0 < count <= _MOST_RECORDS:
            break
        if attributes & (CODEC_MASK | CONTROL_MASK) or (stops_at_producers and batch.producer_id > -1):
            break
        if checks_crcs and not batch.crc_ok:
            break
        known = len(rows)
        is_fixed = attributes & TIMESTAMP_TYPE_MASK != 0
        epoch = batch.partition_leader_epoch
        stop = decode_for_consumer(
            buffer,
            at + BATCH_OVERHEAD,
            end,
            count,
            batch.base_offset,
            batch.max_timestamp if is_fixed else batch.base_timestamp,
            LOG_APPEND_TIME if is_fixed else CREATE_TIME,
            epoch if epoch >= 0 else None,
            topic,
            partition,
            first_offset,
            rows,
        )
        if stop != end:
            del rows[known:]
            break
        first_offset = max(first_offset, batch.next_offset)
        last = batch
        at = end
    return at, last
