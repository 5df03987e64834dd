"""File systems that are only read: whatever would change something raises ReadOnlyError."""

from __future__ import annotations

from typing import NoReturn

from kops.files.api import Files, Lock, ReadOnlyError


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


def refuse(path: str) -> NoReturn:
    """Raise ReadOnlyError."""
    raise ReadOnlyError(f"{path} is open for reading only")
