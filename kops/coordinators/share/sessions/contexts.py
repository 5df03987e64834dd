"""The effect of a request on its member's share session, and the results that its response includes.

Sources: SharePartitionManager (newContext, acknowledgeSessionUpdate), ShareFetchContext, ShareSessionContext, FinalContext,
ErroneousAndValidPartitionData, ShareFetchResponse.of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kops.coordinators.share.sessions.session import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, TopicIdPartition, next_epoch
from kops.coordinators.share.sessions.session_cache import ShareSessionCache
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.messages.share_fetch_response import PartitionData, ShareFetchableTopicResponse, ShareFetchResponse


class FetchParts(NamedTuple):
    """The partitions to fetch, and error results for partitions of unknown topics."""

    known: Sequence[TopicIdPartition] = ()
    unknown: Mapping[TopicIdPartition, PartitionData] = {}


class ShareContext:
    """One request. The first request of a session has all partitions, later ones have changes, the final one has none."""

    def __init__(self, epoch: int, parts: Sequence[TopicIdPartition] = (), session: ShareSession | None = None) -> None:
        self.epoch = epoch
        self._parts = parts
        self._session = session

    @property
    def is_final(self) -> bool:
        """Whether this request ends the session."""
        return self.epoch == FINAL_EPOCH

    def fetch_parts(self) -> FetchParts:
        """Return the partitions to fetch."""
        parts = self._parts if self._session is None else self._session.parts
        unknown = {
            part: PartitionData(part.partition, errors.by_name("UNKNOWN_TOPIC_ID").code, records=b"")
            for part in parts
            if part.topic is None
        }
        return FetchParts([part for part in parts if part.topic is not None], unknown)

    def respond(self, results: Mapping[TopicIdPartition, PartitionData]) -> ShareFetchResponse:
        """Return the response. After a session's first request it includes only partitions with records or errors, and partitions not yet
        included."""
        session = self._session
        if session is None:
            return share_fetch_response("NONE", results)
        if session.epoch != next_epoch(self.epoch):
            return share_fetch_response("INVALID_SHARE_SESSION_EPOCH", {})
        return share_fetch_response("NONE", {part: result for part, result in results.items() if session.on_result(part, result)})


class FetchRequest(NamedTuple):
    """The session fields of a ShareFetch."""

    key: SessionKey
    epoch: int
    wanted: Sequence[TopicIdPartition]
    forgotten: Sequence[TopicIdPartition]
    has_acknowledgements: bool
    connection_id: str


def new_context(cache: ShareSessionCache, request: FetchRequest) -> ShareContext:
    """Return the context of a ShareFetch. Raises ApiError."""
    key = request.key
    if request.epoch == FINAL_EPOCH:
        if cache.get(key) is None:
            raise ApiError("SHARE_SESSION_NOT_FOUND")
        return ShareContext(FINAL_EPOCH)
    if request.epoch == INITIAL_EPOCH:
        if request.has_acknowledgements:
            raise ApiError("INVALID_REQUEST")
        cache.remove(key)
        if len({part[:2] for part in request.wanted}) < len(request.wanted):
            raise ApiError("UNKNOWN_SERVER_ERROR", "A partition is named twice.")  # Kafka's set of partitions throws
        if cache.create(key, request.wanted, request.connection_id) is None:
            raise ApiError("SHARE_SESSION_LIMIT_REACHED")
        return ShareContext(INITIAL_EPOCH, request.wanted)
    session = _session(cache, key, request.epoch)
    session.update(request.wanted, request.forgotten)
    cache.count_partitions(session)
    session.epoch = next_epoch(session.epoch)
    return ShareContext(request.epoch, session=session)


def on_acknowledge(cache: ShareSessionCache, key: SessionKey, epoch: int) -> None:
    """Update the session for a ShareAcknowledge, which cannot be its first request. Raises ApiError."""
    if epoch == INITIAL_EPOCH:
        raise ApiError("INVALID_SHARE_SESSION_EPOCH")
    if epoch == FINAL_EPOCH:
        if cache.get(key) is None:
            raise ApiError("SHARE_SESSION_NOT_FOUND")
        return
    session = _session(cache, key, epoch)
    session.epoch = next_epoch(session.epoch)


def share_fetch_response(error: str, results: Mapping[TopicIdPartition, PartitionData]) -> ShareFetchResponse:
    """Return a response with results by topic. Topics are in the order of their first partition."""
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for part, result in results.items():
        result.partition_index = part.partition
        if result.records is None:
            result.records = b""  # clients do not expect null
        topic = topics.setdefault(part.topic_id, ShareFetchableTopicResponse(part.topic_id))
        topic.partitions.append(result)
    return ShareFetchResponse(error_code=errors.by_name(error).code, responses=list(topics.values()))


def _session(cache: ShareSessionCache, key: SessionKey, epoch: int) -> ShareSession:
    session = cache.get(key)
    if session is None:
        raise ApiError("SHARE_SESSION_NOT_FOUND")
    if session.epoch != epoch:
        raise ApiError("INVALID_SHARE_SESSION_EPOCH")
    return session
