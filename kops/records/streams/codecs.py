"""The codecs by name and number, and the hash of the LZ4 frame format.

Source: Kafka's `CompressionType`.
"""

from __future__ import annotations

import struct
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
"""The default limit on the decompressed size where all records of a batch are held at once."""

Buffer = bytes | bytearray | memoryview


def codec_name(codec: int) -> str:
    """Return the name of a codec number from the attributes of a batch, such as `unknown(5)` for a number that Kafka does not know."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown({codec})"


def codec_id(codec: int | str) -> int:
    """Return the number of a codec. Raises DecodeError (`unknown-codec`) if Kafka does not have it."""
    number = CODEC_IDS.get(codec, -1) if isinstance(codec, str) else codec
    if not 0 <= number < len(CODEC_NAMES):
        raise DecodeError(f"unknown compression codec {codec}", code="unknown-codec")
    return number


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_M: Final = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _M


def xxhash32(data: bytes) -> int:
    """Return XXH32 with seed 0, used for the headers and the rare block checksums of the LZ4 frame format."""
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
