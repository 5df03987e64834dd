"""The four ways to serve a fetch: without a session, with a new one, as an increment of one, or with an error.

Sources: Kafka's FetchContext and its four classes, FetchManager.newContext, FetchResponse.of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kops.protocol import errors
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, NodeEndpoint, PartitionData
from kops.replication.leading.fetch import FetchInfo
from kops.replication.leading.fetch_session import (
    FINAL_EPOCH,
    FIRST_VERSION_WITH_TOPIC_IDS,
    INVALID_SESSION_ID,
    CachedPartition,
    FetchMetadata,
    FetchSession,
    FetchSessionCache,
    TopicIdPartition,
    next_epoch,
    records_size,
)

if TYPE_CHECKING:
    from kops.records.log_offsets import TopicPartition

Updates = Mapping[TopicIdPartition, PartitionData]


def fetch_response(error: str, session_id: int, updates: Updates, nodes: Iterable[NodeEndpoint] = ()) -> FetchResponse:
    """Return a response with the partitions in their order. Adjacent partitions of a topic share its entry."""
    topics: list[FetchableTopicResponse] = []
    for part, data in updates.items():
        data.partition_index = part.partition
        last = topics[-1] if topics else None
        same = last is not None and (last.topic_id == part.topic_id if part.topic_id != ZERO_UUID else last.topic == part.topic)
        if last is None or not same:
            last = FetchableTopicResponse(topic=part.topic or "", topic_id=part.topic_id)
            topics.append(last)
        last.partitions.append(data)
    return FetchResponse(
        error_code=0 if error == "NONE" else errors.by_name(error).code,
        session_id=session_id,
        responses=topics,
        node_endpoints=list(nodes),
    )


class FetchContext:
    """A fetch without a session: request and answer are complete. `session` is the session of an incremental fetch."""

    def __init__(self, fetch_data: Mapping[TopicIdPartition, FetchInfo]) -> None:
        self.session: FetchSession | None = None
        self._fetch_data = fetch_data

    def partitions(self) -> Iterator[tuple[TopicIdPartition, FetchInfo]]:
        """The partitions to read, in the order of serving. Resting ones are left out."""
        yield from self._fetch_data.items()

    def fetch_offset(self, part: TopicIdPartition) -> int | None:
        """The offset at which the fetch of a partition starts."""
        info = self._fetch_data.get(part)
        return None if info is None else info.fetch_offset

    def part_of(self, key: TopicPartition) -> TopicIdPartition:
        """Add a partition that has come out of rest since the fetch began."""
        assert self.session is not None
        return self.session.disturbed[key]

    def is_known(self, part: TopicIdPartition, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client already knows these offsets, so that an answer without records can be left out."""
        return False

    def respond(self, updates: Updates, nodes: Iterable[NodeEndpoint] = ()) -> FetchResponse:
        """The response."""
        return fetch_response("NONE", INVALID_SESSION_ID, updates, nodes)


class SessionErrorContext(FetchContext):
    """A fetch of a session that does not exist or does not match the request."""

    def __init__(self, error: str) -> None:
        super().__init__({})
        self.error = error

    def respond(self, updates: Updates, nodes: Iterable[NodeEndpoint] = ()) -> FetchResponse:
        return fetch_response(self.error, INVALID_SESSION_ID, {}, nodes)


class FullFetchContext(FetchContext):
    """A complete fetch that requests a session. The answer has the session's id if the cache has room."""

    def __init__(
        self,
        cache: FetchSessionCache,
        fetch_data: Mapping[TopicIdPartition, FetchInfo],
        now_ms: Callable[[], int],
        *,
        uses_topic_ids: bool,
        is_from_follower: bool,
    ) -> None:
        super().__init__(fetch_data)
        self._cache = cache
        self._now_ms = now_ms
        self._uses_topic_ids = uses_topic_ids
        self._is_from_follower = is_from_follower

    def respond(self, updates: Updates, nodes: Iterable[NodeEndpoint] = ()) -> FetchResponse:
        session_id = self._cache.maybe_create(
            self._now_ms(),
            len(updates),
            lambda: [CachedPartition(part, self._fetch_data[part], data) for part, data in updates.items()],
            privileged=self._is_from_follower,
            uses_topic_ids=self._uses_topic_ids,
        )
        return fetch_response("NONE", session_id, updates, nodes)


