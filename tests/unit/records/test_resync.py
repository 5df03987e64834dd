"""The cost of resynchronization grows with the number of damaged bytes, whatever they contain."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from kops.records import Batch, BatchBuilder, BytesSource, Damage, scan
from kops.records.build import write_batch
from kops.records.scanning.resync import leading_zeroes

SIZE = 1 << 20


class Counted(BytesSource):
    """A source that counts the bytes that were read."""

    total = 0

    def read(self, position: int, size: int) -> bytes:
        data = super().read(position, size)
        self.total += len(data)
        return data


def good(offset: int) -> bytes:
    return write_batch(bytes(range(200)), base_offset=offset, last_offset=offset + 2, count=3)


def header(number: int, length: int) -> bytes:
    """Return a plausible header with a wrong checksum, 61 bytes."""
    data = bytearray(write_batch(b"", base_offset=number + 10, last_offset=number + 10, count=1))
    data[8:12] = struct.pack(">i", max(length, 49))
    data[17] ^= 1
    return bytes(data)


def headers(length: Callable[[int], int]) -> bytes:
    """Return consecutive headers. `length` computes each one's length from the number of bytes that are left."""
    return b"".join(header(number, length(SIZE - number * 61) - 12) for number in range(SIZE // 61))


LIES = {
    "all that is left": lambda: headers(lambda left: left),
    "half of it": lambda: headers(lambda left: left // 2),
    "64 KiB": lambda: headers(lambda left: min(left, 1 << 16)),
    "1 KiB": lambda: headers(lambda left: min(left, 1 << 10)),
    "itself": lambda: headers(lambda left: 61),
    "powers of two": lambda: headers(lambda left: min(left, 1 << (left // 61) % 20)),
    "zeroes": lambda: bytes(SIZE),
    "ones": lambda: b"\x01" * SIZE,
    "twos": lambda: b"\x02" * SIZE,
    "old messages": lambda: (struct.pack(">qiIbbii", 1, 40, 0, 0, 0, -1, 26) + bytes(26)) * (SIZE // 52),
    "old lengths": lambda: b"\x00\x00\x02\x00" * (SIZE // 4),
}


@pytest.mark.parametrize("name", LIES)
def test_the_work_is_bounded_and_the_good_batches_are_found(name: str) -> None:
    lies = LIES[name]()
    source = Counted(good(1) + lies + good(1 << 20))
    items = list(scan(source))
    assert isinstance(items[0], Batch) and isinstance(items[-1], Batch)
    assert items[-1].base_offset == 1 << 20
    assert all(isinstance(item, Damage) for item in items[1:-1])
    # Trying every length would read up to 9 GB here.
    assert source.total < 400 * SIZE


def test_a_chain_of_damaged_batches_costs_each_a_few_reads() -> None:
    parts = []
    for number in range(2000):
        part = bytearray(good(3 * number))
        part[100] ^= number % 2
        parts.append(bytes(part))
    source = Counted(b"".join(parts))
    items = list(scan(source))
    assert [isinstance(item, Damage) for item in items] == [bool(number % 2) for number in range(2000)]
    assert source.total < 40 * source.size()


def test_leading_zeroes() -> None:
    for size in (0, 1, 100, 1 << 20, (1 << 20) + 1):
        assert leading_zeroes(bytes(size)) == size
        assert leading_zeroes(bytes(size) + b"\x01" + bytes(3)) == size


def test_a_damaged_header_with_a_small_offset_does_not_hide_a_lone_batch_at_a_large_one() -> None:
    """A header with an impossible length may be a piece of another batch, so its offset says nothing of how far the log goes."""
    torn = header(0, 1 << 28)
    lone = good(1 << 33)
    (damage, found, tail) = scan(BytesSource(torn + lone + b"\xff" * 100))
    assert isinstance(damage, Damage) and (damage.code, damage.position, damage.end) == ("bad-length", 0, len(torn))
    assert isinstance(found, Batch) and found.base_offset == 1 << 33
    assert isinstance(tail, Damage) and tail.position == len(torn) + len(lone)


def test_a_lone_batch_far_beyond_a_damaged_one_of_a_possible_length_may_be_from_its_value() -> None:
    inner = good(1 << 40)
    outer = bytearray(write_batch(b"a value: " + inner + b" and more", base_offset=0, last_offset=0, count=1))
    outer[70] ^= 1
    found = list(scan(BytesSource(bytes(outer) + b"\xff" * 100)))
    assert not any(isinstance(each, Batch) for each in found)


def old_set(first: int, count: int, *, codec: str = "gzip", damaged: bool = False) -> bytes:
    builder = BatchBuilder(magic=1, codec=codec, base_offset=first)
    for number in range(count):
        builder.append(1_700_000_000_000, None, b"value %d" % number, offset=first + number)
    data = bytearray(builder.build())
    data[-1] ^= damaged
    return bytes(data)


def test_a_plain_message_before_a_damaged_set_may_be_from_another_damaged_set() -> None:
    """A set that does not compress has its messages in plain form, with offsets that count from 0."""
    message = old_set(1, 1, codec="none")
    data = old_set(0, 2, damaged=True) + b"\xff" * 50 + message + old_set(2, 6, damaged=True) + old_set(8, 2)
    assert [item.base_offset for item in scan(BytesSource(data)) if isinstance(item, Batch)] == [8]
    plain = old_set(0, 2, damaged=True) + b"\xff" * 50 + message + old_set(2, 1, codec="none", damaged=True) + old_set(8, 2)
    assert [item.base_offset for item in scan(BytesSource(plain)) if isinstance(item, Batch)] == [1, 8]
