"""Files and file systems that are only read: whatever would change something raises ReadOnlyError."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from kops.files.api import File, Files, Lock, ReadOnlyError


class ReadOnlyFiles(Files):
    """The base of file systems that are only read. A subclass adds the methods that read."""

    def sync_dir(self, path: str) -> None:
        refuse(path)

    def rename(self, source: str, target: str) -> None:
        refuse(source)

    def link(self, source: str, target: str) -> None:
        refuse(source)

    def unlink(self, path: str) -> None:
        refuse(path)

    def rmdir(self, path: str) -> None:
        refuse(path)

    def mkdir(self, path: str) -> None:
        refuse(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        refuse(path)

    def copy_owner(self, source: str, target: str) -> None:
        refuse(target)

    def set_mode(self, path: str, mode: int) -> None:
        refuse(path)

    def lock(self, path: str) -> Lock:
        refuse(path)


class ReadOnlyFile(File):
    """The base of files that are only read, and have no descriptor. A subclass adds the methods that read."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        refuse(self.path)

    def sync(self) -> None:
        refuse(self.path)

    def truncate(self, size: int) -> None:
        refuse(self.path)

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self.path)


def refuse(path: str) -> NoReturn:
    """Raise ReadOnlyError."""
    raise ReadOnlyError(f"{path} is open for reading only")
