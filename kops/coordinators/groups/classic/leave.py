"""LeaveGroup for classic groups (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.classic.state import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from kops.coordinators.groups.surroundings import EMPTY_RESULT
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kops.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse


class Leaves:
    """Handles LeaveGroup requests to classic groups."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        """Remove members; static ones may be given by instance id only (KIP-345). The group rebalances if a member has left."""
        if group.state is DEAD:
            return CoordinatorResult(response=LeaveGroupResponse(error_code=code("COORDINATOR_NOT_AVAILABLE")))
        responses = [self._leave(group, identity) for identity in request.members]
        result = EMPTY_RESULT
        if any(response.error_code == 0 for response in responses):
            if group.state in (STABLE, COMPLETING_REBALANCE):
                result = self._rebalances.maybe_prepare_rebalance_or_complete_join(group)
            elif group.state is PREPARING_REBALANCE:
                result = self._rebalances.maybe_complete_join_phase(group)
        return CoordinatorResult(
            result.records,
            LeaveGroupResponse(members=responses),
            append_promise=result.append_promise,
            replay_records=result.replay_records,
        )

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> MemberResponse:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        response = MemberResponse(member_id=member_id, group_instance_id=instance_id)
        if not member_id:
            known = None if instance_id is None else group.static_members.get(instance_id)
            if known is None:
                response.error_code = code("UNKNOWN_MEMBER_ID")
            else:
                self._remove(group, known)
        elif group.is_pending_member(member_id):
            group.remove(member_id)
            self._rebalances.cancel_heartbeat(group.group_id, member_id)
        else:
            try:
                group.validate_member(member_id, instance_id)
            except ApiError as error:
                response.error_code = code(error.name)
            else:
                self._remove(group, member_id)
        return response

    def _remove(self, group: ClassicGroup, member_id: str) -> None:
        self._rebalances.cancel_heartbeat(group.group_id, member_id)
        group.complete_join(group.members[member_id], JoinGroupResponse(error_code=code("UNKNOWN_MEMBER_ID")))
        group.remove(member_id)
