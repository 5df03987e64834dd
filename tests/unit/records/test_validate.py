"""What a leader writes of the batches it is sent, and what it refuses."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kops.errors import ApiError
from kops.records import Batch, BatchBuilder
from kops.records.validate import AppendOrigin, ValidatedRecords, ValidationRules, validate_records

NOW = 1_700_000_000_000
HOUR = 3_600_000


def batch_of(count: int = 3, *, key: bytes | None = b"k", timestamp: int = NOW, step: int = 1, **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    for number in range(count):
        builder.append(timestamp + number * step, key, b"value %d" % number)
    return builder.build()


def append(data: bytes | bytearray | memoryview, *, origin: AppendOrigin = AppendOrigin.CLIENT, **rules: Any) -> ValidatedRecords:
    batch = Batch(bytes(data))
    given = ValidationRules("orders-0", **rules)
    return validate_records(data, [batch], given, first_offset=1000, now_ms=NOW, leader_epoch=7, origin=origin)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_offsets_and_epoch_change_in_place(codec: str, kind: Any) -> None:
    data = batch_of(codec=codec)
    found = append(kind(data))
    assert found.data == struct.pack(">qii", 1000, len(data) - 12, 7) + data[16:]
    assert (found.next_offset, found.max_timestamp, found.log_append_time_ms, found.size_changed) == (1003, NOW + 2, -1, False)
    (batch,) = found.batches
    assert batch.crc_ok and (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (1000, 1002, 7)
    assert data == batch_of(codec=codec)


def test_a_wrong_largest_timestamp_is_mended_with_the_checksum() -> None:
    data = bytearray(batch_of())
    data[35:43] = (NOW + 99).to_bytes(8, "big")
    found = append(data)
    assert found.data[16:] == batch_of(partition_leader_epoch=7)[16:]
    assert found.max_timestamp == NOW + 2


def test_log_append_time() -> None:
    found = append(batch_of(timestamp=5), timestamp_type="LogAppendTime")
    (batch,) = found.batches
    assert batch.crc_ok and batch.timestamp_type == "LogAppendTime" and batch.max_timestamp == NOW
    assert (found.max_timestamp, found.log_append_time_ms) == (NOW, NOW)
    assert {record.timestamp for record in batch.records()} == {NOW}


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_timestamps_out_of_range_name_their_records(codec: str) -> None:
    with pytest.raises(ApiError) as caught:
        append(batch_of(step=HOUR, codec=codec))
    assert caught.value.name == "INVALID_TIMESTAMP"
    assert caught.value.record_errors == (
        (
            2,
            f"Timestamp {NOW + 2 * HOUR} of message with offset 2 is out of range. "
            f"The timestamp should be within [{NOW - (1 << 63) + 1}, {NOW + HOUR}]",
        ),
    )


def test_compacted_topics_want_keys() -> None:
    with pytest.raises(ApiError) as caught:
        append(batch_of(key=None), compacted=True)
    assert caught.value.name == "INVALID_RECORD"
    text = "Compacted topic cannot accept message without key in topic partition orders-0"
    assert caught.value.record_errors == tuple((index, text) for index in range(3))


def test_recompression_by_the_broker() -> None:
    found = append(batch_of(), compression_type="zstd")
    (batch,) = found.batches
    assert found.size_changed and found.converted_count == 3
    assert batch.codec == "zstd" and batch.crc_ok and [record.offset for record in batch.records()] == [1000, 1001, 1002]
    assert append(batch_of(codec="lz4"), compression_type="uncompressed").batches[0].codec == "none"


def test_clients_write_no_control_batches_and_coordinators_do() -> None:
    data = batch_of(1, control=True)
    with pytest.raises(ApiError, match="Clients are not allowed to write control records") as caught:
        append(data)
    assert caught.value.name == "INVALID_RECORD"
    assert append(data, origin=AppendOrigin.COORDINATOR).batches[0].is_control
    assert not append(data, origin=AppendOrigin.COORDINATOR, compression_type="gzip").size_changed
