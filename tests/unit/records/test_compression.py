"""Codecs: round trips, foreign framings and limits. Wrong bytes raise only DecodeError."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kops.errors import DecodeError
from kops.records.compression import CODEC_NAMES, compress, xxhash32
from kops.records.streams.pieces import decompress

CODECS = CODEC_NAMES[1:]
TEXT = b"".join(b"record %d of many; " % i for i in range(20_000))
NOISE = bytes((i * i * 31 + (i >> 3) * 17) & 255 for i in range(200_000))


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(1 << 20)], ids=["empty", "byte", "text", "noise", "zeroes"])
def test_what_was_compressed_comes_back(codec: str, data: bytes) -> None:
    for magic in (0, 1, 2):
        if codec != "zstd" or magic == 2:
            assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


@given(st.sampled_from(CODECS), st.binary(max_size=3000), st.integers(0, 2))
def test_round_trip(codec: str, data: bytes, magic: int) -> None:
    magic = 2 if codec == "zstd" else magic
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


@pytest.mark.parametrize("codec", CODECS)
def test_levels(codec: str) -> None:
    assert decompress(codec, compress(codec, TEXT, level=9)) == TEXT


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_the_limit_holds_to_the_byte(codec: str) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, limit=len(TEXT)) == TEXT
    with pytest.raises(DecodeError) as error:
        decompress(codec, data, limit=len(TEXT) - 1)
    assert error.value.code == "too-large"


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_a_bomb_costs_an_error_and_not_memory(codec: str) -> None:
    block = compress(codec, bytes(4 << 20))
    # 1 GiB of zeroes, made by repeating a small stream if the framing allows it.
    if codec in ("gzip", "zstd"):
        bomb = block * 256
    elif codec == "lz4":
        bomb = block[:7] + block[7:-4] * 256 + block[-4:]
    else:
        bomb = block[:16] + block[16:] * 256
    tracemalloc.start()
    with pytest.raises(DecodeError) as error:
        decompress(codec, bomb, limit=8 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.value.code == "too-large"
    assert peak < 48 << 20


def test_claimed_sizes_are_not_believed() -> None:
    for data in (b"\xff\xff\xff\xff\x03" + b"\x00" * 20, b"\x80\x80\x80\x80\x04" + b"a" * 9):
        with pytest.raises(DecodeError):
            decompress("snappy", data)
    frame = zstandard.ZstdCompressor().compress(b"x" * 100)
    with pytest.raises(DecodeError):
        decompress("zstd", frame[:4] + b"\xa0" + (1 << 31).to_bytes(4, "little") + frame[6:])


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_an_error(codec: str) -> None:
    data = compress(codec, TEXT[:3000] + NOISE[:300])
    for cut in range(len(data)):
        try:
            found = decompress(codec, data[:cut])
        except DecodeError as error:
            assert error.code == "bad-compression"
        else:
            # xerial snappy has no end mark, so a cut between two blocks gives a valid shorter stream. For zstd, no frame at all is an empty
            # stream.
            assert len(found) < 3300 if codec == "snappy" else codec == "zstd" and cut == 0


def test_gzip_members_follow_one_another_and_rubbish_behind_them_is_ignored() -> None:
    data = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress("gzip", data) == b"onetwo"
    for rubbish in (b"rubbish", b"\x1f", data[:18], b"rubbish" * 9, b"\x1f\x8b\x08\x08" + b"a name without end" * 3):
        assert decompress("gzip", data + rubbish) == b"onetwo"
    for member in (data[:19], data[:10] + b"\xff" * 30):
        with pytest.raises(DecodeError):
            decompress("gzip", data + member)


def test_gzip_with_a_wrong_checksum_is_refused() -> None:
    data = bytearray(gzip.compress(TEXT))
    data[-6] ^= 1
    with pytest.raises(DecodeError):
        decompress("gzip", data)


def test_raw_snappy_is_read() -> None:
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_is_framed_in_blocks_of_32_kib() -> None:
    data = compress("snappy", NOISE[:70_000])
    assert data[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes, position = [], 16
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))))
        position += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_xerial_streams_may_stand_one_behind_the_other() -> None:
    data = compress("snappy", b"one") + compress("snappy", b"two")
    assert decompress("snappy", data) == b"onetwo"
    assert decompress("snappy", data + b"\0\0\0") == b"onetwo", "less than a block's size is none"
    with pytest.raises(DecodeError):
        decompress("snappy", data + data[:15])


def test_lz4_is_a_frame_that_java_reads() -> None:
    data = compress("lz4", TEXT)
    info = lz4.frame.get_frame_info(data)
    assert info["block_size"] == 65536 and not info["block_linked"] and not info["content_checksum"] and info["content_size"] == 0
    assert lz4.frame.decompress(data) == TEXT


def test_lz4_of_other_writers_is_read() -> None:
    for size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB, lz4.frame.BLOCKSIZE_MAX1MB, lz4.frame.BLOCKSIZE_MAX4MB):
        for checksums in (False, True):
            data = lz4.frame.compress(
                TEXT[:100_000] + NOISE[:5000],
                block_size=size,
                block_linked=False,
                content_checksum=checksums,
                block_checksum=checksums,
                store_size=checksums,
            )
            assert decompress("lz4", data) == TEXT[:100_000] + NOISE[:5000]


def test_lz4_with_linked_blocks_is_refused_as_kafka_does() -> None:
    with pytest.raises(DecodeError, match="depend on one another"):
        decompress("lz4", lz4.frame.compress(TEXT, block_linked=True))


def test_a_wrong_block_checksum_is_refused() -> None:
    data = bytearray(lz4.frame.compress(NOISE[:1000], block_linked=False, block_checksum=True, store_size=False))
    data[-5] ^= 1
    with pytest.raises(DecodeError, match="checksum of a block"):
        decompress("lz4", data)


def test_the_broken_header_checksum_of_v0() -> None:
    broken, right = compress("lz4", b"abc", magic=0), compress("lz4", b"abc", magic=1)
    assert broken[:6] == right[:6] and broken[6] != right[6] and broken[7:] == right[7:]
    assert broken[6] == (xxhash32(broken[:6]) >> 8) & 255
    for data in (broken, right):
        assert decompress("lz4", data, magic=0) == b"abc"
    assert decompress("lz4", right, magic=1) == b"abc"
    for magic in (1, 2):
        with pytest.raises(DecodeError, match="checksum of the frame's header"):
            decompress("lz4", broken, magic=magic)


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"Nobody inspects the spammish repetition", 0xE2293B2F)],
)
def test_xxhash32(data: bytes, value: int) -> None:
    assert xxhash32(data) == value


def test_zstd_frames_with_and_without_a_size_and_several_of_them() -> None:
    sized = zstandard.ZstdCompressor().compress(TEXT)
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    unsized = stream.compress(NOISE) + stream.flush()
    skippable = b"\x53\x2a\x4d\x18\x05\x00\x00\x00hello"
    assert decompress("zstd", sized + skippable + unsized) == TEXT + NOISE


@pytest.mark.parametrize("codec", [5, 7, -1, "brotli"])
def test_an_unknown_codec(codec: int | str) -> None:
    with pytest.raises(DecodeError) as error:
        decompress(codec, b"")
    assert error.value.code == "unknown-codec"


def test_zstd_is_not_written_into_old_formats() -> None:
    with pytest.raises(DecodeError):
        compress("zstd", b"", magic=1)


def test_deflate_without_a_header_is_no_gzip() -> None:
    with pytest.raises(DecodeError):
        decompress("gzip", zlib.compress(TEXT))
