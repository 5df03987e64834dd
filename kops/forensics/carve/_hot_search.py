"""The loops of `kops log carve` over every byte of an image and every header. The same typed source is interpreted, or compiled by mypyc if
there is a C compiler.

Source: the headers of `DefaultRecordBatch` (v2) and `LegacyRecord` (v0, v1). Every header begins with an offset, and an offset below 2^48
begins with two zero bytes. Eight places are compared at once: a number of 64 bits has one byte of each of the eight possible headers, and
conditions on other bytes of the header are added with OR, so that a byte is zero where all of them hold. Both variants must give the same
result for any bytes, so no arithmetic may exceed 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_be, read_i64_be, read_i64_le
from mypy_extensions import i64

from kops.records._hot import read_varint

LARGEST_LEGACY: Final = 1 << 27
"""Larger messages of v0 and v1 are not looked for."""
LARGEST_LEGACY_KEY: Final = (1 << 20) - 1
"""Messages of v0 and v1 with larger keys are not looked for."""
_SMALLEST: Final = 26
_OVERHEAD: Final = 12
_HEADER: Final = 61
_MAX64: Final = 9223372036854775807
_RUN: Final = 256
"""Zeroes that are worth skipping."""
_BLOCK: Final = bytes(4096)
_LONGEST_ZEROES: Final = 11
"""A header begins with at most this many zeroes: an offset of 0 and a length below 256."""
# Masks of eight bytes. `_ABOVE_n` selects the bits that are not zero in a byte above n. All are below 2^62: of a larger number, compiled
# code would make an object wherever it is used.
_NIBBLES: Final[i64] = 0x0F0F0F0F0F0F0F0F
_FLAGS: Final[i64] = 0x1010101010101010
_ONES: Final[i64] = 0x0101010101010101
_TWOS: Final[i64] = 0x0202020202020202
_ABOVE_3: Final[i64] = -0x0303030303030304
_ABOVE_7: Final[i64] = -0x0707070707070708
_ABOVE_15: Final[i64] = -0x0F0F0F0F0F0F0F10
_ATTRIBUTES: Final[i64] = -0x0B0B0B0B0B0B0B0C
"""The bits that the attributes of v0 and v1 do not use."""
_EVEN_BELOW_16: Final[i64] = 0x0E0E0E0E0E0E0E0E
_LOW_PAIRS: Final[i64] = 0x3F3F3F3F3F3F3F3F
_MIDDLE_PAIRS: Final[i64] = 0x3030303030303030
_CONTENTS_LOOKED_AT: Final = 100
_DIGEST_BASE: Final = (1 << 29) - 1
DIGEST: Final = (1 << 61) - 1
"""The bits of a digest."""


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


def plausible_size(data: bytes, index: i64) -> i64:
    """Return the size that the batch at `index` claims, if a broker can have written its header; else 0.

    At least 26 bytes of it must be in `data`. Of the fields that the checksum does not cover, only the offset is judged. Fields of messages
    beyond the end of `data` are ignored.
    """
    size: i64 = i64(read_i32_be(data, index + 8)) + _OVERHEAD
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
    delta: i64 = i64(read_i32_be(data, index + 23))
    count: i64 = i64(read_i32_be(data, index + 57))
    if count < 0 or count > delta + 1 or (size != _HEADER if not count else not codec & 7 and size < _HEADER + 7 * count):
        return False
    epoch: i64 = (data[index + 51] << 8) | data[index + 52]
    if 32767 < epoch < 65535:
        return False
    return read_i64_be(data, index + 35) >= -1 and read_i64_be(data, index + 43) >= -1 and i64(read_i32_be(data, index + 53)) >= -1


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
    key: i64 = i64(read_i32_be(data, at))
    if key < -1 or key > room or key > LARGEST_LEGACY_KEY:
        return False
    if key > 0:
        room -= key
        at += key
    if at + 8 > len(data):
        return True
    value: i64 = i64(read_i32_be(data, at + 4))
    return value == room or (value == -1 and not room)


def contents_fit(data: bytes, index: i64, size: i64) -> bool:
    """Whether the contents of the plausible v2 batch at `index` begin as those of a batch of this size, as far as `data` goes.

    A batch that reaches beyond `data` is checked so before all of it is read. Sources: `DefaultRecord.readFrom`, the magic numbers of gzip,
    of lz4 frames (`Lz4BlockInputStream`) and of zstd frames.
    """
    at: i64 = index + _HEADER
    room: i64 = len(data)
    codec: i64 = data[index + 22] & 7
    if codec:
        if at + 4 > room or codec == 2:  # Snappy has no magic number that all clients write.
            return True
        first: i64 = i64(read_i32_be(data, at))
        if codec == 1:
            return first >> 16 == 0x1F8B
        if codec == 3:
            return first == 0x04224D18
        return first == 0x28B52FFD or first & 0xF0FFFFFF == 0x502A4D18  # A frame, or one to be skipped.
    left: i64 = i64(read_i32_be(data, index + 57))
    length: i64
    for _ in range(_CONTENTS_LOOKED_AT):
        if not left or at + 5 > room:
            break
        length, at = read_varint(data, at)
        if at < 0 or length < 6 or at + length > index + size:
            return False
        at += length
        left -= 1
    return bool(left) or at == index + size


def _begins_header(data: bytes, at: i64, oldest: i64, large_offsets: bool) -> bool:
    """Whether a header may begin at `at`."""
    magic: i64 = data[at + 16]
    if magic < oldest or magic > 2:
        return False
    if (data[at] or data[at + 1]) and (not large_offsets or magic < 2 or data[at] > 127):
        return False
    size: i64 = i64(read_i32_be(data, at + 8)) + _OVERHEAD
    if magic == 2:
        return _is_plausible_v2(data, at, size)
    return _SMALLEST <= size <= LARGEST_LEGACY and _message_fits(data, at, size, magic)


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
    place: i64
    # No long run of zeroes begins up to `no_run`.
    no_run: i64 = -1
    # Eight places are looked at as long as all the bytes that `_places` reads are there.
    last: i64 = limit - 8
    if size - 31 < last:
        last = size - 31
    while at <= last:
        first: i64 = read_i64_le(data, at)
        # A byte of `pairs` is zero where two zeroes begin, and a byte of `begins` where a header may begin with what is at this place.
        pairs: i64 = first | read_i64_le(data, at + 1)
        begins: i64 = (first >> 3) & _FLAGS if large_offsets else pairs
        magic: i64 = read_i64_le(data, at + 16)
        far: i64 = begins | (magic & _ABOVE_3)
        if (((far | (far >> 4)) & _NIBBLES) + _NIBBLES) & _FLAGS == _FLAGS:
            at += 8
            continue
        if not first and at > no_run and at + _RUN <= size:
            no_run = _last_not_zero(data, at)
            if no_run < 0:
                at = _near_end_of_zeroes(data, at) + 1
                continue
        places: i64 = _places(data, at, pairs, begins, magic, oldest < 2)
        place = at
        while places:
            if places & 16 and (data[place + 16] or _key_fits(data, place, size)) and _begins_header(data, place, oldest, large_offsets):
                known = known_from(data, known, place)
                if place != known:
                    return place, known
            places >>= 8
            place += 1
        at += 8
    while at < limit:
        if _begins_header(data, at, oldest, large_offsets):
            known = known_from(data, known, at)
            if at != known:
                return at, known
        at += 1
    return -1, known


def _key_fits(data: bytes, at: i64, size: i64) -> bool:
    """Whether key and value of a v0 message at `at` may fill it. Most places of programs fail here, so only what is needed is read."""
    room: i64 = i64(read_i32_be(data, at + 8)) - 14
    key: i64 = i64(read_i32_be(data, at + 18))
    if key > room:
        return False
    if key < 0:
        key = 0
    at += key + 22
    if at + 4 > size:
        return True
    value: i64 = i64(read_i32_be(data, at))
    return value == room - key or value == -1


def _places(data: bytes, at: i64, pairs: i64, begins: i64, magic: i64, legacy: bool) -> i64:
    """Return a number with a flag for each of the eight places from `at` at which a header may begin.

    Byte n of each number belongs to the header that begins at `at + n`. A condition holds for a header if its byte is zero.
    """
    length: i64 = read_i64_le(data, at + 8)
    differs: i64 = begins | (magic ^ _TWOS) | read_i64_le(data, at + 21)
    differs |= ((length | read_i64_le(data, at + 23)) >> 3) & _FLAGS  # the highest bit
    places: i64 = _FLAGS & ~(((differs | (differs >> 4)) & _NIBBLES) + _NIBBLES)
    if not legacy:
        return places
    # The length of a message is 14 or more.
    low: i64 = read_i64_le(data, at + 11)
    high: i64 = length | read_i64_le(data, at + 9) | read_i64_le(data, at + 10) | (low & _ABOVE_15)
    high |= ((low & _EVEN_BELOW_16) + _TWOS) & _FLAGS
    is_long: i64 = _FLAGS & (((high | (high >> 4)) & _NIBBLES) + _NIBBLES)
    if not is_long:
        return places
    common: i64 = pairs | (read_i64_le(data, at + 17) & _ATTRIBUTES) | (length & _ABOVE_7)
    differs = common | (magic ^ _ONES)
    places |= is_long & ~(((differs | (differs >> 4)) & _NIBBLES) + _NIBBLES)
    # In v0 the length of the key is here: -1 or below 2^20, so the first 12 bits are equal.
    high = read_i64_le(data, at + 18)
    high ^= high >> 1
    low = read_i64_le(data, at + 19)
    low ^= low >> 1
    differs = common | magic | (high & _LOW_PAIRS) | (low & _MIDDLE_PAIRS) | (((high | low) >> 2) & _FLAGS)
    return places | (is_long & ~(((differs | (differs >> 4)) & _NIBBLES) + _NIBBLES))


def known_from(data: bytes, known: i64, at: i64) -> i64:
    """Return the beginning of the first batch that is not before `at`, of those that follow each other from `known` on. -1 remains -1."""
    while 0 <= known < at:
        known += i64(read_i32_be(data, known + 8)) + _OVERHEAD
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
    """Return the digest of some batches and one more, with a checksum of 32 bits.

    It is a sum, so the digests of two parts of a fragment can be added. Offsets increase in a fragment, so the set of its batches tells
    their order. Two sets that differ in one checksum have different digests, because the factor is odd.
    """
    return (digest + crc * (((base & _DIGEST_BASE) << 1) | 1)) & DIGEST


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
        length: i64 = i64(read_i32_be(data, index + 8))
        stop: i64 = index + length + _OVERHEAD
        leader_epoch: i64 = i64(read_i32_be(data, index + 12))
        delta: i64 = i64(read_i32_be(data, index + 23))
        count: i64 = i64(read_i32_be(data, index + 57))
        if length < _HEADER - _OVERHEAD or stop > size or leader_epoch < epoch or delta < 0 or count < 0:
            break
        if last >= _MAX64 - delta - 1 or read_i64_be(data, index) != last + 1:
            break
        crc: i64 = i64(read_i32_be(data, index + 17)) & 0xFFFFFFFF
        if crc32c(view[index + 21 : stop]) != crc:
            break
        digest = digest_on(digest, crc, last + 1)
        last += delta + 1
        epoch = leader_epoch
        if not data[index + 22] & 0x20:
            records += count
        if data[index + 35] < 128:
            last_ms = max(last_ms, read_i64_be(data, index + 35))
        if count <= delta:
            misses = True
        first: i64 = i64(read_i32_be(data, index + 53))
        if first >= 0:
            this: i64 = read_i64_be(data, index + 43)
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
