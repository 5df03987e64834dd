"""The names and paths of a segment's files, as the loader builds and reads them (Kafka LogFileUtils)."""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING

from kops.config.values.java import NumberFormatError
from kops.errors import DecodeError
from kops.storage.failures.load_errors import NUMBER_FORMAT, LoadError
from kops.storage.formats.names import offset_digits, offset_from_file_name

if TYPE_CHECKING:
    from kops.files import Files, FileStat

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"


def segment_path(directory: str, base_offset: int, kind: str, suffix: str = "") -> str:
    """Return the path of a segment's file."""
    return posixpath.join(directory, f"{offset_digits(base_offset)}{kind}{suffix}")


def is_file(files: Files, path: str) -> bool:
    """Whether the path is a file, as java.io.File.isFile answers: false for a symlink to nothing or to itself."""
    found = _stat(files, path)
    return found is not None and found.is_file


def is_directory(files: Files, path: str) -> bool:
    """Whether the path is a directory, as java.io.File.isDirectory answers: false for a symlink to nothing or to itself."""
    found = _stat(files, path)
    return found is not None and found.is_dir


def _stat(files: Files, path: str) -> FileStat | None:
    try:
        return files.stat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return None


def offset_from_file(name: str) -> int:
    """Return the offset before the first dot. Raises the exception that Java throws if there is none."""
    try:
        return offset_from_file_name(name)
    except DecodeError as error:
        if isinstance(error.__cause__, NumberFormatError):
            words = f"the name of the file {name} does not begin with an offset"
            raise LoadError(str(error.__cause__), exception=NUMBER_FORMAT, words=words) from error
        reason = f"begin 0, end -1, length {len(name)}"
        words = f"the name of the file {name} has no dot after an offset"
        raise LoadError(reason, exception="java.lang.StringIndexOutOfBoundsException", words=words) from error
