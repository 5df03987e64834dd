"""Members that leave a streams group or are removed from it, and their timers (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from typing import TypeVar

from kops.coordinators.groups.records.streams import metadata_record, removed_member_records
from kops.coordinators.groups.streams.lookup import GroupLookup
from kops.coordinators.groups.streams.result import HeartbeatResult
from kops.coordinators.groups.streams.state.group import StreamsGroup
from kops.coordinators.groups.streams.state.member import StreamsGroupMember
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kops.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

R = TypeVar("R")


class Leaves:
    """Handles heartbeats with the epochs -1 and -2, and members whose timers expire."""

    def __init__(self, lookup: GroupLookup) -> None:
        self._lookup = lookup
        self._timer = lookup.around.timer

    def leave(self, request: StreamsGroupHeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        """Handle a member that leaves. Raises ApiError."""
        group = self._lookup.group(request.group_id)
        if request.shutdown_application:
            group.request_shutdown(request.member_id)
        if request.instance_id is not None:
            raise ApiError("UNKNOWN_SERVER_ERROR", "Static members are not supported in streams groups.")
        response = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return self._fence(group, group.member(request.member_id), HeartbeatResult(response, {}))

    def schedule_session(self, group_id: str, member_id: str) -> None:
        """Restart a member's session timer after a request."""
        delay_ms = self._lookup.session_timeout_ms(group_id)
        self._timer.schedule(_session_key(group_id, member_id), delay_ms, lambda: self._fence_by_id(group_id, member_id))

    def schedule_rebalance(self, group_id: str, member: StreamsGroupMember) -> None:
        """Start the timer of a member that must revoke tasks within its rebalance timeout."""
        member_id, epoch = member.member_id, member.member_epoch
        self._timer.schedule(
            _rebalance_key(group_id, member_id), member.rebalance_timeout_ms, lambda: self._fence_by_id(group_id, member_id, epoch)
        )

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        """Cancel this timer, because the member has revoked its tasks."""
        self._timer.cancel(_rebalance_key(group_id, member_id))

    def _fence_by_id(self, group_id: str, member_id: str, epoch: int | None = None) -> CoordinatorResult[None]:
        """Remove a member whose timer has expired, if it still exists and, if `epoch` is given, still has that epoch."""
        try:
            group = self._lookup.group(group_id)
            member = group.member(member_id)
        except ApiError:
            return CoordinatorResult()
        if epoch is not None and member.member_epoch != epoch:
            return CoordinatorResult()
        return self._fence(group, member, None)

    def _fence(self, group: StreamsGroup, member: StreamsGroupMember, response: R) -> CoordinatorResult[R]:
        group_id, member_id = group.group_id, member.member_id
        records = removed_member_records(group_id, member_id)
        records.append(
            metadata_record(group_id, group.group_epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
        )
        for key_of in (_session_key, _rebalance_key):
            self._timer.cancel(key_of(group_id, member_id))
        return CoordinatorResult(records, response)


def _session_key(group_id: str, member_id: str) -> str:
    return f"session-timeout-{group_id}-{member_id}"


def _rebalance_key(group_id: str, member_id: str) -> str:
    return f"rebalance-timeout-{group_id}-{member_id}"
