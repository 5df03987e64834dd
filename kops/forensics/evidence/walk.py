"""Lists a directory tree. Follows no links, and opens only directories and regular files.

Each directory is opened relative to its parent and without following symbolic links, so a name that is replaced by a link meanwhile leads
nowhere. Files are opened only if they are regular, also without following links.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_QUIET: Final = getattr(os, "O_NOATIME", 0)

Parts = tuple[bytes, ...]

KINDS: Final = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISLNK, "symlink"),
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character-device"),
    (stat.S_ISBLK, "block-device"),
)


@dataclass(slots=True)
class Seen:
    """An entry of a directory: its path below the root, its status, and the target of a link. `error`: why it could not be inspected."""

    parts: Parts
    status: os.stat_result | None
    target: bytes | None = None
    error: str | None = None

    @property
    def kind(self) -> str:
        """The type: `file`, `directory`, `symlink` and so on, or `unknown` if its status could not be read."""
        if self.status is None:
            return "unknown"
        mode = self.status.st_mode
        return next((name for is_kind, name in KINDS if is_kind(mode)), "unknown")


@dataclass(slots=True)
class Tree:
    """A directory tree, held by descriptors. Close it, or use it in a `with` block."""

    path: bytes
    root: int = field(init=False)
    _last: tuple[Parts, int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.root = _open(self.path, _DIRECTORY, None)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all descriptors."""
        self._forget()
        os.close(self.root)

    def _forget(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def _directory(self, parts: Parts) -> int:
        """Return the descriptor of a directory below the root. The next call closes it."""
        if not parts:
            return self.root
        if self._last is not None and self._last[0] == parts:
            return self._last[1]
        here = self.root
        for number, part in enumerate(parts):
            try:
                following = _open(part, _DIRECTORY, here)
            finally:
                if number:
                    os.close(here)
            here = following
        self._forget()
        self._last = (parts, here)
        return here

    def walk(self) -> Iterator[Seen]:
        """Yield the root, which has no parts, and everything below it, sorted by name, each directory before its contents."""
        waiting: list[Seen] = [Seen((), os.fstat(self.root))]
        while waiting:
            seen = waiting.pop()
            below: list[Seen] = []
            if seen.kind == "directory":
                try:
                    fd = self._directory(seen.parts)
                    below = [self._look(fd, (*seen.parts, os.fsencode(name))) for name in sorted(os.listdir(fd), key=os.fsencode)]
                except OSError as error:
                    seen.error = _reason(error)
            yield seen
            waiting.extend(reversed(below))

    def look(self, parts: Parts) -> Seen:
        """Return the entry of a path below the root. Raises FileNotFoundError."""
        if not parts:
            return Seen((), os.fstat(self.root))
        seen = self._look(self._directory(parts[:-1]), parts)
        if seen.status is None and seen.error == os.strerror(errno.ENOENT):
            raise FileNotFoundError(errno.ENOENT, seen.error, os.path.join(self.path, *parts))
        return seen

    def _look(self, fd: int, parts: Parts) -> Seen:
        try:
            status = os.stat(parts[-1], dir_fd=fd, follow_symlinks=False)
            target = os.readlink(parts[-1], dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            return Seen(parts, None, error=_reason(error))
        return Seen(parts, status, target)

    def link(self, parts: Parts, target: bytes) -> None:
        """Give a file the name `target` as well. Raises OSError."""
        os.link(parts[-1], target, src_dir_fd=self._directory(parts[:-1]), follow_symlinks=False)

    def open(self, parts: Parts) -> int:
        """Open a regular file for reading, and return its descriptor. Raises OSError, also for other types."""
        fd = _open(parts[-1], _FILE, self._directory(parts[:-1]))
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", os.path.join(self.path, *parts))
        return fd


def _open(name: bytes, flags: int, above: int | None) -> int:
    """Open. If the system allows it, the time of the last access does not change."""
    try:
        return os.open(name, flags | _QUIET, dir_fd=above)
    except PermissionError:
        return os.open(name, flags, dir_fd=above)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
