"""Compression of record sets: gzip, snappy, lz4 and zstd exactly as Kafka frames them, with a limit on what may come out.

Source: Kafka's `CompressionType` and `org.apache.kafka.common.compress`. snappy is framed as the xerial library does (raw blocks are read,
too), lz4 is the LZ4 frame format with independent blocks of 64 KiB, zstd frames carry no size. Every codec stops as soon as more than
`limit` bytes would come out, so a bomb costs an error and not memory.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from kops.errors import DecodeError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS: Final = {name: number for number, name in enumerate(CODEC_NAMES)}
DEFAULT_LIMIT: Final = 128 * 1024 * 1024
"""Bytes that one batch may hold when it is decompressed (Kafka has no such limit; its `message.max.bytes` bounds the compressed size)."""

_GZIP_HINTS: Final = slice(8, 10)
_JAVA_GZIP_HINTS: Final = b"\x00\xff"
"""How hard was compressed and on which system, as Java (16 and later) has it in a stream's header: not told."""

Buffer = bytes | bytearray | memoryview


def codec_name(codec: int) -> str:
    """The name of a codec number from a batch's attributes; `unknown(5)` for a number that Kafka does not know."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown({codec})"


def codec_id(codec: int | str) -> int:
    """The number of a codec; DecodeError (code `unknown-codec`) where Kafka has none."""
    number = CODEC_IDS.get(codec, -1) if isinstance(codec, str) else codec
    if not 0 <= number < len(CODEC_NAMES):
        raise DecodeError(f"unknown compression codec {codec}", code="unknown-codec")
    return number


def decompress(codec: int | str, data: Buffer, *, magic: int = 2, limit: int = DEFAULT_LIMIT) -> bytes:
    """The record set inside `data`, at most `limit` bytes of it.

    `magic` is that of the batch around it: in format v0 the checksum of an lz4 frame's header is wrong by an old mistake and not looked at.
    DecodeError: `unknown-codec`, `bad-compression` (not what the codec writes, or cut), `too-large` (over the limit).
    """
    number = codec_id(codec)
    if number == NONE:
        return _within(bytes(data), limit)
    if number == GZIP:
        return _read_gzip(data, limit)
    if number == SNAPPY:
        return _read_snappy(data, limit)
    if number == LZ4:
        return _read_lz4(data, limit, check_header=magic > 0)
    return _read_zstd(data, limit)


def compress(codec: int | str, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """`data` framed so that Kafka of any version that knows the codec reads it in a batch of this `magic`."""
    number = codec_id(codec)
    if number == NONE:
        return bytes(data)
    if number == GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        packed = bytearray(stream.compress(data) + stream.flush())
        packed[_GZIP_HINTS] = _JAVA_GZIP_HINTS
        return bytes(packed)
    if number == SNAPPY:
        return _write_snappy(data)
    if number == LZ4:
        return _write_lz4(data, level, broken_header_checksum=magic == 0)
    if magic < 2:
        raise DecodeError(f"zstd is not allowed in message format v{magic}", code="unknown-codec")
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(bytes(data))


def _within(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _too_large(limit: int) -> DecodeError:
    return DecodeError(f"the records decompress to more than the limit of {limit} bytes", code="too-large")


def _bad(codec: str, reason: object) -> DecodeError:
    return DecodeError(f"the {codec} data can't be decompressed: {reason}", code="bad-compression")


# gzip ---------------------------------------------------------------------------------------------------------------------------------


_GZIP_IGNORED: Final = 18
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16


def _read_gzip(data: Buffer, limit: int) -> bytes:
    """All members (RFC 1952). As in Java's GZIPInputStream (readTrailer, readHeader), what is behind a member is read as another one only
    if there are more than 18 bytes of it, and they begin with a whole header; else it is ignored."""
    parts: list[bytes] = []
    room = limit
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(31)
        try:
            part = stream.decompress(rest, room + 1)
        except zlib.error as error:
            raise _bad("gzip", error) from None
        if len(part) > room:
            raise _too_large(limit)
        if not stream.eof:
            raise _bad("gzip", "the stream is cut")
        parts.append(part)
        room -= len(part)
        rest = stream.unused_data
        if len(rest) <= _GZIP_IGNORED or not _begins_gzip(rest):
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _begins_gzip(data: bytes) -> bool:
    """Whether a whole header of a member stands there."""
    if data[:3] != b"\x1f\x8b\x08":
        return False
    flags, position = data[3], 10
    if flags & _FEXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            position = data.find(b"\0", position) + 1
            if not position:
                return False
    if flags & _FHCRC:
        if data[position : position + 2] != (zlib.crc32(data[:position]) & 0xFFFF).to_bytes(2, "little"):
            return False
        position += 2
    return position <= len(data)


# snappy -------------------------------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024


def _read_snappy(data: Buffer, limit: int) -> bytes:
    """xerial framing: header of 16 bytes, then blocks with a big-endian size; without the header, one raw snappy block."""
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _read_snappy_block(view, limit, limit)
    position = 16
    if len(view) < position:
        raise _bad("snappy", "the stream is cut")
    parts: list[bytes] = []
    room = limit
    while position < len(view):
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            # Streams may stand one behind the other.
            position += 16
            if position > len(view):
                raise _bad("snappy", "the stream is cut")
            continue
        if position + 4 > len(view):
            break  # as in SnappyInputStream: too few bytes for another block are none
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(view):
            raise _bad("snappy", f"a block of {size} bytes where {len(view) - position} are left")
        part = _read_snappy_block(view[position : position + size], room, limit)
        position += size
        room -= len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_snappy_block(view: memoryview, room: int, limit: int) -> bytes:
    import cramjam

    claimed = shift = 0
    for byte in view[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > room:
        raise _too_large(limit)
    # A snappy copy gives at most 64 bytes for 3: a larger claim is a lie, and the library would allocate it.
    if claimed > 32 * len(view) + 64:
        raise _bad("snappy", f"{len(view)} bytes claim to hold {claimed}")
    try:
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as error:
        raise _bad("snappy", error) from None


def _write_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


# lz4 ----------------------------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_USUAL: Final = _LZ4_MAGIC + b"\x60\x40\x82"
"""The header that Kafka's producers write, its checksum with it."""
_LZ4_STORED: Final = 0x80000000
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_BLOCK_SIZES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}


