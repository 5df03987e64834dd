"""ShareAcknowledge, versions 1 and 2: a member accepts, releases, rejects or renews records (Kafka's
KafkaApis.handleShareAcknowledgeRequest, processShareAcknowledgeResponse; KIP-932, KIP-1222)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kops.broker.apis.groups.common import respond_later
from kops.broker.apis.shares.acknowledgements import acknowledge, member_of, moved_to
from kops.coordinators.share.sessions.contexts import on_acknowledge
from kops.coordinators.share.sessions.session import FINAL_EPOCH
from kops.protocol.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from kops.broker.apis.shares.acknowledgements import Results
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest


def answer_share_acknowledge(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when all acknowledgements are persisted. Raises ApiError for an invalid member or session."""
    request = cast("ShareAcknowledgeRequest", context.request.message)
    member, epoch = member_of(request), request.share_session_epoch
    manager = parts.shares.manager
    on_acknowledge(manager.sessions, member, epoch)

    def answer(results: Results) -> ShareAcknowledgeResponse:
        if epoch == FINAL_EPOCH:
            manager.release_session(member)
        response = _response(parts, context, results)
        response.acquisition_lock_timeout_ms = manager.settings(member.group_id).record_lock_duration_ms
        return response

    results = acknowledge(parts, member, request.topics, context.request.version, is_renew=request.is_renew_ack)
    respond_later(context, results, answer)


def _response(parts: BrokerParts, context: RequestContext, results: Results) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    nodes: dict[int, NodeEndpoint] = {}
    for part, result in results.items():
        leader = moved_to(parts, context, part, result.error_code)
        if leader is not None:
            result.current_leader = LeaderIdAndEpoch(leader.id, leader.epoch)
            if leader.node is not None:
                nodes[leader.id] = NodeEndpoint(leader.id, leader.node.host, leader.node.port, leader.node.rack)
        topics.setdefault(part.topic_id, ShareAcknowledgeTopicResponse(part.topic_id)).partitions.append(result)
    return ShareAcknowledgeResponse(responses=list(topics.values()), node_endpoints=list(nodes.values()))
