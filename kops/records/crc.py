"""Checksums of batches: CRC-32C (Castagnoli) for magic 2, CRC-32 (IEEE) for magic 0 and 1.

Source: Kafka's `Crc32C`, `DefaultRecordBatch` (CRC from the attributes to the end) and `LegacyRecord` (CRC from the magic byte to the end).
The hardware library `crc32c` stands in front; where it can't be imported, `crcmod` computes the same numbers.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

_POLYNOMIAL = 0x11EDC6F41


def portable_crc32c() -> Callable[..., int]:
    """CRC-32C by crcmod (its C extension where that was built, else pure Python): the fallback, and the reference of the tests."""
    import crcmod

    function = crcmod.mkCrcFun(_POLYNOMIAL, initCrc=0, rev=True, xorOut=0xFFFFFFFF)

    def crc(data: Buffer, value: int = 0) -> int:
        # crcmod refuses some memoryviews, and its C extension reads bytes fastest.
        return int(function(bytes(data), value))

    return crc


@functools.cache
def crc32c_function() -> Callable[..., int]:
    """The fastest CRC-32C there is here: `function(data, value=0) -> int`; hot loops bind it once."""
    try:
        from crc32c import crc32c as hardware
    except ImportError:
        return portable_crc32c()
    return hardware


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C of `data`, continuing `value` (the CRC of what came before)."""
    return crc32c_function()(data, value)


def crc32(data: Buffer, value: int = 0) -> int:
    """CRC-32 of `data`, continuing `value`."""
    return zlib.crc32(data, value)
