"""The broker's side of incremental fetches (KIP-227): a session remembers the partitions of a client, which then sends only changes.

Sources: Kafka's FetchSession, FetchSessionCacheShard, FetchMetadata, FetchManager. Kafka divides its cache into shards to reduce lock
contention. Here, there is one cache. `kops.replication.leading.fetch_context` builds the answers.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from kops.protocol.declaration import ZERO_UUID
from kops.protocol.messages.fetch_response import PartitionData
from kops.records.log_offsets import TopicPartition, topic_partition
from kops.replication.leading.fetch import FetchInfo
from kops.replication.leading.replica import FetchClock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from kops.records.log_offsets import LogOffsetMetadata
    from kops.replication.leading.partition_reads import PartitionReads
    from kops.replication.leading.replica import Replica

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_LAST_EPOCH: Final = 2**31 - 1
_RANK: Final = attrgetter("rank")


@mypyc_attr(acyclic=True)
class TopicIdPartition:
    """A partition by id and name. Without an id, the name identifies it. The name is None if this broker does not know the id.

    `key` is its identity. It is not changed.
    """

    __slots__ = ("_named", "key", "partition", "topic", "topic_id")

    def __init__(self, topic_id: bytes, topic: str | None, partition: int) -> None:
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.key: tuple[bytes | str | None, int] = (topic if topic_id == ZERO_UUID else topic_id), partition
        self._named: TopicPartition | None = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TopicIdPartition) and self.key == other.key and self.topic == other.topic and self.topic_id == other.topic_id
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"TopicIdPartition({self.topic_id!r}, {self.topic!r}, {self.partition})"

    def named(self, topic: str) -> TopicPartition:
        """Return it by name, made once. `topic` is the name, for a caller that knows that there is one."""
        named = self._named
        if named is None:
            named = self._named = topic_partition(topic, self.partition)
        return named


@mypyc_attr(acyclic=True)
class FetchMetadata:
    """A fetch's session id and epoch from the request. It is not changed."""

    __slots__ = ("epoch", "session_id")

    def __init__(self, session_id: int, epoch: int) -> None:
        self.session_id = session_id
        self.epoch = epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FetchMetadata) and self.session_id == other.session_id and self.epoch == other.epoch

    def __hash__(self) -> int:
        return hash((self.session_id, self.epoch))

    def __repr__(self) -> str:
        return f"FetchMetadata({self.session_id}, {self.epoch})"

    @property
    def is_full(self) -> bool:
        """Whether the request lists all its partitions."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def next_incremental(self) -> FetchMetadata:
        """The metadata of the session's next request."""
        return FetchMetadata(self.session_id, next_epoch(self.epoch))

    def next_close_existing_attempt_new(self) -> FetchMetadata:
        """The metadata that ends the session and begins another."""
        return FetchMetadata(self.session_id, INITIAL_EPOCH)


INITIAL: Final = FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)
LEGACY: Final = FetchMetadata(INVALID_SESSION_ID, FINAL_EPOCH)


def next_epoch(epoch: int) -> int:
    """The next epoch. After the largest one a session continues at 1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


def records_size(data: PartitionData) -> int:
    """The size in bytes of the records in a partition's answer, which may be a slice of a file."""
    records = data.records
    if records is None:
        return 0
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else int(records.size)


class CachedPartition:
    """A session's knowledge of a partition: the parameters of the last request and the offsets of the last answer.

    `rank` gives the order of serving. `rest` is None if the next fetch has to check the partition.
    """

    __slots__ = ("high_watermark", "info", "key", "log_start_offset", "part", "rank", "rest")

    def __init__(self, part: TopicIdPartition, info: FetchInfo, answered: PartitionData | None = None) -> None:
        self.part = part
        self.key = part.key
        self.info = info
        self.high_watermark = -1 if answered is None else answered.high_watermark
        self.log_start_offset = -1 if answered is None else answered.log_start_offset
        self.rank = 0
        self.rest: Rest | None = None

    def must_respond(self, data: PartitionData) -> bool:
        """Whether an answer contains something new, which is remembered."""
        is_error = data.error_code != 0
        is_new = (
            records_size(data) > 0
            or self.high_watermark != data.high_watermark
            or self.log_start_offset != data.log_start_offset
            or data.preferred_read_replica != -1
            or is_error
            or data.diverging_epoch.epoch >= 0
        )
        # After an error the next answer is always sent, so that the client learns that the error is over.
        self.high_watermark = -1 if is_error else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return is_new


