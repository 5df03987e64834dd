"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: Kafka's KafkaApis, and the conversions between versions in JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest and
LeaveGroupResponse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.broker.apis.groups.common import group_context, respond_later, respond_with
from kops.errors import ApiError
from kops.protocol import messages

if TYPE_CHECKING:
    from kops.broker.network.channel import RequestContext
    from kops.broker.parts.parts import BrokerParts
    from kops.protocol.messages.heartbeat_request import HeartbeatRequest
    from kops.protocol.messages.join_group_request import JoinGroupRequest
    from kops.protocol.messages.join_group_response import JoinGroupResponse
    from kops.protocol.messages.leave_group_request import LeaveGroupRequest
    from kops.protocol.messages.leave_group_response import LeaveGroupResponse
    from kops.protocol.messages.sync_group_request import SyncGroupRequest

_NULL_PROTOCOL_SINCE: Final = 7
_PROTOCOL_NAMED_SINCE: Final = 5
_MEMBERS_SINCE: Final = 3


def handle_join_group(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the group's next generation begins."""
    context.hurry_heartbeats()
    request, version = cast("JoinGroupRequest", context.request.message), context.request.version
    if version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms

    def answer(response: JoinGroupResponse) -> JoinGroupResponse:
        if version < _NULL_PROTOCOL_SINCE:
            response.protocol_name = response.protocol_name or ""
        elif not response.protocol_name:
            response.protocol_name = None
        return response

    respond_later(context, parts.groups.service.join_group(group_context(context), request), answer)


def handle_sync_group(parts: BrokerParts, context: RequestContext) -> None:
    """Answer when the group's leader has sent the assignment. Raises ApiError INCONSISTENT_GROUP_PROTOCOL without protocol type or name."""
    context.hurry_heartbeats()
    request = cast("SyncGroupRequest", context.request.message)
    if context.request.version >= _PROTOCOL_NAMED_SINCE and (request.protocol_type is None or request.protocol_name is None):
        raise ApiError("INCONSISTENT_GROUP_PROTOCOL")
    respond_with(context, parts.groups.service.sync_group(group_context(context), request))


def handle_heartbeat(parts: BrokerParts, context: RequestContext) -> None:
    """Answer at once."""
    request, service = cast("HeartbeatRequest", context.request.message), parts.groups.service
    kept = service.kept_heartbeat(request)
    if kept is None:
        respond_with(context, service.heartbeat(group_context(context), request))
    else:
        context.respond(kept)


def handle_leave_group(parts: BrokerParts, context: RequestContext) -> None:
    """Remove the members, and answer when the change is written."""
    context.hurry_heartbeats()
    request, version = cast("LeaveGroupRequest", context.request.message), context.request.version
    if version < _MEMBERS_SINCE:
        from kops.protocol.messages.leave_group_request import MemberIdentity

        request = messages.LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)])

    def answer(response: LeaveGroupResponse) -> LeaveGroupResponse:
        if version >= _MEMBERS_SINCE:
            return response
        return messages.LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)

    respond_later(context, parts.groups.service.leave_group(group_context(context), request), answer)
