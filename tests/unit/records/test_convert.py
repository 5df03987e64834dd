"""Conversion between the message formats."""

from __future__ import annotations

import pytest

from kops.errors import ApiError, DecodeError
from kops.records import Batch, BatchBuilder, Record, end_txn_marker, read_batches
from kops.records.build import write_batch, write_record
from kops.records.convert import convert_batch, convert_records

NOW = 1_700_000_000_000


def batch_of(magic: int, codec: str, *, kind: str = "CreateTime", base_offset: int = 40) -> bytes:
    builder = BatchBuilder(magic=magic, codec=codec, base_offset=base_offset, timestamp_type=kind, log_append_time=NOW)
    for number, (key, value) in enumerate([(b"a", b"1"), (None, b"2"), (b"c", None)]):
        builder.append(NOW + number, key, value, [("h", b"x")] if magic > 1 else (), offset=base_offset + 2 * number)
    return builder.build()


def facts(record: Record) -> tuple[object, ...]:
    return (record.offset, record.key, record.value)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(("old", "new"), [(old, new) for old in (0, 1, 2) for new in (0, 1, 2)])
def test_every_format_becomes_every_other(old: int, new: int, codec: str, kind: str) -> None:
    before = read_batches(batch_of(old, codec, kind=kind if old else "CreateTime"))
    after = read_batches(b"".join(convert_batch(batch, new) for batch in before))
    assert {batch.magic for batch in after} == {new} and {batch.codec for batch in after} == {codec}
    given = [record for batch in before for record in batch.records()]
    made = [record for batch in after for record in batch.records()]
    assert list(map(facts, made)) == list(map(facts, given))
    if old and new:
        assert [(record.timestamp, record.timestamp_type) for record in made] == [(r.timestamp, r.timestamp_type) for r in given]
    else:
        assert {record.timestamp for record in made} == {-1}
    headers = {name for record in made for name, _ in record.headers}
    assert headers == ({"h"} if old == new == 2 else set())


def test_down_conversion_begins_at_the_offset_that_was_asked_for() -> None:
    batches = read_batches(batch_of(2, "none") + batch_of(1, "none", base_offset=50) + batch_of(2, "gzip", base_offset=60))
    converted = convert_records(batches, 1, first_offset=42)
    records = [record for batch in read_batches(converted.data) for record in batch.records()]
    assert [record.offset for record in records] == [42, 44, 50, 52, 54, 60, 62, 64]
    assert converted.converted_count == 5


def test_control_batches_have_no_place_in_old_formats() -> None:
    marker = end_txn_marker(7, NOW, commit=True, coordinator_epoch=1, producer_id=9, producer_epoch=0)
    assert convert_records([Batch(marker)], 1).data == b"" == convert_batch(Batch(marker), 0)
    assert convert_records([Batch(marker)], 2).data == marker


def test_zstd_and_impossible_timestamps_are_refused() -> None:
    with pytest.raises(ApiError) as caught:
        convert_batch(Batch(batch_of(2, "zstd")), 1)
    assert caught.value.name == "UNSUPPORTED_COMPRESSION_TYPE"
    early = write_batch(write_record(0, -5, None, b"v"), base_offset=0, last_offset=0, count=1, base_timestamp=0)
    with pytest.raises(DecodeError, match="timestamp -5"):
        convert_batch(Batch(early), 1)
