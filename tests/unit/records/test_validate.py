"""The batches that a leader writes, and those that it rejects."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kops.errors import ApiError
from kops.records import Batch, BatchBuilder, compress, read_batches
from kops.records.build import write_batch, write_message, write_record
from kops.records.validation.validate import AppendOrigin, ValidatedRecords, ValidationRules, validate_records

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


def append_all(batches: list[Batch], data: bytes, **rules: Any) -> ValidatedRecords:
    given = ValidationRules("orders-0", **rules)
    return validate_records(data, batches, given, first_offset=1000, now_ms=NOW, leader_epoch=7, origin=AppendOrigin.CLIENT)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_become_one_batch(magic: int) -> None:
    data = batch_of(magic=magic)
    found = append_all(read_batches(data), data)
    (batch,) = found.batches
    assert (batch.magic, batch.count, batch.base_offset, found.converted_count) == (2, 3, 1000, 3)
    assert found.max_timestamp == (NOW + 2 if magic else -1)


def test_old_messages_in_an_old_log_only_get_their_offsets() -> None:
    data = batch_of(magic=1)
    found = append_all(read_batches(data), data, magic=1)
    assert not found.size_changed and [batch.last_offset for batch in found.batches] == [1000, 1001, 1002]
    stamped = append_all(read_batches(data), data, magic=1, timestamp_type="LogAppendTime")
    assert {(batch.crc_ok, batch.timestamp_type, batch.max_timestamp) for batch in stamped.batches} == {(True, "LogAppendTime", NOW)}


def test_a_compressed_set_of_v1_stays_unless_its_inner_offsets_are_wrong() -> None:
    data = batch_of(magic=1, codec="gzip")
    found = append_all([Batch(data)], data, magic=1)
    assert not found.size_changed and found.data == (1002).to_bytes(8, "big") + data[8:]
    shifted = (5).to_bytes(8, "big") + data[8:]
    again = append_all([Batch(shifted)], shifted, magic=1)
    assert again.size_changed and [record.offset for record in again.batches[0].records()] == [1000, 1001, 1002]


def test_an_inner_message_whose_checksum_is_wrong() -> None:
    inner = bytearray(write_message(1, 0, NOW, b"k", b"v"))
    inner[-1] ^= 1
    data = write_message(1, 0, NOW, None, compress("gzip", inner), codec=1)
    kinds: list[str] = []
    with pytest.raises(ApiError) as caught:
        validate_records(
            data,
            [Batch(data)],
            ValidationRules("orders-0"),
            first_offset=0,
            now_ms=NOW,
            leader_epoch=0,
            origin=AppendOrigin.CLIENT,
            count_invalid=kinds.append,
        )
    assert caught.value.name == "CORRUPT_MESSAGE" and kinds == ["checksum"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (slice(23, 27), 7, "Inconsistent batch offset range"),
        (slice(23, 27), 0xFFFFFFFF, "invalid offset range"),
        (slice(57, 61), 0, "Invalid reported count"),
        (slice(43, 51), 5, "Invalid sequence number -1"),
    ],
)
def test_headers_that_a_client_must_not_send(field: slice, value: int, words: str) -> None:
    data = bytearray(batch_of())
    data[field] = value.to_bytes(field.stop - field.start, "big")
    with pytest.raises(ApiError, match=words) as caught:
        append(data)
    assert caught.value.name == "INVALID_RECORD" and not caught.value.record_errors


def test_one_batch_a_request() -> None:
    data = batch_of() + batch_of()
    with pytest.raises(ApiError, match="more than one batch"):
        append_all(read_batches(data), data)
    with pytest.raises(ApiError, match="no batches at all"):
        append_all([], b"")


def test_old_formats_have_no_producers() -> None:
    data = batch_of(producer_id=9, producer_epoch=0, base_sequence=0, codec="gzip")
    with pytest.raises(ApiError) as caught:
        append_all([Batch(data)], data, magic=1)
    assert caught.value.name == "UNSUPPORTED_FOR_MESSAGE_FORMAT"


def test_gaps_in_a_compressed_batch_are_refused_as_kafka_does() -> None:
    records = write_record(0, 0, b"k", b"v") + write_record(2, 0, b"k", b"v")
    data = write_batch(compress("lz4", records), base_offset=0, last_offset=1, count=2, attributes=3, base_timestamp=NOW, max_timestamp=NOW)
    with pytest.raises(ApiError) as caught:
        append(data)
    assert caught.value.name == "UNKNOWN_SERVER_ERROR"
    assert [record.offset for record in append(data, compression_type="gzip").batches[0].records()] == [1000, 1001]


def test_what_is_recompressed_keeps_its_producer() -> None:
    data = batch_of(producer_id=9, producer_epoch=2, base_sequence=5, transactional=True, codec="lz4")
    (batch,) = append(data, compression_type="gzip").batches
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (9, 2, 5, True)
    (stamped,) = append(data, compression_type="gzip", timestamp_type="LogAppendTime").batches
    assert stamped.crc_ok and {record.timestamp for record in stamped.records()} == {NOW}
