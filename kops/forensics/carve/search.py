"""Finds where a batch may begin in bytes of any kind: the first and fastest step of `kops log carve`.

Source: the headers of `DefaultRecordBatch` (v2) and `LegacyRecord` (v0, v1). Every header begins with an offset, and an offset below 2^48
begins with two zero bytes. One search skips bytes without such a pair (text, compressed or encrypted data). Around pairs, regular
expressions look for the rest of a header. Each expression begins with fixed bytes, which are found fast. Long runs of zeroes have no header
and are skipped in blocks. With `Look.large_offsets`, every byte is looked at, for v2 batches at any offset.

A place found here is a candidate. It is a batch only if its checksum is correct.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["EVERYTHING", "HEADER_VIEW", "Look", "candidates", "plausible_size", "v2_candidates"]

HEADER_VIEW: Final = 80
"""Bytes from the beginning of a header that are looked at."""
LARGEST_LEGACY: Final = 1 << 27

_CODECS: Final = b"".join(b"\\x%02x" % low for low in range(0x80) if low & 7 <= 4)
_V2: Final = re.compile(
    rb"\x02(?<=\x00\x00......[\x00-\x7f].......\x02)(?=....\x00[%s][\x00-\x7f])" % _CODECS,
    re.DOTALL,
)
_V2_ANYWHERE: Final = re.compile(
    rb"\x02(?<=[\x00-\x7f].......[\x00-\x7f].......\x02)(?=....\x00[%s][\x00-\x7f])" % _CODECS,
    re.DOTALL,
)
_V1: Final = re.compile(
    rb"\x01(?<=\x00\x00......[\x00-\x07].......\x01)(?<!\x00\x00\x00\x00.....)(?=[\x00-\x03\x08-\x0b]........[\x00\xff])", re.DOTALL
)
_V0_WITHOUT_KEY: Final = re.compile(
    rb"\xff\xff\xff\xff(?<=\x00\x00......[\x00-\x07].......\x00[\x00-\x03\x08-\x0b]\xff\xff\xff\xff)(?<!\x00\x00\x00\x00..........)",
    re.DOTALL,
)
_V0_WITH_KEY: Final = re.compile(
    rb"\x00\x00\x00(?<!\x00\x00\x00\x00\x00\x00\x00)(?<=\x00\x00......[\x00-\x07].......\x00\x00\x00)(?<!\x00\x00\x00\x00.......)",
    re.DOTALL,
)
# The expression, and how far after the beginning of a header its match begins.
_EXPRESSIONS: Final = (
    ((_V2, 16), (_V1, 16), (_V0_WITHOUT_KEY, 18), (_V0_WITH_KEY, 16)),
    ((_V2, 16), (_V1, 16)),
    ((_V2, 16),),
)
"""By the oldest format that is looked for."""

_BEGINS: Final = re.compile(rb"\x00\x00(?=......[\x00-\x7f])", re.DOTALL)
_SHORT_RUN: Final = bytes(512)
_BLOCK: Final = bytes(4096)
_FIRST_STRETCH: Final = 512
_LONGEST_STRETCH: Final = 64 << 10
_LONGEST_ZEROES: Final = 11
"""A header begins with at most this many zeroes: an offset of 0 and a length below 256."""
_INT: Final = struct.Struct(">i")
_V2_FIELDS: Final = struct.Struct(">qiibIhiqqqhii")


class Look(NamedTuple):
    """What is looked for: the oldest format (0, 1 or 2), and whether v2 batches at offsets of 2^48 and more are among it.

    The old formats have less that tells a header from other bytes.
    """

    oldest: int = 0
    large_offsets: bool = False


EVERYTHING: Final = Look()


def candidates(data: bytes, start: int, stop: int, look: Look = EVERYTHING) -> Iterator[int]:
    """The indexes from `start` up to `stop` (exclusive) at which a header may begin, in order, each once."""
    at = start
    stretch = _FIRST_STRETCH
    expressions = _EXPRESSIONS[look.oldest]
    if look.large_offsets:
        expressions = ((_V2_ANYWHERE, 16), *expressions[1:])
    while at < stop:
        begin = None if look.large_offsets else _BEGINS.search(data, at, stop + 8)
        if begin is None and not look.large_offsets:
            return
        pair = at if begin is None else begin.start()
        if data.startswith(_SHORT_RUN, pair):
            pair = max(pair, _end_of_zeroes(data, pair) - _LONGEST_ZEROES)
        # Pairs that are far apart are examined one by one, dense ones in larger and larger pieces.
        stretch = min(stretch * 2, _LONGEST_STRETCH) if pair - at < 128 else _FIRST_STRETCH
        end = min(pair + stretch, stop)
        zeroes = data.find(_SHORT_RUN, pair + 1, end)
        if zeroes >= 0:
            end = zeroes + 1
        found = []
        for expression, before in expressions:
            for match in expression.finditer(data, pair + before, end + HEADER_VIEW):
                index = match.start() - before
                if index >= end:
                    break
                found.append(index)
        if found:
            yield from sorted(set(found)) if len(found) > 1 else found
        at = end


def v2_candidates(data: bytes, start: int, stop: int, look: Look = EVERYTHING) -> Iterator[int]:
    """The same for headers of v2 alone, for data with many of them."""
    for match in (_V2_ANYWHERE if look.large_offsets else _V2).finditer(data, start + 16, stop + HEADER_VIEW):
        index = match.start() - 16
        if index >= stop:
            return
        yield index


def _end_of_zeroes(data: bytes, at: int) -> int:
    """The index of the first byte from `at` on that is not zero."""
    while data.startswith(_BLOCK, at):
        at += len(_BLOCK)
    part = data[at : at + len(_BLOCK)]
    return at + len(part) - len(part.lstrip(b"\x00"))


def plausible_size(data: bytes, index: int) -> int:
    """Return the size that the batch at `index` claims, if a broker can have written its header; else 0.

    Of the fields that the checksum does not cover, only the offset is judged. Fields beyond the end of `data` are ignored.
    """
    size: int = _INT.unpack_from(data, index + 8)[0] + 12
    magic = data[index + 16]
    if magic == 2:
        if size < 61 or index + 61 > len(data):
            return 0
        fields = _V2_FIELDS.unpack_from(data, index)
        attributes, delta, count = fields[5], fields[6], fields[12]
        if attributes & ~0x7F or count < 0 or delta < 0 or count > delta + 1:
            return 0
        if fields[9] < -1 or fields[10] < -1 or fields[11] < -1 or fields[8] < -1:
            return 0
        if not attributes & 7 and size < 61 + 7 * count:
            return 0
        return size
    return size if size <= LARGEST_LEGACY and _message_fits(data, index, size, magic) else 0


def _message_fits(data: bytes, index: int, size: int, magic: int) -> bool:
    """Whether key and value of a v0 or v1 message fill it exactly, as far as `data` goes."""
    at = index + (26 if magic else 18)
    room = index + size - at - 8
    if room < 0:
        return False
    if at + 4 > len(data):
        return True
    key = _INT.unpack_from(data, at)[0]
    if key < -1 or key > room:
        return False
    at += 4 + max(key, 0)
    if at + 4 > len(data):
        return True
    value = _INT.unpack_from(data, at)[0]
    return bool(value >= -1 and max(key, 0) + max(value, 0) == room)
