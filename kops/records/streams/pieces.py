"""Decompresses record sets piece by piece: gzip, snappy, lz4 and zstd as Kafka reads them.

Source: Kafka's `Compression` classes with `ChunkedBytesStream` and `Lz4BlockInputStream`, Java's `GZIPInputStream`, xerial's
`SnappyInputStream`, zstd-jni's `ZstdInputStreamNoFinalizer`.

Memory is bounded. A piece of gzip or zstd has at most `size` bytes. A piece of lz4 is a block of at most 4 MiB. A piece of snappy is a
block, whose size the encoder chose (32 KiB in Kafka's producers); it has at most 21 times its compressed bytes. zstd also keeps its window
of at most 128 MiB, as in Kafka.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import Final

from kops.errors import DecodeError
from kops.records.streams.codecs import DEFAULT_LIMIT, GZIP, LZ4, NONE, SNAPPY, Buffer, codec_id, xxhash32
from kops.records.streams.reader import PieceReader

PIECE: Final = 1 << 20
"""The default size of a piece."""
_INPUT: Final = 1 << 20
_KAFKA_GZIP_INPUT: Final = 8 * 1024
KAFKA_SIZES: Final = (0, 16 * 1024, 2 * 1024, 16 * 1024, 16 * 1024)
"""The number of bytes that Kafka's streams read at once, by codec."""
Pieces = Generator[bytes, int | None, None]


