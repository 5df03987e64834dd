"""Offsets with their places, and what a read gives back (Kafka LogOffsetMetadata, LogOffsetSnapshot, FetchDataInfo, FetchIsolation)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kops.storage.file_records import LogView
    from kops.storage.transaction_index import AbortedTxn

UNKNOWN_OFFSET = -1


class Isolation(Enum):
    """How far a read may go: everything (a follower), what is replicated, what is decided."""

    LOG_END = "LOG_END"
    HIGH_WATERMARK = "HIGH_WATERMARK"
    TXN_COMMITTED = "TXN_COMMITTED"


class LogOffsetMetadata(NamedTuple):
    """An offset, the base offset of the segment it is in, and its batch's byte position there; -1 where these are not known."""

    message_offset: int
    segment_base_offset: int = -1
    relative_position: int = -1

    def __str__(self) -> str:
        return f"(offset={self.message_offset}, segment=[{self.segment_base_offset}:{self.relative_position}])"

    @property
    def message_offset_only(self) -> bool:
        """Whether the place is not known."""
        return self.segment_base_offset == -1 and self.relative_position == -1

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether both places are known and this one is in an earlier segment."""
        return not self.message_offset_only and not other.message_offset_only and self.segment_base_offset < other.segment_base_offset


class LogOffsetSnapshot(NamedTuple):
    """A log's offsets at one moment, the last two with their places."""

    log_start_offset: int
    log_end_offset: LogOffsetMetadata
    high_watermark: LogOffsetMetadata
    last_stable_offset: LogOffsetMetadata


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
