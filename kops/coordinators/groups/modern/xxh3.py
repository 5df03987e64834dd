"""XXH3 with 64 bits, seed 0 (the hash of groups' metadata). Source: the description of XXH3 in Yann Collet's xxHash.

Kafka uses the implementation of hash4j.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MIX_1, _MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_STRIPE: Final = 64
_STRIPES_A_BLOCK: Final = 16
_LANES: Final = Struct("<8Q")
_PAIR: Final = Struct("<2Q")


def xxh3_64(data: bytes) -> int:
    """Return the hash as an unsigned number."""
    size = len(data)
    if size <= 16:
        return _hash_small(data, size)
    if size <= 128:
        return _hash_middle(data, size)
    if size <= 240:
        return _hash_large(data, size)
    return _hash_long(data, size)


def _read64(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "little")


def _read32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")


def _fold(first: int, second: int) -> int:
    product = first * second
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MIX_1 & _MASK
    return value ^ value >> 32


def _avalanche_of_xxh64(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _hash_small(data: bytes, size: int) -> int:
    if size == 0:
        return _avalanche_of_xxh64(_read64(_SECRET, 56) ^ _read64(_SECRET, 64))
    if size <= 3:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_of_xxh64(combined ^ _read32(_SECRET, 0) ^ _read32(_SECRET, 4))
    if size <= 8:
        value = _read32(data, size - 4) + (_read32(data, 0) << 32)
        value ^= _read64(_SECRET, 8) ^ _read64(_SECRET, 16)
        value ^= _rotate(value, 49) ^ _rotate(value, 24)
        value = value * _MIX_2 & _MASK
        value ^= (value >> 35) + size
        value = value * _MIX_2 & _MASK
        return value ^ value >> 28
    low = _read64(data, 0) ^ _read64(_SECRET, 24) ^ _read64(_SECRET, 32)
    high = _read64(data, size - 8) ^ _read64(_SECRET, 40) ^ _read64(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(size + swapped + high + _fold(low, high) & _MASK)


def _mix(data: bytes, position: int, secret: int) -> int:
    low, high = _PAIR.unpack_from(data, position)
    secret_low, secret_high = _PAIR.unpack_from(_SECRET, secret)
    return _fold(low ^ secret_low, high ^ secret_high)


def _hash_middle(data: bytes, size: int) -> int:
    total = size * _P64_1
    for index in range((size - 1) // 32, -1, -1):
        total += _mix(data, 16 * index, 32 * index) + _mix(data, size - 16 * (index + 1), 32 * index + 16)
    return _avalanche(total & _MASK)


def _hash_large(data: bytes, size: int) -> int:
    total = size * _P64_1 + sum(_mix(data, 16 * index, 16 * index) for index in range(8))
    total = _avalanche(total & _MASK) + sum(_mix(data, 16 * index, 16 * (index - 8) + 3) for index in range(8, size // 16))
    return _avalanche(total + _mix(data, size - 16, 136 - 17) & _MASK)


def _accumulate(lanes: list[int], data: bytes, position: int, secret: int) -> None:
    values = _LANES.unpack_from(data, position)
    keys = _LANES.unpack_from(_SECRET, secret)
    for index, value in enumerate(values):
        key = value ^ keys[index]
        lanes[index ^ 1] = lanes[index ^ 1] + value & _MASK
        lanes[index] = lanes[index] + (key & 0xFFFF_FFFF) * (key >> 32) & _MASK


def _hash_long(data: bytes, size: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    block = _STRIPE * _STRIPES_A_BLOCK
    block_count = (size - 1) // block
    for start in range(0, block * block_count, block):
        for stripe in range(_STRIPES_A_BLOCK):
            _accumulate(lanes, data, start + _STRIPE * stripe, 8 * stripe)
        for index, key in enumerate(_LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)):
            lanes[index] = (lanes[index] ^ lanes[index] >> 47 ^ key) * _P32_1 & _MASK
    rest = block * block_count
    for stripe in range((size - 1 - rest) // _STRIPE):
        _accumulate(lanes, data, rest + _STRIPE * stripe, 8 * stripe)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = size * _P64_1
    for index in range(4):
        total += _fold(lanes[2 * index] ^ _read64(_SECRET, 11 + 16 * index), lanes[2 * index + 1] ^ _read64(_SECRET, 19 + 16 * index))
    return _avalanche(total & _MASK)
