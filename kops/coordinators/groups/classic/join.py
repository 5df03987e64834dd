"""JoinGroup for classic groups (from Kafka's GroupMetadataManager.classicGroupJoinToClassicGroup and what it calls)."""

from __future__ import annotations

from typing import Final

from kops.coordinators.groups.classic.errors import append_error_code, code, unless_broken
from kops.coordinators.groups.classic.group import ClassicGroup, broken
from kops.coordinators.groups.classic.lookup import (
    create_tombstones_and_cancel_timers,
    existing_classic_group,
    get_or_create_classic_group,
)
from kops.coordinators.groups.classic.member import ClassicGroupMember
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.classic.state import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kops.coordinators.groups.classic.stored import empty_group_record, group_record
from kops.coordinators.groups.config import CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.group import GroupType
from kops.coordinators.groups.surroundings import EMPTY_RESULT, Surroundings
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError, KopsError
from kops.protocol.messages.join_group_request import JoinGroupRequest
from kops.protocol.messages.join_group_response import JoinGroupResponse

JoinPromise = Promise[JoinGroupResponse]
_FIRST_VERSION_WITH_REQUIRED_MEMBER_ID: Final = 4
_FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9


class Joins:
    """Handles JoinGroup requests to classic groups, and to groups that do not exist yet."""

    def __init__(self, around: Surroundings, rebalances: Rebalances) -> None:
        self._around = around
        self._rebalances = rebalances

    def join(self, context: RequestContext, request: JoinGroupRequest, promise: JoinPromise) -> CoordinatorResult[None]:
        """Handle a joining member. A classic group replaces an empty group of another kind. A new group is written to the log."""
        records: list[CoordinatorRecord] = []
        store, group_id, member_id = self._around.store, request.group_id, request.member_id
        self._maybe_delete_empty_group(group_id, records)
        is_new_group = store.get(group_id) is None
        try:
            if member_id:
                group = existing_classic_group(store, group_id)
            else:
                group = get_or_create_classic_group(store, group_id, self._around.now_ms)
        except ApiError:
            promise.complete(_error("UNKNOWN_MEMBER_ID", member_id))
            return EMPTY_RESULT
        result = EMPTY_RESULT
        if not self._accepts(group, member_id):
            group.remove(member_id)
            promise.complete(_error("GROUP_MAX_SIZE_REACHED"))
        elif member_id:
            result = self._join_known_member(context, request, group, promise)
        else:
            result = self._join_new_member(context, request, group, promise)
        if not is_new_group or result is not EMPTY_RESULT:
            return result
        written: Promise[None] = Promise()
        written.when_done(lambda _, error: error is not None and promise.complete(JoinGroupResponse(error_code=append_error_code(error))))
        records.append(empty_group_record(group))
        return CoordinatorResult(records, append_promise=written, replay_records=False)

    def _maybe_delete_empty_group(self, group_id: str, records: list[CoordinatorRecord]) -> None:
        group = self._around.store.get(group_id)
        if group is not None and group.type in (GroupType.CONSUMER, GroupType.STREAMS) and group.is_empty:
            create_tombstones_and_cancel_timers(self._around, group, records)
            self._around.store.remove(group_id)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group's size limit admits the member."""
        max_size = self._around.config.group_max_size
        member = group.members.get(member_id)
        if group.state in (EMPTY, DEAD):
            return True
        if group.state is PREPARING_REBALANCE:
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < max_size
        return member is not None or len(group.members) < max_size

    def _join_new_member(
        self, context: RequestContext, request: JoinGroupRequest, group: ClassicGroup, promise: JoinPromise
    ) -> CoordinatorResult[None]:
        if group.state is DEAD:
            promise.complete(_error("COORDINATOR_NOT_AVAILABLE"))
            return EMPTY_RESULT
        if not group.supports_protocols(request.protocol_type, request.protocols):
            promise.complete(_error("INCONSISTENT_GROUP_PROTOCOL"))
            return EMPTY_RESULT
        instance_id = request.group_instance_id
        new_member_id = f"{context.client_id if instance_id is None else instance_id}-{self._around.new_id()}"
        if instance_id is not None:
            existing = group.static_members.get(instance_id)
            if existing is not None:
                return self._replace_static_member(context, request, group, existing, new_member_id, promise)
            return self._add_member(context, request, group, new_member_id, promise)
        if context.api_version < _FIRST_VERSION_WITH_REQUIRED_MEMBER_ID:
            return self._add_member(context, request, group, new_member_id, promise)
        group.add_pending_member(new_member_id)
        self._rebalances.schedule_heartbeat(group.group_id, new_member_id, request.session_timeout_ms)
        promise.complete(_error("MEMBER_ID_REQUIRED", new_member_id))
        return EMPTY_RESULT

    def _join_known_member(
        self, context: RequestContext, request: JoinGroupRequest, group: ClassicGroup, promise: JoinPromise
    ) -> CoordinatorResult[None]:
        member_id, instance_id = request.member_id, request.group_instance_id
        if group.state is DEAD:
            promise.complete(_error("COORDINATOR_NOT_AVAILABLE", member_id))
            return EMPTY_RESULT
        if not group.supports_protocols(request.protocol_type, request.protocols):
            promise.complete(_error("INCONSISTENT_GROUP_PROTOCOL", member_id))
            return EMPTY_RESULT
        if group.is_pending_member(member_id):
            if instance_id is not None:
                raise broken(
                    f"Received unexpected JoinGroup with groupInstanceId={instance_id} for pending member with memberId={member_id}"
                )
            return self._add_member(context, request, group, member_id, promise)
        try:
            group.validate_member(member_id, instance_id)
        except ApiError as error:
            promise.complete(JoinGroupResponse(error_code=code(error.name), member_id=member_id, protocol_name=None))
            return EMPTY_RESULT
        return self._join_again(request, group, group.members[member_id], promise)

    def _join_again(
        self, request: JoinGroupRequest, group: ClassicGroup, member: ClassicGroupMember, promise: JoinPromise
    ) -> CoordinatorResult[None]:
        """Handle a known member that joins: a rebalance begins, unless the member only lost its last response."""
        is_leader = group.is_leader(member.member_id)
        if group.state not in (PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE):
            promise.complete(_error("UNKNOWN_MEMBER_ID", member.member_id))
            return EMPTY_RESULT
        missed_response = member.matches(request.protocols) and (
            group.state is COMPLETING_REBALANCE or (group.state is STABLE and not is_leader)
        )
        if missed_response:
            promise.complete(self._rebalances.join_response(group, member.member_id, is_leader=is_leader))
            return EMPTY_RESULT
        group.update_member(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, promise)
        return self._rebalances.maybe_prepare_rebalance_or_complete_join(group)

    def _add_member(
        self, context: RequestContext, request: JoinGroupRequest, group: ClassicGroup, member_id: str, promise: JoinPromise
    ) -> CoordinatorResult[None]:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            context.client_id,
            context.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
        )
        member.is_new = True
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, promise)
        # A rebalance may take long, and a member that waits for its first response cannot send heartbeats. Without a limit, members whose
        # clients have given up would stay.
        self._rebalances.reschedule_heartbeat(group, member, CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalances.maybe_prepare_rebalance_or_complete_join(group)

    def _replace_static_member(
        self,
        context: RequestContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        old_member_id: str,
        new_member_id: str,
        promise: JoinPromise,
    ) -> CoordinatorResult[None]:
        """Handle a static member that joins without its id (KIP-345). A stable group does not rebalance if the selected protocol is the
        same."""
        old_leader_id = group.leader_id
        instance_id = request.group_instance_id
        assert instance_id is not None
        member = group.replace_static_member(instance_id, old_member_id, new_member_id)
        self._rebalances.reschedule_heartbeat(group, member)
        before = (member.supported_protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update_member(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, promise)
        if group.state is COMPLETING_REBALANCE:
            return self._rebalances.prepare_rebalance(group)
        if group.state in (EMPTY, DEAD):
            raise broken(
                f"Group {group.group_id} was not supposed to be in the state {group.state_text} when the unknown static member "
                f"{instance_id} rejoins."
            )
        if group.state is PREPARING_REBALANCE:
            return self._rebalances.maybe_complete_join_phase(group)
        if (group.protocol_name or "") != group.select_protocol():
            return self._rebalances.maybe_prepare_rebalance_or_complete_join(group)
        written: Promise[None] = Promise()

        def done(error: KopsError | None) -> None:
            if error is None:
                self._answer_replaced(context, group, member, old_leader_id)
                return
            group.update_member(member, *before, None)
            old = group.replace_static_member(instance_id, new_member_id, old_member_id)
            self._rebalances.reschedule_heartbeat(group, old)
            response = self._rebalances.join_response(group, "", is_leader=False)
            response.leader = old_leader_id or ""
            response.error_code = append_error_code(error)
            promise.complete(response)

        written.when_done(unless_broken(done))
        return CoordinatorResult((group_record(group, group.assignment()),), append_promise=written, replay_records=False)

    def _answer_replaced(self, context: RequestContext, group: ClassicGroup, member: ClassicGroupMember, old_leader_id: str | None) -> None:
        """Answer a replaced member. A leader is told to skip the assignment (KIP-814). Older clients get the old leader's id, so they also
        skip it."""
        knows_skipping = context.api_version >= _FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT
        is_leader = knows_skipping and group.is_leader(member.member_id)
        response = self._rebalances.join_response(group, member.member_id, is_leader=is_leader, skip_assignment=is_leader)
        if not knows_skipping:
            response.leader = old_leader_id or ""
        group.complete_join(member, response)


def _error(name: str, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code(name), member_id=member_id)
