"""The transaction index (`.txnindex`): the aborted transactions whose abort marker lies in the segment.

Entries of 34 bytes, big-endian: version int16 (0), producer id, first offset, last offset, last stable offset int64 (Kafka:
TransactionIndex, AbortedTxn). Not preallocated; the file is there only where there was something to write.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

ENTRY_SIZE: Final = 34
CURRENT_VERSION: Final = 0
_ENTRY = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """An aborted transaction: its producer, its first data offset, its marker's offset, the last stable offset when the marker came."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    stored_version: int = CURRENT_VERSION

    @property
    def version(self) -> int:
        """The version as Kafka sees it: the first of its two bytes alone."""
        return self.stored_version >> 8


def read_transaction_index(data: bytes, *, file: str | None = None) -> list[AbortedTxn]:
    """The entries; a part of an entry at the end is passed over, as Kafka does.

    Raises DecodeError (`transaction-index-version`) where Kafka throws KafkaException: it looks at the first byte of the
    version alone, so only a first byte of 1 to 127 is an unknown version.
    """
    entries = []
    whole = len(data) - len(data) % ENTRY_SIZE
    for slot, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(memoryview(data)[:whole])):
        if version >> 8 > CURRENT_VERSION:
            reason = f"version {version >> 8} of an aborted transaction is unknown, the current one is {CURRENT_VERSION}"
            raise DecodeError(reason, code="transaction-index-version", position=slot * ENTRY_SIZE, file=file)
        entries.append(AbortedTxn(producer_id, first, last, stable, version))
    return entries


def check_transaction_index(entries: Iterable[AbortedTxn], base_offset: int, *, file: str | None = None) -> None:
    """Raise DecodeError (`corrupt-transaction-index`) where TransactionIndex.sanityCheck throws CorruptIndexException."""
    for slot, entry in enumerate(entries):
        if entry.last_offset < base_offset:
            reason = f"the last offset {entry.last_offset} of an aborted transaction is less than the base offset {base_offset}"
            raise DecodeError(reason, code="corrupt-transaction-index", position=slot * ENTRY_SIZE, file=file)


def write_transaction_index(entries: Iterable[AbortedTxn]) -> bytes:
    """The file's bytes."""
    return b"".join(_ENTRY.pack(e.stored_version, e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset) for e in entries)


def collect_aborted_txns(entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
    """The transactions that overlap a fetch of [fetch_offset, upper_bound_offset), and whether later segments need not be searched."""
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False
