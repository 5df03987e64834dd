"""SyncGroup and Heartbeat for classic groups (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from kops.coordinators.groups.classic.errors import append_error_code, code, unless_broken
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.member import EMPTY_ASSIGNMENT
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.classic.state import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kops.coordinators.groups.classic.stored import group_record
from kops.coordinators.groups.surroundings import EMPTY_RESULT
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_code
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.heartbeat_response import HeartbeatResponse
from kops.protocol.messages.sync_group_request import SyncGroupRequest
from kops.protocol.messages.sync_group_response import SyncGroupResponse

SyncPromise = Promise[SyncGroupResponse]


class Syncs:
    """Handles SyncGroup and Heartbeat requests to classic groups."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, promise: SyncPromise) -> CoordinatorResult[None]:
        """Handle SyncGroup: a member requests its assignment, and the leader sends those of all members."""
        error = _sync_error(group, request)
        if error is None and group.state is PREPARING_REBALANCE:
            error = "REBALANCE_IN_PROGRESS"
        if error is not None:
            promise.complete(SyncGroupResponse(error_code=code(error)))
            return EMPTY_RESULT
        member = group.members[request.member_id]
        if group.state is COMPLETING_REBALANCE:
            member.awaiting_sync = promise
            self._rebalances.remove_pending_sync_member(group, request.member_id)
            return self._store_assignment(group, request) if group.is_leader(request.member_id) else EMPTY_RESULT
        if group.state is STABLE:
            self._rebalances.remove_pending_sync_member(group, request.member_id)
            promise.complete(
                SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)
            )
        return EMPTY_RESULT

    def _store_assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> CoordinatorResult[None]:
        """Write the leader's assignment. Members get it when it is committed, if the group still has the same generation."""
        assignment = {given.member_id: given.assignment for given in request.assignments}
        for member_id in group.members:
            assignment.setdefault(member_id, EMPTY_ASSIGNMENT)
        written: Promise[None] = Promise()

        def done(error: KopsError | None) -> None:
            if group.state is not COMPLETING_REBALANCE or request.generation_id != group.generation_id:
                return
            if error is None:
                self._rebalances.set_and_propagate_assignment(group, assignment)
                group.transition_to(STABLE)
            else:
                self._rebalances.reset_and_propagate_assignment(group, by_code(append_error_code(error)).name)
                # As in Kafka, the result of the rebalance that begins here is discarded, not written.
                self._rebalances.maybe_prepare_rebalance_or_complete_join(group)

        written.when_done(unless_broken(done))
        return CoordinatorResult((group_record(group, assignment),), append_promise=written, replay_records=False)

    def keep_member(self, group: ClassicGroup, request: HeartbeatRequest) -> bool:
        """Handle a Heartbeat of a dynamic member in a stable group. Returns False, and does nothing, if it is another one."""
        if group.state is not STABLE or request.generation_id != group.generation_id or request.group_instance_id is not None:
            return False
        member = group.members.get(request.member_id)
        if member is None:
            return False
        self._rebalances.reschedule_heartbeat(group, member)
        return True

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """Handle Heartbeat. Raises ApiError."""
        if group.state is DEAD:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError("ILLEGAL_GENERATION")
        if group.state is EMPTY:
            return CoordinatorResult(response=HeartbeatResponse(error_code=code("UNKNOWN_MEMBER_ID")))
        self._rebalances.reschedule_heartbeat(group, group.members[request.member_id])
        rebalancing = group.state is PREPARING_REBALANCE
        return CoordinatorResult(response=HeartbeatResponse(error_code=code("REBALANCE_IN_PROGRESS") if rebalancing else 0))


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> str | None:
    if group.state is DEAD:
        return "COORDINATOR_NOT_AVAILABLE"
    try:
        group.validate_member(request.member_id, request.group_instance_id)
    except ApiError as error:
        return error.name
    if request.generation_id != group.generation_id:
        return "ILLEGAL_GENERATION"
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        return "INCONSISTENT_GROUP_PROTOCOL"
    return None


def _differ(requested: str | None, own: str | None) -> bool:
    return requested is not None and own is not None and requested != own
