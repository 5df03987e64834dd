"""`kops log offsets`: the positions of groups in partitions of `__consumer_offsets`, as of a time.

Sources: Kafka's `OffsetMetadataManager` (`replay`, `replayEndTransactionMarker`, `cleanupExpiredOffsets`), `OffsetExpirationCondition` and
`GroupMetadataManager.isSubscribedToTopic` (when an offset expires).

The order of records matters, so a partition is replayed as a whole. It may be read in parts: a part leaves out the commits that others in
it replace, which are nearly all, and the rest is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.coordinators.groups.classic.manager import ClassicGroupManager
from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.consumer.manager import ConsumerGroupManager
from kops.coordinators.groups.offset_and_metadata import BaseTimestamp, OffsetAndMetadata, commit_timestamp
from kops.coordinators.groups.offsets.manager import OffsetManager
from kops.coordinators.groups.store import GroupStore
from kops.coordinators.groups.streams.manager import StreamsGroupManager
from kops.coordinators.groups.surroundings import Surroundings
from kops.errors import KopsError
from kops.forensics.coordinators.records import CoordinatorRecords, Decoded, Item, Lost, Marker, Raw, decoder
from kops.protocol.messages.offset_commit_key import OffsetCommitKey
from kops.protocol.messages.offset_commit_value import OffsetCommitValue
from kops.protocol.registry import GROUP_RECORDS
from kops.timeline import Timeline

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import PartitionDir
    from kops.records import Batch

COMMITTED: Final = "committed"
PENDING: Final = "pending"
DELETED: Final = "deleted"
DEFAULT_RETENTION_MS: Final = 7 * 24 * 60 * 60 * 1000


class Place(NamedTuple):
    """The group, topic and partition of an offset."""

    group: str
    topic: str
    partition: int


class Position(NamedTuple):
    """An offset of a group. `pending`: it takes effect when the transaction of `producer_id` is committed. `deleted`: at `timestamp`.

    `expires_ms` is None if the offset does not expire in the group's current state. `log` is the partition that holds it, at
    `record_offset`.
    """

    place: Place
    state: str
    offset: int | None
    leader_epoch: int | None
    metadata: str | None
    timestamp: int
    expires_ms: int | None
    producer_id: int | None
    record_offset: int
    log: str


@dataclass(slots=True)
class OtherGroup:
    """A group of another kind, reduced to the topics to which its members subscribe by name."""

    kind: str
    topics: dict[str, set[str]] = field(default_factory=dict)

    def subscribes(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return any(topic in topics for topics in self.topics.values())


class OffsetsReplay:
    """The state of one partition, replayed by the code of the live coordinator. Pass it the records in order.

    It also keeps the tombstones of offsets, which a coordinator forgets: `(timestamp, record offset)` by place.
    """

    def __init__(self) -> None:
        self._timeline = Timeline()
        self._timeline.is_settled = True
        self._store = GroupStore(self._timeline)
        # Replay sets no timers, reads no settings and creates no ids.
        nothing: Any = None
        around = Surroundings(self._timeline, self._store, nothing, nothing, lambda: 0, str, GroupCoordinatorConfig(), nothing)
        classic = ClassicGroupManager(around)
        self._offsets = OffsetManager(around, classic.rebalances)
        consumer, streams = ConsumerGroupManager(around, classic.rebalances), StreamsGroupManager(around)
        self._replays = {**classic.replays, **consumer.replays, **streams.replays}
        self.others: dict[str, OtherGroup] = {}
        self.deleted: dict[Place, tuple[int, int]] = {}

    def replay(self, record: Decoded) -> None:
        """Replay a record of a coordinator. Raises KopsError if a coordinator could not replay it."""
        offset, _, producer_id, _, key, value, _ = record
        self._timeline.offset = offset
        if type(key) is OffsetCommitKey:
            self._offsets.replay(offset, producer_id, key, value)
            if value is None:
                self.deleted[Place(key.group, key.topic, key.partition)] = (record.timestamp, offset)
            return
        name = type(key).__name__
        if name == "LegacyOffsetCommitKey":
            new_key = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
            self.replay(record._replace(key=new_key, value=value and _as_offset_commit(value)))
        elif type(key) in self._replays:
            self._replays[type(key)](key, value)
        elif name in _GROUPS:
            self._group(_GROUPS[name], key.group_id, value)
        elif name in _MEMBERS:
            self._member(_MEMBERS[name], key, value)

    def replay_marker(self, marker: Marker) -> None:
        """Replay the end of a transaction."""
        self._timeline.offset = marker.offset
        self._offsets.replay_end_transaction_marker(marker.producer_id, marker.is_commit)

    def _group(self, kind: str, group_id: str, value: Any) -> None:
        if value is None:
            self.others.pop(group_id, None)
        elif group_id not in self.others or self.others[group_id].kind != kind:
            self.others[group_id] = OtherGroup(kind)

    def _member(self, kind: str, key: Any, value: Any) -> None:
        self._group(kind, key.group_id, kind)
        group = self.others[key.group_id]
        if value is None:
            group.topics.pop(key.member_id, None)
        else:
            group.topics[key.member_id] = set(getattr(value, "subscribed_topic_names", ()))

    def positions(self, log: str, retention_ms: int) -> Iterator[Position]:
        """Yield all offsets, including pending and deleted ones, sorted."""
        found = []
        for group_id, offsets in self._offsets.offsets.by_group.items():
            for (topic, number), offset in offsets.items():
                place = Place(group_id, topic, number)
                found.append(_position(place, COMMITTED, offset, log, None, self._expires(place, offset, retention_ms)))
        for producer_id, table in self._offsets.pending.by_producer():
            for group_id, offsets in table.by_group.items():
                found += [_position(Place(group_id, *place), PENDING, one, log, producer_id, None) for place, one in offsets.items()]
        there = {each.place for each in found if each.state == COMMITTED}
        for place, (timestamp, record_offset) in self.deleted.items():
            if place not in there:
                found.append(Position(place, DELETED, None, None, None, timestamp, None, None, record_offset, log))
        yield from sorted(found, key=lambda each: (each.place, each.record_offset))

    def _expires(self, place: Place, offset: OffsetAndMetadata, retention_ms: int) -> int | None:
        if self._offsets.pending.has(place.group, (place.topic, place.partition)):
            return None
        base = self._base_timestamp(place)
        if base is None:
            return None
        return base(offset) + retention_ms if offset.expire_timestamp_ms is None else offset.expire_timestamp_ms

    def _base_timestamp(self, place: Place) -> BaseTimestamp | None:
        if place.group in self.others:
            return None if self.others[place.group].subscribes(place.topic) else commit_timestamp
        group = self._store.get(place.group)
        if group is None:  # The group's last record is a tombstone, and the tombstones of its offsets are missing.
            return commit_timestamp
        return None if group.is_subscribed_to_topic(place.topic) else group.offset_expiration_condition()


_GROUPS: Final = {
    "ShareGroupMetadataKey": "share",
}
_MEMBERS: Final = {
    "ShareGroupMemberMetadataKey": "share",
}


def _position(place: Place, state: str, offset: OffsetAndMetadata, log: str, producer_id: int | None, expires_ms: int | None) -> Position:
    about = (offset.committed_offset, offset.leader_epoch, offset.metadata, offset.commit_timestamp_ms)
    return Position(place, state, *about, expires_ms, producer_id, offset.record_offset, log)


def _as_offset_commit(value: Any) -> OffsetCommitValue:
    """Convert a value of type 0, which only the first versions of Kafka wrote; it has fewer fields."""
    if isinstance(value, OffsetCommitValue):
        return value
    return OffsetCommitValue(offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)


@dataclass(slots=True)
class PartitionOffsets:
    """The contents of one partition of `__consumer_offsets`."""

    replay: OffsetsReplay = field(default_factory=OffsetsReplay)
    raw: list[Raw] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


def read_offsets(files: Files, partition: PartitionDir, *, at_ms: int | None = None) -> PartitionOffsets:
    """Replay a partition: all of it, or the records with timestamps up to `at_ms`. OSError if a segment can't be read."""
    result = PartitionOffsets()
    _replay(result, partition, CoordinatorRecords(files, partition, decoder(GROUP_RECORDS)), at_ms)
    return result


