"""Batches that decompress to more than memory allows: everything processes them, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from kops.errors import DecodeError
from kops.records import Batch, BatchBuilder, Record, compress, decode, windows
from kops.records.build import write_batch, write_record
from kops.records.compression import CODEC_IDS, Compressor
from kops.records.decode import chunks
from kops.records.streams.pieces import decompress, kafka_pieces, pieces
from kops.records.windows import WINDOW, RecordWindows
from tests.support.logs.large_batches import MIB, STEPS, count_of, in_process, large_batch

CODECS = ("gzip", "snappy", "lz4", "zstd")
TOTAL = 160 * MIB
"""More than 128 MiB, which was a limit once, and than `MOST`."""
MOST = 120 * MIB
BOMB = 200 * MIB
FEW_STEPS = ("append", "append_recompressed", "load", "read")
"""The steps for all codecs but one, which takes all steps. A codec changes only the pieces that a step gets."""
LEGACY_STEPS = ("append", "append_recompressed", "follow", "load", "verify", "dump_documents", "dump_text", "recover", "read", "compact")


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_many_records(tmp_path: Path, codec: str) -> None:
    steps = [step for step in STEPS if step not in ("spark_rows", "append_uncompressed")] if codec == "zstd" else FEW_STEPS
    for step, (last, peak) in in_process(steps, tmp_path, codec, 2, TOTAL, 50_000).items():
        assert last == count_of(TOTAL, 50_000) - 1 and peak < MOST, step


@pytest.mark.slow
def test_rows_for_spark(tmp_path: Path) -> None:
    """They are passed on at 64 MiB of values, of which pyarrow makes some copies."""
    ((last, peak),) = in_process(["spark_rows"], tmp_path, "zstd", 2, 600 * MIB, 50_000).values()
    assert last == count_of(600 * MIB, 50_000) - 1 and peak < 450 * MIB


@pytest.mark.slow
def test_a_set_of_an_old_format(tmp_path: Path) -> None:
    for step, (last, peak) in in_process(LEGACY_STEPS, tmp_path, "lz4", 1, TOTAL, 50_000).items():
        assert last == count_of(TOTAL, 50_000) - 1 and peak < MOST, step


@pytest.mark.slow
@pytest.mark.parametrize("magic", [1, 2])
def test_a_bomb(tmp_path: Path, magic: int) -> None:
    """The batch of 200 KiB has one record of 200 MiB of zeroes."""
    steps = ["append", "append_recompressed", "verify"] if magic == 2 else ["load"]
    for step, (last, peak) in in_process(steps, tmp_path, "gzip", magic, BOMB, BOMB).items():
        assert last == 0 and peak < MOST, step


@pytest.mark.slow
def test_a_bomb_that_is_written_anew(tmp_path: Path) -> None:
    """A v1 set becomes a v2 batch. The record and the batch are held in memory, as in Kafka."""
    steps = ["append_recompressed", "append_uncompressed"]
    for step, (last, peak) in in_process(steps, tmp_path, "lz4", 1, BOMB, BOMB).items():
        assert last == 0 and peak < 2.5 * BOMB, step


# the same results for any window size ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use windows and pieces of a few bytes, so that small batches are processed like large ones."""
    monkeypatch.setattr(windows, "WINDOW", 64)
    monkeypatch.setattr(windows, "pieces", partial(pieces, size=50))
    monkeypatch.setattr(decode, "CHUNK", 3)


