"""ConsumerGroupHeartbeat of members that join or stay (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kops.coordinators.groups.assignors.spec import AssignorError
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.consumer.checks import check_epoch, check_room
from kops.coordinators.groups.consumer.migration import Migration
from kops.coordinators.groups.consumer.reconcile import Reconciler, Target, from_last_target
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember, Owned
from kops.coordinators.groups.consumer.static_members import join_static_member, stay_static_member
from kops.coordinators.groups.consumer.subscription import Metadata, RegexStatus, Subscriptions, note_subscription
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.modern.subscriptions import names_of
from kops.coordinators.groups.modern.target_assignment import build_target_assignment
from kops.coordinators.groups.records import consumer as records_of
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import consumer_group_heartbeat_response as answering
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

Response = answering.ConsumerGroupHeartbeatResponse
_NO_TIMEOUT: Final = -1


class Heartbeats:
    """Handles heartbeats. Members that join with the classic protocol share most of this code."""

    def __init__(self, reconciler: Reconciler, subscriptions: Subscriptions, migration: Migration) -> None:
        self._reconciler = reconciler
        self._lookup = reconciler.lookup
        self._timers = reconciler.timers
        self._subscriptions = subscriptions
        self._migration = migration

    def heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> CoordinatorResult[Response]:
        """Handle a heartbeat of a member that joins (epoch 0) or stays. Raises ApiError."""
        around = self._lookup.around
        now_ms = around.now_ms()
        records: list[CoordinatorRecord] = []
        group = self._group(request.group_id, records, create=request.member_epoch == 0)
        check_room(group, request.member_id, around.config.group_consumer_max_size)
        member_id = request.member_id or self._lookup.new_member_id()
        member = self._member(group, member_id, request, records)
        new = _updated(member, context, request)
        names_changed = note_subscription(group.group_id, member, new, records)
        regex_status = self._subscriptions.update_regexes(group, member, new, records)
        bump = names_changed or regex_status is RegexStatus.UPDATED_AND_RESOLVED
        metadata = Metadata(group.group_epoch, group.is_homogeneous)
        if bump or group.has_metadata_expired(now_ms):
            metadata = self._subscriptions.update_metadata(group, member, new, records, bump=bump)
        target = self.update_target(group, metadata, member, new, records)
        new = self._reconciler.reconcile(
            group,
            new,
            target,
            request.topic_partitions,
            records,
            has_subscription_changed=names_changed or regex_status is not RegexStatus.NO_CHANGE,
        )
        response = self._stay(group, new)
        if request.member_epoch == 0 or _is_full(request) or member.assigned_partitions != new.assigned_partitions:
            response.assignment = _assignment(new.assigned_partitions)
        return CoordinatorResult(records, response)

    def keep_member(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Response | None:
        """Handle a heartbeat that tells nothing new, of a member that has its target assignment. Returns None, and does nothing, if it is
        another one, or if the group has something to do."""
        around = self._lookup.around
        group = around.store.get(request.group_id)
        if request.member_epoch <= 0 or request.topic_partitions is not None or not isinstance(group, ConsumerGroup):
            return None
        member = group.members.get(request.member_id)
        epoch = group.assignment_epoch
        if (
            member is None
            or member.member_epoch != request.member_epoch
            or not member.is_reconciled_to(epoch)
            or group.group_epoch > epoch
            or _updated(member, context, request) is not member
            or group.subscribed_regexes
            or group.has_metadata_expired(around.now_ms())
        ):
            return None
        return self._stay(group, member)

    def _stay(self, group: ConsumerGroup, member: ConsumerGroupMember) -> Response:
        """Restart the member's session, and return the answer without an assignment."""
        session_ms, interval_ms = self._lookup.session_and_interval_ms(group.group_id)
        self._timers.schedule_session(group.group_id, member.member_id, session_ms)
        return Response(member_id=member.member_id, member_epoch=member.member_epoch, heartbeat_interval_ms=interval_ms)

    def _group(self, group_id: str, records: list[CoordinatorRecord], *, create: bool) -> ConsumerGroup:
        """Return the group. With `create`, it is created if needed, or a classic group is converted."""
        around = self._lookup.around
        group = around.store.get(group_id)
        if group is None and not create:
            raise ApiError("GROUP_ID_NOT_FOUND", f"Consumer group {group_id} not found.")
        if group is None:
            return ConsumerGroup(around.timeline, group_id)
        if create and isinstance(group, ClassicGroup):
            if group.is_empty:
                group.create_group_tombstone_records(records)
                group.cancel_timers(around.timer)
                return ConsumerGroup(around.timeline, group_id)
            return self._migration.to_consumer_group(group, records)
        if isinstance(group, ConsumerGroup):
            return group
        raise ApiError("GROUP_ID_NOT_FOUND", f"Group {group_id} is not a consumer group.")

    def _member(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        epoch, owned, instance_id = request.member_epoch, request.topic_partitions, request.instance_id
        if instance_id is None:
            member = group.member_or_new(member_id) if epoch == 0 else group.member(member_id)
            check_epoch(member, epoch, owned)
            return member
        if epoch == 0:
            return join_static_member(group, member_id, instance_id, records, uses_classic_protocol=False)
        return stay_static_member(group, member_id, instance_id, epoch, owned)

    def update_target(
        self,
        group: ConsumerGroup,
        metadata: Metadata,
        old: ConsumerGroupMember,
        new: ConsumerGroupMember,
        records: list[CoordinatorRecord],
    ) -> Target:
        """Return a new target assignment if the group's epoch has risen and the interval has passed, otherwise the last one."""
        epoch = metadata.group_epoch
        if group.assignment_epoch >= epoch:
            return from_last_target(group, new)
        now_ms = self._lookup.around.now_ms()
        interval_ms = self._lookup.assignment_interval_ms(group.group_id)
        made_ms = group.assignment_timestamp
        if made_ms != 0 and interval_ms != 0 and now_ms < made_ms + interval_ms:
            return from_last_target(group, new)
        name = group.preferred_assignor_with(old, new) or self._lookup.default_assignor
        updated: dict[str, ConsumerGroupMember | None] = {new.member_id: new}
        previous = None if new.instance_id is None else group.static_members.get(new.instance_id)
        if previous is not None and previous != new.member_id:
            updated[previous] = None
        try:
            result = build_target_assignment(
                group,
                self._lookup.assignor(name),
                self._lookup.image,
                group.subscribed_topics,
                is_homogeneous=metadata.is_homogeneous,
                updated=updated,
                static_members=group.static_members,
            )
        except AssignorError as error:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Failed to compute a new target assignment for epoch {epoch}: {error}") from error
        records += (
            records_of.target_assignment_record(group.group_id, member_id, partitions) for member_id, partitions in result.changed.items()
        )
        records.append(records_of.target_assignment_epoch_record(group.group_id, epoch, now_ms))
        return Target(epoch, result.members.get(new.member_id, {}))


def _updated(member: ConsumerGroupMember, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    """Return the member with the fields of the request. Omitted fields do not change."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if _says_nothing(request) and (member.client_id, member.client_host, member.classic) == (context.client_id, context.client_host, None):
        return member
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if request.rebalance_timeout_ms == _NO_TIMEOUT else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else names_of(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )


def _says_nothing(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request omits all fields about the member, as nearly all requests do."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.instance_id is None
        and request.rack_id is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == _NO_TIMEOUT
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields. The response then also has all fields."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != _NO_TIMEOUT and has_subscription and request.topic_partitions is not None


def _assignment(owned: Owned) -> answering.Assignment:
    return answering.Assignment([answering.TopicPartitions(topic_id, list(epochs)) for topic_id, epochs in owned.items()])
