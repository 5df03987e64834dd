"""Members that leave a consumer group or are removed from it (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.consumer.checks import check_instance_is_not_fenced, known_static_member
from kops.coordinators.groups.consumer.migration import Migration
from kops.coordinators.groups.consumer.reconcile import Reconciler
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import STATIC_LEAVE_EPOCH, ConsumerGroupMember
from kops.coordinators.groups.modern.subscriptions import count
from kops.coordinators.groups.records.consumer import epoch_record, regex_tombstone, removed_member_records
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kops.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kops.protocol.messages.leave_group_request import LeaveGroupRequest
from kops.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse

R = TypeVar("R")


class Leaves:
    """Handles heartbeats with the epochs -1 and -2, LeaveGroup, and fenced members."""

    def __init__(self, reconciler: Reconciler, migration: Migration) -> None:
        self._lookup = reconciler.lookup
        self._timers = reconciler.timers
        self._migration = migration

    def leave(self, request: ConsumerGroupHeartbeatRequest) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """Handle a member that leaves. A static member may leave temporarily (-2). Raises ApiError."""
        group = self._lookup.group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            return self.fence(group, [group.member(request.member_id)], response)
        member = known_static_member(group, request.instance_id)
        check_instance_is_not_fenced(member, request.member_id, request.instance_id)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            return self.fence(group, [member], response)
        response.member_id = member.member_id
        return CoordinatorResult([member.as_static_leaver().assignment_record(group.group_id)], response)

    def leave_classic(self, group: ConsumerGroup, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        """Handle LeaveGroup for a consumer group."""
        responses: list[MemberResponse] = []
        leaving: dict[str, ConsumerGroupMember] = {}
        for identity in request.members:
            response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
            responses.append(response)
            try:
                if identity.group_instance_id is None:
                    member = group.member(identity.member_id)
                else:
                    member = known_static_member(group, identity.group_instance_id)
                    if identity.member_id:
                        check_instance_is_not_fenced(member, identity.member_id, identity.group_instance_id)
            except ApiError as error:
                response.error_code = code(error.name)
            else:
                leaving[member.member_id] = member
        return self.fence(group, list(leaving.values()), LeaveGroupResponse(members=responses))

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], response: R | None) -> CoordinatorResult[R]:
        """Remove members. If all others use the classic protocol, the group is converted to a classic group."""
        if not members:
            return CoordinatorResult(response=response)
        records: list[CoordinatorRecord] = []
        if self._migration.may_downgrade_without(group, members):
            self._migration.to_classic_group(group, members, None, records, rebalance=True)
            return CoordinatorResult(records, response, replay_records=False)
        group_id = group.group_id
        for member in members:
            records += removed_member_records(group_id, member.member_id)
        gone = self._delete_regexes(group, members, records)
        topics = group.topics_without(members, gone)
        metadata_hash = self._lookup.topic_hashes.of_topics(topics, self._lookup.image)
        records.append(epoch_record(group_id, group.group_epoch + 1, metadata_hash))
        for member in members:
            self._timers.cancel_all(group_id, member.member_id)
        return CoordinatorResult(records, response)

    @staticmethod
    def _delete_regexes(group: ConsumerGroup, members: Sequence[ConsumerGroupMember], records: list[CoordinatorRecord]) -> list[str]:
        """Delete the regular expressions to which no other member subscribes. Returns them."""
        counts: dict[str, int] = {}
        for member in members:
            if member.subscribed_topic_regex:
                count(counts, member.subscribed_topic_regex, 1)
        gone = [regex for regex, number in counts.items() if group.subscribed_member_count(regex) == number]
        records += (regex_tombstone(group.group_id, regex) for regex in gone)
        return gone
