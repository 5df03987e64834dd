"""The loops of `kops log carve` over every byte of an image and every header. The same typed source is interpreted, or compiled by mypyc if
there is a C compiler.

Source: the headers of `DefaultRecordBatch` (v2) and `LegacyRecord` (v0, v1). Every header begins with an offset, and an offset below 2^48
begins with two zero bytes. So only every second byte is compared with zero. Both variants must give the same result for any bytes, so no
arithmetic may exceed 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

LARGEST_LEGACY: Final = 1 << 27
"""Larger messages of v0 and v1 are not looked for."""
_SMALLEST: Final = 26
_OVERHEAD: Final = 12
_HEADER: Final = 61
_MAX64: Final = 9223372036854775807
_RUN: Final = 256
"""Zeroes that are worth skipping."""
_BLOCK: Final = bytes(4096)
_LONGEST_ZEROES: Final = 11
"""A header begins with at most this many zeroes: an offset of 0 and a length below 256."""
_DIGEST_LOW: Final = (1 << 40) - 1
_DIGEST_FACTOR: Final = 2_097_143
_DIGEST_BASE: Final = (1 << 61) - 1


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


def _int(data: bytes, at: i64) -> i64:
    """The signed 32-bit number at `at`."""
    first: i64 = data[at]
    if first > 127:
        first -= 256
    return (first << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]


def _long(data: bytes, at: i64) -> i64:
    """The signed 64-bit number at `at`."""
    return (_int(data, at) << 32) | (_int(data, at + 4) & 0xFFFFFFFF)


def plausible_size(data: bytes, index: i64) -> i64:
    """Return the size that the batch at `index` claims, if a broker can have written its header; else 0.

    At least 26 bytes of it must be in `data`. Of the fields that the checksum does not cover, only the offset is judged. Fields of messages
    beyond the end of `data` are ignored.
    """
    size: i64 = _int(data, index + 8) + _OVERHEAD
    magic: i64 = data[index + 16]
    if magic == 2:
        return size if _is_plausible_v2(data, index, size) else 0
    if magic > 2 or size > LARGEST_LEGACY:
        return 0
    return size if _message_fits(data, index, size, magic) else 0


def _is_plausible_v2(data: bytes, index: i64, size: i64) -> bool:
    if size < _HEADER or index + _HEADER > len(data):
        return False
    codec: i64 = data[index + 22]
    if data[index + 21] or codec > 127 or (codec & 7) > 4 or data[index + 23] > 127:
        return False
    delta: i64 = _int(data, index + 23)
    count: i64 = _int(data, index + 57)
    if count < 0 or count > delta + 1 or (not codec & 7 and size < _HEADER + 7 * count):
        return False
    epoch: i64 = (data[index + 51] << 8) | data[index + 52]
    if 32767 < epoch < 65535:
        return False
    return _long(data, index + 35) >= -1 and _long(data, index + 43) >= -1 and _int(data, index + 53) >= -1


def _message_fits(data: bytes, index: i64, size: i64, magic: i64) -> bool:
    """Whether the attributes are known, and key and value of a v0 or v1 message fill it exactly, as far as `data` goes."""
    attributes: i64 = data[index + 17]
    if attributes > 11 or (attributes & 7) > 3:
        return False
    at: i64 = index + (26 if magic else 18)
    room: i64 = index + size - at - 8
    if room < 0:
        return False
    if at + 4 > len(data):
        return True
    key: i64 = _int(data, at)
    if key < -1 or key > room:
        return False
    if key > 0:
        room -= key
        at += key
    if at + 8 > len(data):
        return True
    value: i64 = _int(data, at + 4)
    return value == room or (value == -1 and not room)


def _is_header(data: bytes, at: i64, oldest: i64) -> bool:
    """Whether a header may begin at `at`, whatever the first two bytes are."""
    magic: i64 = data[at + 16]
    if magic < oldest or magic > 2:
        return False
    first: i64 = data[at + 8]
    if magic == 2:
        return first < 128 and _is_plausible_v2(data, at, _int(data, at + 8) + _OVERHEAD)
    if first > 7:
        return False
    size: i64 = _int(data, at + 8) + _OVERHEAD
    return size >= _SMALLEST and _message_fits(data, at, size, magic)


def next_header(data: bytes, start: i64, stop: i64, oldest: i64, large_offsets: bool, known: i64) -> tuple[i64, i64]:
    """Return (index of the first place from `start` up to `stop`, exclusive, at which a header may begin, or -1; `known`).

    `oldest` is the oldest format that is looked for. With `large_offsets`, v2 batches at any offset are among it. At `known` begins a batch
    that was taken, and others follow it: these are no result, and the returned `known` is a later one of them. It is -1 if there is none.
    """
    size: i64 = len(data)
    limit: i64 = size - _SMALLEST + 1
    if stop < limit:
        limit = stop
    at: i64 = start
    # No long run of zeroes begins up to `no_run`.
    no_run: i64 = -1
    magic: i64
    if large_offsets:
        while at < limit:
            magic = data[at + 16]
            if magic <= 2 and data[at] < 128 and (magic == 2 or not (data[at] or data[at + 1])):
                if _is_header(data, at, oldest):
                    known = known_from(data, known, at)
                    if at != known:
                        return at, known
                elif not magic and at > no_run and at + _RUN <= size:
                    no_run = _last_not_zero(data, at)
                    if no_run < 0:
                        at = _near_end_of_zeroes(data, at)
            at += 1
        return -1, known
    # `at` is the second byte of one place and the first byte of the next one.
    at += 1
    while at <= limit:
        if data[at]:
            at += 2
            continue
        if not data[at - 1] and data[at + 15] <= 2 and _is_header(data, at - 1, oldest):
            known = known_from(data, known, at - 1)
            if at - 1 != known:
                return at - 1, known
        if not data[at + 1] and data[at + 16] <= 2 and at < limit:
            if _is_header(data, at, oldest):
                known = known_from(data, known, at)
                if at != known:
                    return at, known
            elif at > no_run and at + _RUN <= size:
                no_run = _last_not_zero(data, at)
                if no_run < 0:
                    at = _near_end_of_zeroes(data, at)
        at += 2
    return -1, known


def known_from(data: bytes, known: i64, at: i64) -> i64:
    """Return the beginning of the first batch that is not before `at`, of those that follow each other from `known` on. -1 remains -1."""
    while 0 <= known < at:
        known += _int(data, known + 8) + _OVERHEAD
    return known


def _last_not_zero(data: bytes, at: i64) -> i64:
    """Return the index of the last byte that is not zero in a run from `at` on; -1 if there is none."""
    last: i64 = at + _RUN - 1
    while last >= at:
        if data[last]:
            return last
        last -= 1
    return -1


def _near_end_of_zeroes(data: bytes, at: i64) -> i64:
    """Return where to go on in a run of zeroes that begins at `at`: before its last ones, with which a header may begin."""
    end: i64 = at + _RUN
    while data.startswith(_BLOCK, end):
        end += 4096
    part = data[end : end + 4096]
    return end + len(part) - len(part.lstrip(b"\x00")) - _LONGEST_ZEROES - 1


def digest_on(digest: i64, crc: i64, base: i64) -> i64:
    """Return the digest of some batches and one more."""
    return ((digest & _DIGEST_LOW) * _DIGEST_FACTOR) ^ (digest >> 40) ^ crc ^ (base & _DIGEST_BASE)


Followed = tuple[i64, i64, i64, i64, i64, i64, i64, bool]
"""(index after the last batch, number of batches, last offset, last leader epoch, digest, records, largest timestamp, whether offsets are
missing)."""


def follow(
    data: bytes,
    index: i64,
    last: i64,
    epoch: i64,
    digest: i64,
    last_ms: i64,
    crc32c: Callable[[memoryview], int],
    add_producer: Callable[[int, int, int, int], None],
) -> Followed:
    """Take the intact v2 batches that follow at `index` without a hole in their offsets, after the offset `last`.

    `add_producer` gets (producer id, producer epoch, first sequence, last offset delta) where the producer changes, and at the end those of
    the last batch of the last producer.
    """
    view = memoryview(data)
    size: i64 = len(data)
    batches: i64 = 0
    records: i64 = 0
    misses = False
    producer: i64 = -1
    producer_epoch: i64 = -1
    sequence: i64 = -1
    sequence_delta: i64 = 0
    while index + _HEADER <= size and data[index + 16] == 2 and data[index] < 128:
        length: i64 = _int(data, index + 8)
        stop: i64 = index + length + _OVERHEAD
        leader_epoch: i64 = _int(data, index + 12)
        delta: i64 = _int(data, index + 23)
        count: i64 = _int(data, index + 57)
        if length < _HEADER - _OVERHEAD or stop > size or leader_epoch < epoch or delta < 0 or count < 0:
            break
        if last >= _MAX64 - delta - 1 or _long(data, index) != last + 1:
            break
        crc: i64 = _int(data, index + 17) & 0xFFFFFFFF
        if crc32c(view[index + 21 : stop]) != crc:
            break
        digest = digest_on(digest, crc, last + 1)
        last += delta + 1
        epoch = leader_epoch
        if not data[index + 22] & 0x20:
            records += count
        if data[index + 35] < 128:
            last_ms = max(last_ms, _long(data, index + 35))
        if count <= delta:
            misses = True
        first: i64 = _int(data, index + 53)
        if first >= 0:
            this: i64 = _long(data, index + 43)
            this_epoch: i64 = (data[index + 51] << 8) | data[index + 52]
            if this_epoch > 32767:
                this_epoch -= 65536
            if sequence < 0 or this != producer:
                if sequence >= 0:
                    add_producer(producer, producer_epoch, sequence, sequence_delta)
                add_producer(this, this_epoch, first, delta)
            producer, producer_epoch, sequence, sequence_delta = this, this_epoch, first, delta
        batches += 1
        index = stop
    if sequence >= 0:
        add_producer(producer, producer_epoch, sequence, sequence_delta)
    return index, batches, last, epoch, digest, records, last_ms, misses
