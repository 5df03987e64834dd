"""Kafka's own record classes on what kops builds, and both on the same damaged bytes."""

from __future__ import annotations

import gzip
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.errors import DecodeError, KopsError
from kops.records import Batch, BatchBuilder, BytesSource, Damage, Record, decrement_sequence, file_batches, increment_sequence, scan
from kops.records.batch import HEADER_V2
from kops.records.build import write_batch, write_record
from kops.records.compression import CODEC_IDS, compress
from kops.records.record import java_string
from kops.storage.segment_files.file_records import LogView
from kops.storage.segment_files.index_entries import OffsetSpan
from tests.fuzz.records_worker import mutate, seeds, with_right_checksums
from tests.support.kafka.oracle import Oracle

RECORD = "org.apache.kafka.common.record"
INTERNAL = f"{RECORD}.internal"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def memory_records(oracle: Oracle, data: bytes) -> Any:
    buffer = oracle.java_class("java.nio.ByteBuffer").wrap(data)
    return oracle.java_class(f"{INTERNAL}.MemoryRecords").readableRecords(buffer)


def java_bytes(buffer: Any) -> bytes:
    data = bytes(buffer.array())
    return data[buffer.arrayOffset() : buffer.arrayOffset() + buffer.limit()]


def some_records(rng: random.Random, magic: int, size: int) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [
        (
            1_700_000_000_000 + rng.randrange(-500, 500),
            rng.choice((None, b"", b"key")),
            rng.choice((None, b"", rng.randbytes(size), b"text " * (size // 5))),
            [("h", b"v"), ("ü", None), ("", b"")][: rng.randrange(4)] if magic > 1 else [],
        )
        for _ in range(rng.choice((1, 2, 30)))
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_java_reads_what_kops_compressed(oracle: Oracle, magic: int, codec: str) -> None:
    if codec == "zstd" and magic < 2:
        with pytest.raises(ValueError):
            BatchBuilder(magic=magic, codec=codec)
        return
    rng = random.Random(magic * 10 + len(codec))
    for size in (10, 3000, 40_000):
        builder = BatchBuilder(magic=magic, codec=codec, base_offset=100)
        for timestamp, key, value, headers in some_records(rng, magic, size):
            builder.append(timestamp, key, value, headers)
        data = builder.build()
        java = list(oracle.java_class("org.apache.kafka.common.utils.Utils").toList(memory_records(oracle, data).records().iterator()))
        ours = [record for item in scan(BytesSource(data)) if isinstance(item, Batch) for record in item.records()]
        assert len(java) == len(ours)
        for theirs, record in zip(java, ours, strict=True):
            theirs.ensureValid()
            assert theirs.offset() == record.offset and theirs.timestamp() == record.timestamp
            assert (theirs.keySize(), theirs.valueSize()) == tuple(-1 if f is None else len(f) for f in (record.key, record.value))
            value = theirs.value()
            if value is not None:
                assert value.equals(oracle.java_class("java.nio.ByteBuffer").wrap(record.value))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_uncompressed_batches_are_kafkas_byte_for_byte(oracle: Oracle, magic: int) -> None:
    rng = random.Random(magic)
    jvm = oracle.jvm
    kinds = oracle.java_class(f"{RECORD}.TimestampType")
    for number in range(7):  # every combination of the three
        append_time = magic > 0 and number % 3 == 0
        idempotent = magic == 2 and number % 2 == 0
        producer = (9, 3, 100) if idempotent else (-1, -1, -1)
        buffer = oracle.java_class("java.nio.ByteBuffer").allocate(1 << 20)
        java = jvm.org.apache.kafka.common.record.internal.MemoryRecordsBuilder(
            jvm.org.apache.kafka.common.utils.ByteBufferOutputStream(buffer),
            magic,
            oracle.java_class("org.apache.kafka.common.compress.Compression").NONE,
            kinds.LOG_APPEND_TIME if append_time else kinds.CREATE_TIME,
            50,
            7_000 if append_time else -1,
            *producer,
            idempotent,
            False,
            4 if magic > 1 else -1,
            1 << 20,
            555 if magic == 2 and number % 4 == 0 else -1,
        )
        ours = BatchBuilder(
            magic=magic,
            base_offset=50,
            timestamp_type="LogAppendTime" if append_time else "CreateTime",
            log_append_time=7_000 if append_time else -1,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=idempotent,
            partition_leader_epoch=4 if magic > 1 else -1,
            delete_horizon_ms=555 if magic == 2 and number % 4 == 0 else None,
        )
        offset = 50
        for timestamp, key, value, headers in some_records(rng, magic, 200):
            array = oracle.gateway.new_array(jvm.org.apache.kafka.common.header.Header, len(headers))
            for index, (name, content) in enumerate(headers):
                array[index] = jvm.org.apache.kafka.common.header.internals.RecordHeader(name, content)
            java.appendWithOffset(offset, timestamp, key, value, array)
            ours.append(timestamp, key, value, headers, offset=offset)
            offset += rng.choice((1, 1, 70))
        assert ours.build() == java_bytes(java.build().buffer())


SUMMARY = re.compile(r"offset=(-?\d+)|timestamp=(-?\d+)|key=(-?\d+) bytes|value=(-?\d+) bytes")


GZIP_FLAGS = bytes.fromhex("1f8b080f000000000003") + b"\x02\0ab" + b"name\0" + b"comment\0"
SKIPPABLE = bytes.fromhex("502a4d18") + b"\3\0\0\0abc"
TAILS = {
    "gzip": (
        *(b"x", b"\0", b"\x1f", b"\x1f\x8b", b"rubbish", bytes(18), bytes(19), bytes(300)),
        *(gzip.compress(b"")[:cut] for cut in (3, 9, 10, 17, 18, 19)),
        b"\x1f\x8b\x08" + bytes(16),
        b"\x1f\x8b\x07" + bytes(40),
        b"\x1f\x8b\x08\x08" + bytes([0, 0, 0, 0, 0, 3]) + b"no end of a name" * 3,
        b"\x1f\x8b\x08\x04" + bytes([0, 0, 0, 0, 0, 3, 255, 255]) + b"cut" * 9,
        GZIP_FLAGS + b"\0\0" + gzip.compress(b"")[10:],
        GZIP_FLAGS + (zlib.crc32(GZIP_FLAGS) & 0xFFFF).to_bytes(2, "little") + gzip.compress(b"")[10:],
        gzip.compress(b""),
    ),
    "snappy": (
        *(b"x", b"xx", b"xxx", b"\0\0\0\0", b"\0\0\0\1", b"rubbish"),
        *(compress("snappy", b"")[:cut] for cut in (4, 7, 8, 10, 15, 16)),
        *(b"\x82SNAPPX\0" + bytes(8), b"\x82SNAPPX\0" + bytes(7), b"\x82SNAPPY " + bytes(8)),
        *(b"\x82SNAPPY\0" + bytes.fromhex(versions) for versions in ("0000000000000001", "8000000000000001", "0000000900000000")),
    ),
    "zstd": (
        *(b"x", b"(", b"rubbish", bytes(4), bytes(20), SKIPPABLE, SKIPPABLE[:3], SKIPPABLE[:6], SKIPPABLE[:9]),
        *(compress("zstd", b"more than nothing")[:cut] for cut in range(27)),
        *(SKIPPABLE + compress("zstd", b"")[:cut] for cut in range(13)),
        compress("zstd", b""),
    ),
    "lz4": (b"x", b"rubbish", bytes(4), compress("lz4", b""), compress("lz4", b"more")[:9]),
}


@pytest.mark.parametrize("codec", TAILS)
def test_what_lies_behind_a_compressed_stream(oracle: Oracle, codec: str) -> None:
    """Kafka reads on, ignores it, or rejects the batch."""
    record = write_record(0, 0, b"key", b"value", [])
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    for tail in TAILS[codec]:
        numbers = {"base_offset": 7, "last_offset": 7, "count": 1, "base_timestamp": 1, "max_timestamp": 1}
        data = write_batch(compress(codec, record) + tail, attributes=CODEC_IDS[codec], **numbers)
        try:
            ours = [each.offset for each in Batch(data).records()]
        except DecodeError:
            ours = []
        try:
            java = [each.offset() for each in utils.toList(memory_records(oracle, data).records().iterator())]
        except Py4JJavaError:
            java = []
        assert ours == java, tail


def java_count(oracle: Oracle, data: bytes) -> tuple[int, str]:
    """Return the number of records that Kafka reads from a batch, and its exception, if any."""
    batch = memory_records(oracle, data).batches().iterator().next()
    try:
        return len(oracle.java_class("org.apache.kafka.common.utils.Utils").toList(batch.iterator())), ""
    except Py4JJavaError as error:
        return 0, str(error.java_exception.getClass().getSimpleName())


def test_a_cut_frame_behind_a_whole_one(oracle: Oracle) -> None:
    """zstd-jni does not report it if the previous frame ended exactly with its last read of 131,075 bytes."""
    rng = random.Random(3)
    record = write_record(0, 0, b"key", b"value", [])
    ends: set[str] = set()
    for first in (20, 131_000, 131_075, 131_076, 140_000):
        body = b"".join(write_record(number, 0, b"key", rng.randbytes(max(1, first - 60)), []) for number in range(1))
        whole = compress("zstd", body)
        padding = max(0, first - len(whole) - 8)
        whole += bytes.fromhex("502a4d18") + padding.to_bytes(4, "little") + bytes(padding)
        for second in (30, 140_000):
            frame = compress("zstd", write_record(1, 0, b"key", rng.randbytes(second), []) + record)
            for cut in {*range(1, 14), len(frame) // 2, len(frame) - 1}:
                numbers = {"base_offset": 0, "last_offset": 1, "count": 1, "base_timestamp": 1, "max_timestamp": 1}
                data = write_batch(whole + frame[:cut], attributes=4, **numbers)
                count, name = java_count(oracle, data)
                try:
                    ours = len(Batch(data).records())
                except DecodeError:
                    ours = 0
                assert ours == count, (first, second, cut)
                ends.add(name)
    assert ends == {"", "InvalidRecordException", "KafkaException"}


@pytest.mark.parametrize("flags", range(0x20, 0x100, 0x20))
def test_reserved_flags_of_gzip(oracle: Oracle, flags: int) -> None:
    record = write_record(0, 0, b"key", b"value", [])
    for more in range(32):
        header = bytes((0x1F, 0x8B, 8, flags | more, 0, 0, 0, 0, 0, 3))
        header += (b"\2\0ab" if more & 4 else b"") + (b"name\0" if more & 8 else b"") + (b"comment\0" if more & 16 else b"")
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little") if more & 2 else b""
        numbers = {"base_offset": 7, "last_offset": 7, "count": 1, "base_timestamp": 1, "max_timestamp": 1}
        data = write_batch(header + compress("gzip", record)[10:], attributes=1, **numbers)
        assert len(Batch(data).records()) == 1
        assert java_count(oracle, data) == (1, "")


EDGES = (0, 1, 2, 5, (1 << 31) - 2, (1 << 31) - 1, -1, -2, -(1 << 31), -(1 << 31) + 1)


def test_sequences_wrap_as_in_kafka(oracle: Oracle) -> None:
    theirs = oracle.java_class(f"{INTERNAL}.DefaultRecordBatch")
    rng = random.Random(8)
    pairs = [(one, other) for one in EDGES for other in EDGES] + [
        (rng.choice(EDGES), rng.randrange(-(1 << 31), 1 << 31)) for _ in range(200)
    ]
    for sequence, delta in pairs:
        assert increment_sequence(sequence, delta) == theirs.incrementSequence(sequence, delta), (sequence, delta)
        assert decrement_sequence(sequence, delta) == theirs.decrementSequence(sequence, delta), (sequence, delta)


def test_headers_at_the_ends_of_their_numbers(oracle: Oracle) -> None:
    """Headers and records agree for offsets near 2**63, negative deltas, and sequence numbers that wrap."""
    longs = (0, 1, 100, (1 << 63) - 1, (1 << 63) - 2, (1 << 63) - (1 << 31), -1, -2, -(1 << 63), -(1 << 63) + 1)
    rng = random.Random(9)
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    for number in range(400):
        base = rng.choice(longs)
        deltas = [rng.choice(EDGES) for _ in range(rng.choice((1, 2, 3)))]
        body = b"".join(write_record(delta, rng.choice(longs), b"k", b"v", []) for delta in deltas)
        data = bytearray(write_batch(body, base_offset=0, last_offset=0, count=len(deltas), attributes=rng.choice((0, 0, 8))))
        fields = list(HEADER_V2.unpack_from(data))
        fields[0], fields[6], fields[7], fields[8] = base, rng.choice(EDGES), rng.choice(longs), rng.choice(longs)
        fields[9], fields[10], fields[11] = rng.choice((-1, 5)), rng.choice((-1, 3)), rng.choice(EDGES)
        HEADER_V2.pack_into(data, 0, *fields)
        raw = with_right_checksums(bytes(data))
        ours = Batch(raw)
        theirs = memory_records(oracle, raw).batches().iterator().next()
        mine = (ours.base_offset, ours.last_offset, ours.next_offset, ours.base_sequence, ours.last_sequence, ours.max_timestamp)
        expected = (
            *(theirs.baseOffset(), theirs.lastOffset(), theirs.nextOffset()),
            *(theirs.baseSequence(), theirs.lastSequence(), theirs.maxTimestamp()),
        )
        assert mine == expected, (number, fields)
        found = [(record.offset(), record.timestamp(), record.sequence()) for record in utils.toList(theirs.iterator())]
        assert [(record.offset, record.timestamp, record.sequence) for record in ours.records()] == found, (number, fields)


def test_text_that_is_no_utf_8(oracle: Oracle) -> None:
    rng = random.Random(5)
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    bytes_of = (0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC1, 0xC3, 0xE0, 0xE1, 0xED, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF)
    for _ in range(1500):
        data = bytes(rng.choice(bytes_of) for _ in range(rng.randrange(1, 7)))
        assert java_string(data) == utils.utf8(data), data


def summary(record: Record) -> list[int]:
    """Return what the toString of Java's DefaultRecord shows: offset, timestamp, sizes of key and value (0: null)."""
    return [record.offset, record.timestamp, len(record.key or b""), len(record.value or b"")]


@pytest.mark.parametrize("count", [500, pytest.param(1200, marks=pytest.mark.slow)])
def test_both_read_or_refuse_the_same_damaged_batches(oracle: Oracle, count: int) -> None:
    """For batches with wrong contents under right checksums, Kafka throws exactly where kops raises. Otherwise both
    read the same records.
    """
    rng = random.Random(11)
    bases = [base for base in seeds(rng) if base[16] == 2]
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    read = refused = 0
    while read + refused < count:
        data = with_right_checksums(mutate(rng, rng.choice(bases)))
        for item in scan(BytesSource(data)):
            if isinstance(item, Damage) or (item.count or 0) > 100_000:
                continue
            try:
                ours: list[list[int]] | None = [summary(record) for record in item.records()]
            except DecodeError:
                ours = None
            batch = memory_records(oracle, bytes(item.data())).batches().iterator().next()
            try:
                text = str(utils.toList(batch.iterator()).toString())
                numbers = [int(next(group for group in found if group)) for found in SUMMARY.findall(text)]
                theirs: list[list[int]] | None = [numbers[i : i + 4] for i in range(0, len(numbers), 4)]
            except Py4JJavaError:
                theirs = None
            assert ours == theirs, bytes(item.data()).hex()
            read += theirs is not None
            refused += theirs is None
    assert read > count // 4 and refused > count // 12


@pytest.mark.parametrize("count", [400, pytest.param(800, marks=pytest.mark.slow)])
def test_both_refuse_the_same_damaged_sets_of_old_formats(oracle: Oracle, count: int) -> None:
    rng = random.Random(12)
    bases = [base for base in seeds(rng) if base[16] < 2]
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    read = refused = 0
    while read + refused < count:
        data = with_right_checksums(mutate(rng, rng.choice(bases)))
        for item in scan(BytesSource(data)):
            if isinstance(item, Damage) or item.magic > 1:
                continue
            try:
                ours: list[int] | None = [record.offset for record in item.records()]
            except DecodeError:
                ours = None
            try:
                batch = memory_records(oracle, bytes(item.data())).batches().iterator().next()
                found = list(utils.toList(batch.iterator()))
                theirs: list[int] | None = [record.offset() for record in found]
                for record in found:
                    record.key(), record.value()
            except Py4JJavaError:
                theirs = None
            assert ours == theirs, bytes(item.data()).hex()
            read += theirs is not None
            refused += theirs is None
    assert read > count // 4 and refused > count // 40


@pytest.mark.parametrize("count", [120, pytest.param(300, marks=pytest.mark.slow)])
def test_both_stop_at_the_same_byte_of_a_damaged_file(oracle: Oracle, tmp_path: Path, count: int) -> None:
    """Recovery's loop (iterate, ensureValid) is compared with the scan without resynchronization, and the bare iteration with
    `file_batches`.
    """
    rng = random.Random(13)
    bases = seeds(rng)
    ends: set[str] = set()
    for number in range(count):
        data = mutate(rng, rng.choice(bases))
        if number % 3 == 0:
            data = with_right_checksums(data)
        path = tmp_path / f"{number}.log"
        path.write_bytes(data)
        records = oracle.java_class(f"{INTERNAL}.FileRecords").open(oracle.jvm.java.io.File(str(path)), False)
        iterated, valid, how = java_iteration(records)
        records.close()
        ours = []
        raised = None
        try:
            for batch in file_batches(BytesSource(data), window=rng.choice((61, 300, 1 << 20))):
                ours.append((batch.position, batch.size))
        except DecodeError as error:
            raised = error.code
        assert [entry[:2] for entry in iterated] == ours, data.hex()
        assert (how == "CorruptRecordException") == (raised == "bad-length")
        ends.add(how)
        good = 0
        for item in scan(BytesSource(data), resync=False, max_magic=127):
            if isinstance(item, Damage):
                assert item.kafka == ("invalid" if good < len(iterated) else "throws" if raised else "ends")
                break
            good += 1
        assert good == valid, data.hex()
    assert ends == {"", "CorruptRecordException"}


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_both_find_the_same_batch_of_a_damaged_file(oracle: Oracle, tmp_path: Path, count: int) -> None:
    """Where a fetch begins. Kafka reads only headers, and a batch may have wrong offsets, a wrong length or an old format."""
    rng = random.Random(14)
    ends = {"found": 0, "none": 0, "fails": 0}
    for number in range(count):
        parts = [
            build(rng, magic, 10 * place + rng.randrange(5))
            for place, magic in enumerate(rng.choices((0, 1, 2), (1, 1, 12), k=rng.randrange(1, 12)))
        ]
        data = b"".join(parts)
        if number % 2:
            data = mutate(rng, data)
        path = tmp_path / f"{number}.log"
        path.write_bytes(data)
        theirs = oracle.java_class(f"{INTERNAL}.FileRecords").open(oracle.jvm.java.io.File(str(path)), False)
        ours = LogView(BytesSource(data), str(path))
        starts = [0] + [len(b"".join(parts[:place])) for place in range(1, len(parts))]
        for _ in range(8):
            target, position = rng.choice((rng.randrange(10 * len(parts) + 5), 2**40)), rng.choice(starts)
            expected = found_by(theirs.searchForOffsetFromPosition, target, position)
            assert found_by(ours.search_for_offset, target, position) == expected, (target, position, data.hex())
            ends[expected if isinstance(expected, str) else "found"] += 1
        theirs.close()
    assert min(ends.values()) > count // 8, ends


def build(rng: random.Random, magic: int, offset: int) -> bytes:
    """A batch of up to five records, some of them larger than what a search reads at once."""
    builder = BatchBuilder(magic=magic, base_offset=offset, codec=rng.choice(("none", "gzip")))
    for _ in range(rng.randrange(1, 6)):
        builder.append(1_700_000_000_000, None, bytes(rng.choice((10, 10, 3000, 40_000))))
    return builder.build()


def found_by(search: Callable[[int, int], Any], target: int, position: int) -> tuple[int, ...] | str:
    """The batch that a search finds, "none", or "fails"."""
    try:
        found = search(target, position)
    except (Py4JJavaError, KopsError):
        return "fails"
    if found is None:
        return "none"
    names = ("offset", "position", "size")
    return tuple(getattr(found, name) if isinstance(found, OffsetSpan) else get_field(found, name) for name in names)


def java_iteration(records: Any) -> tuple[list[tuple[int, int]], int, str]:
    """Return (position, size) of every batch that the iteration gives, the number of valid batches before the first invalid one, and the
    exception.
    """
    found: list[tuple[int, int]] = []
    valid, sound = 0, True
    iterator = records.batches().iterator()
    try:
        while iterator.hasNext():
            batch = iterator.next()
            found.append((batch.position(), batch.sizeInBytes()))
            try:
                batch.ensureValid()
                valid += sound
            except Py4JJavaError:
                sound = False
    except Py4JJavaError as error:
        return found, valid, str(error.java_exception.getClass().getSimpleName())
    return found, valid, ""