class Rest:
    """An idle partition of a session: the client has read everything that it may read, and knows all current offsets.

    Checking it again would only change the time of the last fetch, which is in `FetchSession.clock`. Whenever something happens to the
    partition, the partition ends the rest (`PartitionReads.disturb`). `start` is where the next read begins.
    """

    __slots__ = ("_partition", "_replica", "_session", "cached", "start")

    def __init__(
        self, session: FetchSession, cached: CachedPartition, start: LogOffsetMetadata, partition: PartitionReads, replica: Replica | None
    ) -> None:
        self.cached = cached
        self.start = start
        self._session = session
        self._partition = partition
        self._replica = replica
        cached.rest = self
        del session.restless[cached.key]
        partition.resting[self] = None
        if replica is not None:
            replica.rest(session.clock)

    @property
    def key(self) -> TopicPartition:
        """The partition by name."""
        return self._partition.topic_partition

    def end(self) -> None:
        """End the rest: the next fetch checks the partition, and a waiting fetch is notified."""
        session, cached = self._session, self.cached
        self._partition.resting.pop(self, None)
        cached.rest = None
        session.restless[cached.key] = cached
        if self._replica is not None:
            self._replica.end_rest(session.clock)
        if session.on_disturbed is not None:
            session.disturbed[self.key] = cached.part
            session.on_disturbed(self)


class FetchSession:
    """One client's session. `privileged` sessions are those of followers. `cached_size` is the size that the cache has noted.

    `restless` are the partitions that the next fetch has to check. `on_disturbed` is the waiting fetch, which is notified when a rest ends.
    `disturbed` are the partitions of these notifications.
    """

    __slots__ = (
        "_next_rank",
        "asks_as",
        "cached_size",
        "clock",
        "creation_ms",
        "disturbed",
        "epoch",
        "evictable_by_all",
        "evictable_by_privileged",
        "id",
        "last_used_ms",
        "on_disturbed",
        "partitions",
        "privileged",
        "restless",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, partitions: Iterable[CachedPartition], now_ms: int, *, privileged: bool, uses_topic_ids: bool
    ) -> None:
        self.id = session_id
        self.partitions = {each.key: each for each in partitions}
        self.restless = dict(self.partitions)
        for rank, each in enumerate(self.partitions.values()):
            each.rank = rank
        self._next_rank = len(self.partitions)
        self.on_disturbed: Callable[[Rest], None] | None = None
        self.disturbed: dict[TopicPartition, TopicIdPartition] = {}
        self.clock = FetchClock()
        self.asks_as: Hashable = None
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.creation_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = -1
        self.evictable_by_all = self.evictable_by_privileged = False

    @property
    def eviction_key(self) -> tuple[bool, int, int]:
        """The key of eviction. The lowest goes first: clients before followers, small sessions before large ones."""
        return self.privileged, self.cached_size, self.id

    def update(self, fetch_data: Mapping[TopicIdPartition, FetchInfo], to_forget: Iterable[TopicIdPartition]) -> None:
        """Apply what a request adds, changes and removes."""
        for part, info in fetch_data.items():
            key = part.key
            cached = self.partitions.get(key)
            if cached is None:
                cached = self.partitions[key] = self.restless[key] = CachedPartition(part, info)
                self._rank_last(cached)
            else:
                if cached.rest is not None:
                    cached.rest.end()
                cached.info = info
        for part in to_forget:
            cached = self.partitions.get(part.key)
            if cached is not None:
                if cached.rest is not None:
                    cached.rest.end()
                del self.partitions[part.key], self.restless[part.key]

    def find(self, key: TopicPartition, info: FetchInfo) -> CachedPartition | None:
        """Return the cached partition for a request with these parameters, or None."""
        return self.partitions.get((key.topic if info.topic_id == ZERO_UUID else info.topic_id, key.partition))

    def rank_of(self, key: TopicPartition, info: FetchInfo) -> int:
        """The partition's place in the order of serving. A partition that was forgotten meanwhile comes last."""
        cached = self.find(key, info)
        return self._next_rank if cached is None else cached.rank

    def in_order(self) -> list[CachedPartition]:
        """The partitions to check, in the order of serving."""
        restless = list(self.restless.values())
        if len(restless) > 1:
            restless.sort(key=_RANK)
        return restless

    def wake_all(self) -> None:
        """Let the next fetch check all partitions."""
        if len(self.restless) < len(self.partitions):
            for cached in self.partitions.values():
                if cached.rest is not None:
                    cached.rest.end()

    def begin(self, asks_as: Hashable, now_ms: int) -> None:
        """Begin a fetch. Rests end if the client's parameters differ now, or if the clock was set back."""
        if asks_as != self.asks_as or now_ms < self.clock.time_ms or self.on_disturbed is not None:
            self.wake_all()
            self.on_disturbed = None
        self.asks_as = asks_as
        self.clock.time_ms = now_ms

    def move_to_end(self, cached: CachedPartition) -> None:
        """Move a partition that has just returned records to the end, so that all get their turn."""
        del self.partitions[cached.key]
        self.partitions[cached.key] = cached
        self._rank_last(cached)

    def _rank_last(self, cached: CachedPartition) -> None:
        cached.rank = self._next_rank
        self._next_rank += 1


