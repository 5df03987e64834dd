"""The contents of a file: hashed, and copied in the same read.

Holes of a sparse file are not read, and are holes in the copy. Where the disk fails (EIO) everything around the bad place is read. The
place itself reads as zeros and is listed (`kops.forensics.recover.copies.disk`).
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kops.errors import KopsError
from kops.files import File, OsFiles, ReadOnlyError
from kops.forensics.recover.copies.disk import Gone, PatientFile, PatientFiles

WINDOW: Final = 1 << 20
_ZEROS: Final = bytes(WINDOW)


@dataclass(slots=True)
class Contents:
    """What was read of a file: its size, its SHA-256, and the ranges (start, end) that could not be read and count as zeros."""

    size: int
    sha256: str
    unreadable: list[tuple[int, int]] = field(default_factory=list)


class CaseWriteError(KopsError):
    """The case cannot be written: the disk is full or fails."""


class DescriptorFile(File):
    """A file by its descriptor, for reading only."""

    def __init__(self, fd: int, path: str = "") -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        raise ReadOnlyError(f"{self.path} is open for reading only")

    def sync(self) -> None:
        raise ReadOnlyError(f"{self.path} is open for reading only")

    def truncate(self, size: int) -> None:
        raise ReadOnlyError(f"{self.path} is open for reading only")

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        return  # the descriptor belongs to the caller


def read_contents(source: File, out_fd: int | None = None, on_bytes: Callable[[int], None] | None = None) -> Contents:
    """Read a file as it is now to its end, hash it, and write it to `out_fd`. The file may grow or shrink meanwhile: it is read up to the
    size that it had at first, or to its end if that comes earlier. Raises OSError, except for EIO.
    """
    total = source.size()
    gone = Gone()
    patient = PatientFile(PatientFiles(OsFiles(read_only=True)), source, gone)
    digest = hashlib.sha256()
    position = 0
    for start, end in _data(source, total):
        _zeros(digest, start - position, on_bytes)
        position = start
        while position < end:
            data = patient.read(position, min(WINDOW, end - position))
            if not data:
                break
            digest.update(data)
            if out_fd is not None:
                _write(out_fd, data, position)
            position += len(data)
            if on_bytes is not None:
                on_bytes(len(data))
        if position < end:  # it became shorter
            total = position
            break
    _zeros(digest, total - position, on_bytes)
    if out_fd is not None:
        _write(out_fd, b"", total)
    return Contents(total, digest.hexdigest(), [(start, min(end, total)) for start, end in gone.ranges if start < total])


def _data(source: File, total: int) -> Iterator[tuple[int, int]]:
    """The ranges that are not holes. A file system that knows no holes has one."""
    position = 0
    while position < total:
        try:
            fd = source.fileno()
            start = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            start, end = position, total
        if start >= total:
            return
        yield start, min(end, total)
        position = end


def _zeros(digest: hashlib._Hash, count: int, on_bytes: Callable[[int], None] | None) -> None:
    while count > 0:
        size = min(count, WINDOW)
        digest.update(_ZEROS if size == WINDOW else _ZEROS[:size])
        count -= size
        if on_bytes is not None:
            on_bytes(size)


def _write(fd: int, data: bytes, position: int) -> None:
    """Write at a position; without data, end the file there."""
    view = memoryview(data)
    try:
        if not view:
            os.ftruncate(fd, position)
        while view:
            written = os.pwrite(fd, view, position)
            view = view[written:]
            position += written
    except OSError as error:
        raise CaseWriteError(f"the case cannot be written: {error.strerror}") from error
