"""Members of consumer groups that use the classic protocol: JoinGroup, SyncGroup, Heartbeat (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.consumer.checks import check_generation, check_room, classic_speaker
from kops.coordinators.groups.consumer.heartbeat import Heartbeats
from kops.coordinators.groups.consumer.migration import Migration
from kops.coordinators.groups.consumer.reconcile import Reconciler, from_last_target
from kops.coordinators.groups.consumer.state.embedded import SchemaError, assignment_bytes, owned_topics, read_subscription, version_of
from kops.coordinators.groups.consumer.state.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ClassicMetadata, ConsumerGroupMember, MemberState
from kops.coordinators.groups.consumer.static_members import join_static_member, stay_static_member
from kops.coordinators.groups.consumer.subscription import Metadata, RegexStatus, Subscriptions, note_subscription
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.modern.subscriptions import names_of
from kops.coordinators.groups.surroundings import EMPTY_RESULT
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError, KopsError
from kops.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.heartbeat_response import HeartbeatResponse
from kops.protocol.messages.join_group_request import JoinGroupRequest
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.sync_group_request import SyncGroupRequest
from kops.protocol.messages.sync_group_response import SyncGroupResponse

_FIRST_VERSION_WITH_REQUIRED_MEMBER_ID: Final = 4


class ClassicMembers:
    """Handles classic requests to consumer groups."""

    def __init__(self, reconciler: Reconciler, subscriptions: Subscriptions, migration: Migration, heartbeats: Heartbeats) -> None:
        self._reconciler = reconciler
        self._lookup = reconciler.lookup
        self._timers = reconciler.timers
        self._subscriptions = subscriptions
        self._migration = migration
        self._heartbeats = heartbeats

    def join(
        self, group: ConsumerGroup, context: RequestContext, request: JoinGroupRequest, promise: Promise[JoinGroupResponse]
    ) -> CoordinatorResult[None]:
        """Handle JoinGroup: take the next step of the member's reconciliation. SyncGroup returns the new assignment. Raises ApiError."""
        around = self._lookup.around
        now_ms = around.now_ms()
        member_id = request.member_id or self._lookup.new_member_id()
        check_room(group, member_id, around.config.group_consumer_max_size)
        if not group.supports_classic_protocols(request.protocol_type, {protocol.name for protocol in request.protocols}):
            raise ApiError("INCONSISTENT_GROUP_PROTOCOL", f"Member {member_id}'s protocols are not supported.")
        requires_id = request.group_instance_id is None and not request.member_id
        if requires_id and context.api_version >= _FIRST_VERSION_WITH_REQUIRED_MEMBER_ID:
            promise.complete(JoinGroupResponse(member_id=member_id, error_code=code("MEMBER_ID_REQUIRED")))
            return EMPTY_RESULT
        records: list[CoordinatorRecord] = []
        member = self._member(group, member_id, request, records)
        existing = group.static_member(request.group_instance_id)
        downgrade = existing is not None and self._migration.may_downgrade_with_replaced(group, existing)
        subscription = _subscription(request)
        new = _joined(member, context, request, subscription)
        names_changed = note_subscription(group.group_id, member, new, records)
        regex_status = self._subscriptions.update_regexes(group, member, new, records)
        bump = names_changed or regex_status is not RegexStatus.NO_CHANGE
        metadata = Metadata(group.group_epoch, group.is_homogeneous)
        if bump or group.has_metadata_expired(now_ms):
            metadata = self._subscriptions.update_metadata(group, member, new, records, bump=bump)
        owned = owned_topics(subscription, self._lookup.image)
        if downgrade:
            rebalance = group.assignment_epoch < metadata.group_epoch
            if not rebalance:
                target = from_last_target(group, new)
                new = self._reconciler.reconcile(group, new, target, owned, records, has_subscription_changed=bump)
            self._migration.to_classic_group(group, (), new, records, rebalance=rebalance)
        else:
            target = self._heartbeats.update_target(group, metadata, member, new, records)
            new = self._reconciler.reconcile(group, new, target, owned, records, has_subscription_changed=bump)
        return self._join_result(group.group_id, request, new, records, promise, downgrade=downgrade)

    def _member(
        self, group: ConsumerGroup, member_id: str, request: JoinGroupRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.member_or_new(member_id)
        if request.member_id:
            return stay_static_member(group, member_id, instance_id, None, ())
        return join_static_member(group, member_id, instance_id, records, uses_classic_protocol=True)

    def _join_result(
        self,
        group_id: str,
        request: JoinGroupRequest,
        member: ConsumerGroupMember,
        records: list[CoordinatorRecord],
        promise: Promise[JoinGroupResponse],
        *,
        downgrade: bool,
    ) -> CoordinatorResult[None]:
        """Return the result whose response is sent when the records are committed."""
        response = JoinGroupResponse(
            member_id=member.member_id,
            generation_id=member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=member.classic_metadata.protocols[0][0],
        )
        written: Promise[None] = Promise()

        def done(_: None, error: KopsError | None) -> None:
            if error is not None:
                return
            self._timers.cancel_join(group_id, member.member_id)
            if not downgrade:
                self._timers.schedule_session(group_id, member.member_id, request.session_timeout_ms)
                self._timers.schedule_sync(group_id, member.member_id, request.rebalance_timeout_ms)
            promise.complete(response)

        written.when_done(done)
        return CoordinatorResult(records, append_promise=written, replay_records=not downgrade)

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, promise: Promise[SyncGroupResponse]) -> CoordinatorResult[None]:
        """Handle SyncGroup: return the member's current assignment. Raises ApiError."""
        group_id, member_id = request.group_id, request.member_id
        member = classic_speaker(group, member_id, request.group_instance_id)
        check_generation(member, request.generation_id)
        _check_protocol(member, request)
        if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.schedule_join_if_absent(group_id, member)
            raise ApiError(
                "REBALANCE_IN_PROGRESS",
                f"A new rebalance is triggered in group {group_id} and member {member.member_id} should rejoin to catch up.",
            )
        written: Promise[None] = Promise()

        def done(_: None, error: KopsError | None) -> None:
            if error is not None:
                return
            self._timers.cancel_sync(group_id, member_id)
            self._timers.schedule_session(group_id, member_id, member.classic_metadata.session_timeout_ms)
            assignment = assignment_bytes(
                member.assigned_partitions, self._lookup.image, version_of(member.classic_metadata.protocols[0][1])
            )
            promise.complete(
                SyncGroupResponse(protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment)
            )

        written.when_done(done)
        return CoordinatorResult(append_promise=written, replay_records=False)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """Handle Heartbeat: if there is a step to take, tell the member to join again. Raises ApiError."""
        group_id, member_id = request.group_id, request.member_id
        member = classic_speaker(group, member_id, request.group_instance_id)
        check_generation(member, request.generation_id)
        self._timers.schedule_session(group_id, member_id, member.classic_metadata.session_timeout_ms)
        can_go_on = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased_partition(member)
        if member.member_epoch >= group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS and not can_go_on:
            return CoordinatorResult(response=HeartbeatResponse())
        self._timers.schedule_join_if_absent(group_id, member)
        return CoordinatorResult(response=HeartbeatResponse(error_code=code("REBALANCE_IN_PROGRESS")))


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except SchemaError as error:
        raise ApiError("UNKNOWN_SERVER_ERROR", "Malformed embedded consumer protocol in subscription deserialization.") from error


def _joined(
    member: ConsumerGroupMember, context: RequestContext, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription
) -> ConsumerGroupMember:
    """Return the member with the subscription of the request. It has no regular expression."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topic_names=names_of(subscription.topics),
        subscribed_topic_regex="",
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMetadata.of_join(request.session_timeout_ms, request.protocols),
    )


def _check_protocol(member: ConsumerGroupMember, request: SyncGroupRequest) -> None:
    """Raise ApiError INCONSISTENT_GROUP_PROTOCOL if type or name differ from those of the JoinGroup response."""
    name = member.classic_metadata.protocols[0][0]
    if request.protocol_type is not None and request.protocol_type != CONSUMER_PROTOCOL_TYPE:
        differs = f"is not equal to the group protocol type {CONSUMER_PROTOCOL_TYPE}."
        raise ApiError(
            "INCONSISTENT_GROUP_PROTOCOL", f"The protocol type {request.protocol_type} from member {member.member_id} request {differs}"
        )
    if request.protocol_name is not None and request.protocol_name != name:
        differs = f"is not equal to the protocol name {name} returned in the join response."
        raise ApiError(
            "INCONSISTENT_GROUP_PROTOCOL", f"The protocol name {request.protocol_name} from member {member.member_id} request {differs}"
        )
