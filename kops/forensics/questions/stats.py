"""`kops log stats` and `kops scan stats`: numbers about a partition's log, which are collected in parts and merged.

Sources: Kafka's `DefaultRecordBatch` (headers), `ControlRecordType` (markers), `LogValidator` (which timestamps a broker accepts). The
headers give most numbers. The records are read only if asked for (`deep`), except those of compressed sets of the formats v0 and v1, whose
headers do not say how many records there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.coordinators.records import Marker, marker_of
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.distinct import Distinct
from kops.forensics.questions.reading import Unread, answers, by_replica, segments_of
from kops.forensics.verify.parts import Part, part_items
from kops.records import Batch, Damage
from kops.records.batch import BATCH_OVERHEAD

SCHEMA: Final = "kops.stats/v1"


@dataclass(slots=True)
class CodecStats:
    """The numbers of one codec. `plain_bytes` is the size without compression, known if the records were read."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    plain_bytes: int = 0

    def merge(self, other: CodecStats) -> None:
        """Add the numbers of another one."""
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes
        self.plain_bytes += other.plain_bytes


@dataclass(slots=True)
class RecordStats:
    """The numbers that come from the records of data, without markers. Sizes are those of keys and values, uncompressed."""

    keys: Distinct = field(default_factory=Distinct)
    null_keys: int = 0
    tombstones: int = 0
    headers: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    largest_record: int = 0

    def merge(self, other: RecordStats) -> None:
        """Add the numbers of another one."""
        self.keys.merge(other.keys)
        self.null_keys += other.null_keys
        self.tombstones += other.tombstones
        self.headers += other.headers
        self.key_bytes += other.key_bytes
        self.value_bytes += other.value_bytes
        self.largest_record = max(self.largest_record, other.largest_record)


