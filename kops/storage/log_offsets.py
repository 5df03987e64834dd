"""What a read gives back (Kafka FetchDataInfo); the offsets it is made of are `kops.records.log_offsets`, shared with replication."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.records.log_offsets import UNKNOWN_OFFSET, Isolation, LogOffsetMetadata, LogOffsetSnapshot

if TYPE_CHECKING:
    from kops.storage.segment_files.file_records import LogView
    from kops.storage.segment_files.transaction_index import AbortedTxn

__all__ = ["UNKNOWN_OFFSET", "FetchedData", "Isolation", "LogOffsetMetadata", "LogOffsetSnapshot"]


class FetchedData(NamedTuple):
    """What a read found.

    `offset_metadata` is where the first batch is; `records` a slice of a segment's file that goes to a socket as it is (None: nothing);
    `first_entry_incomplete` tells that fewer bytes were asked for than the first batch has; `aborted_transactions` is None unless the read
    was to see decided records only.
    """

    offset_metadata: LogOffsetMetadata
    records: LogView | None = None
    first_entry_incomplete: bool = False
    aborted_transactions: list[AbortedTxn] | None = None

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return 0 if self.records is None else self.records.size