def decompress(codec: int | str, data: Buffer, *, magic: int = 2, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the whole decompressed record set of `data`, at most `limit` bytes.

    `magic` is that of the batch around it. In format v0 the header checksum of an lz4 frame is wrong because of an old bug, so it is not
    checked. Raises DecodeError: `unknown-codec`, `bad-compression` (malformed or cut off), `too-large` (over the limit).
    """
    number = codec_id(codec)
    if number == NONE:
        if len(data) > limit:
            raise _too_large(limit)
        return bytes(data)
    parts: list[bytes] = []
    room = limit
    for part in pieces(number, data, magic=magic, size=max(1, min(limit + 1, _WHOLE))):
        room -= len(part)
        if room < 0:
            raise _too_large(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_WHOLE: Final = 1 << 24


def pieces(codec: int, data: Buffer, *, magic: int = 2, size: int = PIECE) -> Iterator[bytes]:
    """Yield the decompressed bytes in pieces, none of them empty. Raises DecodeError `bad-compression` if the stream breaks, after the good
    pieces."""
    if codec == GZIP:
        return _gzip(data, size, _INPUT)
    if codec == SNAPPY:
        return _snappy(data, magic)
    if codec == LZ4:
        return _lz4(data, check_header=magic > 0)
    return _zstd(data, size)


def kafka_pieces(codec: int, data: Buffer, *, magic: int = 2) -> Pieces:
    """Yield the same bytes in the pieces of Kafka's streams. If a stream breaks, the sizes of the pieces decide which records come before
    the error.

    A number sent into the generator is the limit of the next piece, in place of `KAFKA_SIZES`.
    """
    size = KAFKA_SIZES[codec]
    if codec == GZIP:
        return _gzip(data, size, _KAFKA_GZIP_INPUT)
    if codec == SNAPPY:
        return _full(_snappy_blocks(data), size)
    if codec == LZ4:
        return _cut(_lz4(data, check_header=magic > 0), size)
    return _zstd(data, size)


def check_opens(codec: int, data: Buffer) -> None:
    """Raise DecodeError if Kafka's stream of a batch of v2 fails when it is opened, before anything is read from it."""
    view = memoryview(data)
    if codec == GZIP:
        _gzip_header(view)
    elif codec == SNAPPY:
        _snappy_header(view)
    elif codec == LZ4:
        _lz4_header(view, check_header=True)


def _cut(blocks: Iterator[bytes], size: int) -> Pieces:
    """Yield pieces that do not cross the end of a block."""
    wanted = size
    for block in blocks:
        position = 0
        while position < len(block):
            piece = block[position : position + wanted]
            position += len(piece)
            wanted = (yield piece) or size


def _full(blocks: Iterator[bytes], size: int) -> Pieces:
    """Yield pieces of the full size, except for the last one. An error in a block also drops the earlier bytes of its piece.

    An empty block ends a piece. If the piece has no bytes yet, it is empty, which ends the current read.
    """
    wanted = size
    held = b""
    for block in blocks:
        if not block:
            wanted, held = (yield held) or size, b""
            continue
        held += block
        position = 0
        while len(held) - position >= wanted:
            piece = held[position : position + wanted]
            position += wanted
            wanted = (yield piece) or size
        held = held[position:]
    if held:
        yield held


def _too_large(limit: int) -> DecodeError:
    return DecodeError(f"the records decompress to more than the limit of {limit} bytes", code="too-large")


def _bad(codec: str, reason: object) -> DecodeError:
    return DecodeError(f"the {codec} data can't be decompressed: {reason}", code="bad-compression")


# gzip ---------------------------------------------------------------------------------------------------------------------------------


_GZIP_IGNORED: Final = 18
_GZIP_TRAILER: Final = struct.Struct("<II")
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16


def _gzip(data: Buffer, size: int, step: int) -> Pieces:
    """Yield the contents of all members (RFC 1952), fed to zlib in steps of `step` bytes.

    As in Java's GZIPInputStream, the flags that RFC 1952 reserves are ignored. The bytes after a member count as another member only if
    there are more than 18 of them and they begin with a complete header. Otherwise they are ignored.
    """
    view = memoryview(data)
    position = _gzip_header(view)
    wanted = size
    while position:
        stream = zlib.decompressobj(-15)
        checksum = length = 0
        rest: Buffer = b""
        is_full = False
        while not stream.eof:
            if not rest and not is_full:
                rest = view[position : position + step]
                if not rest:
                    raise _bad("gzip", "the stream is cut")
                position += len(rest)
            try:
                part = stream.decompress(rest, wanted)
            except zlib.error as error:
                raise _bad("gzip", error) from None
            rest = stream.unconsumed_tail
            is_full = len(part) == wanted
            if part:
                checksum = zlib.crc32(part, checksum)
                length += len(part)
                wanted = (yield part) or size
        position -= len(stream.unused_data)
        if position + _GZIP_TRAILER.size > len(view):
            raise _bad("gzip", "the stream is cut")
        if _GZIP_TRAILER.unpack_from(view, position) != (checksum, length & 0xFFFFFFFF):
            raise _bad("gzip", "its checksum or its length is wrong")
        position += _GZIP_TRAILER.size
        if len(view) - position <= _GZIP_IGNORED:
            return
        header = _gzip_header_size(view[position:])
        position = position + header if header else 0


def _gzip_header(view: memoryview) -> int:
    size = _gzip_header_size(view)
    if not size:
        raise _bad("gzip", "it has no whole header")
    return size


def _gzip_header_size(view: memoryview) -> int:
    """Return the size of the member header at the beginning of `view`, or 0 if there is none."""
    if bytes(view[:3]) != b"\x1f\x8b\x08" or len(view) < 10:
        return 0
    flags, position = view[3], 10
    if not flags & (_FHCRC | _FEXTRA | _FNAME | _FCOMMENT):
        return position
    data = bytes(view)
    if flags & _FEXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            position = data.find(b"\0", position) + 1
            if not position:
                return 0
    if flags & _FHCRC:
        if data[position : position + 2] != (zlib.crc32(data[:position]) & 0xFFFF).to_bytes(2, "little"):
            return 0
        position += 2
    return position if position <= len(data) else 0


# snappy -------------------------------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"


def _snappy(data: Buffer, magic: int) -> Iterator[bytes]:
    """Yield the blocks, and after a wrong header in the middle the bytes that Kafka reads."""
    seen = 0
    for block in _snappy_blocks(data):
        if not block:
            break
        seen += len(block)
        yield block
    else:
        return
    # Whether Kafka continues here depends on where its reads of the records' fields begin.
    size = KAFKA_SIZES[SNAPPY]
    reader = PieceReader(_full(_snappy_blocks(data), size), direct=size)
    read = 0
    is_whole = True
    while is_whole:
        record, is_whole = _next_message(reader) if magic < 2 else _next_record(reader)
        read += len(record)
        if read > seen:
            yield record[seen - read :]
            seen = read


def _next_record(reader: PieceReader) -> tuple[bytes, bool]:
    """Return (a record of format v2 with its length, whether it is whole)."""
    front = bytearray()
    value = 0
    while len(front) < 5:
        byte = reader.byte()
        if byte < 0 and not front:
            return b"", False
        value |= (byte & 127) << 7 * len(front)
        front.append(byte & 255)
        if 0 <= byte < 128:
            break
    else:
        return bytes(front), False
    size = (value >> 1) ^ -(value & 1)
    body = reader.take(size)
    return bytes(front) + body, 0 < size == len(body)


def _next_message(reader: PieceReader) -> tuple[bytes, bool]:
    """Return (a message of format v0 or v1 with its offset and size, whether it is whole)."""
    front = reader.take(12)
    size = int.from_bytes(front[8:], "big", signed=True) if len(front) == 12 else 0
    body = reader.take(size)
    return front + body, 0 < size == len(body)


def _snappy_blocks(data: Buffer) -> Iterator[bytes]:
    """Yield the blocks of xerial's framing: a header of 16 bytes, then blocks with a big-endian size. Without the header, there is one raw
    snappy block.

    An empty block represents a wrong header. The current read of SnappyInputStream ends there, and its next read continues after it. A
    header in the middle has 16 bytes with the whole magic and a version of 1 or more. In the first header only the magic counts.
    """
    view = memoryview(data)
    block = _snappy_header(view)
    if block:
        yield block
    position = 16 if block is None else len(view)
    while position < len(view):
        if bytes(view[position : position + 4]) == _XERIAL_MAGIC[:4]:
            # Streams may follow one another. The current read of SnappyInputStream ends at a wrong header.
            if position + 16 > len(view):
                raise _bad("snappy", "the stream is cut")
            if bytes(view[position : position + 8]) != _XERIAL_MAGIC:
                yield b""
            elif (version := int.from_bytes(view[position + 8 : position + 12], "big", signed=True)) < 1:
                raise _bad("snappy", f"a stream of version {version}, at least 1 is needed")
            position += 16
            continue
        if position + 4 > len(view):
            break  # too few bytes for another block are ignored
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(view):
            raise _bad("snappy", f"a block of {size} bytes, {len(view) - position} are left")
        block = _snappy_block(view[position : position + size])
        position += size
        if block:
            yield block


def may_have_two_headers(codec: int, data: Buffer) -> bool:
    """Whether a snappy stream may continue with another header. If that header is wrong, the bytes that Kafka reads depend on the sizes of
    its reads."""
    return codec == SNAPPY and bytes(data).find(_XERIAL_MAGIC[:4], 1) > 0


def _snappy_header(view: memoryview) -> bytes | None:
    """Return None if the framing begins with its header, else the contents of the single raw block."""
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view)
    if len(view) < 16:
        raise _bad("snappy", "the stream is cut")
    return None


