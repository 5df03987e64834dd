"""A broker's side of incremental fetches (KIP-227): sessions that remember what a client asks for, so that it only says what changes.

Sources: Kafka's FetchSession, FetchSessionCacheShard, FetchMetadata, FetchManager. Kafka cuts its cache into shards against contention of
threads; here it is one. `kops.replication.fetch_context` makes the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.protocol.declaration import ZERO_UUID
from kops.protocol.messages.fetch_response import PartitionData
from kops.replication.fetch import FetchInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_LAST_EPOCH: Final = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """A partition by id and name; without an id the name counts, without a name (None) it is not known here."""

    topic_id: bytes
    topic: str | None
    partition: int

    @property
    def key(self) -> tuple[bytes | str | None, int]:
        """What tells it from others."""
        return (self.topic if self.topic_id == ZERO_UUID else self.topic_id), self.partition


class FetchMetadata(NamedTuple):
    """A fetch's session and epoch, as the request carries them."""

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        """Whether the request says everything itself."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def next_incremental(self) -> FetchMetadata:
        """The next request of the session."""
        return FetchMetadata(self.session_id, next_epoch(self.epoch))

    def next_close_existing(self) -> FetchMetadata:
        """End the session, begin none."""
        return FetchMetadata(self.session_id, FINAL_EPOCH)

    def next_close_existing_attempt_new(self) -> FetchMetadata:
        """End the session, begin another."""
        return FetchMetadata(self.session_id, INITIAL_EPOCH)


INITIAL: Final = FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)
LEGACY: Final = FetchMetadata(INVALID_SESSION_ID, FINAL_EPOCH)


def next_epoch(epoch: int) -> int:
    """The epoch behind another; a session's begin again at 1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


def records_size(data: PartitionData) -> int:
    """Bytes of the records of a partition's answer, which may be a slice of a file."""
    records = data.records
    if records is None:
        return 0
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else int(records.size)


class CachedPartition:
    """What a session knows of a partition: the last request's parameters and the last answer's offsets."""

    __slots__ = ("high_watermark", "info", "log_start_offset", "part")

    def __init__(self, part: TopicIdPartition, info: FetchInfo, answered: PartitionData | None = None) -> None:
        self.part = part
        self.info = info
        self.high_watermark = -1 if answered is None else answered.high_watermark
        self.log_start_offset = -1 if answered is None else answered.log_start_offset

    def must_respond(self, data: PartitionData, *, update: bool) -> bool:
        """Whether an answer says something new; with `update` it is remembered."""
        is_error = data.error_code != 0
        is_new = (
            records_size(data) > 0
            or self.high_watermark != data.high_watermark
            or self.log_start_offset != data.log_start_offset
            or data.preferred_read_replica != -1
            or is_error
            or data.diverging_epoch.epoch >= 0
        )
        if update:
            # After an error the next answer is always told, so that the client learns that it is over.
            self.high_watermark = -1 if is_error else data.high_watermark
            self.log_start_offset = data.log_start_offset
        return is_new


class FetchSession:
    """One client's session. `privileged`: of a follower; `cached_size` is the size by which the cache knows it."""

    __slots__ = (
        "cached_size",
        "creation_ms",
        "epoch",
        "evictable_by_all",
        "evictable_by_privileged",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, partitions: Iterable[CachedPartition], now_ms: int, *, privileged: bool, uses_topic_ids: bool
    ) -> None:
        self.id = session_id
        self.partitions = {each.part.key: each for each in partitions}
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.creation_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = -1
        self.evictable_by_all = self.evictable_by_privileged = False

    @property
    def eviction_key(self) -> tuple[bool, int, int]:
        """The lowest goes first: clients before followers, small sessions before large ones."""
        return self.privileged, self.cached_size, self.id

    def update(self, fetch_data: Mapping[TopicIdPartition, FetchInfo], to_forget: Iterable[TopicIdPartition]) -> None:
        """Take what a request adds, changes and removes."""
        for part, info in fetch_data.items():
            cached = self.partitions.get(part.key)
            if cached is None:
                self.partitions[part.key] = CachedPartition(part, info)
            else:
                cached.info = info
        for part in to_forget:
            self.partitions.pop(part.key, None)

    def move_to_end(self, cached: CachedPartition) -> None:
        """Who just got records comes last the next time, so that all get their turn."""
        del self.partitions[cached.part.key]
        self.partitions[cached.part.key] = cached


class FetchSessionCache:
    """All sessions of a broker, at most `max_entries`. A session not used for `eviction_ms` may go for any other; `draw_id` draws an id
    from 1 up to 2^31 - 1."""

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
        """The session of an id."""
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
        """The id of a new session for `size` partitions, INVALID_SESSION_ID where there is no place for it."""
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
            self.partition_count -= session.cached_size
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """It is used; its size counts as of now."""
        session.last_used_ms = now_ms
        if session.cached_size != -1:
            self.partition_count -= session.cached_size
        session.cached_size = len(session.partitions)
        self.partition_count += session.cached_size
        session.evictable_by_all = now_ms - session.creation_ms > self._eviction_ms
        session.evictable_by_privileged = not session.privileged or session.evictable_by_all
