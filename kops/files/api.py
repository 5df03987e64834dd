"""The one interface to files: what storage and forensics read and write through.

Paths are `str`, positions and sizes are bytes, times are milliseconds since the epoch. An error of the operating system is an `OSError`
with its usual class and errno in every implementation (`FileNotFoundError`, `NotADirectoryError`, ...); writing through read-only files is
`ReadOnlyError`.
A torn write, a full disk or a copy-on-write overlay is another implementation of the same interface.
"""

from __future__ import annotations

import errno
import os
import posixpath
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

from mypy_extensions import mypyc_attr

from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    StrPath = str | os.PathLike[str]

Mode = Literal["r", "rw", "create", "new"]
LOCK_FILE = ".lock"


def text_of(path: StrPath) -> str:
    """A path as text, for system calls and messages."""
    return path if isinstance(path, str) else os.fspath(path)


class ReadOnlyError(KopsError):
    """Something tried to write through files that were opened for reading only: a bug of kops, never an error of the user."""


class FileStat(NamedTuple):
    """What `stat` returns for a path: bytes, last modification (ms, rounded down as Java does), directory or not, permission bits, and
    whether it is a file (a pipe is neither).
    """

    size: int
    mtime_ms: int
    is_dir: bool
    mode: int
    is_file: bool = True


@mypyc_attr(allow_interpreted_subclasses=True)
class File(ABC):
    """An open file. Reads and writes name their position; there is no shared file pointer."""

    path: str

    @abstractmethod
    def size(self) -> int:
        """The file's size now, in bytes."""

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Fresh bytes from `position`; fewer than `size` only where the file ends."""

    @abstractmethod
    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`; a gap behind the old end reads as zeros."""

    @abstractmethod
    def sync(self) -> None:
        """Force contents and size to the disk (fsync)."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Set the size; what is new reads as zeros."""

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor, for sendfile; OSError(ENOTSUP) where there is none."""

    def duplicate(self) -> File:
        """Another handle of the same file, for a thread: closing one leaves the other open. OSError(ENOTSUP) where there is none."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self.path)

    @abstractmethod
    def close(self) -> None:
        """Close; a second call does nothing."""

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@mypyc_attr(allow_interpreted_subclasses=True)
class FileView:
    """Bytes of a file, `size` of them: what compiled code reaches of a class that is interpreted
    (`kops.storage.segment_files.file_records.LogView`)."""

    def __init__(self, size: int) -> None:
        self.size = size


@mypyc_attr(allow_interpreted_subclasses=True)
class Lock(ABC):
    """A held lock of a log directory; released by `release()` or at the end of a `with` block."""

    path: str

    @abstractmethod
    def release(self) -> None:
        """Release the lock; a second call does nothing. The lock file stays, as in Kafka."""

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@mypyc_attr(allow_interpreted_subclasses=True)
class Files(ABC):
    """A tree of files and directories."""

    @abstractmethod
    def absolute(self, path: str) -> str:
        """The path as this tree names it: absolute and without `.` and `..` (symbolic links are not followed)."""

    @abstractmethod
    def open(self, path: str, mode: Mode = "r") -> File:
        """Open a file: `r` for reading, `rw` for both (it must exist), `create` made empty if absent, `new` must not exist yet."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Force a directory's entries to the disk, as Kafka does after a rename."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Atomic rename; a file at `target` is replaced, an empty directory there by a directory."""

    @abstractmethod
    def link(self, source: str, target: str) -> None:
        """Give a file a second name (a hard link), which must not exist yet; OSError where the file system cannot (EXDEV, EPERM, ...)."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Make a directory; its parent must exist, it must not."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is anything at `path`."""

    @abstractmethod
    def stat(self, path: str) -> FileStat:
        """Size, time and kind of what is at `path`, symbolic links followed."""

    @abstractmethod
    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the time of the last modification."""

    @abstractmethod
    def copy_owner(self, source: str, target: str) -> None:
        """Give `target` the permission bits of `source` and, where this process may, its owner."""

    @abstractmethod
    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def lock(self, path: str) -> Lock:
        """Take the lock of the log directory `path` as a broker does, on the file `.lock` in it; LockHeldError if another holds it."""

    def preallocate(self, file: File, size: int) -> None:
        """Grow `file` to `size` zero-filled bytes as Kafka does (RandomAccessFile.setLength); never shrinks it."""
        if file.size() < size:
            file.truncate(size)

    def read_all(self, path: StrPath) -> bytes:
        """The whole file."""
        with self.open(text_of(path)) as file:
            return file.read(0, file.size())

    def write_all(self, path: StrPath, data: bytes) -> None:
        """Make the file hold exactly `data` (in place, not synced)."""
        with self.open(text_of(path), "create") as file:
            file.truncate(0)
            file.write(0, data)

    def write_atomic(self, path: StrPath, data: bytes) -> None:
        """Replace a file the way Kafka writes its checkpoints: `path` + `.tmp`, fsync, rename, fsync of the directory."""
        path = text_of(path)
        temporary = path + ".tmp"
        with self.open(temporary, "create") as file:
            file.truncate(0)
            file.write(0, data)
            file.sync()
        self.rename(temporary, path)
        self.sync_dir(posixpath.dirname(path) or ".")

    def walk(self, path: StrPath) -> Iterator[str]:
        """The paths of all files below `path`, depth first, names sorted; files that are gone by then, and dead links, are skipped."""
        path = text_of(path)
        for name in self.list(path):
            child = posixpath.join(path, name)
            try:
                is_dir = self.stat(child).is_dir
            except FileNotFoundError:
                continue
            if is_dir:
                yield from self.walk(child)
            else:
                yield child
