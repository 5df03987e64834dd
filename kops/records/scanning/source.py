"""The input of a scan: anything with `size()` and `read(position, size)`, for instance a `kops.files.File`."""

from __future__ import annotations

from typing import Protocol


class ByteSource(Protocol):
    """Positioned reads. `read` returns fewer bytes only at the end."""

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes: ...


class BytesSource:
    """A `ByteSource` over bytes in memory."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = bytes(data)

    def size(self) -> int:
        return len(self.data)

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]
