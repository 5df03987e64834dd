"""Batches of real brokers, sent again as their producers did, become the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.records import Batch, BytesSource, file_batches
from kops.records.build import write_batch
from kops.records.validation.validate import AppendOrigin, ValidationRules, validate_records
from tests.support import corpus

FORMATS = corpus.cases("format")
UNTOLD = ("-empty", "compact", "v0-", "-format-0.9.0-", "v1-0.10.2.2-logappendtime-")
"""Cases of which `as_sent` may tell nothing."""


def as_sent(batch: Batch) -> bytes | None:
    """Return what the broker was sent, or None if its log does not show it: after compaction, and for v0 sets, which are recompressed."""
    data = bytes(batch.data())
    offsets = [record.offset for record in batch.records()]
    if offsets != list(range(batch.base_offset, batch.last_offset + 1)) or batch.delete_horizon_ms is not None:
        return None
    if batch.magic < 2:
        again = batch.magic == 0 and batch.compressed
        return None if again or batch.timestamp_type == "LogAppendTime" else (len(offsets) - 1).to_bytes(8, "big") + data[8:]
    return write_batch(
        data[61:],
        base_offset=0,
        last_offset=batch.last_offset_delta,
        count=batch.count or 0,
        attributes=batch.attributes & ~8,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


@pytest.mark.parametrize("case_id", FORMATS)
def test_what_was_sent_becomes_what_was_written(case_id: str) -> None:
    compared = 0
    for path in sorted(Path(corpus.load(case_id).root / "data").rglob("*.log")):
        for batch in file_batches(BytesSource(path.read_bytes())):
            sent = as_sent(batch)
            if sent is None:
                continue
            kind = "LogAppendTime" if batch.timestamp_type == "LogAppendTime" else "CreateTime"
            written = validate_records(
                sent,
                [Batch(sent)],
                ValidationRules("orders-0", timestamp_type=kind, magic=batch.magic),
                first_offset=batch.base_offset,
                now_ms=batch.max_timestamp,
                leader_epoch=batch.partition_leader_epoch,
                origin=AppendOrigin.COORDINATOR,
            )
            assert written.data == bytes(batch.data()) and not written.size_changed
            assert (written.next_offset, written.max_timestamp) == (batch.next_offset, batch.max_timestamp)
            compared += 1
    assert compared or any(word in case_id for word in UNTOLD)
