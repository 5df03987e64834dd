"""The transaction index (`.txnindex`): the aborted transactions whose abort marker is in the segment (Kafka TransactionIndex).

An entry has 34 bytes, big-endian: version int16 (0), then producer id, first offset, last offset and last stable offset, each int64. The
file is not preallocated, and it exists only if something was written. The first part of this module reads and writes the bytes of a file.
The class at the end is the file that a broker has open.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import DecodeError
from kops.storage.failures.load_errors import KAFKA_EXCEPTION, CorruptIndexError, LoadError, illegal_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kops.files import File, Files

ENTRY_SIZE: Final = 34
CURRENT_VERSION: Final = 0
_ENTRY = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """An aborted transaction: its producer, its first data offset, its marker's offset, and the last stable offset at the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    stored_version: int = CURRENT_VERSION

    @property
    def version(self) -> int:
        """The version as Kafka reads it: the first of its two bytes."""
        return self.stored_version >> 8


def read_transaction_index(data: bytes, *, file: str | None = None) -> list[AbortedTxn]:
    """Return the entries. As in Kafka, an incomplete entry at the end is ignored.

    Raises DecodeError (`transaction-index-version`) where Kafka throws KafkaException. Kafka checks only the first byte of the version, so
    the version is unknown only if that byte is 1 to 127.
    """
    return list(iter_transaction_index(data, file=file))


def iter_transaction_index(data: bytes, *, file: str | None = None) -> Iterator[AbortedTxn]:
    """Yield the entries of `read_transaction_index` one by one. As in Kafka, a bad entry raises only after the entries before it."""
    whole = len(data) - len(data) % ENTRY_SIZE
    for slot, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(memoryview(data)[:whole])):
        if version >> 8 > CURRENT_VERSION:
            reason = f"version {version >> 8} of an aborted transaction is unknown, the current one is {CURRENT_VERSION}"
            raise DecodeError(reason, code="transaction-index-version", position=slot * ENTRY_SIZE, file=file)
        yield AbortedTxn(producer_id, first, last, stable, version)


def check_transaction_index(entries: Iterable[AbortedTxn], base_offset: int, *, file: str | None = None) -> None:
    """Raise DecodeError (`corrupt-transaction-index`) where TransactionIndex.sanityCheck throws CorruptIndexException."""
    for slot, entry in enumerate(entries):
        if entry.last_offset < base_offset:
            reason = f"the last offset {entry.last_offset} of an aborted transaction is less than the base offset {base_offset}"
            raise DecodeError(reason, code="corrupt-transaction-index", position=slot * ENTRY_SIZE, file=file)


def write_transaction_index(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the file's bytes."""
    return b"".join(_ENTRY.pack(e.stored_version, e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset) for e in entries)


def collect_aborted_txns(entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
    """Return the transactions that overlap a fetch of [fetch_offset, upper_bound_offset), and whether the search can stop before later
    segments.
    """
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False


class TransactionIndex:
    """The open file. As in Kafka, `last_offset` is that of the last entry appended since the file was opened."""

    def __init__(self, files: Files, path: str, start_offset: int) -> None:
        self.files = files
        self.path = path
        self.start_offset = start_offset
        self.last_offset: int | None = None
        self._file: File | None = files.open(path, "rw") if files.exists(path) else None
        self._position = self._file.size() if self._file else 0

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry. A last offset that does not increase is an illegal argument."""
        if self.last_offset is not None and self.last_offset >= txn.last_offset:
            illegal_argument(
                f"The last offset of appended transactions must increase sequentially, but {txn.last_offset} is not greater than current"
                f" last offset {self.last_offset} of index {self.path}"
            )
        self.last_offset = txn.last_offset
        if self._file is None:
            self._file = self.files.open(self.path, "create")
            self._position = self._file.size()
        data = write_transaction_index([txn])
        self._file.write(self._position, data)
        self._position += len(data)

    def entries(self) -> Iterator[AbortedTxn]:
        """Yield the whole entries. Raises `LoadError` for an unknown version."""
        data = self._file.read(0, self._position) if self._file is not None else b""
        try:
            yield from iter_transaction_index(data, file=self.path)
        except DecodeError as error:
            raise LoadError(str(error), exception=KAFKA_EXCEPTION) from error

    def sanity_check(self) -> None:
        """Check the entries in order.

        Raises CorruptIndexError if an entry ends before the segment begins, and `LoadError` for an unknown version, whichever comes first.
        """
        try:
            check_transaction_index(self.entries(), self.start_offset, file=self.path)
        except DecodeError as error:
            raise CorruptIndexError(str(error)) from error

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from the first one that ends at or after `offset`."""
        last: int | None = None
        for slot, txn in enumerate(self.entries()):
            if txn.last_offset >= offset:
                self._cut(slot * ENTRY_SIZE)
                self.last_offset = last
                return
            last = txn.last_offset

    def reset(self) -> None:
        """Remove all entries. The empty file stays."""
        self._cut(0)
        self.last_offset = None

    def _cut(self, position: int) -> None:
        if self._file is not None:
            self._file.truncate(position)
            self._position = min(self._position, position)

    def rename_to(self, path: str) -> None:
        """Rename the file if it exists."""
        if self.files.exists(self.path):
            self.files.rename(self.path, path)
        self.path = path

    def flush(self) -> None:
        """Sync the file to the disk."""
        if self._file is not None:
            self._file.sync()

    def begin_flush(self) -> File | None:
        """Return a handle with which the caller syncs the file, or None if there is no file."""
        return None if self._file is None else self._file.duplicate()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