def some_batch(rng: random.Random) -> Batch:
    """Return a batch of a few records. Some are larger than a small window, and sometimes a byte is wrong."""
    parts = []
    count = rng.choice((1, 2, 9))
    for number in range(count):
        key = rng.choice((None, b"", b"key", bytes(100)))
        value = rng.choice((None, b"", b"value" * 9, rng.randbytes(300)))
        headers = [("h", bytes(rng.randrange(90)))] * rng.choice((0, 0, 2))
        parts.append(write_record(number, rng.randrange(-5, 90), key, value, headers))
    body = bytearray(b"".join(parts))
    if rng.random() < 0.4:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.1:
        body += b"left"
    codec = rng.choice(CODECS)
    claimed = count + rng.choice((0, 0, 0, -1, 1))
    return Batch(
        write_batch(
            compress(codec, bytes(body)),
            base_offset=5,
            last_offset=5 + count - 1,
            count=claimed,
            attributes=CODEC_IDS[codec] | rng.choice((0, 0, 8)),
            base_timestamp=1000,
            max_timestamp=1100,
            base_sequence=rng.choice((-1, 7)),
        )
    )


Outcome = tuple[list[Record], str | None, list[str]]


def outcome(batch: Batch) -> Outcome:
    """Return the records up to the first that can't be read, the error code there, and the result of the deep check."""
    found = []
    code = None
    try:
        for record in batch.iterate():
            found.append(record)
    except DecodeError as error:
        code = error.code
    return found, code, [error.code for error in batch.check()]


@pytest.mark.parametrize("seed", range(8))
def test_windows_of_any_size_give_the_same(seed: int, request: pytest.FixtureRequest) -> None:
    rng = random.Random(seed)
    batches = [some_batch(rng) for _ in range(60)]
    expected = [outcome(batch) for batch in batches]
    request.getfixturevalue("small_windows")
    streamed = 0
    for batch, (records, code, problems) in zip(batches, expected, strict=True):
        assert outcome(batch) == (records, code, problems), bytes(batch.data()).hex()
        found = RecordWindows(batch)
        streamed += found.whole() is None
    assert streamed > 30
    assert {code for _, code, _ in expected} == {None, "bad-records"}


def test_a_record_above_the_limit_is_refused_behind_the_ones_before_it() -> None:
    builder = BatchBuilder(codec="zstd")
    for size in (10, WINDOW, WINDOW + 100, 10):
        builder.append(1, b"key", bytes(size))
    batch = Batch(builder.build())
    found = []
    with pytest.raises(DecodeError, match=f"record 2 of the batch takes {WINDOW + 116} bytes, the limit is {WINDOW + 50}") as error:
        for record in batch.iterate(max_record_bytes=WINDOW + 50):
            found.append(record.offset)
    assert error.value.code == "too-large" and error.value.position == 0
    assert found == [0, 1]
    assert [record.offset for record in batch.iterate()] == [0, 1, 2, 3]
    assert sum(map(len, chunks(batch))) == 4


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_set_compressed_as_a_stream_is_one_that_is_read(codec: str, magic: int) -> None:
    if (codec, magic) in (("zstd", 0), ("zstd", 1)):
        return
    rng = random.Random(magic)
    parts = [rng.randbytes(rng.randrange(1 << 20)) + bytes(700_000) for _ in range(9)]
    compressor = Compressor(CODEC_IDS[codec], magic=magic)
    for part in parts:
        compressor.write(part)
    packed = compressor.finish()
    whole = b"".join(parts)
    assert decompress(codec, packed, magic=magic, limit=1 << 30) == whole
    assert b"".join(pieces(CODEC_IDS[codec], packed, magic=magic)) == whole
    assert b"".join(kafka_pieces(CODEC_IDS[codec], packed, magic=magic)) == whole
    small = Compressor(CODEC_IDS[codec], magic=magic)
    for part in (b"some", b"", b"more"):
        small.write(part)
    assert small.finish() == compress(codec, b"somemore", magic=magic)


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_hold_no_more_than_they_say(codec: str) -> None:
    packed = large_batch(codec, 2, 40 * MIB, 100_000)[61:]
    tracemalloc.start()
    size = 0
    for piece in pieces(CODEC_IDS[codec], packed):
        assert 0 < len(piece) <= MIB
        size += len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 40 * MIB - 200_000
    assert peak < 6 * MIB