def _snappy_block(view: memoryview) -> bytes:
    import cramjam

    claimed = shift = 0
    for byte in view[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    # A snappy copy expands 3 bytes to at most 64. A larger claim is false, and the library would allocate that much.
    if claimed > 32 * len(view) + 64:
        raise _bad("snappy", f"a block of {len(view)} bytes claims to decompress to {claimed}")
    try:
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as error:
        raise _bad("snappy", error) from None


# lz4 ----------------------------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_USUAL: Final = _LZ4_MAGIC + b"\x60\x40\x82"
"""The header that Kafka's producers write, with its checksum."""
_LZ4_STORED: Final = 0x80000000
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_BLOCK_SIZES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}


def _lz4_header(view: memoryview, check_header: bool) -> tuple[int, int, int]:
    """Return (flags, largest block, position of the first block), as Kafka's `Lz4BlockInputStream.readHeader`."""
    if view[:7] == _LZ4_USUAL:
        return 0x60, _LZ4_BLOCK, 7
    if len(view) < 7:
        raise _bad("lz4", "the stream is cut")
    if bytes(view[:4]) != _LZ4_MAGIC:
        raise _bad("lz4", "it is not an LZ4 frame")
    flags, descriptor = view[4], view[5]
    if flags & 3:
        raise _bad("lz4", "reserved flags are set")
    if not flags & 0x20:
        raise _bad("lz4", "its blocks depend on one another, which Kafka does not support")
    if flags >> 6 != 1:
        raise _bad("lz4", f"unknown frame version {flags >> 6}")
    largest = _LZ4_BLOCK_SIZES.get((descriptor >> 4) & 7)
    if descriptor & 0x8F or largest is None:
        raise _bad("lz4", f"unknown block descriptor {descriptor:#04x}")
    position = 6 + (8 if flags & 0x08 else 0)
    if len(view) <= position:
        raise _bad("lz4", "the stream is cut")
    if check_header and view[position] != (xxhash32(bytes(view[4:position])) >> 8) & 0xFF:
        raise _bad("lz4", "the checksum of the frame's header is wrong")
    return flags, largest, position + 1


