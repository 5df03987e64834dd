"""Headers, records and the deep check of hand-made batches, valid and invalid."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from kops.errors import DecodeError
from kops.records import Batch, BatchBuilder, BytesSource, decrement_sequence, increment_sequence, scan
from kops.records.batch import BATCH_OVERHEAD, FIELDS, HEADER_V2, read_header
from kops.records.build import end_txn_marker, one_record_batch, write_batch, write_message, write_record
from kops.records.compression import compress
from kops.records.isolation import read_committed
from kops.records.record import ABORT, CONTROL_TYPES
from kops.records.varint import write_varint


def made(body: bytes, count: int = 1, **fields: int) -> Batch:
    fields.setdefault("base_offset", 10)
    fields.setdefault("last_offset", 10 + max(count, 1) - 1)
    fields.setdefault("max_timestamp", 1 << 50)
    fields.setdefault("base_timestamp", 1000)
    return Batch(write_batch(body, count=count, **fields))


def codes(batch: Batch) -> list[str]:
    assert batch.crc_ok
    found = [error.code for error in batch.check()]
    try:
        batch.records()
    except DecodeError as error:
        assert error.code in found and error.position == batch.position
    return found


def test_fields_of_a_v2_header() -> None:
    data = write_batch(
        b"",
        base_offset=100,
        last_offset=104,
        count=5,
        attributes=0x78 | 4,
        base_timestamp=7,
        max_timestamp=9,
        producer_id=1 << 40,
        producer_epoch=3,
        base_sequence=0x7FFFFFFE,
        partition_leader_epoch=6,
    )
    batch = Batch(b"??" + data + b"!", 2, 1000)
    assert (batch.position, batch.size, batch.end, batch.magic, batch.base_offset, batch.last_offset) == (1000, 61, 1061, 2, 100, 104)
    assert (batch.next_offset, batch.last_offset_delta, batch.count, batch.codec, batch.compressed) == (105, 4, 5, "zstd", True)
    assert (batch.timestamp_type, batch.is_transactional, batch.is_control, batch.delete_horizon_ms) == ("LogAppendTime", True, True, 7)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (1 << 40, 3, 0x7FFFFFFE, 2)
    assert (batch.partition_leader_epoch, batch.max_timestamp, batch.has_producer_id) == (6, 9, True)
    assert batch.crc_ok and batch.computed_crc() == batch.crc and bytes(batch.data()) == data


def test_a_header_is_the_same_whatever_reads_it() -> None:
    """A compiled build reads the bytes one by one, an interpreted one uses the struct module. The headers include all
    ones and all zeros.
    """
    chance = random.Random(1)
    for number in range(500):
        index = chance.randrange(3)
        header = bytearray(chance.choice((b"\0", b"\xff", b"\x7f\x80", chance.randbytes(16))) * BATCH_OVERHEAD)[:BATCH_OVERHEAD]
        header[16] = chance.randrange(2, 128)
        if number % 2:
            header[chance.randrange(16)] = chance.randrange(256)
        buffer = bytes(index) + bytes(header) + bytes(chance.randrange(2))
        batch = Batch(buffer, index)
        again = Batch(buffer, index)
        read_header(again, buffer, index)
        assert [getattr(again, field) for field in FIELDS] == [getattr(batch, field) for field in FIELDS]
        offset, length, *fields = HEADER_V2.unpack(header)
        delta = fields.pop(4)
        names: tuple[str, ...] = ("partition_leader_epoch", "magic", "crc", "attributes", "base_timestamp", "max_timestamp")
        names += ("producer_id", "producer_epoch", "base_sequence", "count")
        assert [getattr(batch, name) for name in names] == fields
        wrapped = offset + delta if offset + delta < 1 << 63 else offset + delta - (1 << 64)
        assert (batch.base_offset, batch.last_offset, batch.size) == (offset, wrapped, length + 12)


def test_what_old_formats_lack_is_minus_one() -> None:
    for magic in (0, 1):
        batch = Batch(write_message(magic, 7, 1234, b"k", b"v"))
        assert (batch.base_offset, batch.last_offset, batch.count, batch.partition_leader_epoch, batch.producer_id) == (7, 7, None, -1, -1)
        assert (batch.last_sequence, batch.is_transactional, batch.is_control, batch.delete_horizon_ms) == (-1, False, False, None)
        assert (batch.timestamp_type, batch.max_timestamp) == (("NoTimestampType", -1), ("CreateTime", 1234))[magic]


def test_a_last_offset_wraps_as_in_java() -> None:
    data = bytearray(write_batch(b"", base_offset=0, last_offset=10, count=1))
    data[:8] = struct.pack(">q", (1 << 63) - 5)
    assert Batch(bytes(data)).last_offset == -(1 << 63) + 5


def test_sequences_wrap() -> None:
    assert increment_sequence(0x7FFFFFFF, 1) == 0 and increment_sequence(0x7FFFFFFE, 1) == 0x7FFFFFFF
    assert decrement_sequence(0, 1) == 0x7FFFFFFF and decrement_sequence(5, 5) == 0
    records = made(write_record(3, 0, None, None), base_sequence=0x7FFFFFFE, last_offset=13).records()
    assert records[0].sequence == 1


@pytest.mark.parametrize("cut", range(61))
def test_a_header_that_is_cut(cut: int) -> None:
    with pytest.raises(DecodeError) as error:
        Batch(write_batch(b"", base_offset=0, last_offset=0, count=0)[:cut], 0, 77)
    assert (error.value.code, error.value.position) == ("torn-tail", 77)


def test_a_sound_batch_has_no_problem() -> None:
    headers = [("a", b"1"), ("", None), ("ü", b"")]
    body = write_record(0, 0, None, None) + write_record(1, -5, b"", b"v" * 300, headers) + write_record(2, 1 << 40, b"k", b"")
    batch = made(body, 3)
    assert codes(batch) == []
    first, second, third = batch.records()
    assert (first.key, first.value, first.headers, first.timestamp) == (None, None, [], 1000)
    assert (second.key, second.value, second.headers, second.timestamp) == (b"", b"v" * 300, headers, 995)
    assert (third.key, third.value, third.timestamp, third.offset) == (b"k", b"", 1000 + (1 << 40), 12)
    assert first.size + second.size + third.size == len(body)


def test_attributes_of_a_record_are_a_byte_and_no_varint() -> None:
    record = bytearray(write_record(0, 0, None, b"v"))
    record[1] = 0xFF
    assert made(bytes(record)).records()[0].attributes == -1
    assert codes(made(bytes(record))) == []


def test_a_header_key_that_is_no_text_stays_bytes() -> None:
    record = write_record(0, 0, None, None, [(b"\xff\xfe", b"x")])
    assert made(record).records()[0].headers == [(b"\xff\xfe", b"x")]


GOOD = write_record(0, 0, b"k", b"v", [("h", b"x")])


@pytest.mark.parametrize(
    ("name", "body", "count"),
    [
        ("no record", b"", 1),
        ("count too high", GOOD, 2),
        ("count too low", GOOD + GOOD, 1),
        ("negative count", GOOD, -1),
        ("count without end", GOOD, 0x7FFFFFFF),
        ("length beyond the batch", write_varint(100) + GOOD[1:], 1),
        ("length beyond a gigabyte", write_varint(1 << 30) + GOOD[1:], 1),
        ("negative length", write_varint(-1) + GOOD[1:], 1),
        ("length one too low", write_varint(len(GOOD) - 2) + GOOD[1:], 1),
        ("length that does not end", b"\xff\xff\xff\xff\xff\xff", 1),
        ("key beyond the record", b"\x0e\x00\x00\x00\x7e\x01\x01\x00", 1),
        ("value beyond the record", b"\x0e\x00\x00\x00\x01\x7e\x01\x00", 1),
        ("negative header count", b"\x0c\x00\x00\x00\x01\x01\x01", 1),
        ("too many headers", b"\x0c\x00\x00\x00\x01\x01\x7e", 1),
        ("header key null", b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),
        ("header value beyond", b"\x10\x00\x00\x00\x01\x01\x02\x00\x7e", 1),
    ],
)
def test_wrong_records_under_a_right_checksum(name: str, body: bytes, count: int) -> None:
    for codec in (0, 1, 3):
        batch = made(compress(codec, body), count, attributes=codec)
        assert codes(batch) == ["bad-records"], name
        assert batch.check()[0].reason


def test_contents_that_are_no_compressed_data() -> None:
    assert codes(made(b"rubbish", attributes=1)) == ["bad-compression"]
    assert codes(made(b"rubbish", attributes=7)) == ["unknown-codec"]


def test_offsets_must_increase_and_stay_within_the_batch() -> None:
    body = write_record(1, 0, None, b"a") + write_record(1, 0, None, b"b")
    assert codes(made(body, 2)) == ["bad-offsets"]
    assert codes(made(write_record(5, 0, None, b"a"), 1)) == ["bad-offsets"]


def test_a_record_above_the_largest_timestamp() -> None:
    assert codes(made(write_record(0, 5, None, None), max_timestamp=1004)) == ["bad-timestamps"]
    assert codes(made(write_record(0, 5, None, None), max_timestamp=1005)) == []
    assert codes(made(write_record(0, 5, None, None), max_timestamp=1, attributes=8)) == []


def test_log_append_time_overrides_what_the_records_say() -> None:
    batch = made(write_record(0, 5, None, None), max_timestamp=777, attributes=8)
    assert (batch.records()[0].timestamp, batch.records()[0].timestamp_type) == (777, "LogAppendTime")


def test_an_empty_batch_has_no_records_whatever_stands_in_it() -> None:
    assert made(b"", 0, last_offset=14).records() == []
    assert made(b"left over", 0).records() == []
    assert codes(made(b"left over", 0)) == ["bad-records"]


def test_the_limit_reaches_the_records() -> None:
    batch = made(compress("zstd", write_record(0, 0, None, bytes(1 << 20))), attributes=4)
    assert len(batch.records()[0].value or b"") == 1 << 20
    with pytest.raises(DecodeError) as error:
        batch.records(limit=1 << 19)
    assert error.value.code == "too-large"
    assert batch.check() == []


def legacy_set(magic: int, inner: bytes, offset: int, codec: int = 1, timestamp: int = 50, append: bool = False) -> Batch:
    kind = "LogAppendTime" if append else "CreateTime"
    return Batch(write_message(magic, offset, timestamp, None, compress(codec, inner, magic=magic), codec=codec, timestamp_type=kind))


def test_relative_offsets_of_v1() -> None:
    inner = b"".join(write_message(1, number, 40 + number, None, b"x") for number in range(3))
    batch = legacy_set(1, inner, 12)
    assert [record.offset for record in batch.records()] == [10, 11, 12]
    assert [record.timestamp for record in batch.records()] == [40, 41, 42]
    assert (batch.base_offset, batch.last_offset, batch.count) == (10, 12, None)
    assert batch.check() == []


def test_an_outer_offset_of_0_in_v1_comes_from_old_librdkafka() -> None:
    inner = b"".join(write_message(1, number, 40, None, b"x") for number in range(3))
    assert [record.offset for record in legacy_set(1, inner, 0).records()] == [0, 1, 2]
    with pytest.raises(DecodeError):
        legacy_set(1, inner, 1).records()


def test_absolute_offsets_of_v0_with_holes() -> None:
    inner = b"".join(write_message(0, offset, -1, b"k", b"x") for offset in (5, 9, 20))
    batch = legacy_set(0, inner, 20)
    assert [record.offset for record in batch.records()] == [5, 9, 20]
    assert batch.base_offset == 5 and batch.check() == []
    assert {record.timestamp_type for record in batch.records()} == {"NoTimestampType"}


def test_log_append_time_of_the_outer_message_overrides() -> None:
    inner = b"".join(write_message(1, number, 40 + number, None, b"x") for number in range(3))
    records = legacy_set(1, inner, 12, timestamp=99, append=True).records()
    assert {(record.timestamp, record.timestamp_type) for record in records} == {(99, "LogAppendTime")}


def test_a_message_cut_at_the_end_of_a_set_is_dropped() -> None:
    inner = write_message(0, 1, -1, None, b"a") + write_message(0, 2, -1, None, b"b")[:-1]
    assert [record.offset for record in legacy_set(0, inner, 1).records()] == [1]


@pytest.mark.parametrize(
    ("inner", "codec"),
    [
        (b"", 1),
        (write_message(1, 0, 0, None, b"x", codec=1), 1),
        (struct.pack(">qi", 0, 13) + bytes(13), 1),
        (struct.pack(">qi", 0, -1) + bytes(30), 1),
        (struct.pack(">qiIbbqi", 0, 22, 0, 1, 0, 0, 500) + bytes(4), 1),
    ],
)
def test_wrong_sets_of_v1(inner: bytes, codec: int) -> None:
    batch = legacy_set(1, inner, 5, codec)
    assert codes(batch) == ["bad-records"]
    assert batch.base_offset == batch.last_offset == 5
    with pytest.raises(DecodeError):
        batch.read_base_offset()


def test_zstd_and_null_values_are_no_sets_of_old_formats() -> None:
    assert codes(Batch(write_message(1, 5, 0, None, b"", codec=4))) == ["unknown-codec"]
    assert codes(Batch(write_message(1, 5, 0, None, None, codec=1))) == ["bad-records"]


def test_an_inner_checksum_is_checked() -> None:
    inner = bytearray(write_message(1, 0, 0, None, b"x"))
    inner[12] ^= 1
    batch = legacy_set(1, bytes(inner), 5)
    assert [record.value for record in batch.records()] == [b"x"]
    assert [problem.code for problem in batch.check()] == ["bad-inner-crc"]


def test_fields_of_a_message_beyond_its_end() -> None:
    content = bytes((0, 0)) + struct.pack(">i", 1000) + bytes(30)
    data = struct.pack(">qiI", 3, len(content) + 4, zlib.crc32(content)) + content
    assert codes(Batch(data)) == ["bad-records"]


def test_the_builder_refuses_what_kafkas_refuses() -> None:
    for fields in (
        {"magic": 3},
        {"magic": 1, "codec": "zstd"},
        {"magic": 1, "transactional": True},
        {"magic": 0, "producer_id": 5},
        {"transactional": True},
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
    ):
        with pytest.raises(ValueError):
            BatchBuilder(**fields)
    builder = BatchBuilder(base_offset=5)
    builder.append(1, None, None, offset=7)
    for wrong in (7, 4, 5 + (1 << 31)):
        with pytest.raises(ValueError):
            builder.append(1, None, None, offset=wrong)
    with pytest.raises(ValueError):
        builder.append(-2, None, None)
    with pytest.raises(ValueError):
        builder.append_end_txn_marker(1, True, 0)
    with pytest.raises(ValueError):
        BatchBuilder(magic=1).append(1, None, None, [("h", b"")])
    assert BatchBuilder().build() == b""


def test_one_scan_keeps_a_window_and_not_a_copy() -> None:
    data = b"".join(write_batch(GOOD, base_offset=i, last_offset=i, count=1) for i in range(10))
    buffers = {id(item.buffer) for item in scan(BytesSource(data)) if isinstance(item, Batch)}
    assert len(buffers) == 1


def test_a_moved_batch_is_what_its_bytes_say() -> None:
    batch = Batch(write_batch(GOOD, base_offset=0, last_offset=0, count=1))
    data = struct.pack(">qii", 70, batch.size - 12, 9) + batch.data()[16:]
    moved, read = batch.moved(data, 70, 9), Batch(data)
    assert [getattr(moved, field) for field in FIELDS] == [getattr(read, field) for field in FIELDS]


@pytest.mark.parametrize("value", [struct.pack(">hi", 0, 5), None, b"", struct.pack(">hi", -1, 5)])
def test_an_abort_marker_is_known_by_its_key(value: bytes | None) -> None:
    """As in Kafka's consumer, the value does not matter."""
    producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    lost, kept = (made(write_record(0, 0, b"k", b"v", []), base_offset=at, last_offset=at, attributes=0x10, **producer) for at in (10, 12))
    key = struct.pack(">hh", 0, CONTROL_TYPES.index(ABORT))
    marker = made(write_record(0, 0, key, value, []), base_offset=11, last_offset=11, attributes=0x30, producer_id=9, producer_epoch=0)
    assert list(read_committed([lost, marker, kept], [(9, 10)])) == [kept]
    assert list(read_committed([lost, marker, kept], [(9, 10)], 12)) == []
    assert list(read_committed([lost, marker, kept], [(9, 10)], 13)) == [kept]


@pytest.mark.parametrize("sizes", [(0, 0), (1, 63), (63, 64), (64, 5000)])
def test_a_batch_of_one_record_needs_no_builder(sizes: tuple[int, int]) -> None:
    key, value = (b"k" * size for size in sizes)
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, key, value)
    assert one_record_batch(1_700_000_000_000, key, value) == builder.build()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("timestamp", [-1, 0, 1_700_000_000_000])
def test_a_marker_needs_no_builder(commit: bool, timestamp: int) -> None:
    builder = BatchBuilder(base_offset=5, producer_id=9, producer_epoch=3, transactional=True, control=True, partition_leader_epoch=2)
    builder.append_end_txn_marker(timestamp, commit, 7)
    marker = end_txn_marker(5, timestamp, commit=commit, coordinator_epoch=7, producer_id=9, producer_epoch=3, partition_leader_epoch=2)
    assert marker == builder.build()


@pytest.mark.parametrize("wrong", [{"producer_id": -1}, {"producer_epoch": -1}])
def test_a_marker_needs_a_producer(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="marker"):
        end_txn_marker(0, 0, commit=True, coordinator_epoch=0, **{"producer_id": 9, "producer_epoch": 0, **wrong})
