"""A file that hands every operation on to another one. Subclasses replace what they do differently."""

from __future__ import annotations

from kops.files.api import File

__all__ = ["ForwardingFile"]


class ForwardingFile(File):
    """`base` under another class. It is closed with it."""

    __slots__ = ("_base", "path")

    def __init__(self, base: File) -> None:
        self._base = base
        self.path = base.path

    def size(self) -> int:
        return self._base.size()

    def read(self, position: int, size: int) -> bytes:
        return self._base.read(position, size)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._base.write(position, data)

    def sync(self) -> None:
        self._base.sync()

    def truncate(self, size: int) -> None:
        self._base.truncate(size)

    def fileno(self) -> int:
        return self._base.fileno()

    def close(self) -> None:
        self._base.close()
