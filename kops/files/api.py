"""The interface to files through which storage and forensics read and write.

Paths are `str`, positions and sizes are in bytes, times in milliseconds since the epoch. Every implementation raises errors of the
operating system as `OSError` with the usual class and errno (`FileNotFoundError`, `NotADirectoryError`, ...). Writing through read-only
files raises `ReadOnlyError`. Torn writes, a full disk and a copy-on-write overlay are other implementations of this interface.
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
    """Something tried to write through read-only files. This is a bug in kops, never a user error."""


class FileStat(NamedTuple):
    """The result of `stat` for a path: size in bytes, last modification (ms, rounded down as in Java), whether it is a directory,
    permission bits, and whether it is a file. A pipe is neither a directory nor a file.
    """

    size: int
    mtime_ms: int
    is_dir: bool
    mode: int
    is_file: bool = True


@mypyc_attr(allow_interpreted_subclasses=True)
class File(ABC):
    """An open file. Every read and write has its own position; there is no shared file pointer."""

    path: str

    @abstractmethod
    def size(self) -> int:
        """The file's current size in bytes."""

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position` into a new object. Returns fewer bytes only at the end of the file."""

    @abstractmethod
    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`. A gap after the old end reads as zeros."""

    @abstractmethod
    def sync(self) -> None:
        """Force the contents and the size to disk (fsync)."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Set the size. New bytes read as zeros."""

    @abstractmethod
    def fileno(self) -> int:
        """Return the descriptor, for sendfile. Raises OSError(ENOTSUP) if there is none."""

    def duplicate(self) -> File:
        """Return another handle of the same file, for a thread. Closing one leaves the other open. Raises OSError(ENOTSUP) if that is not
        possible."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self.path)

    @abstractmethod
    def close(self) -> None:
        """Close the file. A second call does nothing."""

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@mypyc_attr(allow_interpreted_subclasses=True)
class FileView:
    """`size` bytes of a file: the part of the interpreted class `kops.storage.segment_files.file_records.LogView` that compiled code
    reaches."""

    def __init__(self, size: int) -> None:
        self.size = size


@mypyc_attr(allow_interpreted_subclasses=True)
class Lock(ABC):
    """The lock of a log directory, held until `release()` or the end of a `with` block."""

    path: str

    @abstractmethod
    def release(self) -> None:
        """Release the lock. A second call does nothing. The lock file stays, as in Kafka."""

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@mypyc_attr(allow_interpreted_subclasses=True)
class Files(ABC):
    """A tree of files and directories."""

    @abstractmethod
    def absolute(self, path: str) -> str:
        """Return the path's name in this tree: absolute and without `.` and `..`. Symbolic links are not followed."""

    @abstractmethod
    def open(self, path: str, mode: Mode = "r") -> File:
        """Open a file. `r` opens an existing file for reading, `rw` for reading and writing. `create` creates the file if it is missing.
        `new` requires that it does not exist yet."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Force a directory's entries to disk, as Kafka does after a rename."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename atomically. A file replaces a file at `target`, a directory an empty directory."""

    @abstractmethod
    def link(self, source: str, target: str) -> None:
        """Give a file a second name (a hard link), which must not exist yet. Raises OSError (EXDEV, EPERM, ...) if the file system cannot
        do that."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create a directory. Its parent must exist, the directory must not."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether anything exists at `path`."""

    @abstractmethod
    def stat(self, path: str) -> FileStat:
        """Return the size, time and kind of the file at `path`. Symbolic links are followed."""

    @abstractmethod
    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the modification time."""

    @abstractmethod
    def copy_owner(self, source: str, target: str) -> None:
        """Give `target` the permission bits of `source` and, if the process may do that, its owner."""

    @abstractmethod
    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    @abstractmethod
    def lock(self, path: str) -> Lock:
        """Lock the log directory `path` as a broker does, with the file `.lock` in it. Raises LockHeldError if the lock is already held."""

    def preallocate(self, file: File, size: int) -> None:
        """Grow `file` to `size` bytes with zeros, as Kafka does (RandomAccessFile.setLength). Never shrinks it."""
        if file.size() < size:
            file.truncate(size)

    def read_all(self, path: StrPath) -> bytes:
        """Return the contents of the whole file."""
        with self.open(text_of(path)) as file:
            return file.read(0, file.size())

    def write_all(self, path: StrPath, data: bytes) -> None:
        """Replace the file's contents with `data`, in place and without a sync."""
        with self.open(text_of(path), "create") as file:
            file.truncate(0)
            file.write(0, data)

    def write_atomic(self, path: StrPath, data: bytes) -> None:
        """Replace a file as Kafka writes its checkpoints: write `path` + `.tmp`, fsync it, rename it, fsync the directory."""
        path = text_of(path)
        temporary = path + ".tmp"
        with self.open(temporary, "create") as file:
            file.truncate(0)
            file.write(0, data)
            file.sync()
        self.rename(temporary, path)
        self.sync_dir(posixpath.dirname(path) or ".")

    def walk(self, path: StrPath) -> Iterator[str]:
        """Yield the paths of all files below `path`, depth first, sorted by name. Skips dead links and files that have disappeared
        meanwhile."""
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
