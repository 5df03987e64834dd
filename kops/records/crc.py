"""Checksums of batches: CRC-32C (Castagnoli) for magic 2, CRC-32 (IEEE) for magic 0 and 1.

Source: Kafka's `Crc32C`, `DefaultRecordBatch` (CRC from the attributes to the end) and `LegacyRecord` (CRC from the magic byte to the end).
The hardware library `crc32c` is preferred. If it cannot be imported, `crcmod` computes the same numbers.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

_POLYNOMIAL = 0x11EDC6F41


def portable_crc32c() -> Callable[..., int]:
    """Return CRC-32C computed with crcmod and its C extension, if that was built. This is the fallback, and the reference for the tests."""
    import crcmod

    function = crcmod.mkCrcFun(_POLYNOMIAL, initCrc=0, rev=True, xorOut=0xFFFFFFFF)

    def crc(data: Buffer, value: int = 0) -> int:
        # crcmod rejects some memoryviews, and its C extension reads bytes fastest.
        return int(function(bytes(data), value))

    return crc


@functools.cache
def crc32c_function() -> Callable[..., int]:
    """Return the fastest CRC-32C function on this machine, `function(data, value=0) -> int`. Hot loops bind it once."""
    try:
        return _hardware_crc32c()
    except ImportError:
        return portable_crc32c()


def _hardware_crc32c() -> Callable[..., int]:
    """Import `crc32c.crc32c` from the extension module alone. That takes 5 ms; the whole package takes 50 ms, because it reads its
    metadata."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("crc32c")
    inner = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package is not None else None
    if inner is None or inner.loader is None:
        from crc32c import crc32c as hardware

        return hardware
    module = module_from_spec(inner)
    inner.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of `data`, continuing `value` (the CRC of the preceding bytes)."""
    return crc32c_function()(data, value)


def crc32(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32 of `data`, continuing `value`."""
    return zlib.crc32(data, value)
