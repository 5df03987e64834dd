"""`kops log timeline` and `kops scan timeline`: what happened to partitions, from their logs, their leftovers and the metadata.

Events: `appends` (of an interval), `leader-epoch` (the first batch of an epoch), `roll` (the first batch of a segment), `commit` and
`abort` (markers of transactions in an interval), `deleted` (files that wait for their deletion, at their last change). From the metadata
log: `topic-created`, `topic-deleted`, `election` (another leader, or none) and `isr` (another in-sync set).

Sources: Kafka's `DefaultRecordBatch`, `EndTransactionMarker`, `LogFileUtils`, PartitionRecord and PartitionChangeRecord. The body file is
that of The Sleuth Kit 3 and later (`mactime`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.coordinators.records import Lost, marker_of
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.metadata_events import MetadataEvents
from kops.forensics.questions.reading import Unread, answers, by_replica, segments_of
from kops.forensics.verify.parts import Part, part_items
from kops.records import Batch, Damage

HOUR_MS: Final = 3_600_000
_BAR_WIDTH: Final = 20
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
ORDER: Final = ("time", "topic", "partition", "offset", "event", "path", "broker", "detail")
"""The columns by which events are sorted."""
SUMMED: Final = ("appends", "commit", "abort")
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """The events that are wanted: of these kinds and topics (empty: all), from `from_time` up to `to_time` (ms; None: no limit)."""

    interval_ms: int = HOUR_MS
    events: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    from_time: int | None = None
    to_time: int | None = None

    def has(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event is wanted. An interval is wanted if a part of it is in the time range."""
        if (self.events and event["event"] not in self.events) or (self.topics and event["topic"] not in self.topics):
            return False
        if self.from_time is None and self.to_time is None:
            return True
        time = event["time"]
        if time is None:
            return False
        last = time + self.interval_ms - 1 if event["event"] in SUMMED else time
        return (self.from_time is None or last >= self.from_time) and (self.to_time is None or time <= self.to_time)


def events_of(
    files: Files, replica: Replica, choice: Choice, *, is_read: bool = True, read: ReadPart | None = None
) -> Iterator[Event | Lost]:
    """Yield the wanted events of a replica, not in order, and its damage. If not `is_read`, only its leftovers are listed.

    `read` reads a part of a segment, by default with `read_part`.

    Raises OSError if a segment can't be read.
    """
    return wanted_events(replica, choice, _read(files, replica, choice.interval_ms, read) if is_read else ())


def all_events(
    files: Files,
    replicas: Sequence[Replica],
    read_logs: Collection[str],
    choice: Choice,
    *,
    jobs: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Event | Lost | Unread]:
    """Yield the wanted events of replicas, not in order, their damage, and what could not be read.

    Of the replicas whose directory is not among `read_logs`, only the leftovers are listed. `jobs` is the number of processes (see
    `answers`). The metadata log is read in one process, because its records change each other's meaning.
    """
    logs = [each for each in replicas if each.directory.path in read_logs and each.directory.topic != METADATA_TOPIC]

    def read(part: Part) -> tuple[Part, PartEvents]:
        return part, read_part(files, logs[part.number], part, choice.interval_ms)

    found = by_replica(answers(files, logs, read, jobs=jobs, on_bytes=on_bytes), len(logs))
    for replica in replicas:
        unread: list[Unread] = []
        if replica.directory.path not in read_logs:
            yield from wanted_events(replica, choice, ())
        elif replica.directory.topic != METADATA_TOPIC:
            yield from wanted_events(replica, choice, _readable(next(found), unread))
        else:
            try:
                yield from events_of(files, replica, choice)
            except OSError as error:
                path = replica.given if not isinstance(error.filename, str) else replica.as_given(error.filename)
                yield Unread(path, error.strerror or str(error))
            if on_bytes is not None:
                on_bytes(replica.size)
        yield from unread


def _readable(parts: Iterable[tuple[Part, PartEvents] | Unread], unread: list[Unread]) -> Iterator[tuple[Part, PartEvents]]:
    for each in parts:
        if isinstance(each, Unread):
            unread.append(each)
        else:
            yield each


def wanted_events(replica: Replica, choice: Choice, parts: Iterable[tuple[Part, PartEvents]]) -> Iterator[Event | Lost]:
    """Yield the same as `events_of`, from the parts of the replica's log in order."""
    directory = replica.directory
    partition = directory.partition if directory.topic is not None else None
    same = {"topic": directory.topic, "partition": partition, "broker": replica.broker}
    for each in chain(_deleted(replica), joined(replica, parts)):
        if isinstance(each, Lost):
            yield each
        elif choice.has(event := _whole({**same, **each})):
            yield event


def _whole(event: Mapping[str, Any]) -> Event:
    return {key: event.get(key) for key in KEYS}


