"""Files of the operating system.

A read is a `pread` into a new `bytes` object. The directory lock is a POSIX record lock (`fcntl.lockf`) on the whole file `.lock`.
java.nio.channels.FileChannel.tryLock takes the same kind of lock (Kafka: org.apache.kafka.server.util.FileLock). A broker would not see a
lock by `flock`.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.errors import LockHeldError
from kops.files.api import LOCK_FILE, File, Files, FileStat, Lock, Mode, ReadOnlyError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from kops.files.api import StrPath

_FLAGS: Final[dict[str, int]] = {
    "r": os.O_RDONLY | os.O_NONBLOCK,  # opening a pipe must not wait for a writer
    "rw": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT,
    "new": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}
# A claimed length above this is checked against the file's size before memory is allocated for it.
_TRUSTED_READ: Final = 4 << 20

# The locks that this process holds, by device and inode. A POSIX record lock does not exclude its own process, and closing any descriptor
# of the file drops it. So `OsFile.close` keeps such descriptors open until the lock is released.
_held: dict[tuple[int, int], OsLock] = {}
_held_guard = _thread.allocate_lock()


class SystemCalls:
    """The function that every write calls. It is looked up once; `os.pwrite` would look it up each time."""

    def __init__(self) -> None:
        self.pwrite: Callable[[int, bytes | bytearray | memoryview, int], int] = os.pwrite


SYSTEM: Final = SystemCalls()


@mypyc_attr(allow_interpreted_subclasses=True)
class OsFile(File):
    """A file descriptor."""

    __slots__ = ("_fd", "_writable", "path")

    def __init__(self, path: StrPath, fd: int, writable: bool) -> None:
        self.path: str = text_of(path)
        self._fd = fd
        self._writable = writable

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        if size > _TRUSTED_READ:
            size = min(size, max(self.size() - position, 0))
        if size <= 0:
            return b""
        try:
            data = os.pread(self._fd, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size:
                data = os.pread(self._fd, size - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
        except OSError as error:
            raise self._named(error) from None
        return b"".join(parts)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if not self._writable:
            self._check_writable()
        try:
            written = SYSTEM.pwrite(self._fd, data, position)
            if type(data) is bytes and written == len(data):
                return
            view = memoryview(data).cast("B")[written:]
            position += written
            while view:
                written = SYSTEM.pwrite(self._fd, view, position)
                view = view[written:]
                position += written
        except OSError as error:
            raise self._named(error) from None

    def sync(self) -> None:
        self._check_writable()
        if self._fd < 0:  # os.fsync would raise ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._named(error) from None

    def truncate(self, size: int) -> None:
        self._check_writable()
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise self._named(error) from None

    def fileno(self) -> int:
        return self._fd

    def duplicate(self) -> OsFile:
        try:
            return OsFile(self.path, os.dup(self._fd), self._writable)
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if _held:
            status = os.fstat(fd)
            with _held_guard:
                holder = _holder(status)
                if holder is not None:
                    holder.keep_open(fd)
                    return
        os.close(fd)

    def _check_writable(self) -> None:
        if not self._writable:
            raise ReadOnlyError(f"{self.path} is open for reading only")

    def _named(self, error: OSError) -> OSError:
        """Return the error with the file's name, which errors of descriptor calls lack."""
        return OSError(error.errno, error.strerror, self.path)


@mypyc_attr(allow_interpreted_subclasses=True)
class OsLock(Lock):
    """A record lock that this process holds."""

    def __init__(self, path: str, fd: int, identity: tuple[int, int]) -> None:
        self.path = path
        # A forked child inherits this object, but not the lock.
        self.pid = os.getpid()
        self._descriptors = [fd]
        self._identity = identity

    def keep_open(self, fd: int) -> None:
        """Keep a descriptor of the lock file open, because closing it would drop the lock."""
        self._descriptors.append(fd)

    def release(self) -> None:
        with _held_guard:
            if _held.get(self._identity) is self:
                del _held[self._identity]
            descriptors, self._descriptors = self._descriptors, []
            for fd in descriptors:
                os.close(fd)


