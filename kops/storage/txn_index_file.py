"""A segment's `.txnindex` as a broker holds it: aborted transactions, appended at the end, never preallocated (Kafka TransactionIndex).

The entries' format is `kops.storage.transaction_index`'s. The file exists only once a transaction was aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.errors import DecodeError
from kops.storage.load_errors import KAFKA_EXCEPTION, CorruptIndexError, LoadError, illegal_argument
from kops.storage.transaction_index import (
    ENTRY_SIZE,
    AbortedTxn,
    check_transaction_index,
    read_transaction_index,
    write_transaction_index,
)

if TYPE_CHECKING:
    from kops.files import File, Files


class TransactionIndex:
    """The entries in the file; `last_offset` is that of the last entry appended since it was opened, as in Kafka."""

    def __init__(self, files: Files, path: str, start_offset: int) -> None:
        self.files = files
        self.path = path
        self.start_offset = start_offset
        self.last_offset: int | None = None
        self._file: File | None = files.open(path, "rw") if files.exists(path) else None
        self._position = self._file.size() if self._file else 0

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry; an illegal argument where its last offset does not increase."""
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

    def entries(self) -> list[AbortedTxn]:
        """The whole entries; a `LoadError` where a version is unknown."""
        if self._file is None:
            return []
        try:
            return read_transaction_index(self._file.read(0, self._position), file=self.path)
        except DecodeError as error:
            raise LoadError(str(error), exception=KAFKA_EXCEPTION) from error

    def sanity_check(self) -> None:
        """CorruptIndexError where an entry ends before the segment begins; a `LoadError` where a version is unknown.

        Entries are checked one after the other, so what comes first decides.
        """
        try:
            entries = self.entries()
        except LoadError:
            entries = self._entries_before_error()
            self._check(entries)
            raise
        self._check(entries)

    def _entries_before_error(self) -> list[AbortedTxn]:
        data = self._file.read(0, self._position) if self._file is not None else b""
        entries: list[AbortedTxn] = []
        for position in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
            try:
                entries += read_transaction_index(data[position : position + ENTRY_SIZE])
            except DecodeError:
                break
        return entries

    def _check(self, entries: list[AbortedTxn]) -> None:
        try:
            check_transaction_index(entries, self.start_offset, file=self.path)
        except DecodeError as error:
            raise CorruptIndexError(str(error)) from error

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from the first one that ends at or behind `offset`."""
        last: int | None = None
        for slot, txn in enumerate(self.entries()):
            if txn.last_offset >= offset:
                self._cut(slot * ENTRY_SIZE)
                self.last_offset = last
                return
            last = txn.last_offset

    def reset(self) -> None:
        """Forget all entries; the empty file stays."""
        self._cut(0)
        self.last_offset = None

    def _cut(self, position: int) -> None:
        if self._file is not None:
            self._file.truncate(position)
            self._position = min(self._position, position)

    def rename_to(self, path: str) -> None:
        """Rename the file if there is one."""
        if self.files.exists(self.path):
            self.files.rename(self.path, path)
        self.path = path

    def flush(self) -> None:
        """Force it to the disk."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
