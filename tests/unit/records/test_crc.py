"""Checksums against crcmod, the portable reference."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kops.records import crc


@given(st.binary(max_size=4096), st.integers(0, 4096))
def test_crc32c_is_crcmods_in_one_go_and_in_two(data: bytes, cut: int) -> None:
    expected = crc.portable_crc32c()(data)
    assert crc.crc32c(data) == expected
    assert crc.crc32c(data[cut:], crc.crc32c(data[:cut])) == expected
    assert crc.portable_crc32c()(data[cut:], crc.portable_crc32c()(data[:cut])) == expected


def test_known_values() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32(b"123456789") == 0xCBF43926
    assert crc.crc32(b"6789", crc.crc32(b"12345")) == 0xCBF43926


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 4095, 1 << 20])
def test_views_and_sizes(size: int) -> None:
    data = bytes(i * 7 & 255 for i in range(size))
    assert crc.crc32c(memoryview(b"x" + data)[1:]) == crc.crc32c(bytearray(data)) == crc.portable_crc32c()(memoryview(data))


def test_without_the_library_crcmod_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    crc.crc32c_function.cache_clear()
    try:
        assert "portable" in crc.crc32c_function().__qualname__
        assert crc.crc32c(memoryview(b"123456789")) == 0xE3069283
    finally:
        crc.crc32c_function.cache_clear()
