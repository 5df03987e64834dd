"""Variable-length integers, Kafka's `ByteUtils`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kops.errors import DecodeError
from kops.records.varint import (
    read_unsigned_varint,
    read_varint,
    read_varlong,
    size_of_varint,
    write_unsigned_varint,
    write_varint,
)
from tests.support.hot import hot, variants

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INTS)
def test_a_varint_comes_back(value: int) -> None:
    data = write_varint(value)
    assert read_varint(b"!" + data, 1) == (value, 1 + len(data))
    assert size_of_varint(value) == len(data) <= 5


@given(LONGS)
def test_a_varlong_comes_back(value: int) -> None:
    data = write_varint(value)
    assert read_varlong(data, 0) == (value, len(data))
    assert size_of_varint(value) == len(data) <= 10


@pytest.mark.parametrize(
    ("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (-(1 << 31), "ffffffff0f")]
)
def test_known_bytes(value: int, data: str) -> None:
    assert write_varint(value).hex() == data
    assert read_varint(bytes.fromhex(data), 0)[0] == value


def test_unsigned() -> None:
    assert write_unsigned_varint(300).hex() == "ac02"
    assert read_unsigned_varint(b"\xac\x02", 0) == (300, 2)
    assert read_unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (-1, 5)


def test_bits_beyond_the_width_are_dropped() -> None:
    assert read_varint(b"\x80\x80\x80\x80\x70", 0) == (0, 5)
    assert read_varlong(b"\x80" * 9 + b"\x7e", 0) == (0, 10)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 5, b"\x80" * 5 + b"\x00"])
def test_a_varint_that_does_not_end_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError) as error:
        read_varint(data, 0)
    assert error.value.code == "bad-varint"


@pytest.mark.parametrize("data", [b"\x80" * 9, b"\x80" * 10 + b"\x00"])
def test_a_varlong_that_does_not_end_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_varlong(data, 0)


@pytest.mark.hot
@pytest.mark.parametrize("variant", variants())
@settings(deadline=None)
@given(data=st.binary(min_size=1, max_size=12))
def test_the_hot_readers_agree(variant: str, data: bytes) -> None:
    loop = hot("kops.records._hot", variant)
    for slow, fast in ((read_varint, loop.read_varint), (read_varlong, loop.read_varlong)):
        try:
            expected = slow(data, 0)
        except DecodeError as error:
            if "does not end" in error.reason:
                assert fast(data, 0)[1] == -1
            else:
                with pytest.raises(IndexError):
                    fast(data, 0)
        else:
            assert fast(data, 0) == expected
