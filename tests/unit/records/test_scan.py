"""The scanner: its results, the damage that it reports, and where it continues after it."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pytest

from kops.errors import DecodeError
from kops.records import Batch, BatchBuilder, BytesSource, Columns, Damage, file_batches, read_batches, scan, scan_columns
from kops.records.build import empty_batch, write_batch, write_message

Found = tuple[str, int, int]


def batch(offset: int, *, magic: int = 2, codec: str = "none", records: int = 3, size: int = 40) -> bytes:
    builder = BatchBuilder(magic=magic, codec=codec, base_offset=offset, partition_leader_epoch=3 if magic > 1 else -1)
    for number in range(records):
        builder.append(1_700_000_000_000 + number, b"key", bytes((offset + number + i) * 37 & 255 for i in range(size)))
    return builder.build()


def log(count: int, **how: object) -> list[bytes]:
    return [batch(3 * number, **how) for number in range(count)]  # type: ignore[arg-type]


def found(data: bytes, **how: object) -> list[Found]:
    """Return (good or the damage's code, position, size) without gaps. `scan` with any window and `scan_columns` must agree."""
    results = []
    for window in (1 << 20, 300, 61):
        items = list(scan(BytesSource(data), window=window, **how))  # type: ignore[arg-type]
        results.append([as_found(item) for item in items])
        results.append(list(columns_found(data, window, **how)))
    assert all(result == results[0] for result in results)
    end = 0
    for _, position, size in results[0]:
        assert position == end
        end += size
    if how.get("resync", True):
        assert end == len(data)
    return results[0]


def as_found(item: Batch | Damage) -> Found:
    return ("good", item.position, item.size) if isinstance(item, Batch) else (item.code, item.position, item.length)


def columns_found(data: bytes, window: int, **how: object) -> Iterator[Found]:
    for item in scan_columns(BytesSource(data), window=window, **how):  # type: ignore[arg-type]
        if isinstance(item, Columns):
            yield from (("good", position, size) for position, size in zip(item.positions, item.sizes, strict=True))
        else:
            yield as_found(item)


def damages(data: bytes) -> list[Damage]:
    return [item for item in scan(BytesSource(data)) if isinstance(item, Damage)]


@pytest.mark.parametrize(
    "how", [{}, {"codec": "lz4"}, {"magic": 0}, {"magic": 1}, {"magic": 0, "codec": "gzip"}, {"magic": 1, "codec": "snappy"}]
)
def test_a_sound_log(how: dict[str, object]) -> None:
    data = b"".join(log(20, **how))
    result = found(data)
    assert all(code == "good" for code, _, _ in result) and len(result) in (20, 60)


def test_an_empty_file_gives_nothing() -> None:
    assert found(b"") == []


def test_a_batch_without_records_is_one() -> None:
    """Compaction leaves headers alone. These are the smallest batches."""
    empty = empty_batch(base_offset=3, last_offset=5, producer_id=1, producer_epoch=0, base_sequence=0)
    assert len(empty) == 61
    data = batch(0) + empty + batch(6)
    assert [code for code, _, _ in found(data)] == ["good"] * 3
    assert [code for code, _, _ in found(empty)] == ["good"]


def test_start_and_end() -> None:
    parts = log(5)
    data = b"".join(parts)
    start, end = len(parts[0]), len(data) - len(parts[4])
    assert [item.position for item in scan(BytesSource(data), start, end)] == [start + i * len(parts[0]) for i in range(3)]
    torn = list(scan(BytesSource(data), start, end - 1))[-1]
    assert isinstance(torn, Damage) and torn.code == "torn-tail" and torn.end == end - 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_cut_is_a_torn_tail(magic: int) -> None:
    good = batch(0, magic=magic, records=1)
    data = good + batch(3, magic=magic, records=1)
    for cut in range(len(good) + 1, len(data)):
        assert found(data[:cut]) == [("good", 0, len(good)), ("torn-tail", len(good), cut - len(good))]
        assert damages(data[:cut])[0].kafka == "ends"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_flipped_bit_costs_one_batch_at_most(magic: int) -> None:
    """Whichever bit of the middle batch is flipped, the others are found, and the damage is exactly that batch."""
    first, middle, last = (batch(offset, magic=magic, records=1) for offset in (0, 1, 2))
    outside_crc = range(8) if magic < 2 else [*range(8), *range(12, 16)]
    for byte in range(len(middle)):
        for bit in range(8):
            wrong = bytearray(middle)
            wrong[byte] ^= 1 << bit
            result = found(first + wrong + last)
            if byte in outside_crc:
                assert [code for code, _, _ in result] == ["good"] * 3
                continue
            assert [code for code, _, _ in result[:: len(result) - 1]] == ["good", "good"]
            assert sum(size for _, _, size in result[1:-1]) == len(middle)
            if not 8 <= byte < 12:
                assert len(result) == 3
                assert result[1][0] in ("crc-mismatch", "unknown-magic")


def test_a_flipped_bit_in_the_body() -> None:
    parts = log(5)
    wrong = bytearray(b"".join(parts))
    wrong[2 * len(parts[0]) + 100] ^= 4
    damage = damages(bytes(wrong))[0]
    assert (damage.code, damage.position, damage.length, damage.kafka) == ("crc-mismatch", 2 * len(parts[0]), len(parts[0]), "invalid")
    assert (damage.base_offset, damage.last_offset, damage.mended) == (6, 8, None)
    assert damage.batch is not None and damage.batch.partition_leader_epoch == 3


@pytest.mark.parametrize("length", [-1, 0, 13, 14, 30, 48, 100, 250, 100_000, 0x7FFFFFFF, -(1 << 31)])
def test_a_wrong_length_is_found_and_mended(length: int) -> None:
    parts = log(5)
    data = bytearray(b"".join(parts))
    at = 2 * len(parts[0])
    data[at + 8 : at + 12] = struct.pack(">i", length)
    (damage,) = damages(bytes(data))
    assert (damage.code, damage.position, damage.length) == ("bad-length", at, len(parts[2]))
    assert damage.mended is not None and damage.mended.crc_ok and bytes(damage.mended.data()) == parts[2]
    assert (damage.base_offset, damage.last_offset) == (6, 8)


def test_a_length_that_swallows_the_next_batches_exactly() -> None:
    parts = log(5)
    data = bytearray(b"".join(parts))
    data[8:12] = struct.pack(">i", 3 * len(parts[0]) - 12)
    assert found(bytes(data)) == [("bad-length", 0, len(parts[0]))] + [("good", i * len(parts[0]), len(parts[0])) for i in range(1, 5)]


@pytest.mark.parametrize("magic", [0, 1, 3, 77, 127, 128, 255])
def test_a_wrong_magic_is_found_and_mended(magic: int) -> None:
    parts = log(3)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 16] = magic
    (damage,) = damages(bytes(data))
    assert (damage.position, damage.length) == (len(parts[0]), len(parts[1]))
    assert damage.code == ("crc-mismatch" if magic < 2 else "unknown-magic") and damage.kafka == "invalid"
    assert damage.mended is not None and bytes(damage.mended.data()) == parts[1]


