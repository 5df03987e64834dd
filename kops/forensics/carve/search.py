"""Finds where a batch may begin in bytes of any kind: the first and fastest step of `kops log carve`.

Source: the headers of `DefaultRecordBatch` (v2) and `LegacyRecord` (v0, v1). The loop of `kops.forensics.carve._hot_search` looks at every
second byte. Where it is not compiled, regular expressions do its work: one search skips bytes without a pair of zeroes (text, compressed or
encrypted data), and around pairs expressions look for the rest of a header. Each expression begins with fixed bytes, which are found fast.
Long runs of zeroes have no header and are skipped in blocks. With `Look.large_offsets`, every byte is looked at, for v2 batches at any
offset.

A place found here is a candidate. It is a batch only if its checksum is correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kops.forensics.carve._hot_search import is_compiled, known_from, next_header, plausible_size

__all__ = ["EVERYTHING", "HEADER_VIEW", "Look", "headers"]

_SMALLEST: Final = 26
HEADER_VIEW: Final = 80
"""Bytes from the beginning of a header that are looked at."""

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
# A match takes one byte only: another header may begin at the next one.
_V0_WITH_KEY: Final = re.compile(
    rb"\x00(?=\x00\x00)(?<!\x00\x00\x00\x00\x00)(?<=\x00\x00......[\x00-\x07].......\x00)(?<!\x00\x00\x00\x00.....)",
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


class Look(NamedTuple):
    """What is looked for: the oldest format (0, 1 or 2), and whether v2 batches at offsets of 2^48 and more are among it.

    The old formats have less that tells a header from other bytes.
    """

    oldest: int = 0
    large_offsets: bool = False


EVERYTHING: Final = Look()


def headers(data: bytes, start: int, stop: int, look: Look = EVERYTHING, known: int = -1) -> Iterator[int]:
    """The indexes from `start` up to `stop` (exclusive) at which a plausible header begins, in order, each once.

    A batch that begins at `known` and those that follow it were taken. They are left out.
    """
    if is_compiled():
        index, known = next_header(data, start, stop, look.oldest, look.large_offsets, known)
        while index >= 0:
            yield index
            index, known = next_header(data, index + 1, stop, look.oldest, look.large_offsets, known)
        return
    for index in candidates(data, start, stop, look) if look.oldest < 2 else v2_candidates(data, start, stop, look):
        known = known_from(data, known, index)
        if index != known and index + _SMALLEST <= len(data) and plausible_size(data, index):
            yield index


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
