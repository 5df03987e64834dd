"""Compression of record sets: gzip, snappy, lz4 and zstd exactly as Kafka frames them (`kops.records.streams` reads them).

Source: Kafka's `CompressionType` and `org.apache.kafka.common.compress`. snappy has the framing of the xerial library. lz4 has the LZ4
frame format with independent blocks of 64 KiB.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kops.errors import DecodeError
from kops.records.streams.codecs import (
    CODEC_IDS,
    CODEC_NAMES,
    DEFAULT_LIMIT,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Buffer,
    codec_id,
    codec_name,
    xxhash32,
)

__all__ = [
    "CODEC_IDS",
    "CODEC_NAMES",
    "DEFAULT_LIMIT",
    "GZIP",
    "LZ4",
    "NONE",
    "SNAPPY",
    "ZSTD",
    "Buffer",
    "Compressor",
    "codec_id",
    "codec_name",
    "compress",
    "xxhash32",
]

_GZIP_HINTS: Final = slice(8, 10)
_JAVA_GZIP_HINTS: Final = b"\x00\xff"
"""The header fields for compression level and operating system, as Java 16 and later write them: unspecified."""


def compress(codec: int | str, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress and frame `data` so that every version of Kafka that knows the codec can read it in a batch of this `magic`."""
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
        return _write_lz4(data, magic, level)
    if magic < 2:
        raise DecodeError(f"zstd is not allowed in message format v{magic}", code="unknown-codec")
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(bytes(data))


_CHUNK: Final = 4 << 20


class Compressor:
    """Compresses a record set as a stream, for sets that are too large for `compress`.

    Up to 4 MiB, the result is the same as that of `compress`. For a larger set, only the compressed bytes are held in memory.
    """

    def __init__(self, codec: int, *, magic: int = 2, level: int | None = None) -> None:
        self._codec = codec
        self._magic = magic
        self._level = level
        self._held: list[Buffer] = []
        self._size = 0
        self._parts: list[bytes] = []
        self._stream: _Stream | None = None

    def write(self, data: Buffer) -> None:
        """Add the next part of the set."""
        self._held.append(data)
        self._size += len(data)
        if self._size >= _CHUNK:
            if self._stream is None:
                self._stream = _stream(self._codec, self._magic, self._level)
            self._parts.append(self._stream.compress(b"".join(self._held)))
            self._held.clear()
            self._size = 0

    def finish(self) -> bytes:
        """Return the whole set, compressed."""
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        if self._stream is None:
            return compress(self._codec, data, magic=self._magic, level=self._level)
        parts = [*self._parts, self._stream.compress(data), self._stream.flush()]
        self._parts.clear()
        packed = b"".join(parts)
        if self._codec == GZIP:
            return packed[: _GZIP_HINTS.start] + _JAVA_GZIP_HINTS + packed[_GZIP_HINTS.stop :]
        return packed


class _Stream(Protocol):
    def compress(self, data: Buffer, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _stream(codec: int, magic: int, level: int | None) -> _Stream:
    if codec == GZIP:
        return zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    if codec == ZSTD:
        import zstandard

        stream: _Stream = zstandard.ZstdCompressor(level=3 if level is None else level).compressobj()
        return stream
    if codec == SNAPPY:
        return _Blocks(_XERIAL_HEADER, _XERIAL_BLOCK, _snappy_block, b"")
    if codec == LZ4:
        return _Blocks(_lz4_header(magic), _LZ4_BLOCK, partial(_lz4_block, level=level), _LZ4_END)
    return _Blocks(b"", _CHUNK, bytes, b"")


class _Blocks:
    """A stream of a header, blocks of one size, each compressed separately, and an end mark."""

    def __init__(self, header: bytes, size: int, pack: Callable[[memoryview], bytes], end: bytes) -> None:
        self._front = header
        self._rest: Buffer = b""
        self._size = size
        self._pack = pack
        self._end = end

    def compress(self, data: Buffer, /) -> bytes:
        view = memoryview(b"".join((self._rest, data)) if self._rest else data)
        whole = len(view) // self._size * self._size
        parts = [self._front, *(self._pack(view[start : start + self._size]) for start in range(0, whole, self._size))]
        self._front, self._rest = b"", bytes(view[whole:])
        return b"".join(parts)

    def flush(self) -> bytes:
        return b"".join((self._front, self._pack(memoryview(self._rest)) if self._rest else b"", self._end))


# snappy -------------------------------------------------------------------------------------------------------------------------------

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024


def _write_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    return b"".join((_XERIAL_HEADER, *(_snappy_block(view[at : at + _XERIAL_BLOCK]) for at in range(0, len(view), _XERIAL_BLOCK))))


def _snappy_block(block: memoryview) -> bytes:
    import cramjam

    packed = bytes(cramjam.snappy.compress_raw(block))
    return len(packed).to_bytes(4, "big") + packed


# lz4 ----------------------------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_STORED: Final = 0x80000000
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_END: Final = b"\x00\x00\x00\x00"


def _write_lz4(data: Buffer, magic: int, level: int | None) -> bytes:
    """Kafka's `Lz4BlockOutputStream`: independent blocks of 64 KiB, no checksum except that of the header, no content size."""
    view = memoryview(data)
    blocks = [_lz4_block(view[start : start + _LZ4_BLOCK], level) for start in range(0, len(view), _LZ4_BLOCK)]
    return b"".join((_lz4_header(magic), *blocks, _LZ4_END))


def _lz4_header(magic: int) -> bytes:
    header = _LZ4_MAGIC + b"\x60\x40"
    # In format v0 the hash includes the magic of the frame. Readers of v0 expect that or ignore the hash.
    return header + bytes(((xxhash32(header if magic == 0 else header[4:]) >> 8) & 0xFF,))


def _lz4_block(block: memoryview, level: int | None) -> bytes:
    import lz4.block

    if level is None:
        packed: bytes = lz4.block.compress(block, store_size=False)
    else:
        packed = lz4.block.compress(block, mode="high_compression", compression=level, store_size=False)
    if len(packed) >= len(block):
        return (len(block) | _LZ4_STORED).to_bytes(4, "little") + bytes(block)
    return len(packed).to_bytes(4, "little") + packed