def test_a_magic_above_2_passes_where_kafka_is_followed() -> None:
    parts = log(3)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 16] = 77
    assert [code for code, _, _ in found(bytes(data), max_magic=127)] == ["good"] * 3


@pytest.mark.parametrize("size", [64, 4096, 3 << 20])
def test_zeroes_at_the_end_and_in_the_middle(size: int) -> None:
    first, last = log(2)
    assert found(first + bytes(size)) == [("good", 0, len(first)), ("zeroes", len(first), size)]
    result = [as_found(item) for item in scan(BytesSource(first + bytes(size) + last))]
    assert [(code, position) for code, position, _ in result] == [("good", 0), ("zeroes", len(first)), ("good", len(first) + size)]
    assert damages(first + bytes(size))[0].kafka == "throws"


def test_a_zeroed_page_over_two_batches() -> None:
    parts = log(6, size=400)
    data = bytearray(b"".join(parts))
    size = len(parts[0])
    data[size + 300 : 3 * size + 500] = bytes(2 * size + 200)
    result = found(bytes(data))
    assert result[:2] == [("good", 0, size), ("crc-mismatch", size, size)]
    assert [code for code, _, _ in result] == ["good", "crc-mismatch", "zeroes", "garbage", "good", "good"]


def test_garbage_between_batches() -> None:
    first, last = log(2)
    rubbish = bytes((i * 73 + (i >> 5) * 29) & 255 | 128 for i in range(5000))
    assert found(first + rubbish + last) == [
        ("good", 0, len(first)),
        ("garbage", len(first), 5000),
        ("good", len(first) + 5000, len(last)),
    ]
    assert found(first + rubbish)[1:] == [("garbage", len(first), 5000)]


