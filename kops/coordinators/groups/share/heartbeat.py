"""ShareGroupHeartbeat (from Kafka's GroupMetadataManager): members join, stay and leave, and are removed when their session expires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from kops.coordinators.groups.assignors import simple
from kops.coordinators.groups.assignors.spec import AssignorError, Partitions
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.modern.metadata_hash import TopicHashes
from kops.coordinators.groups.modern.subscriptions import SubscriptionCount, names_of
from kops.coordinators.groups.modern.target_assignment import build_target_assignment
from kops.coordinators.groups.records import share as records_of
from kops.coordinators.groups.share.group import ShareGroup, is_homogeneous
from kops.coordinators.groups.share.member import LEAVE_EPOCH, ShareGroupMember
from kops.coordinators.groups.share.state_partitions import UNINITIALIZED_START_OFFSET, StatePartitions, initialize_request
from kops.coordinators.groups.surroundings import Surroundings
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import share_group_heartbeat_response as answering
from kops.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
from kops.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

R = TypeVar("R")


class HeartbeatResult(NamedTuple):
    """The response, and the request to send to the share coordinator after it."""

    response: answering.ShareGroupHeartbeatResponse
    initialize: InitializeShareGroupStateRequest | None = None


class _Target(NamedTuple):
    epoch: int
    partitions: Partitions


class Heartbeats:
    """Handles heartbeats and expired sessions."""

    def __init__(self, around: Surroundings, states: StatePartitions) -> None:
        self._around = around
        self._states = states
        self.topic_hashes = TopicHashes()
        self.now_ms = around.now_ms

    def group(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises ApiError GROUP_ID_NOT_FOUND."""
        return share_group(self._around.store.group(group_id))

    def group_or_new(self, group_id: str, *, create: bool) -> ShareGroup:
        """Return a share group. With `create`, it may be new; it is stored when its records are replayed."""
        group = self._around.store.get(group_id)
        if group is None:
            if not create:
                raise ApiError("GROUP_ID_NOT_FOUND", f"Share group {group_id} not found.")
            return ShareGroup(self._around.timeline, group_id)
        return share_group(group)

    def heartbeat(self, context: RequestContext, request: ShareGroupHeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        """Handle a heartbeat of a member that joins (epoch 0), stays or leaves (-1). Raises ApiError."""
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        records: list[CoordinatorRecord] = []
        group_id, member_id = request.group_id, request.member_id
        group = self.group_or_new(group_id, create=request.member_epoch == 0)
        maximum = self._around.config.group_share_max_size
        if group.member_count >= maximum and not (member_id and group.has_member(member_id)):
            raise ApiError("GROUP_MAX_SIZE_REACHED", f"The share group has reached its maximum capacity of {maximum} members.")
        member = group.member_or_new(member_id) if request.member_epoch == 0 else group.member(member_id)
        check_epoch(member, request.member_epoch)
        new = _updated(member, context, request)
        bump = new.subscribed_topic_names != member.subscribed_topic_names
        if new != member:
            records.append(new.subscription_record(group_id))
        bump = bump or (group.assignment_epoch >= group.group_epoch and self._is_assignment_pending(group))
        epoch, homogeneous, topics = group.group_epoch, group.is_homogeneous, dict(group.subscribed_topic_names)
        if bump or group.has_metadata_expired(self._around.now_ms()):
            topics = group.topics_with(member, new)
            homogeneous = is_homogeneous(topics, group.member_count)
            metadata_hash = self.topic_hashes.of_topics(topics, self._states.image)
            if bump or metadata_hash != group.metadata_hash:
                bump = True
                epoch += 1
                records.append(records_of.epoch_record(group_id, epoch, metadata_hash))
            group.note_metadata_check(self._around.now_ms(), epoch)
        target = self._update_target(group, epoch, new, homogeneous, records)
        new = self._reconcile(group_id, new, target, records, has_subscription_changed=bump)
        self.schedule_session(group_id, member_id)
        response = answering.ShareGroupHeartbeatResponse(
            member_id=member_id, member_epoch=new.member_epoch, heartbeat_interval_ms=self._heartbeat_interval_ms(group_id)
        )
        is_full = request.member_epoch == 0 or request.subscribed_topic_names is not None
        if is_full or _has_changed(member.assigned_partitions, new.assigned_partitions):
            response.assignment = answering.Assignment(
                [answering.TopicPartitions(topic_id, list(numbers)) for topic_id, numbers in new.assigned_partitions.items()]
            )
        return CoordinatorResult(records, HeartbeatResult(response, self._initialize(group_id, epoch, topics, records)))

    def schedule_session(self, group_id: str, member_id: str) -> None:
        """Restart a member's session timer after a request."""
        delay_ms = self._around.group_setting(group_id, "share.session.timeout.ms", self._around.config.group_share_session_timeout_ms)
        self._around.timer.schedule(_session_key(group_id, member_id), delay_ms, lambda: self._expire(group_id, member_id))

    def _leave(self, request: ShareGroupHeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        group = self.group(request.group_id)
        response = answering.ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return self._fence(group, group.member(request.member_id), HeartbeatResult(response))

    def _expire(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        try:
            group = self.group(group_id)
            member = group.member(member_id)
        except ApiError:
            return CoordinatorResult()
        return self._fence(group, member, None)

    def _fence(self, group: ShareGroup, member: ShareGroupMember, response: R) -> CoordinatorResult[R]:
        group_id, member_id = group.group_id, member.member_id
        metadata_hash = self.topic_hashes.of_topics(group.topics_with(member, None), self._states.image)
        records = [
            records_of.current_assignment_tombstone(group_id, member_id),
            records_of.target_assignment_tombstone(group_id, member_id),
            records_of.member_tombstone(group_id, member_id),
            records_of.epoch_record(group_id, group.group_epoch + 1, metadata_hash),
        ]
        self._around.timer.cancel(_session_key(group_id, member_id))
        return CoordinatorResult(records, response)

    def _is_assignment_pending(self, group: ShareGroup) -> bool:
        """Whether initialized partitions of subscribed topics are not assigned to any member."""
        info = self._states.get(group.group_id)
        if group.is_empty or info is None:
            return False
        assigned: dict[bytes, set[int]] = {}
        for partitions in group.target_assignments.values():
            for topic_id, numbers in partitions.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        names = group.subscribed_topic_names
        return any(state.name in names and assigned.get(key) != set(state.partitions) for key, state in info.initialized.items())

    def _update_target(
        self, group: ShareGroup, epoch: int, member: ShareGroupMember, homogeneous: bool, records: list[CoordinatorRecord]
    ) -> _Target:
        """Return a new target assignment if the group's epoch has risen and the interval has passed, otherwise the last one."""
        group_id, now_ms = group.group_id, self._around.now_ms()
        interval_ms = self._around.group_setting(
            group_id, "share.assignment.interval.ms", self._around.config.group_share_assignment_interval_ms
        )
        made_ms = group.assignment_timestamp
        is_early = made_ms != 0 and interval_ms != 0 and now_ms < made_ms + interval_ms
        if group.assignment_epoch >= epoch or is_early:
            return _Target(group.assignment_epoch, group.target_assignment(member.member_id))
        info = self._states.get(group_id)
        assignable = {} if info is None else {topic_id: state.partitions for topic_id, state in info.initialized.items()}
        try:
            result = build_target_assignment(
                group,
                simple.assign,
                self._states.image,
                lambda each: each.subscribed_topic_names,
                is_homogeneous=homogeneous,
                updated={member.member_id: member},
                static_members={},
                assignable=assignable,
            )
        except AssignorError as error:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Failed to compute a new target assignment for epoch {epoch}: {error}") from error
        records += (
            records_of.target_assignment_record(group_id, member_id, partitions) for member_id, partitions in result.changed.items()
        )
        records.append(records_of.target_assignment_epoch_record(group_id, epoch, now_ms))
        return _Target(epoch, result.members.get(member.member_id, {}))

    def _reconcile(
        self,
        group_id: str,
        member: ShareGroupMember,
        target: _Target,
        records: list[CoordinatorRecord],
        *,
        has_subscription_changed: bool,
    ) -> ShareGroupMember:
        """Give the member its whole target assignment at once, without topics to which it does not subscribe. No other member has to
        release anything first."""
        if not has_subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        topics = (self._states.image.topic(name) for name in member.subscribed_topic_names)
        ids = {topic.id for topic in topics if topic is not None}
        new = replace(member, assigned_partitions={key: numbers for key, numbers in target.partitions.items() if key in ids})
        if target.epoch != member.member_epoch:
            new = replace(new, state=0, member_epoch=target.epoch, previous_member_epoch=member.member_epoch)
        has_changed = _has_changed(member.assigned_partitions, new.assigned_partitions)
        if replace(new, assigned_partitions=member.assigned_partitions) != member or has_changed:
            records.append(new.assignment_record(group_id))
        return new

    def _initialize(
        self, group_id: str, epoch: int, topics: Mapping[str, SubscriptionCount], records: list[CoordinatorRecord]
    ) -> InitializeShareGroupStateRequest | None:
        """Return the request that initializes new topics."""
        if not topics or self._states.image.is_empty:
            return None
        states = self._states.to_initialize(group_id, topics)
        if not states:
            return None
        records += self._states.initializing_record(group_id, states)
        offsets = {topic_id: dict.fromkeys(state.partitions, UNINITIALIZED_START_OFFSET) for topic_id, state in states.items()}
        return initialize_request(group_id, epoch, offsets)

    def _heartbeat_interval_ms(self, group_id: str) -> int:
        return self._around.group_setting(group_id, "share.heartbeat.interval.ms", self._around.config.group_share_heartbeat_interval_ms)


def share_group(group: object) -> ShareGroup:
    """Return the group if it is a share group. Raises ApiError GROUP_ID_NOT_FOUND."""
    if isinstance(group, ShareGroup):
        return group
    raise ApiError("GROUP_ID_NOT_FOUND", f"Group {getattr(group, 'group_id', '')} is not a share group.")


def check_epoch(member: ShareGroupMember, epoch: int) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH unless the epoch is the member's current or previous one."""
    known = member.member_epoch
    if epoch in (0, known) or (epoch < known and epoch == member.previous_member_epoch):
        return
    size = "greater" if epoch > known else "smaller"
    behind = "" if epoch > known else f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    raise ApiError(
        "FENCED_MEMBER_EPOCH",
        f"The share group member has a {size} member epoch ({epoch}) than the one known by the group coordinator ({known}){behind}. "
        "The member must abandon all its partitions and rejoin.",
    )


def _updated(member: ShareGroupMember, context: RequestContext, request: ShareGroupHeartbeatRequest) -> ShareGroupMember:
    """Return the member with the fields of the request. Omitted fields do not change."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=member.subscribed_topic_names if names is None else names_of(names),
        client_id=context.client_id,
        client_host=context.client_host,
    )


def _has_changed(before: Partitions, after: Partitions) -> bool:
    """Whether the partitions differ, ignoring their order."""
    return {key: set(numbers) for key, numbers in before.items()} != {key: set(numbers) for key, numbers in after.items()}


def _session_key(group_id: str, member_id: str) -> str:
    return f"session-timeout-{group_id}-{member_id}"