def order_of(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key that sorts events by time, then by partition and offset. Null comes first, as in Spark."""
    return tuple((event[name] is not None, event[name] if event[name] is not None else 0) for name in ORDER)


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


@dataclass(slots=True)
class PartEvents:
    """The events of a part of a log, as far as the part shows them. `joined` combines them into those of the log.

    `first` is about the first batch, `first_epoch` the event of the first leader epoch, `epoch` the last one. `sums` has what is summed up
    over intervals.
    """

    interval_ms: int
    events: list[Event | Lost] = field(default_factory=list)
    sums: dict[tuple[str, int | None], Event] = field(default_factory=dict)
    first: Event | None = None
    first_epoch: Event | None = None
    epoch: int | None = None

    def add(self, item: Batch | Damage, path: str, metadata: MetadataEvents | None = None) -> None:
        """Add the next item of a scan of the file. `metadata` reads the records of the metadata log."""
        if isinstance(item, Damage):
            self.events.append(Lost(path, item.position, item.length, item.base_offset, item.last_offset, item.reason))
            return
        if self.first is None:
            self.first = _about(item)
        if item.magic > 1 and item.partition_leader_epoch >= 0 and item.partition_leader_epoch != self.epoch:
            event = {**_about(item), "event": "leader-epoch", "leader_epoch": item.partition_leader_epoch, "path": path}
            if self.epoch is None:
                self.first_epoch = event
            else:
                self.events.append(event)
            self.epoch = item.partition_leader_epoch
        try:
            if item.is_control:
                self._markers(item, path)
            else:
                self._sum("appends", item, path, 1 if item.count is None else item.count)
                if metadata is not None:
                    self.events += [{**event, "path": path} for event in metadata.of(item)]
        except DecodeError as error:
            self.events.append(Lost(path, item.position, item.size, item.base_offset, item.last_offset, error.reason))

    def _markers(self, batch: Batch, path: str) -> None:
        for marker in [marker_of(record, batch) for record in batch.iterate()]:
            if marker is not None:
                self._sum("commit" if marker.is_commit else "abort", batch, path, 1)

    def _sum(self, event: str, batch: Batch, path: str, records: int) -> None:
        time = _time(batch.max_timestamp)
        start = None if time is None else time - time % self.interval_ms
        row = {"time": start, "event": event, "offset": batch.base_offset, "records": records, "bytes": batch.size, "path": path}
        row |= {"producer_id": batch.producer_id if event != "appends" else None, "last_offset": batch.last_offset}
        _add_sum(self.sums, row)


ReadPart = Callable[[Part], PartEvents]


def _add_sum(sums: dict[tuple[str, int | None], Event], row: Event) -> None:
    """Add a row to the earlier row of the same event and interval."""
    before = sums.setdefault((row["event"], row["time"]), row)
    if before is not row:
        before["records"] += row["records"]
        before["bytes"] += row["bytes"]
        before["last_offset"] = row["last_offset"]
        if before["producer_id"] != row["producer_id"]:
            before["producer_id"] = None


def read_part(files: Files, replica: Replica, part: Part, interval_ms: int, metadata: MetadataEvents | None = None) -> PartEvents:
    """Return the events of a part of a segment. Raises OSError if it can't be read."""
    found = PartEvents(interval_ms)
    path = replica.as_given(part.path)
    with files.open(part.path) as file:
        for item in part_items(file, part):
            found.add(item, path, metadata)
    return found


def _read(files: Files, replica: Replica, interval_ms: int, read: ReadPart | None) -> Iterator[tuple[Part, PartEvents]]:
    """Read all segments, one after the other."""
    metadata: MetadataEvents | None = None
    if replica.directory.topic == METADATA_TOPIC:
        metadata = MetadataEvents()
        metadata.load_snapshots(files, replica.directory)
    for segment in segments_of(replica):
        assert segment.log is not None
        part = Part(0, segment.log.path, 0, segment.log.size)
        yield part, read(part) if read is not None and metadata is None else read_part(files, replica, part, interval_ms, metadata)


def joined(replica: Replica, parts: Iterable[tuple[Part, PartEvents]]) -> Iterator[Event | Lost]:
    """Yield the events of a log from those of all its parts in order. The sums over intervals come last."""
    logs = {segment.log.path: segment.log for segment in segments_of(replica) if segment.log is not None}
    sums: dict[tuple[str, int | None], Event] = {}
    epoch: int | None = None
    begins, path = False, ""
    for part, found in parts:
        if part.path != path:
            begins, path = bool(path), part.path
        if begins and found.first is not None:
            log = logs[path]
            yield {**found.first, "event": "roll", "bytes": log.size, "detail": log.name, "path": replica.as_given(path)}
            begins = False
        if found.first_epoch is not None and found.first_epoch["leader_epoch"] != epoch:
            yield found.first_epoch
        yield from found.events
        epoch = epoch if found.epoch is None else found.epoch
        for row in found.sums.values():
            _add_sum(sums, row)
    yield from sums.values()


def _about(batch: Batch) -> Event:
    time = batch.base_timestamp if batch.magic > 1 and batch.delete_horizon_ms is None else batch.max_timestamp
    return {"time": _time(time), "offset": batch.base_offset}


def _time(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp


def bars(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events with a `bar` each. Its length compares their records with the largest number of records of any event."""
    found = list(events)
    most = max((event["records"] or 0 for event in found if event["event"] == "appends"), default=0)
    for event in found:
        records = event["records"] if event["event"] == "appends" else None
        yield {**event, "bar": None if not records else "█" * max(round(records * _BAR_WIDTH / most), 1)}


def body_line(event: Event) -> str:
    """Return a line of a body file: MD5, name, inode, mode, UID, GID, size, then atime, mtime, ctime and crtime in seconds.

    A body file has no escapes (The Sleuth Kit's mactime splits its lines at each `|`), so letters that would break a line become `_`.
    A roll created its segment (crtime), a deletion renamed it (ctime), everything else is a change of contents (mtime). An event without a
    time has the time 0, which mactime leaves out.
    """
    seconds = max(event["time"] or 0, 0) // 1000
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
    clean = "".join("_" if letter == "|" or not letter.isprintable() else letter for letter in name)
    return "|".join(("0", clean, "0", "r/rrw-r--r--", "0", "0", str(event["bytes"] or 0), *map(str, times)))
