"""The result of a read (Kafka FetchDataInfo). Its offsets are those of `kops.records.log_offsets`, which replication uses, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from kops.records.log_offsets import UNKNOWN_OFFSET, Isolation, LogOffsetMetadata, LogOffsetSnapshot

if TYPE_CHECKING:
    from kops.storage.segment_files.file_records import LogView
    from kops.storage.segment_files.transaction_index import AbortedTxn

__all__ = ["UNKNOWN_OFFSET", "FetchedData", "Isolation", "LogOffsetMetadata", "LogOffsetSnapshot"]


@mypyc_attr(acyclic=True)
class FetchedData:
    """The result of a read. It is not changed.

    `offset_metadata` is the position of the first batch. `records` is a slice of a segment's file that is sent to a socket unchanged (None:
    nothing). `first_entry_incomplete` is true if the read was limited to fewer bytes than the first batch has. `aborted_transactions` is
    None unless the read was limited to committed records.
    """

    __slots__ = ("aborted_transactions", "first_entry_incomplete", "offset_metadata", "records")

    def __init__(
        self,
        offset_metadata: LogOffsetMetadata,
        records: LogView | None = None,
        first_entry_incomplete: bool = False,
        aborted_transactions: list[AbortedTxn] | None = None,
    ) -> None:
        self.offset_metadata = offset_metadata
        self.records = records
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions

    @property
    def size(self) -> int:
        """The size of the records in bytes."""
        return 0 if self.records is None else self.records.size