@dataclass(slots=True)
class LogStats:
    """The numbers of a part of a log, in the order of appends. `merge` adds the part that follows.

    Offsets are None if there are none. `gaps` are places between batches where offsets are missing; a place with damage is no gap.
    A step back is a batch of data whose largest timestamp is below that of the batch before it; `largest_step_back_ms` compares with all
    batches before it. `open` has the transactions that no marker ends: producer id and first offset.
    """

    now_ms: int
    deep: bool = False
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    largest_batch: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    idempotent_batches: int = 0
    append_time_batches: int = 0
    future_batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    gaps: int = 0
    missing_offsets: int = 0
    steps_back: int = 0
    largest_step_back_ms: int = 0
    commits: int = 0
    aborts: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    codecs: dict[str, CodecStats] = field(default_factory=dict)
    producers: Distinct = field(default_factory=Distinct)
    contents: RecordStats = field(default_factory=RecordStats)
    open: dict[int, int] = field(default_factory=dict)
    _begins_at: int | None = None
    """The first offset, or None if damage comes before it."""
    _ends_at: int | None = None
    """The offset after the last batch, or None after damage."""
    _first_max: int | None = None
    _last_max: int | None = None
    _lowest_max: int | None = None
    _highest_max: int | None = None
    _ended: set[int] = field(default_factory=set)

    def add(self, item: Batch | Damage) -> None:
        """Count the next item of a scan."""
        if isinstance(item, Damage):
            self._lose(item.length)
            return
        try:
            base = item.read_base_offset()
            count, plain = self._read(item)
        except DecodeError:
            self._lose(item.size)
            return
        self._place(base, item.last_offset)
        self._sizes(item, count, plain)
        self._time(item)
        if item.has_producer_id:
            self.producers.add_number(item.producer_id)
            self.idempotent_batches += 1
            if item.is_transactional and not item.is_control:
                self.open.setdefault(item.producer_id, base)

    def _lose(self, length: int) -> None:
        self.damaged += 1
        self.damaged_bytes += length
        self._ends_at = None

    def _read(self, batch: Batch) -> tuple[int, int]:
        """Return the number of records and the batch's size without compression, which is 0 if the records were not read."""
        is_old = batch.magic < 2
        if batch.is_control:
            self._end([marker_of(record, batch) for record in batch.iterate()])
            return batch.count or 0, batch.size
        if not self.deep and not (is_old and batch.compressed):
            return (1 if batch.count is None else batch.count), 0
        count = 0
        plain = 0 if is_old else BATCH_OVERHEAD
        found = RecordStats()
        for _, _, _, key, value, headers, _, _, size, _ in batch.iterate():
            count += 1
            plain += size
            if self.deep:
                _describe(found, key, value, len(headers), size)
        if self.deep:
            self.contents.merge(found)
        return count, plain

    def _end(self, markers: Iterable[Marker | None]) -> None:
        for marker in markers:
            if marker is not None:
                self.commits += marker.is_commit
                self.aborts += not marker.is_commit
                self._ended.add(marker.producer_id)
                self.open.pop(marker.producer_id, None)

    def _place(self, base: int, last: int) -> None:
        if self.first_offset is None:
            self.first_offset = base
            self._begins_at = None if self.damaged else base
        elif self._ends_at is not None and base > self._ends_at:
            self.gaps += 1
            self.missing_offsets += base - self._ends_at
        self.last_offset = last
        self._ends_at = last + 1

    def _sizes(self, batch: Batch, count: int, plain: int) -> None:
        self.batches += 1
        self.records += count
        self.bytes += batch.size
        self.largest_batch = max(self.largest_batch, batch.size)
        self.control_batches += batch.is_control
        self.transactional_batches += batch.is_transactional
        self.append_time_batches += batch.timestamp_type == "LogAppendTime"
        codec = self.codecs.get(name := batch.codec)
        if codec is None:
            codec = self.codecs[name] = CodecStats()
        codec.batches += 1
        codec.records += count
        codec.bytes += batch.size
        codec.plain_bytes += plain

    def _time(self, batch: Batch) -> None:
        latest = batch.max_timestamp
        if latest < 0:
            return
        first = batch.base_timestamp if batch.delete_horizon_ms is None and batch.base_timestamp >= 0 else latest
        self.future_batches += latest > self.now_ms
        self.first_timestamp = _least(self.first_timestamp, first)
        self.last_timestamp = _most(self.last_timestamp, latest)
        if batch.is_control:
            return  # the time of a marker is that of its coordinator
        if self._last_max is None:
            self._first_max = latest
        elif latest < self._last_max:
            self.steps_back += 1
        if self._highest_max is not None:
            self.largest_step_back_ms = max(self.largest_step_back_ms, self._highest_max - latest)
        self._lowest_max = _least(self._lowest_max, latest)
        self._highest_max = _most(self._highest_max, latest)
        self._last_max = latest

    def merge(self, other: LogStats) -> None:
        """Add the part of the same log that follows this one."""
        if other.first_offset is not None and self._ends_at is not None and other._begins_at is not None:
            missing = other._begins_at - self._ends_at
            if missing > 0:
                self.gaps += 1
                self.missing_offsets += missing
        if self._last_max is not None and other._first_max is not None:
            self.steps_back += other._first_max < self._last_max
        if self._highest_max is not None and other._lowest_max is not None:
            self.largest_step_back_ms = max(self.largest_step_back_ms, self._highest_max - other._lowest_max)
        for producer_id in other._ended:
            self.open.pop(producer_id, None)
        for producer_id, first in other.open.items():
            self.open.setdefault(producer_id, first)
        self._ended |= other._ended
        if self.first_offset is None:
            self._begins_at = None if self.damaged else other._begins_at
            self.first_offset = other.first_offset
        if other.batches or other.damaged:
            self._ends_at = other._ends_at
        self._first_max = self._first_max if self._first_max is not None else other._first_max
        self._last_max = other._last_max if other._last_max is not None else self._last_max
        self._lowest_max = _least(self._lowest_max, other._lowest_max)
        self._highest_max = _most(self._highest_max, other._highest_max)
        self.last_offset = other.last_offset if other.last_offset is not None else self.last_offset
        self._add_counts(other)

    def combine(self, other: LogStats) -> None:
        """Add another log. Offsets of several logs have no meaning together."""
        self._add_counts(other)
        self.first_offset = self.last_offset = None

    def _add_counts(self, other: LogStats) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest_batch = max(self.largest_batch, other.largest_batch)
        self.largest_step_back_ms = max(self.largest_step_back_ms, other.largest_step_back_ms)
        self.first_timestamp = _least(self.first_timestamp, other.first_timestamp)
        self.last_timestamp = _most(self.last_timestamp, other.last_timestamp)
        self.producers.merge(other.producers)
        self.contents.merge(other.contents)
        for name, codec in other.codecs.items():
            self.codecs.setdefault(name, CodecStats()).merge(codec)

    def to_row(self) -> dict[str, Any]:
        """Return the columns of `kops.stats/v1` about contents. Those that need the records are None without them."""
        plain = sum(codec.plain_bytes for codec in self.codecs.values())
        found, deep = self.contents, self.deep
        estimated = [] if self.producers.is_exact else ["producers"]
        estimated += [] if found.keys.is_exact else ["keys"]
        return {
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "codecs": sorted(self.codecs),
            "records_per_batch": round(self.records / self.batches, 1) if self.batches else None,
            "largest_batch": self.largest_batch or None,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "gaps": self.gaps,
            "missing_offsets": self.missing_offsets,
            "first_timestamp": self.first_timestamp,
            "last_timestamp": self.last_timestamp,
            "steps_back": self.steps_back,
            "largest_step_back_ms": self.largest_step_back_ms,
            "future_batches": self.future_batches,
            "append_time_batches": self.append_time_batches,
            "producers": self.producers.count,
            "idempotent_batches": self.idempotent_batches,
            "transactional_batches": self.transactional_batches,
            "control_batches": self.control_batches,
            "commits": self.commits,
            "aborts": self.aborts,
            "open_transactions": len(self.open),
            "damaged": self.damaged,
            "damaged_bytes": self.damaged_bytes,
            "by_codec": [_codec_row(name, self.codecs[name], deep) for name in sorted(self.codecs)],
            "ratio": _ratio(plain, self.bytes) if deep else None,
            "keys": found.keys.count if deep else None,
            "null_keys": found.null_keys if deep else None,
            "tombstones": found.tombstones if deep else None,
            "headers": found.headers if deep else None,
            "key_bytes": found.key_bytes if deep else None,
            "value_bytes": found.value_bytes if deep else None,
            "largest_record": found.largest_record if deep else None,
            "estimated": estimated,
        }


