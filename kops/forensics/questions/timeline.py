"""`kops log timeline` and `kops scan timeline`: what happened to partitions, as their logs, their leftovers and the metadata tell.

Events: `appends` (of an interval), `leader-epoch` (the first batch of an epoch), `roll` (the first batch of a segment), `commit` and
`abort` (markers of transactions in an interval), `deleted` (files that wait for their deletion, when they last changed). From the metadata
log: `topic-created`, `topic-deleted`, `election` (another leader, or none) and `isr` (another in-sync set).

Sources: Kafka's `DefaultRecordBatch`, `EndTransactionMarker`, `LogFileUtils`, PartitionRecord and PartitionChangeRecord. The body file is
that of The Sleuth Kit 3 and later (`mactime`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.coordinators.records import Lost, marker_of
from kops.forensics.inventory.replicas import Replica
from kops.forensics.inventory.tree import Segment
from kops.forensics.questions.metadata_events import MetadataEvents
from kops.forensics.questions.reading import segments_of
from kops.records import Batch, Damage, scan

HOUR_MS: Final = 3_600_000
METADATA_TOPIC: Final = "__cluster_metadata"
KEYS: Final = (
    "time",
    "event",
    "topic",
    "partition",
    "offset",
    "last_offset",
    "records",
    "bytes",
    "leader_epoch",
    "producer_id",
    "detail",
    "broker",
    "path",
)
EVENTS: Final = ("appends", "commit", "abort", "leader-epoch", "roll", "deleted", "election", "isr", "topic-created", "topic-deleted")
SUMMED: Final = ("appends", "commit", "abort")
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which events are wanted: of these kinds and topics (empty: all), from `from_time` up to `to_time` (ms; None: no limit)."""

    interval_ms: int = HOUR_MS
    events: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    from_time: int | None = None
    to_time: int | None = None

    def has(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is wanted. An interval that has a part in the time is."""
        if (self.events and event["event"] not in self.events) or (self.topics and event["topic"] not in self.topics):
            return False
        if self.from_time is None and self.to_time is None:
            return True
        time = event["time"]
        if time is None:
            return False
        last = time + self.interval_ms - 1 if event["event"] in SUMMED else time
        return (self.from_time is None or last >= self.from_time) and (self.to_time is None or time <= self.to_time)


def events_of(files: Files, replica: Replica, choice: Choice, *, is_read: bool = True) -> Iterator[Event | Lost]:
    """The events of a replica that are wanted, not in order, and its damage. If not `is_read`, only its leftovers are listed.

    OSError if a segment can't be read.
    """
    directory = replica.directory
    partition = directory.partition if directory.topic is not None else None
    same = {"topic": directory.topic, "partition": partition, "broker": replica.broker}
    found: Iterator[Event | Lost] = iter(_deleted(replica))
    if is_read:
        found = chain(found, _Log(replica, choice.interval_ms).events(files))
    for each in found:
        if isinstance(each, Lost):
            yield each
        elif choice.has(event := _whole({**same, **each})):
            yield event


def _whole(event: Mapping[str, Any]) -> Event:
    return {key: event.get(key) for key in KEYS}


def order_of(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sorts events by time, then by partition and offset; null comes first, as in Spark."""
    names = ("time", "topic", "partition", "offset", "event", "path", "broker", "detail")
    return tuple((event[name] is not None, event[name] if event[name] is not None else 0) for name in names)


def _deleted(replica: Replica) -> Iterator[Event]:
    for segment in replica.directory.segments:
        log = segment.log
        if log is not None and (segment.suffix or replica.directory.state == "delete"):
            path = replica.as_given(log.path)
            yield {
                "time": log.mtime_ms,
                "event": "deleted",
                "offset": segment.base_offset,
                "bytes": log.size,
                "detail": log.name,
                "path": path,
            }


class _Log:
    """One pass over a log. What is summed up over intervals comes last."""

    def __init__(self, replica: Replica, interval_ms: int) -> None:
        self._replica = replica
        self._interval_ms = interval_ms
        self._sums: dict[tuple[str, int | None], Event] = {}
        self._epoch: int | None = None
        self._metadata: MetadataEvents | None = None

    def events(self, files: Files) -> Iterator[Event | Lost]:
        """All events and damage."""
        if self._replica.directory.topic == METADATA_TOPIC:
            self._metadata = MetadataEvents()
            self._metadata.load_snapshots(files, self._replica.directory)
        is_first = True
        for segment in segments_of(self._replica):
            yield from self._segment(files, segment, is_first=is_first)
            is_first = False
        yield from self._sums.values()

    def _segment(self, files: Files, segment: Segment, *, is_first: bool) -> Iterator[Event | Lost]:
        assert segment.log is not None
        path = self._replica.as_given(segment.log.path)
        begins = not is_first
        with files.open(segment.log.path) as file:
            for item in scan(file):
                if isinstance(item, Damage):
                    yield Lost(path, item.position, item.length, item.base_offset, item.last_offset, item.reason)
                    continue
                if begins:
                    yield {**_about(item), "event": "roll", "bytes": segment.log.size, "detail": segment.log.name, "path": path}
                    begins = False
                yield from self._batch(item, path)

    def _batch(self, batch: Batch, path: str) -> Iterator[Event | Lost]:
        if batch.magic > 1 and batch.partition_leader_epoch >= 0 and batch.partition_leader_epoch != self._epoch:
            self._epoch = batch.partition_leader_epoch
            yield {**_about(batch), "event": "leader-epoch", "leader_epoch": self._epoch, "path": path}
        try:
            if batch.is_control:
                self._markers(batch, path)
            else:
                self._sum("appends", batch, path, 1 if batch.count is None else batch.count)
            if self._metadata is not None and not batch.is_control:
                for event in self._metadata.of(batch):
                    yield {**event, "path": path}
        except DecodeError as error:
            yield Lost(path, batch.position, batch.size, batch.base_offset, batch.last_offset, error.reason)

    def _markers(self, batch: Batch, path: str) -> None:
        for marker in [marker_of(record, batch) for record in batch.iterate()]:
            if marker is not None:
                self._sum("commit" if marker.is_commit else "abort", batch, path, 1)

    def _sum(self, event: str, batch: Batch, path: str, records: int) -> None:
        time = _time(batch.max_timestamp)
        start = None if time is None else time - time % self._interval_ms
        row = self._sums.get((event, start))
        if row is None:
            row = {"time": start, "event": event, "offset": batch.base_offset, "records": 0, "bytes": 0, "path": path}
            row["producer_id"] = batch.producer_id if event != "appends" else None
            self._sums[event, start] = row
        elif row["producer_id"] != batch.producer_id:
            row["producer_id"] = None
        row["records"] += records
        row["bytes"] += batch.size
        row["last_offset"] = batch.last_offset


def _about(batch: Batch) -> Event:
    time = batch.base_timestamp if batch.magic > 1 and batch.delete_horizon_ms is None else batch.max_timestamp
    return {"time": _time(time), "offset": batch.base_offset}


def _time(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp


def bars(events: Iterable[Event], width: int = 20) -> Iterator[Event]:
    """The events with a `bar` each, as long as their records compare to the most records of any."""
    found = list(events)
    most = max((event["records"] or 0 for event in found if event["event"] == "appends"), default=0)
    for event in found:
        records = event["records"] if event["event"] == "appends" else None
        yield {**event, "bar": None if not records else "█" * max(round(records * width / most), 1)}


def body_line(event: Event) -> str:
    """A line of a body file: MD5, name, inode, mode, UID, GID, size, then atime, mtime, ctime and crtime in seconds.

    A roll made its segment (crtime), a deletion renamed it (ctime), everything else is a change of contents (mtime). An event without a
    time has the time 0, which mactime leaves out.
    """
    seconds = (event["time"] or 0) // 1000
    times = {"roll": (0, 0, 0, seconds), "topic-created": (0, 0, 0, seconds), "deleted": (0, 0, seconds, 0)}.get(
        event["event"], (0, seconds, 0, 0)
    )
    where = (
        event["path"]
        if event["topic"] is None
        else f"{event['topic']}-{event['partition']}"
        if event["partition"] is not None
        else event["topic"]
    )
    words = [
        f"{key.replace('_', ' ')} {event[key]}" for key in ("offset", "last_offset", "records", "leader_epoch") if event[key] is not None
    ]
    detail = f", {event['detail']}" if event["detail"] else ""
    name = f"{event['path'] or where} ({event['event']}: {where}; {', '.join(words)}{detail})"
    clean = "".join("_" if letter in "|\n\r" else letter for letter in name)
    return "|".join(("0", clean, "0", "r/rrw-r--r--", "0", "0", str(event["bytes"] or 0), *map(str, times)))