@mypyc_attr(allow_interpreted_subclasses=True)
class OsFiles(Files):
    """The file system. With `read_only`, every method that writes raises `ReadOnlyError`, and files are opened with O_RDONLY.

    Every path may be a `str` or an `os.PathLike[str]`, such as a `pathlib.Path`.
    """

    def __init__(self, *, read_only: bool = False) -> None:
        self.read_only = read_only

    def absolute(self, path: StrPath) -> str:
        path = text_of(path)
        return os.path.abspath(path)

    def open(self, path: StrPath, mode: Mode = "r") -> OsFile:
        path = text_of(path)
        if mode != "r":
            self._check_writable(path)
        fd = os.open(path, _FLAGS[mode] | os.O_CLOEXEC, 0o666)
        if mode == "r":
            kind = os.fstat(fd).st_mode
            if stat.S_ISDIR(kind) or stat.S_ISFIFO(kind):
                os.close(fd)
                if stat.S_ISDIR(kind):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
                raise OSError(errno.ESPIPE, "Is a pipe, not a file", path)
        return OsFile(path, fd, mode != "r")

    def sync_dir(self, path: StrPath) -> None:
        path = text_of(path)
        self._check_writable(path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: StrPath, target: StrPath) -> None:
        source, target = text_of(source), text_of(target)
        self._check_writable(source)
        os.rename(source, target)

    def link(self, source: StrPath, target: StrPath) -> None:
        source, target = text_of(source), text_of(target)
        self._check_writable(target)
        # Link the file itself, not a symlink to it, which would point elsewhere from its new place.
        os.link(os.path.realpath(source), target)

    def unlink(self, path: StrPath) -> None:
        path = text_of(path)
        self._check_writable(path)
        os.unlink(path)

    def rmdir(self, path: StrPath) -> None:
        path = text_of(path)
        self._check_writable(path)
        os.rmdir(path)

    def mkdir(self, path: StrPath) -> None:
        path = text_of(path)
        self._check_writable(path)
        os.mkdir(path)

    def exists(self, path: StrPath) -> bool:
        path = text_of(path)
        return os.path.exists(path)

    def stat(self, path: StrPath) -> FileStat:
        path = text_of(path)
        status = os.stat(path)
        mode = status.st_mode
        return FileStat(status.st_size, status.st_mtime_ns // 1_000_000, stat.S_ISDIR(mode), stat.S_IMODE(mode), stat.S_ISREG(mode))

    def set_mtime(self, path: StrPath, mtime_ms: int) -> None:
        path = text_of(path)
        self._check_writable(path)
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def copy_owner(self, source: StrPath, target: StrPath) -> None:
        source, target = text_of(source), text_of(target)
        self._check_writable(target)
        wanted, is_now = os.stat(source), os.stat(target)
        if (wanted.st_uid, wanted.st_gid) != (is_now.st_uid, is_now.st_gid):
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(target, wanted.st_uid, wanted.st_gid)
        os.chmod(target, stat.S_IMODE(wanted.st_mode))

    def set_mode(self, path: StrPath, mode: int) -> None:
        path = text_of(path)
        self._check_writable(path)
        os.chmod(path, mode)

    def list(self, path: StrPath) -> list[str]:
        path = text_of(path)
        return sorted(os.listdir(path))

    def lock(self, path: StrPath) -> Lock:
        import fcntl

        path = text_of(path)
        self._check_writable(path)
        name = os.path.join(path, LOCK_FILE)
        with _held_guard:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            status = os.fstat(fd)
            holder = _holder(status)
            if holder is not None:
                holder.keep_open(fd)
                _raise_held(path, holder.pid)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                pid = _lock_owner(fd)
                os.close(fd)
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                _raise_held(path, pid)
            identity = (status.st_dev, status.st_ino)
            lock = _held[identity] = OsLock(name, fd, identity)
        return lock

    def lock_owner(self, path: StrPath) -> int | None:
        """Return the id of the process that holds the lock of the log directory `path`, or None if it is free. Takes no lock, and works
        with `read_only`.

        The id is 0 if the system does not report it because the holder is on another host or in another namespace.
        """
        try:
            file = self.open(os.path.join(text_of(path), LOCK_FILE))
        except FileNotFoundError:
            return None
        with file:
            holder = _holder(os.fstat(file.fileno()))
            return _lock_owner(file.fileno()) if holder is None else holder.pid

    def _check_writable(self, path: str) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{path}: opened for reading only")


def _holder(status: os.stat_result) -> OsLock | None:
    """Return the lock that this process holds on a file."""
    lock = _held.get((status.st_dev, status.st_ino))
    return lock if lock is not None and lock.pid == os.getpid() else None


def _raise_held(path: str, pid: int | None) -> NoReturn:
    owner = f" (process {pid})" if pid else ""
    raise LockHeldError(f"{path}: the lock file {LOCK_FILE} is held by another process or thread{owner}; stop the broker first")


def _lock_owner(fd: int) -> int | None:
    """Return the process that holds an exclusive lock on the file, according to F_GETLK."""
    import fcntl
    import struct

    # struct flock: type, whence, start, length, pid on 64-bit Linux; start, length, pid, type, whence on macOS.
    if sys.platform == "darwin":
        layout = "qqihh"
        request = struct.pack(layout, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, pid, kind, _ = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, request))
    else:
        layout = "hhqqi4x"
        request = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else max(int(pid), 0)