def _replay(result: PartitionOffsets, partition: PartitionDir, items: Iterable[Item], at_ms: int | None) -> None:
    replay = result.replay.replay
    for item in items:
        if isinstance(item, Lost):
            result.lost.append(item)
        elif at_ms is not None and item.timestamp > at_ms:
            continue
        elif isinstance(item, Decoded):
            try:
                replay(item)
            except KopsError as error:
                result.raw.append(Raw(partition.name, item.offset, item.timestamp, None, None, str(error)))
        elif isinstance(item, Marker):
            result.replay.replay_marker(item)
        else:
            result.raw.append(item)


# In parts.


class Stored(NamedTuple):
    """A record that can be decoded, as it is in the log."""

    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    key: bytes
    value: bytes | None


PartItem = Stored | Marker | Raw | Lost
"""What a part keeps for the replay."""


def read_part_offsets(files: Files, partition: PartitionDir, found: Iterable[Batch | Lost], *, at_ms: int | None = None) -> list[PartItem]:
    """Read the batches of a part of a partition. Returns what `join_offsets` has to replay: everything but the commits that another commit
    of the part replaces.

    A commit outside of transactions replaces the one before it if there is no other record of the group in between.
    """
    decode = decoder(GROUP_RECORDS)

    def with_bytes(key: bytes, value: bytes | None) -> tuple[Any, Any, int]:
        return decode(key, value)[0], (key, value), -1

    items: list[PartItem | None] = []
    newest: dict[str, dict[tuple[str, int], int]] = {}
    for item in CoordinatorRecords(files, partition, with_bytes, found):
        if isinstance(item, Lost) or at_ms is None or item.timestamp <= at_ms:
            if isinstance(item, Decoded):
                stored = Stored(item.offset, item.timestamp, item.producer_id, item.producer_epoch, *item.value)
                replaced = _replaced(newest, item.key, stored, len(items))
                if replaced is not None:
                    items[replaced] = None
                items.append(stored)
            else:
                items.append(item)
    return [item for item in items if item is not None]


def _replaced(newest: dict[str, dict[tuple[str, int], int]], key: Any, record: Stored, number: int) -> int | None:
    """The number of the commit that this record replaces. `newest`: the number of the last commit, by group and partition."""
    if not isinstance(key, OffsetCommitKey) or record.value is None or record.producer_id >= 0:
        group = getattr(key, "group", None) or getattr(key, "group_id", None)
        if group is None:
            newest.clear()
        else:
            newest.pop(group, None)
        return None
    known = newest.setdefault(key.group, {})
    place = (key.topic, key.partition)
    before = known.get(place)
    known[place] = number
    return before


def join_offsets(partition: PartitionDir, parts: Iterable[Iterable[PartItem]]) -> PartitionOffsets:
    """Like `read_offsets`, from the parts of the partition in their order."""
    decode = decoder(GROUP_RECORDS)
    result = PartitionOffsets()
    items = (Decoded(*item[:4], *decode(item.key, item.value)) if isinstance(item, Stored) else item for part in parts for item in part)
    _replay(result, partition, items, None)
    return result