def test_several_damages_each_stand_for_themselves() -> None:
    parts = log(12)
    size = len(parts[0])
    data = bytearray(b"".join(parts))
    for number in (1, 2, 5, 11):
        data[number * size + 80] ^= 1
    result = found(bytes(data))
    assert [number for number, (code, _, _) in enumerate(result) if code == "crc-mismatch"] == [1, 2, 5, 11]
    assert all(length == size for _, _, length in result)


def test_a_batch_inside_a_value_is_no_batch_of_the_log() -> None:
    """A record of a damaged batch contains a whole valid batch. The damage stays one."""
    inner = batch(1000)
    builder = BatchBuilder(base_offset=3)
    builder.append(1, None, inner + inner)
    outer = bytearray(builder.build())
    outer[-1] ^= 1
    data = batch(0) + outer + batch(4)
    assert [code for code, _, _ in found(data)] == ["good", "crc-mismatch", "good"]


def test_batches_that_go_on_in_the_middle_of_one() -> None:
    """A batch was written over the end of another. The good one is found inside the bytes that the damaged one claims."""
    first, torn, good, last = log(4)
    data = first + torn[:90] + good + last
    assert found(data) == [
        ("good", 0, len(first)),
        ("crc-mismatch", len(first), 90),
        ("good", len(first) + 90, len(good)),
        ("good", len(first) + 90 + len(good), len(last)),
    ]


def test_a_message_inside_a_torn_set_is_no_message_of_the_log() -> None:
    """snappy keeps incompressible data as it is. An inner message is in the set unchanged, but it is not one of the log's own."""
    before = batch(1, magic=0, records=1)
    inner = write_message(0, 50, -1, None, bytes(range(40, 90)))
    torn = write_message(0, 60, -1, None, b"\x82SNAPPY\x00" + bytes(8) + inner + bytes(50), codec=2)
    for cut in range(len(before) + 30, len(before) + len(torn)):
        assert [code for code, _, _ in found((before + torn)[:cut])] == ["good", "torn-tail"]


@pytest.mark.parametrize(("magic", "codec"), [(0, "gzip"), (1, "gzip"), (2, "none")])
def test_a_batch_whose_offset_goes_back_counts_at_the_end(magic: int, codec: str) -> None:
    """A header with the offset of a later batch was written over another one. Sets are not nested, so the last one is of the log."""
    parts = log(4, magic=magic, codec=codec)
    wrong = bytearray(parts[1])
    wrong[:17] = (900).to_bytes(8, "big") + wrong[8:17]
    wrong[-1] ^= 1
    cut = parts[2][:-9]
    data = parts[0] + bytes(wrong) + cut + parts[3]
    assert found(data)[-1] == ("good", len(data) - len(parts[3]), len(parts[3]))


