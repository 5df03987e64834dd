"""What a consumer gives to a program: records, offsets with metadata, and the identity of a member.

Source: Kafka's ConsumerRecord, ConsumerRecords, OffsetAndMetadata, OffsetAndTimestamp, ConsumerGroupMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kops.errors import UsageError
from kops.records.log_offsets import TopicPartition
from kops.records.record import Header


class ConsumerRecord(NamedTuple):
    """One record. `timestamp` is in ms since the epoch (-1: none). `leader_epoch` is None if the batch has none.

    `headers` are pairs of key and value. `key` and `value` are what the deserializers return. The sizes are those of the bytes (-1: null).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int | None
    key_size: int
    value_size: int


class Run(NamedTuple):
    """Consecutive records of one partition in a `ConsumerRecords`: those from index `start` up to `stop`."""

    key: TopicPartition
    start: int
    stop: int
    next: OffsetAndMetadata


class ConsumerRecords(list[ConsumerRecord]):
    """The records of one `poll`, in order within each partition."""

    __slots__ = ("runs",)

    def __init__(self, records: Iterable[ConsumerRecord] = (), runs: Iterable[Run] = ()) -> None:
        super().__init__(records)
        self.runs = list(runs)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that have records here."""
        return [run.key for run in self.runs if run.stop > run.start]

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records of each partition."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for run in self.runs:
            if run.stop > run.start:
                found.setdefault(run.key, []).extend(self[run.start : run.stop])
        return found

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset that follows the last record of each partition. Commit these after the records are processed."""
        return {run.key: run.next for run in self.runs}


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to read, a text of the program, and the epoch of the last record read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


def as_offset(given: Any) -> OffsetAndMetadata:
    """Return a program's offset with metadata. Raises UsageError."""
    one = OffsetAndMetadata(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(one, OffsetAndMetadata):
        raise UsageError(f"{given!r} is not an offset; allowed: a number or OffsetAndMetadata")
    if not 0 <= one.offset < 1 << 63:
        raise UsageError(f"offset={one.offset}: not allowed; allowed: 0 to 2^63 - 1")
    return one


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class SubscriptionPattern(NamedTuple):
    """A regular expression of RE2, which the broker matches against the names of topics (`group.protocol=consumer`)."""

    pattern: str


class ConsumerGroupMetadata(NamedTuple):
    """The identity of a member, for a producer that commits its offsets in a transaction."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class PartitionInfo(NamedTuple):
    """A partition of a topic. The leader is -1 if there is none."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
