"""Reads a file once, hashes it and copies it.

Holes of a sparse file are not read, and are holes in the copy. If the disk fails (EIO), everything around the bad sectors is read. The bad
sectors read as zeros and are listed (`kops.forensics.recover.copies.disk`).
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kops.errors import KopsError
from kops.files import File, OsFiles
from kops.files.read_only import ReadOnlyFile
from kops.forensics.recover.copies.disk import Gone, PatientFile, PatientFiles

WINDOW: Final = 1 << 20
_ZEROS: Final = bytes(WINDOW)
OnBytes = Callable[[int], None]


@dataclass(slots=True)
class Contents:
    """A file as it was read: size, SHA-256, and the unreadable ranges (start, end), which read as zeros."""

    size: int
    sha256: str
    unreadable: list[tuple[int, int]] = field(default_factory=list)


class CaseWriteError(KopsError):
    """The case cannot be written, for instance because the disk is full."""


class DescriptorFile(ReadOnlyFile):
    """A read-only file on an open descriptor."""

    def __init__(self, fd: int, path: str = "") -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        return  # the caller closes the descriptor


def read_contents(source: File, out_fd: int | None = None, on_bytes: OnBytes | None = None) -> Contents:
    """Read a file, hash it, and write it to `out_fd`. The file may grow or shrink meanwhile: it is read up to the
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
        if position < end:  # the file has shrunk
            total = position
            break
    _zeros(digest, total - position, on_bytes)
    if out_fd is not None:
        _write(out_fd, b"", total)
    return Contents(total, digest.hexdigest(), [(start, min(end, total)) for start, end in gone.ranges if start < total])


def _data(source: File, total: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges that are not holes. Without support of the file system, this is the whole file."""
    position = 0
    while position < total:
        try:
            fd = source.fileno()
            start = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole up to the end
                return
            start, end = position, total
        if start >= total:
            return
        yield start, min(end, total)
        position = end


def _zeros(digest: hashlib._Hash, count: int, on_bytes: OnBytes | None) -> None:
    while count > 0:
        size = min(count, WINDOW)
        digest.update(_ZEROS if size == WINDOW else _ZEROS[:size])
        count -= size
        if on_bytes is not None:
            on_bytes(size)


def _write(fd: int, data: bytes, position: int) -> None:
    """Write at a position. Without data, set the size of the file to the position."""
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
