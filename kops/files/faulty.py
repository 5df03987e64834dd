"""Files that fail on purpose, for tests of the states that an interruption leaves.

Operations that change something are counted from 1 in the order of their calls: open that creates, write, truncate, sync, sync_dir, rename,
link, unlink, rmdir, mkdir, set_mtime, copy_owner, set_mode. One of them can be made to fail (ENOSPC, EIO, ...), to write only some bytes
and then fail, or to crash. After a crash, this operation and all later ones raise `Crash`, so nothing more reaches the disk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kops.files.api import File, Files, FileStat, Lock, Mode

if TYPE_CHECKING:
    from collections.abc import Callable


class Crash(BaseException):
    """The process died here. No `except Exception` catches this, and clean-up code that touches files raises it again."""


class FaultyFiles(Files):
    """`base`, except that operation number `at` fails.

    It fails with the errno `error` before it does anything, or crashes if `error` is None. With `torn`, a write first writes this many
    bytes. `operations` lists the operations that were done or tried, so a first run without a fault (`at=0`) shows how many there are.
    """

    def __init__(self, base: Files, *, at: int = 0, error: int | None = None, torn: int | None = None) -> None:
        self.base = base
        self.at = at
        self.error = error
        self.torn = torn
        self.crashed = False
        self.operations: list[str] = []

    def step(self, what: str, part: Callable[[int], None] | None = None) -> None:
        """Count one operation, and fail if it is number `at`. `part` writes the given number of bytes of a torn write."""
        self.check_alive()
        self.operations.append(what)
        if len(self.operations) != self.at:
            return
        if part is not None and self.torn is not None:
            part(self.torn)
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error), what)
        self.crashed = True
        raise Crash(what)

    def check_alive(self) -> None:
        """Raise `Crash` if the process has crashed."""
        if self.crashed:
            raise Crash("after the crash")

    def absolute(self, path: str) -> str:
        return self.base.absolute(path)

    def open(self, path: str, mode: Mode = "r") -> File:
        self.check_alive()
        if mode == "new" or (mode == "create" and not self.base.exists(path)):
            self.step(f"create {path}")
        return _FaultyFile(self, self.base.open(path, mode))

    def sync_dir(self, path: str) -> None:
        self.step(f"sync_dir {path}")
        self.base.sync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.step(f"rename {source} {target}")
        self.base.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.step(f"link {source} {target}")
        self.base.link(source, target)

    def unlink(self, path: str) -> None:
        self.step(f"unlink {path}")
        self.base.unlink(path)

    def rmdir(self, path: str) -> None:
        self.step(f"rmdir {path}")
        self.base.rmdir(path)

    def mkdir(self, path: str) -> None:
        self.step(f"mkdir {path}")
        self.base.mkdir(path)

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self.base.exists(path)

    def stat(self, path: str) -> FileStat:
        self.check_alive()
        return self.base.stat(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self.step(f"set_mtime {path}")
        self.base.set_mtime(path, mtime_ms)

    def copy_owner(self, source: str, target: str) -> None:
        self.step(f"copy_owner {source} {target}")
        self.base.copy_owner(source, target)

    def set_mode(self, path: str, mode: int) -> None:
        self.step(f"set_mode {path}")
        self.base.set_mode(path, mode)

    def list(self, path: str) -> list[str]:
        self.check_alive()
        return self.base.list(path)

    def lock(self, path: str) -> Lock:
        self.check_alive()
        return self.base.lock(path)


class _FaultyFile(File):
    __slots__ = ("_base", "_files", "path")

    def __init__(self, files: FaultyFiles, base: File) -> None:
        self._files = files
        self._base = base
        self.path = base.path

    def size(self) -> int:
        self._files.check_alive()
        return self._base.size()

    def read(self, position: int, size: int) -> bytes:
        self._files.check_alive()
        return self._base.read(position, size)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._files.step(f"write {self.path} {position} {len(view)}", lambda size: self._base.write(position, view[:size]))
        self._base.write(position, view)

    def duplicate(self) -> File:
        return _FaultyFile(self._files, self._base.duplicate())

    def sync(self) -> None:
        self._files.step(f"sync {self.path}")
        self._base.sync()

    def truncate(self, size: int) -> None:
        self._files.step(f"truncate {self.path} {size}")
        self._base.truncate(size)

    def fileno(self) -> int:
        self._files.check_alive()
        return self._base.fileno()

    def close(self) -> None:
        # This works even after a crash, because a dying process closes its descriptors.
        self._base.close()