def _lz4(data: Buffer, check_header: bool) -> Iterator[bytes]:
    import lz4.block

    view = memoryview(data)
    flags, largest, position = _lz4_header(view, check_header)
    decompress_block = lz4.block.decompress
    size = len(view)
    while True:
        if position + 4 > size:
            raise _bad("lz4", "the stream is cut")
        length = int.from_bytes(view[position : position + 4], "little")
        position += 4
        stored = length & _LZ4_STORED
        length &= ~_LZ4_STORED
        if length == 0:
            break
        if length > largest or position + length > size:
            raise _bad("lz4", f"a block of {length} bytes, at most {min(largest, size - position)} are possible")
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
        if part:
            yield part
    if flags & 0x04 and position + 4 > size:
        raise _bad("lz4", "the stream is cut")


# zstd ---------------------------------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK: Final = 128 * 1024
_ZSTD_INPUT: Final = _ZSTD_BLOCK + 3
"""The number of bytes that zstd-jni reads at once (ZSTD_DStreamInSize)."""


def _zstd(data: Buffer, size: int) -> Pieces:
    """Yield the contents frame by frame (RFC 8878, 3.1), without skippable frames. The library does not report a cut frame.

    Neither does zstd-jni, if the previous frame ended in its last read: it returns the contents of the cut frame, and the stream ends.
    """
    import zstandard

    raw = bytes(data)
    wanted = size
    decompressor = zstandard.ZstdDecompressor()
    position = 0
    while position < len(raw):
        end, bound = _zstd_frame(raw, position)
        is_cut = end > len(raw)
        if bound >= 0:
            frame = raw if position == 0 and end == len(raw) else raw[position:end]
            try:
                if bound < wanted:
                    part = decompressor.decompressobj().decompress(frame)
                    if part:
                        wanted = (yield part) or size
                else:
                    with decompressor.stream_reader(frame) as reader:
                        while part := reader.read(wanted):
                            wanted = (yield part) or size
            except zstandard.ZstdError as error:
                raise _bad("zstd", error) from None
        if is_cut and (position == 0 or position % _ZSTD_INPUT == 0 or position // _ZSTD_INPUT != (len(raw) - 1) // _ZSTD_INPUT):
            raise _bad("zstd", "the stream is cut")
        position = end


def _zstd_frame(data: bytes, position: int) -> tuple[int, int]:
    """Return (the end of the frame that begins here, the largest size of its contents or -1 for a skippable frame). If the end is beyond
    the data, the frame is cut off."""
    size = len(data)
    magic = int.from_bytes(data[position : position + 4], "little")
    if size - position >= 4 and magic & 0xFFFFFFF0 == 0x184D2A50:
        if position + 8 > size:
            return size + 1, -1
        return position + 8 + int.from_bytes(data[position + 4 : position + 8], "little"), -1
    if magic != _ZSTD_MAGIC or position + 5 > size:
        return size + 1, _ZSTD_BLOCK  # the library reports the error
    descriptor = data[position + 4]
    single = descriptor & 0x20
    position += 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    bound = 0
    last = False
    while not last:
        if position + 3 > size:
            return size + 1, bound + _ZSTD_BLOCK
        header = int.from_bytes(data[position : position + 3], "little")
        last = bool(header & 1)
        kind, length = (header >> 1) & 3, header >> 3
        if kind == 3:
            return size + 1, bound + _ZSTD_BLOCK
        position += 3 + (1 if kind == 1 else length)
        bound += _ZSTD_BLOCK if kind == 2 else length
    return position + (4 if descriptor & 4 else 0), bound