@pytest.mark.parametrize(("magic", "codec"), [(0, "none"), (0, "gzip"), (1, "gzip"), (2, "none")])
def test_a_batch_whose_offset_goes_back_counts_before_a_header_that_continues_it(magic: int, codec: str) -> None:
    parts = [batch(number, magic=magic, codec=codec, records=1 if codec == "none" else 3) for number in range(0, 15, 3)]
    if codec == "none":
        parts = [batch(number, magic=magic, records=1) for number in range(5)]
    wrong, next_one = bytearray(parts[1]), bytearray(parts[3])
    wrong[:8] = (900).to_bytes(8, "big")
    wrong[-1] ^= 1
    next_one[-1] ^= 1
    data = parts[0] + bytes(wrong) + parts[2] + bytes(next_one) + b"\xff" * 30
    assert [code for code, _, _ in found(data)[:4]] == ["good", "crc-mismatch", "good", "crc-mismatch"]


def test_a_message_of_a_damaged_set_with_a_far_offset_is_no_message_of_the_log() -> None:
    inner = write_message(0, 1_409_304_922, -1, None, bytes(range(40, 90)))
    broken = bytearray(write_message(0, 60, -1, None, b"\x82SNAPPY\x00" + bytes(8) + inner + bytes(50), codec=2))
    del broken[3:9]
    data = batch(1, magic=0, records=1) + bytes(broken)
    assert [code == "good" for code, _, _ in found(data)] == [True, False]


def test_old_formats_are_resynchronised_too() -> None:
    for magic in (0, 1):
        for codec in ("none", "gzip"):
            parts = log(4, magic=magic, codec=codec)
            hole = bytearray(b"".join(parts))
            at = len(parts[0]) + 5
            del hole[at : at + 30]
            result = found(bytes(hole))
            good = sum(size for code, _, size in result if code == "good")
            assert good >= len(parts[0]) + len(parts[2]) + len(parts[3])


def test_formats_may_change_within_a_file() -> None:
    parts = [batch(3 * i, magic=magic, records=1) for i, magic in enumerate((0, 1, 2, 1, 0, 2))]
    assert [code for code, _, _ in found(b"".join(parts))] == ["good"] * 6
    wrong = bytearray(b"".join(parts))
    wrong[len(parts[0]) + len(parts[1]) + 70] ^= 1
    assert [code for code, _, _ in found(bytes(wrong))] == ["good", "good", "crc-mismatch", "good", "good", "good"]


def test_without_resync_the_scan_stops_where_recovery_does() -> None:
    parts = log(4)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 70] ^= 1
    assert found(bytes(data), resync=False) == [("good", 0, len(parts[0])), ("crc-mismatch", len(parts[0]), len(parts[1]))]
    assert found(parts[0] + bytes(1000), resync=False)[-1] == ("zeroes", len(parts[0]), 1000)


def test_without_checksums_headers_are_believed() -> None:
    parts = log(4)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 70] ^= 1
    assert [code for code, _, _ in found(bytes(data), check_crc=False)] == ["good"] * 4


class Watched(BytesSource):
    """A file that records its largest read."""

    largest = 0

    def read(self, position: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return super().read(position, size)


def test_a_claimed_length_is_never_read_beyond_what_is_there() -> None:
    parts = log(3)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 8 : len(parts[0]) + 12] = struct.pack(">i", 1 << 30)
    source = Watched(bytes(data))
    assert [as_found(item)[0] for item in scan(source)] == ["good", "bad-length", "good"]
    assert source.largest <= len(data)


def test_a_large_claim_is_checked_before_it_is_held() -> None:
    head = bytearray(write_batch(b"", base_offset=0, last_offset=0, count=1))
    body = bytes(range(1, 256)) * 40_000
    head[8:12] = struct.pack(">i", len(body) + 49)
    source = Watched(bytes(head) + body + batch(1))
    assert [as_found(item)[0] for item in scan(source)] == ["crc-mismatch", "good"]
    assert source.largest <= 1 << 20


def test_a_batch_larger_than_the_window_is_whole() -> None:
    big = batch(0, records=1, size=3 << 20)
    data = big + batch(1)
    items = list(scan(BytesSource(data)))
    assert [as_found(item)[0] for item in items] == ["good", "good"]
    assert isinstance(items[0], Batch) and len(items[0].records()[0].value or b"") == 3 << 20
    assert list(columns_found(data, 1 << 20)) == [("good", 0, len(big)), ("good", len(big), len(data) - len(big))]