class IncrementalFetchContext(FetchContext):
    """A fetch of a session. Partitions that the request omits are unchanged, and the answer contains only changes."""

    def __init__(self, metadata: FetchMetadata, session: FetchSession, topic_name: Callable[[bytes], str | None]) -> None:
        super().__init__({})
        self.session = self._own = session
        self._expected_epoch = next_epoch(metadata.epoch)
        self._topic_name = topic_name

    def partitions(self) -> Iterator[tuple[TopicIdPartition, FetchInfo]]:
        for cached in self._own.in_order():
            if self._own.uses_topic_ids and cached.part.topic is None:
                # The id was unknown when the client asked for it. It may be known now.
                part = cached.part
                cached.part = TopicIdPartition(part.topic_id, self._topic_name(part.topic_id), part.partition)
            yield cached.part, cached.info

    def fetch_offset(self, part: TopicIdPartition) -> int | None:
        cached = self._own.partitions.get(part.key)
        return None if cached is None else cached.info.fetch_offset

    def is_known(self, part: TopicIdPartition, high_watermark: int, log_start_offset: int) -> bool:
        cached = self._own.partitions.get(part.key)
        return cached is not None and cached.high_watermark == high_watermark and cached.log_start_offset == log_start_offset

    def _changed(self, updates: Updates) -> Updates:
        changed = {}
        for part, data in updates.items():
            cached = self._own.partitions.get(part.key)
            if cached is not None and cached.must_respond(data):
                changed[part] = data
                if records_size(data) > 0:
                    self._own.move_to_end(cached)
        return changed

    def respond(self, updates: Updates, nodes: Iterable[NodeEndpoint] = ()) -> FetchResponse:
        # A request that arrived twice has moved the epoch on. Only the last one is answered with data.
        if self._own.epoch != self._expected_epoch:
            return fetch_response("INVALID_FETCH_SESSION_EPOCH", self._own.id, {}, nodes)
        return fetch_response("NONE", self._own.id, self._changed(updates), nodes)


class FetchManager:
    """Chooses the context of each fetch."""

    def __init__(self, cache: FetchSessionCache, now_ms: Callable[[], int]) -> None:
        self.cache = cache
        self._now_ms = now_ms

    def new_context(
        self,
        version: int,
        metadata: FetchMetadata,
        fetch_data: Mapping[TopicIdPartition, FetchInfo],
        to_forget: Iterable[TopicIdPartition],
        topic_name: Callable[[bytes], str | None],
        *,
        is_from_follower: bool,
    ) -> FetchContext:
        """Return the context for a request of this version. `topic_name` returns the current name of a topic id."""
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if metadata.is_full:
            if metadata.session_id != INVALID_SESSION_ID:
                self.cache.remove(metadata.session_id)
            if metadata.epoch == FINAL_EPOCH:
                return FetchContext(fetch_data)
            return FullFetchContext(self.cache, fetch_data, self._now_ms, uses_topic_ids=uses_topic_ids, is_from_follower=is_from_follower)
        session = self.cache.get(metadata.session_id)
        if session is None:
            return SessionErrorContext("FETCH_SESSION_ID_NOT_FOUND")
        if session.epoch != metadata.epoch:
            return SessionErrorContext("INVALID_FETCH_SESSION_EPOCH")
        if session.uses_topic_ids != uses_topic_ids:
            return SessionErrorContext("FETCH_SESSION_TOPIC_ID_ERROR")
        session.update(fetch_data, to_forget)
        if not session.partitions:
            self.cache.remove(session.id)
            return FetchContext(fetch_data)
        self.cache.touch(session, self._now_ms())
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetchContext(metadata, session, topic_name)