def _read_lz4_header(view: memoryview, check_header: bool) -> tuple[int, int, int]:
    """-> (flags, largest block, position of the first block). Kafka's `Lz4BlockInputStream.readHeader`."""
    if view[:7] == _LZ4_USUAL:
        return 0x60, _LZ4_BLOCK, 7
    if len(view) < 7:
        raise _bad("lz4", "the stream is cut")
    if bytes(view[:4]) != _LZ4_MAGIC:
        raise _bad("lz4", "no LZ4 frame")
    flags, descriptor = view[4], view[5]
    if flags & 3:
        raise _bad("lz4", "reserved flags are set")
    if not flags & 0x20:
        raise _bad("lz4", "its blocks depend on one another, which Kafka does not read")
    if flags >> 6 != 1:
        raise _bad("lz4", f"frame version {flags >> 6}")
    largest = _LZ4_BLOCK_SIZES.get((descriptor >> 4) & 7)
    if descriptor & 0x8F or largest is None:
        raise _bad("lz4", f"block descriptor {descriptor:#04x}")
    position = 6 + (8 if flags & 0x08 else 0)
    if len(view) <= position:
        raise _bad("lz4", "the stream is cut")
    if check_header and view[position] != (xxhash32(bytes(view[4:position])) >> 8) & 0xFF:
        raise _bad("lz4", "the checksum of the frame's header is wrong")
    return flags, largest, position + 1