def test_a_large_claim_that_is_believed_costs_its_header() -> None:
    head = bytearray(write_batch(b"", base_offset=5, last_offset=7, count=3))
    body = bytes(range(1, 256)) * 70_000
    head[8:12] = struct.pack(">i", len(body) + 49)
    data = bytes(head) + body + batch(8)
    for items in (list(scan(BytesSource(data), check_crc=False)), list(file_batches(BytesSource(data)))):
        large = items[0]
        assert isinstance(large, Batch) and (large.base_offset, large.last_offset, large.size) == (5, 7, len(body) + 61)
        assert len(large.buffer) <= 1 << 20 and not large.crc_ok
        with pytest.raises(DecodeError):
            large.records()
        assert items[1].position == large.end
    big = batch(0, records=1, size=3 << 20)
    assert [bytes(item.data()) for item in file_batches(BytesSource(big + batch(1)))] == [big, batch(1)]


class Shrinking(BytesSource):
    """A file that loses its second half after its size was read."""

    def read(self, position: int, size: int) -> bytes:
        return self.data[: len(self.data) // 2][position : position + size]


def test_a_file_that_shrinks_underneath_ends_early() -> None:
    data = b"".join(log(40))
    for window in (1 << 20, 1000):
        items = [as_found(item) for item in scan(Shrinking(data), window=window)]
        assert items[-1][1] + items[-1][2] == len(data) // 2
        assert {code for code, _, _ in items} <= {"good", "torn-tail"}
        total = sum(len(item) for item in scan_columns(Shrinking(data), window=window) if isinstance(item, Columns))
        assert total == sum(code == "good" for code, _, _ in items)


def test_kafkas_own_iteration_over_a_file() -> None:
    parts = log(3)
    data = b"".join(parts)
    assert [b.base_offset for b in file_batches(BytesSource(data))] == [0, 3, 6]
    assert [b.base_offset for b in file_batches(BytesSource(data[:-1]))] == [0, 3]
    wrong = bytearray(data)
    wrong[len(parts[0]) + 70] ^= 1
    second = list(file_batches(BytesSource(bytes(wrong))))[1]
    with pytest.raises(DecodeError) as error:
        second.ensure_valid()
    assert error.value.code == "crc-mismatch"
    with pytest.raises(DecodeError) as error:
        list(file_batches(BytesSource(data + bytes(100))))
    assert (error.value.code, error.value.position) == ("bad-length", len(data))
    wrong[len(parts[0]) + 8 : len(parts[0]) + 12] = struct.pack(">i", 30)
    small = list(itertools.islice(file_batches(BytesSource(bytes(wrong))), 2))[1]
    with pytest.raises(DecodeError) as error:
        small.ensure_valid()
    assert error.value.code == "bad-length"


def test_record_sets_in_memory() -> None:
    parts = log(3)
    assert [b.base_offset for b in read_batches(b"".join(parts))] == [0, 3, 6]
    assert [b.base_offset for b in read_batches(b"".join(parts)[:-1])] == [0, 3]
    wrong = bytearray(b"".join(parts))
    wrong[80] ^= 1
    with pytest.raises(DecodeError):
        read_batches(bytes(wrong))


def test_file_batches_hold_a_large_batch_whose_checksum_is_wrong() -> None:
    """Kafka shows the records in it. A length without a limit is not trusted."""
    builder = BatchBuilder()
    builder.append(1, b"key", bytes(1_100_000))
    large = bytearray(builder.build())
    large[-100] ^= 1
    after = BatchBuilder(base_offset=1)
    after.append(2, b"key", b"value")
    batches = list(file_batches(BytesSource(bytes(large) + after.build())))
    assert [each.crc_ok for each in batches] == [False, True]
    assert [len(record.value or b"") for each in batches for record in each.records()] == [1_100_000, 5]
