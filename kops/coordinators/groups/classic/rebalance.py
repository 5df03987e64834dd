"""Rebalances of classic groups. Members join until all have joined or the time is up. Then they sync with the leader's assignment.

Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin, expire… and similar methods).
"""

from __future__ import annotations

from collections.abc import Mapping

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.classic.group import ClassicGroup, broken
from kops.coordinators.groups.classic.lookup import existing_classic_group
from kops.coordinators.groups.classic.member import EMPTY_ASSIGNMENT, ClassicGroupMember
from kops.coordinators.groups.classic.state import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kops.coordinators.groups.classic.stored import group_record
from kops.coordinators.groups.surroundings import EMPTY_RESULT, Surroundings
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.sync_group_response import SyncGroupResponse


def heartbeat_key(group_id: str, member_id: str) -> str:
    """The key of the timer of a member's session."""
    return f"heartbeat-{group_id}-{member_id}"


def join_key(group_id: str) -> str:
    """The key of the timer of a rebalance."""
    return f"join-{group_id}"


def sync_key(group_id: str) -> str:
    """The key of the timer of members that must still sync."""
    return f"sync-{group_id}"


class Rebalances:
    """The steps of a rebalance, which requests and timers trigger."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def maybe_prepare_rebalance_or_complete_join(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Begin a rebalance, or complete the current one if all members have joined."""
        return self.prepare_rebalance(group) if group.can_rebalance else self.maybe_complete_join_phase(group)

    def prepare_rebalance(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Begin a rebalance. A group's first rebalance waits for new members, later ones for the existing members."""
        if group.state is COMPLETING_REBALANCE:
            self.reset_and_propagate_assignment(group, "REBALANCE_IN_PROGRESS")
        group.pending_sync_members.clear()
        self._around.timer.cancel(sync_key(group.group_id))
        is_initial = group.state is EMPTY
        if is_initial:
            delay_ms = self._around.config.group_initial_rebalance_delay_ms
            self._schedule_initial(group.group_id, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.transition_to(PREPARING_REBALANCE)
        if is_initial:
            return EMPTY_RESULT
        if group.has_all_members_joined:
            return self.complete_join(group)
        self._schedule_join(group)
        return EMPTY_RESULT

    def maybe_complete_join_phase(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Complete the joining if all members have joined. In a group's first rebalance only the timer does this."""
        if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.has_all_members_joined:
            return self.complete_join(group)
        return EMPTY_RESULT

    def complete_join(self, group: ClassicGroup) -> CoordinatorResult[None]:
        """Complete the joining: remove members that have not joined, except static ones, and begin the new generation."""
        timer, group_id = self._around.timer, group.group_id
        timer.cancel(join_key(group_id))
        for member in [member for member in group.all_members() if not member.is_awaiting_join and not member.is_static]:
            group.remove(member.member_id)
            timer.cancel(heartbeat_key(group_id, member.member_id))
        if group.state is DEAD:
            return EMPTY_RESULT
        if not group.maybe_elect_new_joined_leader() and group.members:
            # Only static members remain, and none of them has joined again.
            self._schedule_join(group)
            return EMPTY_RESULT
        group.init_next_generation()
        if group.state is EMPTY:
            return CoordinatorResult((group_record(group, {}),), append_promise=Promise(), replay_records=False)
        for member in group.all_members():
            group.complete_join(member, self.join_response(group, member.member_id, is_leader=group.is_leader(member.member_id)))
            self.reschedule_heartbeat(group, member)
            member.is_new = False
            group.add_pending_sync_member(member.member_id)
        self._schedule_pending_sync(group)
        return EMPTY_RESULT

    def join_response(self, group: ClassicGroup, member_id: str, *, is_leader: bool, skip_assignment: bool = False) -> JoinGroupResponse:
        """Return the JoinGroup response for a member of the current generation."""
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=group.members_for_leader() if is_leader else [],
        )

    def reset_and_propagate_assignment(self, group: ClassicGroup, error: str) -> None:
        """Answer the members that have synced with an error and without an assignment."""
        for member in group.all_members():
            member.assignment = EMPTY_ASSIGNMENT
        self._propagate_assignment(group, code(error))

    def set_and_propagate_assignment(self, group: ClassicGroup, assignment: Mapping[str, bytes]) -> None:
        """Answer the members that have synced with their assignments."""
        if group.state is not COMPLETING_REBALANCE:
            raise broken("The group must be in CompletingRebalance state to set and propagate assignment.")
        for member in group.all_members():
            member.assignment = assignment.get(member.member_id, EMPTY_ASSIGNMENT)
        self._propagate_assignment(group, 0)

    def reschedule_heartbeat(self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None) -> None:
        """Restart a member's session timer after a request."""
        self.schedule_heartbeat(group.group_id, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def schedule_heartbeat(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Remove a member, which may be pending, after `timeout_ms` without a request."""
        key, timer = heartbeat_key(group_id, member_id), self._around.timer
        if not timer.restart(key, timeout_ms):
            timer.schedule(key, timeout_ms, lambda: self._expire_heartbeat(group_id, member_id), retry=False)

    def cancel_heartbeat(self, group_id: str, member_id: str) -> None:
        """Cancel the session timer of a removed member."""
        self._around.timer.cancel(heartbeat_key(group_id, member_id))

    def remove_pending_sync_member(self, group: ClassicGroup, member_id: str) -> None:
        """Record that a member has synced. After the last one, cancel the timer."""
        group.remove_pending_sync_member(member_id)
        if group.state in (DEAD, EMPTY, PREPARING_REBALANCE) or group.has_received_sync_from_all_members:
            self._around.timer.cancel(sync_key(group.group_id))

    def _propagate_assignment(self, group: ClassicGroup, error_code: int) -> None:
        for member in group.all_members():
            response = SyncGroupResponse(
                error_code=error_code,
                protocol_type=None if error_code else group.protocol_type,
                protocol_name=None if error_code else group.protocol_name,
                assignment=member.assignment,
            )
            if group.complete_sync(member, response):
                self.reschedule_heartbeat(group, member)

    def _find(self, group_id: str) -> ClassicGroup | None:
        """Return the group of a timer, or None if it no longer exists or is not classic."""
        try:
            return existing_classic_group(self._around.store, group_id)
        except ApiError:
            return None

    def _schedule_join(self, group: ClassicGroup) -> None:
        group_id = group.group_id
        self._around.timer.schedule(join_key(group_id), group.rebalance_timeout_ms, lambda: self._expire_join(group_id), retry=False)

    def _expire_join(self, group_id: str) -> CoordinatorResult[None]:
        group = self._find(group_id)
        return EMPTY_RESULT if group is None else self.complete_join(group)

    def _schedule_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        self._around.timer.schedule(
            join_key(group_id), delay_ms, lambda: self._expire_initial(group_id, delay_ms, remaining_ms), retry=False
        )

    def _expire_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> CoordinatorResult[None]:
        """End the wait of a group's first rebalance, or extend it up to the rebalance timeout if a member has joined meanwhile."""
        group = self._find(group_id)
        if group is None:
            return EMPTY_RESULT
        if not group.new_member_added or remaining_ms == 0:
            return self.complete_join(group)
        group.new_member_added = False
        new_delay_ms = min(self._around.config.group_initial_rebalance_delay_ms, remaining_ms)
        self._schedule_initial(group_id, new_delay_ms, max(remaining_ms - delay_ms, 0))
        return EMPTY_RESULT

    def _schedule_pending_sync(self, group: ClassicGroup) -> None:
        group_id, generation_id = group.group_id, group.generation_id
        self._around.timer.schedule(
            sync_key(group_id), group.rebalance_timeout_ms, lambda: self._expire_pending_sync(group_id, generation_id), retry=False
        )

    def _expire_pending_sync(self, group_id: str, generation_id: int) -> CoordinatorResult[None]:
        """Remove members that joined but did not sync."""
        group = self._find(group_id)
        if group is None or generation_id != group.generation_id or group.state not in (COMPLETING_REBALANCE, STABLE):
            return EMPTY_RESULT
        if group.has_received_sync_from_all_members:
            return EMPTY_RESULT
        for member_id in list(group.pending_sync_members):
            group.remove(member_id)
            self.cancel_heartbeat(group_id, member_id)
        return self.prepare_rebalance(group)

    def _expire_heartbeat(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        """Handle the end of a member's session."""
        group = self._find(group_id)
        if group is None or group.state is DEAD:
            return EMPTY_RESULT
        if group.is_pending_member(member_id):
            group.remove(member_id)
            return self._complete_join_if_prepared(group)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return EMPTY_RESULT
        group.complete_join(member, JoinGroupResponse(error_code=code("UNKNOWN_MEMBER_ID")))
        group.remove(member_id)
        if group.state in (STABLE, COMPLETING_REBALANCE):
            return self.maybe_prepare_rebalance_or_complete_join(group)
        return self._complete_join_if_prepared(group)

    def _complete_join_if_prepared(self, group: ClassicGroup) -> CoordinatorResult[None]:
        if group.state is PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group)
        return EMPTY_RESULT