def _read_lz4(data: Buffer, limit: int, check_header: bool) -> bytes:
    import lz4.block

    view = memoryview(data)
    flags, largest, position = _read_lz4_header(view, check_header)
    decompress_block = lz4.block.decompress
    parts: list[bytes] = []
    room = limit
    size = len(view)
    while True:
        if position + 4 > size:
            raise _bad("lz4", "the stream is cut")
        length = int.from_bytes(view[position : position + 4], "little")
        position += 4
        if length == 0:
            break
        stored = length & _LZ4_STORED
        length &= ~_LZ4_STORED
        if length == 0:
            break
        if length > largest or position + length > size:
            raise _bad("lz4", f"a block of {length} bytes where at most {min(largest, size - position)} can be")
        block = view[position : position + length]
        try:
            part = bytes(block) if stored else decompress_block(block, uncompressed_size=largest)
        except lz4.block.LZ4BlockError as error:
            raise _bad("lz4", error) from None
        position += length
        if flags & 0x10:
            if position + 4 > size or int.from_bytes(view[position : position + 4], "little") != xxhash32(bytes(block)):
                raise _bad("lz4", "the checksum of a block is wrong")
            position += 4
        room -= len(part)
        if room < 0:
            raise _too_large(limit)
        parts.append(part)
    if flags & 0x04 and position + 4 > size:
        raise _bad("lz4", "the stream is cut")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_lz4(data: Buffer, level: int | None, broken_header_checksum: bool) -> bytes:
    """Kafka's `Lz4BlockOutputStream`: independent blocks of 64 KiB, no checksums but the header's, no content size."""
    import lz4.block

    header = _LZ4_MAGIC + b"\x60\x40"
    # Format v0 hashed the frame's magic, too, and so all readers of v0 expect or ignore that.
    checksum = (xxhash32(header if broken_header_checksum else header[4:]) >> 8) & 0xFF
    parts = [header, bytes((checksum,))]
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        if level is None:
            packed = lz4.block.compress(block, store_size=False)
        else:
            packed = lz4.block.compress(block, mode="high_compression", compression=level, store_size=False)
        if len(packed) >= len(block):
            parts.append((len(block) | _LZ4_STORED).to_bytes(4, "little"))
            parts.append(bytes(block))
        else:
            parts.append(len(packed).to_bytes(4, "little"))
            parts.append(packed)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_M: Final = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _M


def xxhash32(data: bytes) -> int:
    """XXH32 with seed 0, which the LZ4 frame format uses; here for headers and the rare block checksum."""
    size = len(data)
    position = 0
    if size >= 16:
        lanes = [(_P1 + _P2) & _M, _P2, 0, -_P1 & _M]
        whole = size & ~15
        for words in struct.iter_unpack("<4I", data[:whole]):
            lanes = [_rotate((lane + word * _P2) & _M, 13) * _P1 & _M for lane, word in zip(lanes, words, strict=True)]
        position = whole
        value = (_rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)) & _M
    else:
        value = _P5
    value = (value + size) & _M
    while position + 4 <= size:
        word = int.from_bytes(data[position : position + 4], "little")
        value = _rotate((value + word * _P3) & _M, 17) * _P4 & _M
        position += 4
    for byte in data[position:]:
        value = _rotate((value + byte * _P5) & _M, 11) * _P1 & _M
    value = (value ^ (value >> 15)) * _P2 & _M
    value = (value ^ (value >> 13)) * _P3 & _M
    return value ^ (value >> 16)


# zstd ---------------------------------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK: Final = 128 * 1024


def _read_zstd(data: Buffer, limit: int) -> bytes:
    import zstandard

    raw = bytes(data)
    bound = _zstd_bound(raw)
    room = min(limit, bound)
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as reader:
            out: bytes = reader.read(room + 1)
    except zstandard.ZstdError as error:
        raise _bad("zstd", error) from None
    if len(out) > limit:
        raise _too_large(limit)
    return out


def _zstd_bound(data: bytes) -> int:
    """Walk the frames and blocks (RFC 8878, 3.1): -> the most bytes that can come out. DecodeError where a frame is cut, which the
    streaming reader of the library would pass over in silence."""
    position = bound = 0
    size = len(data)
    if size == 0:
        raise _bad("zstd", "the stream is cut")
    while position < size:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            if position > size:
                raise _bad("zstd", "the stream is cut")
            continue
        if magic != _ZSTD_MAGIC:
            raise _bad("zstd", "no zstd frame")
        if position + 5 > size:
            raise _bad("zstd", "the stream is cut")
        descriptor = data[position + 4]
        single = descriptor & 0x20
        position += 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + (1 if single else 0, 2, 4, 8)[descriptor >> 6]
        last = False
        while not last:
            if position + 3 > size:
                raise _bad("zstd", "the stream is cut")
            header = int.from_bytes(data[position : position + 3], "little")
            last = bool(header & 1)
            kind, length = (header >> 1) & 3, header >> 3
            if kind == 3:
                raise _bad("zstd", "a block of a reserved kind")
            position += 3 + (1 if kind == 1 else length)
            bound += _ZSTD_BLOCK if kind == 2 else length
        position += 4 if descriptor & 4 else 0
        if position > size:
            raise _bad("zstd", "the stream is cut")
    return bound