class FetchSessionCache:
    """All sessions of a broker, at most `max_entries`. Any other session may replace one that was not used for `eviction_ms`. `draw_id`
    draws an id from 1 up to 2^31 - 1.
    """

    def __init__(self, max_entries: int, eviction_ms: int, draw_id: Callable[[], int]) -> None:
        self._max_entries = max_entries
        self._eviction_ms = eviction_ms
        self._draw_id = draw_id
        self._sessions: dict[int, FetchSession] = {}
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session with this id, or None."""
        return self._sessions.get(session_id)

    def maybe_create(
        self,
        now_ms: int,
        size: int,
        create_partitions: Callable[[], Iterable[CachedPartition]],
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> int:
        """Return the id of a new session for `size` partitions, or INVALID_SESSION_ID if there is no room for it."""
        if len(self._sessions) >= self._max_entries and not self._try_evict((privileged, size, 0), now_ms):
            return INVALID_SESSION_ID
        session_id = self._draw_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._draw_id()
        session = FetchSession(session_id, create_partitions(), now_ms, privileged=privileged, uses_topic_ids=uses_topic_ids)
        self._sessions[session_id] = session
        self.touch(session, now_ms)
        return session_id

    def _try_evict(self, key: tuple[bool, int, int], now_ms: int) -> bool:
        sessions = self._sessions.values()
        if not sessions:
            return False
        victim: FetchSession | None = min(sessions, key=lambda each: (each.last_used_ms, each.id))
        if victim is None or now_ms - victim.last_used_ms <= self._eviction_ms:
            privileged = key[0]
            evictable = [each for each in sessions if (each.evictable_by_privileged if privileged else each.evictable_by_all)]
            victim = min(evictable, key=lambda each: each.eviction_key, default=None)
            if victim is None or key < victim.eviction_key:
                return False
        self.remove(victim.id)
        self.evictions += 1
        return True

    def remove(self, session_id: int) -> FetchSession | None:
        """End a session."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.wake_all()
            self.partition_count -= session.cached_size
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Record that a session was used, and its current size."""
        session.last_used_ms = now_ms
        if session.cached_size != -1:
            self.partition_count -= session.cached_size
        session.cached_size = len(session.partitions)
        self.partition_count += session.cached_size
        session.evictable_by_all = now_ms - session.creation_ms > self._eviction_ms
        session.evictable_by_privileged = not session.privileged or session.evictable_by_all
