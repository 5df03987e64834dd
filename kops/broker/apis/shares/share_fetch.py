"""ShareFetch, versions 1 and 2: a member acknowledges records and acquires others.

Source: Kafka's KafkaApis (handleShareFetchRequest, handleFetchFromShareFetchRequest, processShareFetchResponse; KIP-932, KIP-1222).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.groups.common import respond_error, respond_later
from kops.broker.apis.shares.acknowledgements import FIRST_VERSION_WITH_RENEW, acknowledge, member_of, moved_to
from kops.broker.shares.manager import Wanted
from kops.coordinators.runtime.promise import Promise, all_of
from kops.coordinators.share.sessions.contexts import FetchRequest, new_context
from kops.coordinators.share.sessions.session import TopicIdPartition
from kops.errors import ApiError
from kops.protocol.errors import by_name
from kops.protocol.messages.share_fetch_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kops.protocol.primitives import size_of
from kops.replication.leading.fetch import FetchParams

if TYPE_CHECKING:
    from kops.broker.apis.shares.acknowledgements import Results as Acknowledgements
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.coordinators.share.sessions.contexts import ShareContext
    from kops.coordinators.share.sessions.session import SessionKey
    from kops.protocol.messages.share_fetch_request import ShareFetchRequest

Fetched = Mapping[TopicIdPartition, PartitionData]
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
_NO_RECORDS: Final = b""


def answer_share_fetch(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when there are enough records and the acknowledgements are persisted. Raises ApiError for an invalid member, session or
    renewal."""
    request = cast("ShareFetchRequest", context.request.message)
    member = member_of(request)
    is_renewal = context.request.version >= FIRST_VERSION_WITH_RENEW and request.is_renew_ack
    if is_renewal:
        _check_renewal(request)
    try:
        session = _session(parts, context, member, request)
    except ApiError as error:
        if error.name != "SHARE_SESSION_LIMIT_REACHED":
            raise
        parts.shares.manager.after(request.max_wait_ms, partial(respond_error, context, error))
        return
    acknowledged: Promise[Acknowledgements] = Promise.of({})
    if _has_acknowledgements(request):
        acknowledged = acknowledge(parts, member, request.topics, context.request.version, is_renew=request.is_renew_ack)
    # A request that renews locks does not wait for records, because the locks might expire before the answer arrives.
    fetched: Promise[Fetched] = Promise.of({}) if is_renewal else _fetch(parts, member, request, session)
    answer = _Answer(parts, context, session, member)
    both = all_of([fetched, acknowledged])
    respond_later(context, both.then(lambda _: answer.response(fetched.result(), acknowledged.result())), lambda response: response)


def _check_renewal(request: ShareFetchRequest) -> None:
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = [f"{name} must be set to 0, " for name, limit in limits.items() if limit]
    if wrong:
        raise ApiError("INVALID_REQUEST", f"{''.join(wrong)}if isRenewAck is true.")


def _has_acknowledgements(request: ShareFetchRequest) -> bool:
    return any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)


def _session(parts: BrokerParts, context: RequestContext, member: SessionKey, request: ShareFetchRequest) -> ShareContext:
    """Return the context of the request in the member's session. Raises ApiError."""
    name = parts.cache.topic_name
    wanted = [
        TopicIdPartition(topic.topic_id, each.partition_index, name(topic.topic_id))
        for topic in request.topics
        for each in topic.partitions
    ]
    forgotten = [
        TopicIdPartition(topic.topic_id, number, name(topic.topic_id))
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    has_acknowledgements = _has_acknowledgements(request)
    return new_context(
        parts.shares.manager.sessions,
        FetchRequest(member, request.share_session_epoch, wanted, forgotten, has_acknowledgements, context.connection_id),
    )


def _fetch(parts: BrokerParts, member: SessionKey, request: ShareFetchRequest, session: ShareContext) -> Promise[Fetched]:
    """Acquire records of the session's partitions."""
    known, unknown = session.fetch_parts()
    refused = dict(unknown)
    wanted = []
    for part in known:
        assert part.topic is not None, "the topic is known"
        if parts.cache.partition(part.topic, part.partition) is None:
            refused[part] = PartitionData(part.partition, by_name("UNKNOWN_TOPIC_OR_PARTITION").code, records=_NO_RECORDS)
        else:
            wanted.append(part)
    if not wanted:
        return Promise.of(refused)
    manager = parts.shares.manager
    max_bytes = min(request.max_bytes, parts.config["fetch.max.bytes"])
    params = FetchParams(
        _CONSUMER,
        _NO_EPOCH,
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        manager.settings(member.group_id).isolation,
    )
    mode, max_records, batch_size = request.share_acquire_mode, request.max_records, request.batch_size
    fetched = manager.fetch(Wanted(member, request.share_session_epoch, params, mode, max_records, batch_size, wanted))
    return fetched.then(lambda results: {**results, **refused})


class _Answer:
    """Builds the response to a request."""

    def __init__(self, parts: BrokerParts, context: RequestContext, session: ShareContext, member: SessionKey) -> None:
        self._parts = parts
        self._context = context
        self._session = session
        self._member = member
        self._topics = parts.cache.image.topics.by_id

    def response(self, fetched: Fetched, acknowledged: Acknowledgements) -> ShareFetchResponse:
        """Return the response. If the request is the session's last one, end the session.

        Raises ApiError UNKNOWN_SERVER_ERROR for a topic that was unknown when the request arrived: Kafka cannot count its bytes.
        """
        nodes = self._add_leaders(fetched)
        response = self._session.respond(fetched)
        response.node_endpoints = list(nodes.values())
        manager = self._parts.shares.manager
        response.acquisition_lock_timeout_ms = manager.settings(self._member.group_id).record_lock_duration_ms
        for topic in response.responses:
            self._count_bytes(topic)
            for told in topic.partitions:
                told.error_message = None  # Clients get only the codes.
        _add_acknowledgements(response, acknowledged)
        if self._session.is_final:
            manager.release_session(self._member)
        return response

    def _add_leaders(self, fetched: Fetched) -> dict[int, NodeEndpoint]:
        nodes: dict[int, NodeEndpoint] = {}
        for part, data in fetched.items():
            leader = moved_to(self._parts, self._context, part, data.error_code)
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(leader.id, leader.epoch)
                if leader.node is not None:
                    nodes[leader.id] = NodeEndpoint(leader.id, leader.node.host, leader.node.port, leader.node.rack)
        return nodes

    def _count_bytes(self, topic: ShareFetchableTopicResponse) -> None:
        known = self._topics.get(topic.topic_id)
        if known is None:
            raise ApiError("UNKNOWN_SERVER_ERROR", "There is no such topic")
        size = sum(size_of(told.records) for told in topic.partitions if told.records is not None)
        self._parts.replica_manager.stats.of(known.name).bytes_out += size


def _add_acknowledgements(response: ShareFetchResponse, acknowledged: Acknowledgements) -> None:
    """Add the results of acknowledgements to the results of the fetch."""
    topics = {topic.topic_id: topic for topic in response.responses}
    told = {(topic.topic_id, each.partition_index): each for topic in response.responses for each in topic.partitions}
    for part, result in acknowledged.items():
        data = told.get(part[:2])
        if data is None:
            topic = topics.get(part.topic_id)
            if topic is None:
                topic = topics[part.topic_id] = ShareFetchableTopicResponse(part.topic_id)
                response.responses.append(topic)
            data = PartitionData(part.partition, records=_NO_RECORDS)
            topic.partitions.append(data)
        data.acknowledge_error_code = result.error_code
        data.acknowledge_error_message = result.error_message