_SUMS: Final = (
    "batches",
    "records",
    "bytes",
    "control_batches",
    "transactional_batches",
    "idempotent_batches",
    "append_time_batches",
    "future_batches",
    "gaps",
    "missing_offsets",
    "steps_back",
    "commits",
    "aborts",
    "damaged",
    "damaged_bytes",
)


def total_row(parts: Sequence[LogStats], now_ms: int, *, deep: bool) -> dict[str, Any]:
    """Return the sums for several logs, with the columns of `row_of`."""
    whole = LogStats(now_ms, deep)
    for part in parts:
        whole.combine(part)
    head = {
        "name": "total",
        "broker": None,
        "topic": None,
        "partition": None,
        "dir": None,
        "segments": sum(part.segments for part in parts),
    }
    return {**head, **whole.to_row(), "open_transactions": sum(len(part.open) for part in parts)}


def _describe(found: RecordStats, key: bytes | None, value: bytes | None, headers: int, size: int) -> None:
    if key is None:
        found.null_keys += 1
    else:
        found.keys.add(key)
        found.key_bytes += len(key)
    if value is None:
        found.tombstones += 1
    else:
        found.value_bytes += len(value)
    found.headers += headers
    found.largest_record = max(found.largest_record, size)


def _codec_row(name: str, codec: CodecStats, deep: bool) -> dict[str, Any]:
    return {
        "codec": name,
        "batches": codec.batches,
        "records": codec.records,
        "bytes": codec.bytes,
        "plain_bytes": codec.plain_bytes if deep else None,
        "ratio": _ratio(codec.plain_bytes, codec.bytes) if deep else None,
    }


def _ratio(plain: int, stored: int) -> float | None:
    """Return how many times larger the data is without compression."""
    return round(plain / stored, 2) if stored else None


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _most(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def read_part(files: Files, part: Part, now_ms: int, *, deep: bool) -> LogStats:
    """Return the numbers of one part of a segment. Raises OSError if it can't be read."""
    found = LogStats(now_ms, deep)
    with files.open(part.path) as file:
        for item in part_items(file, part):
            found.add(item)
    return found


def collect(
    files: Files,
    replicas: Sequence[Replica],
    now_ms: int,
    *,
    deep: bool,
    jobs: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[Replica, LogStats, list[Unread]]]:
    """Yield the numbers of each replica, and its files that could not be read."""
    source = answers(files, replicas, partial(read_part, files, now_ms=now_ms, deep=deep), jobs=jobs, on_bytes=on_bytes)
    for replica, parts in zip(replicas, by_replica(source, len(replicas)), strict=True):
        whole = LogStats(now_ms, deep, segments=len(segments_of(replica)))
        unread: list[Unread] = []
        for answer in parts:
            if isinstance(answer, Unread):
                unread.append(answer)
            else:
                whole.merge(answer)
        yield replica, whole, unread


def merged(replica: Replica, parts: Iterable[LogStats], now_ms: int, *, deep: bool) -> LogStats:
    """Return the numbers of a replica, from those of its parts in order."""
    whole = LogStats(now_ms, deep, segments=len(segments_of(replica)))
    for part in parts:
        whole.merge(part)
    return whole


def row_of(replica: Replica, found: LogStats) -> dict[str, Any]:
    """Return a replica's row."""
    directory = replica.directory
    return {
        "name": directory.name,
        "broker": replica.broker,
        "topic": directory.topic,
        "partition": directory.partition if directory.topic is not None else None,
        "dir": replica.given,
        "segments": found.segments,
        **found.to_row(),
    }
