"""Values that storage and replication share: the name of a partition, offsets with their positions in the log, and how far a read may go
(Kafka TopicPartition, LogOffsetMetadata, LogOffsetSnapshot, FetchIsolation, UnexpectedAppendOffsetException)."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from mypy_extensions import mypyc_attr

from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN_OFFSET: Final = -1


class TopicPartition(NamedTuple):
    """The name of a partition."""

    topic: str
    partition: int


_MAKE_TOPIC_PARTITION: Final = cast("Callable[[tuple[str, int]], TopicPartition]", partial(tuple.__new__, TopicPartition))


def topic_partition(topic: str, partition: int) -> TopicPartition:
    """Return `TopicPartition(topic, partition)`. Calling the class runs a function of Python, and every request does it often."""
    return _MAKE_TOPIC_PARTITION((topic, partition))


class Isolation(Enum):
    """How far a read may go: to the end of the log (a follower), to the high watermark, or to the last stable offset."""

    LOG_END = "LOG_END"
    HIGH_WATERMARK = "HIGH_WATERMARK"
    TXN_COMMITTED = "TXN_COMMITTED"


@mypyc_attr(acyclic=True)
class LogOffsetMetadata:
    """An offset, the base offset of its segment, and the position of its batch there; -1 if these are unknown. It is not changed.

    Every append and read makes some of these, and compiled code makes an object of a class faster than a named tuple.
    """

    __slots__ = ("message_offset", "relative_position", "segment_base_offset")

    def __init__(self, message_offset: int, segment_base_offset: int = -1, relative_position: int = -1) -> None:
        self.message_offset = message_offset
        self.segment_base_offset = segment_base_offset
        self.relative_position = relative_position

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LogOffsetMetadata)
            and self.message_offset == other.message_offset
            and self.segment_base_offset == other.segment_base_offset
            and self.relative_position == other.relative_position
        )

    def __hash__(self) -> int:
        return hash((self.message_offset, self.segment_base_offset, self.relative_position))

    def __repr__(self) -> str:
        return f"LogOffsetMetadata({self.message_offset}, {self.segment_base_offset}, {self.relative_position})"

    def __str__(self) -> str:
        return f"(offset={self.message_offset}, segment=[{self.segment_base_offset}:{self.relative_position}])"

    @property
    def message_offset_only(self) -> bool:
        """Whether the position is unknown."""
        return self.segment_base_offset == -1 and self.relative_position == -1

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether both positions are known and this one is in an earlier segment."""
        return self.segment_base_offset < other.segment_base_offset and not (self.message_offset_only or other.message_offset_only)

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether both positions are known and in the same segment."""
        return self.segment_base_offset == other.segment_base_offset and not (self.message_offset_only or other.message_offset_only)


UNKNOWN_OFFSET_METADATA: Final = LogOffsetMetadata(UNKNOWN_OFFSET)


class LogOffsetSnapshot(NamedTuple):
    """The offsets of a log at one moment, the last two with their positions."""

    log_start_offset: int
    log_end_offset: LogOffsetMetadata
    high_watermark: LogOffsetMetadata
    last_stable_offset: LogOffsetMetadata


class UnexpectedAppendOffsetError(KopsError):
    """The records for a follower begin before the end of its log (UnexpectedAppendOffsetException)."""

    def __init__(self, reason: str, first_offset: int, last_offset: int) -> None:
        super().__init__(reason)
        self.first_offset = first_offset
        self.last_offset = last_offset
