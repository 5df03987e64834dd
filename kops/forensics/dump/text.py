"""Shared code of the Kafka-style dump: flags, the destination of text, and Java's treatment of paths, sums and hash maps."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kops.config.values.java import NumberFormatError, parse_long, to_int, to_long
from kops.config.values.java_hash import hash_map_order
from kops.errors import DecodeError
from kops.files import File
from kops.forensics.dump.decoders import Decoder
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.dump.messages import RecordParser
from kops.records import Batch
from kops.records.scanning.source import ByteSource

INT_MAX: Final = 0x7FFFFFFF
DEFAULT_MAX_MESSAGE_SIZE: Final = 5 * 1024 * 1024
WINDOW: Final = 1 << 20
MOST_AT_ONCE: Final = 1 << 25
"""The most bytes of one batch in memory: a wrong length may claim the rest of the file."""
KNOWN_SUFFIXES: Final = (".log", ".checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex")
# Names for the Java behaviour that the dump needs.
wrap_long = to_long
wrap_int = to_int
java_hash_order = hash_map_order


MAX_RECORD_BYTES: Final = 128 * 1024 * 1024
"""The default of `--max-record-bytes`: the largest record to show of a batch that decompresses to more than 4 MiB."""


def with_option(error: DecodeError) -> str:
    """The error's reason and, if a record is too large to be shown, the option that allows larger ones."""
    return f"{error.reason}; --max-record-bytes allows larger records" if error.code == "too-large" else error.reason


@dataclass(slots=True)
class DumpOptions:
    """The flags of Kafka's tool, with its names. A decoder is None for strings; `parser` decodes whole records instead.

    Two options are kops's own: `filter` leaves out batches and records, and `max_record_bytes` is the largest record to show.
    """

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int = INT_MAX
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    max_record_bytes: int = MAX_RECORD_BYTES
    key_decoder: Decoder | None = None
    value_decoder: Decoder | None = None
    filter: RecordFilter | None = None
    parser: RecordParser | None = None

    @property
    def deep(self) -> bool:
        """Whether records are read."""
        return self.deep_iteration or self.print_data_log

    @property
    def decodes(self) -> bool:
        """Whether keys and values are anything but strings."""
        return self.parser is not None or self.key_decoder is not None or self.value_decoder is not None


@dataclass(slots=True)
class DumpProblem:
    """A problem of a file: the place, and a sentence. `ends_kafka`: Kafka's tool ends here with an exception."""

    path: str
    position: int | None
    reason: str
    ends_kafka: bool = False
    failed: bool = False

    def __str__(self) -> str:
        where = self.path if self.position is None else f"{self.path}:{self.position}"
        return f"{where}: {self.reason}"


@dataclass(slots=True)
class DumpText:
    """Where the text goes: `out` takes bytes for stdout, `err` bytes for stderr (whole lines); `problems` collects the problems.

    `on_read` gets the number of log bytes that were read, for a progress bar.
    """

    out: Callable[[bytes], object]
    err: Callable[[bytes], object]
    problems: list[DumpProblem] = field(default_factory=list)
    on_read: Callable[[int], object] | None = None


class WatchedFile:
    """A file with the size that it had when it was opened. It notices a truncation.

    A read beyond the new end is short, so the remaining part is still shown. Then `check` reports the truncation.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.size()
        self.end: int | None = None
        """The end after a truncation."""

    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._size

    def read(self, position: int, size: int) -> bytes:
        """Bytes from `position`, short at the end."""
        data = self._file.read(position, size)
        if len(data) < min(size, self._size - position):
            end = position + len(data) if data else self._file.size()
            self.end = end if self.end is None else min(self.end, end)
        return data

    def check(self) -> None:
        """Raise OSError if the file became shorter."""
        if self.end is not None:
            words = f"the file became shorter while it was read: {self.end} bytes are left of {self._size}"
            raise OSError(errno.EIO, words, self._file.path)


class WindowSource:
    """A file read in windows, so that the small reads of a walk over batches don't each become a system call.

    No read returns more than `MOST_AT_ONCE` bytes. `on_read` gets the number of bytes read since the last call.
    """

    def __init__(self, file: ByteSource, on_read: Callable[[int], object] | None = None) -> None:
        self._file = file
        self._on_read = on_read
        self._window = b""
        self._start = 0
        self._end = 0

    def size(self) -> int:
        """Bytes of the file."""
        return self._file.size()

    def read(self, position: int, size: int) -> bytes:
        """Bytes from `position`, short at the end."""
        start = position - self._start
        if start < 0 or start + size > len(self._window):
            if size >= WINDOW:
                return self._file.read(position, min(size, MOST_AT_ONCE))
            self._window = self._file.read(position, WINDOW)
            self._start = position
            start = 0
            end = position + len(self._window)
            if self._on_read is not None and end > self._end:
                self._on_read(end - self._end)
                self._end = end
        return self._window[start : start + size]


def java_path(path: str) -> str:
    """A path as `java.io.File` prints it: no doubled and no trailing slashes."""
    out = path
    while "//" in out:
        out = out.replace("//", "/")
    return out[:-1] if len(out) > 1 and out.endswith("/") else out


def base_offset_of(path: str) -> int:
    """The number in front of the first dot of the file's name. DecodeError if Kafka throws NumberFormatException."""
    name = os.path.basename(path)
    try:
        return parse_long(name.split(".")[0])
    except NumberFormatError as error:
        raise DecodeError(f"the file's name does not begin with an offset: {error}", code="file-name", file=path) from None


def last_sequence(batch: Batch) -> int:
    """`DefaultRecordBatch.lastSequence`, with the overflows of Java's 32-bit sums."""
    sequence, increment = batch.base_sequence, wrap_int(batch.last_offset - batch.base_offset)
    if sequence == -1:
        return -1
    if sequence > wrap_int(INT_MAX - increment):
        return wrap_int(increment - (INT_MAX - sequence) - 1)
    return wrap_int(sequence + increment)


def absolute_path(path: str) -> str:
    """`File.getAbsolutePath`: the working directory in front, nothing resolved."""
    return path if path.startswith("/") else java_path(f"{os.getcwd()}/{path}")
