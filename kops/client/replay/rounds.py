"""Rounds of a replay: the next records of each log, in one batch for each partition of the cluster.

A round depends only on the logs, the positions at its start and the number of partitions. So a continued run builds the same one again.
A record keeps its partition, or goes to that of its key (Kafka's BuiltInPartitioner.partitionForKey).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from kops.client.producer.partitioners import partition_for_key
from kops.client.replay.state import State, TargetState
from kops.records.batch import BATCH_OVERHEAD
from kops.records.log_offsets import TopicPartition
from kops.records.record import Record

__all__ = ["Entry", "Reader", "Round", "Source", "next_round", "pieces_of", "record_size", "same_round"]

BATCH_BYTES: Final = 256 << 10
_SOURCES: Final = 64
_RECORD_OVERHEAD: Final = 21
_HEADER_OVERHEAD: Final = 10


class Source(Protocol):
    """A log whose records are to be sent."""

    @property
    def name(self) -> str:
        """Unique among the sources."""

    @property
    def target(self) -> str:
        """The topic to which the records go."""

    @property
    def partition(self) -> int:
        """The records' partition."""

    def records(self, start: int) -> Iterator[Record]:
        """Yield the records at and after offset `start`, with increasing offsets."""


class Entry(NamedTuple):
    """A record and the name of its log."""

    source: str
    record: Record


@dataclass(slots=True)
class Round:
    """The records for each partition, and for each log the offset up to which it was read (exclusive; None: to its end)."""

    entries: dict[TopicPartition, list[Entry]] = field(default_factory=dict)
    ends: dict[str, int | None] = field(default_factory=dict)


class Reader:
    """A log that is read once, from beginning to end, and whose next record can be inspected."""

    def __init__(self, source: Source, start: int) -> None:
        self.source = source
        self._records = source.records(start)
        self._next: Record | None = None

    def peek(self) -> Record | None:
        """Return the next record, or None at the end."""
        if self._next is None:
            self._next = next(self._records, None)
        return self._next

    def take(self) -> Record:
        """The record that `peek` returned."""
        assert self._next is not None
        record, self._next = self._next, None
        return record


def record_size(record: Record) -> int:
    """Return an upper estimate of the size of a record in a batch."""
    headers = sum(len(name) + len(value or b"") + _HEADER_OVERHEAD for name, value in record.headers)
    return _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers


def _target(source: Source, record: Record, counts: Mapping[str, int], by_key: bool) -> TopicPartition:
    count = counts.get(source.target, 0)
    if not by_key or not count:
        return TopicPartition(source.target, source.partition)
    if record.key is None:
        return TopicPartition(source.target, source.partition % count)
    return TopicPartition(source.target, partition_for_key(record.key, count))


def next_round(readers: Sequence[Reader], counts: Mapping[str, int], *, by_key: bool) -> Round:
    """Return the next records of the logs. The order of records from different logs for one partition is that of the rounds."""
    found = Round()
    taken: set[str | TopicPartition] = set()
    for reader in readers:
        source = reader.source
        own = source.target if by_key else TopicPartition(source.target, source.partition)
        if own in taken or len(found.ends) >= _SOURCES or reader.peek() is None:
            continue
        taken.add(own)
        _read(reader, found, counts, by_key)
    return found


def _read(reader: Reader, found: Round, counts: Mapping[str, int], by_key: bool) -> None:
    sizes: dict[TopicPartition, int] = {}
    source = reader.source
    last = -1
    while (record := reader.peek()) is not None:
        key = _target(source, record, counts, by_key)
        size = sizes.get(key, BATCH_OVERHEAD) + record_size(record)
        if key in sizes and size > BATCH_BYTES:
            break
        sizes[key] = size
        found.entries.setdefault(key, []).append(Entry(source.name, reader.take()))
        last = record.offset
        if sum(sizes.values()) > _SOURCES * BATCH_BYTES:
            break
    found.ends[source.name] = last + 1


def same_round(readers: Sequence[Reader], state: State, counts: Mapping[str, int], *, by_key: bool) -> Round:
    """Return the whole open round of an earlier run."""
    found = Round()
    for reader in readers:
        end = state.sources[reader.source.name].end
        if end is None:
            continue
        while (record := reader.peek()) is not None and record.offset < end:
            key = _target(reader.source, record, counts, by_key)
            found.entries.setdefault(key, []).append(Entry(reader.source.name, reader.take()))
        found.ends[reader.source.name] = end
    return found


def pieces_of(entries: list[Entry], target: TargetState) -> list[list[Entry]]:
    """Return the batches of a partition's records in the open round that an earlier run has neither sent nor rejected, divided in the same
    way."""
    at = target.resolved
    found = []
    for count in target.pieces or [len(entries) - at]:
        found.append(entries[at : at + count])
        at += count
    return [each for each in found if each]
