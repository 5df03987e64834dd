"""StreamsGroupHeartbeat of members that join or stay (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from kops.coordinators.groups.assignors.java_maps import put_ordered, text_hash
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.records import streams as records_of
from kops.coordinators.groups.streams.assignors.spec import NO_TARGET, TargetTasks, TaskAssignorError
from kops.coordinators.groups.streams.checks import check_epoch, check_room, check_tasks
from kops.coordinators.groups.streams.leave import Leaves
from kops.coordinators.groups.streams.lookup import GroupLookup
from kops.coordinators.groups.streams.result import HeartbeatResult
from kops.coordinators.groups.streams.state.current_assignment import Reconciliation
from kops.coordinators.groups.streams.state.group import StreamsGroup, initial_rebalance_key
from kops.coordinators.groups.streams.state.member import Endpoint, MemberState, StreamsGroupMember
from kops.coordinators.groups.streams.state.tasks import requested_tasks, target_value
from kops.coordinators.groups.streams.target_assignment import build_target_assignment
from kops.coordinators.groups.streams.topics.configured import ConfiguredTopology, Status
from kops.coordinators.groups.streams.topics.internal_topics import configure_topics
from kops.coordinators.groups.streams.topics.topology import StreamsTopology, topology_value
from kops.coordinators.groups.surroundings import EMPTY_RESULT
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError
from kops.protocol.messages import streams_group_heartbeat_response as answering
from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology

_NO_TIMEOUT: Final = -1


class _Target(NamedTuple):
    epoch: int
    tasks: TargetTasks


class _Metadata(NamedTuple):
    topology: ConfiguredTopology
    hash: int
    is_changed: bool


class Heartbeats:
    """Handles heartbeats, and the delayed first assignment of a group."""

    def __init__(self, lookup: GroupLookup, leaves: Leaves) -> None:
        self._lookup = lookup
        self._leaves = leaves
        self._timer = lookup.around.timer

    def heartbeat(self, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        """Handle a heartbeat of a member that joins (epoch 0) or stays. Raises ApiError."""
        records: list[CoordinatorRecord] = []
        statuses: list[answering.Status] = []
        group_id, member_id, is_joining = request.group_id, request.member_id, request.member_epoch == 0
        group = self._lookup.group_of_heartbeat(group_id, records, create=is_joining)
        if is_joining:
            check_room(group, self._lookup.around.config.group_streams_max_size)
        if request.instance_id is not None:
            raise ApiError("UNKNOWN_SERVER_ERROR", "Static members are not supported yet.")
        member = group.members.get(member_id) or StreamsGroupMember.new(member_id) if is_joining else group.member(member_id)
        check_epoch(member, request)
        new = _updated(member, context, request)
        if new != member:
            records.append(new.metadata_record(group_id))
        topology = _update_topology(group, request.topology, records)
        _note_stale_topology(group, new, statuses)
        metadata = self._configure(group, topology)
        configs = self._lookup.assignment_configs(group_id)
        epoch = self._update_epoch(group, metadata, topology, request, configs, records, is_changed=new != member)
        if group.is_empty:
            self._schedule_first_assignment(group_id)
        target = self._update_target(group, epoch, new, metadata.topology, configs, records, statuses)
        new = self._reconcile(group, new, target, request, records)
        self._leaves.schedule_session(group_id, member_id)
        if request.shutdown_application:
            group.request_shutdown(member_id)
        response = self._response(group, member, new, request)
        problem = metadata.topology.problem
        if problem is not None:
            statuses.append(answering.Status(problem.status, problem.text))
        if group.shutdown_member_id is not None:
            text = "encountered a fatal error and requested a shutdown for the entire application."
            statuses.append(answering.Status(Status.SHUTDOWN_APPLICATION, f"Streams group member {group.shutdown_member_id} {text}"))
        response.status = statuses
        return CoordinatorResult(records, HeartbeatResult(response, metadata.topology.topics_to_create if problem is not None else {}))

    def _configure(self, group: StreamsGroup, topology: StreamsTopology) -> _Metadata:
        """Configure the topology with the cluster's topics, if these may have changed."""
        known = group.configured_topology
        is_new = group.topology is None
        if not is_new and known is not None and not group.has_metadata_expired(self._lookup.around.now_ms()):
            return _Metadata(known, group.metadata_hash, False)
        image = self._lookup.image
        metadata_hash = self._lookup.topic_hashes.of_topics(topology.required_topics(), image)
        is_changed = metadata_hash != group.metadata_hash
        if is_new or is_changed or known is None:
            known = configure_topics(topology, image)
            group.configured_topology = known
        return _Metadata(known, metadata_hash, is_changed)

    def _update_epoch(
        self,
        group: StreamsGroup,
        metadata: _Metadata,
        topology: StreamsTopology,
        request: StreamsGroupHeartbeatRequest,
        configs: Mapping[str, str],
        records: list[CoordinatorRecord],
        *,
        is_changed: bool,
    ) -> int:
        """Return the group's epoch, raised if something has changed. Raises ApiError INVALID_REQUEST for unknown tasks."""
        validated_epoch = -1
        if metadata.topology.is_ready:
            validated_epoch = topology.epoch
            for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
                check_tasks(metadata.topology.subtopologies or {}, tasks)
        is_changed = is_changed or metadata.is_changed or validated_epoch != group.validated_topology_epoch
        if not is_changed and configs == group.assignment_configs:
            return group.group_epoch
        epoch = group.group_epoch + 1
        records.append(records_of.metadata_record(group.group_id, epoch, metadata.hash, validated_epoch, configs))
        group.note_metadata_check(self._lookup.around.now_ms(), epoch)
        return epoch

    def _schedule_first_assignment(self, group_id: str) -> None:
        delay_ms = self._lookup.initial_rebalance_delay_ms(group_id)
        if delay_ms > 0:
            self._timer.schedule_if_absent(initial_rebalance_key(group_id), delay_ms, lambda: self._assign_first(group_id), retry=False)

    def _assign_first(self, group_id: str) -> CoordinatorResult[None]:
        """Compute the first assignment after the initial delay."""
        try:
            group = self._lookup.group(group_id)
        except ApiError:
            return EMPTY_RESULT
        if group.is_empty:
            return EMPTY_RESULT
        if group.group_epoch <= group.assignment_epoch:
            raise ApiError("UNKNOWN_SERVER_ERROR", "Group epoch should be always larger to assignment epoch")
        topology = group.configured_topology
        if topology is None:
            return EMPTY_RESULT
        records: list[CoordinatorRecord] = []
        self._update_target(group, group.group_epoch, None, topology, group.assignment_configs, records, [])
        return CoordinatorResult(records)

    def _update_target(
        self,
        group: StreamsGroup,
        epoch: int,
        member: StreamsGroupMember | None,
        topology: ConfiguredTopology,
        configs: Mapping[str, str],
        records: list[CoordinatorRecord],
        statuses: list[answering.Status],
    ) -> _Target:
        """Return a new target assignment if the group's epoch has risen and nothing delays it, otherwise the last one."""
        group_id = group.group_id
        if self._timer.is_scheduled(initial_rebalance_key(group_id)):
            text = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(answering.Status(Status.ASSIGNMENT_DELAYED, text))
            return _Target(group.assignment_epoch, NO_TARGET)
        last = _Target(group.assignment_epoch, NO_TARGET if member is None else group.target_assignment(member.member_id))
        if group.assignment_epoch >= epoch:
            return last
        now_ms, interval_ms, made_ms = (
            self._lookup.around.now_ms(),
            self._lookup.assignment_interval_ms(group_id),
            group.assignment_timestamp,
        )
        if made_ms != 0 and interval_ms != 0 and now_ms < made_ms + interval_ms:
            statuses.append(answering.Status(Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."))
            return last
        try:
            result = build_target_assignment(group, topology, configs, member)
        except TaskAssignorError as error:
            raise ApiError("UNKNOWN_SERVER_ERROR", f"Failed to compute a new target assignment for epoch {epoch}: {error}") from error
        records += (
            records_of.target_assignment_record(group_id, member_id, target_value(tasks)) for member_id, tasks in result.changed.items()
        )
        records.append(records_of.target_assignment_epoch_record(group_id, epoch, now_ms))
        return _Target(epoch, NO_TARGET if member is None else result.members[member.member_id])

    def _reconcile(
        self,
        group: StreamsGroup,
        member: StreamsGroupMember,
        target: _Target,
        request: StreamsGroupHeartbeatRequest,
        records: list[CoordinatorRecord],
    ) -> StreamsGroupMember:
        """Return the member after its next step. A changed member is written."""
        if member.is_reconciled_to(target.epoch):
            return member
        owned = None
        if request.active_tasks is not None and request.standby_tasks is not None and request.warmup_tasks is not None:
            owned = requested_tasks(request.active_tasks, request.standby_tasks, request.warmup_tasks)
        owners = group.owners
        step = Reconciliation(target.epoch, target.tasks, owners.active, owners.standby, owners.warmup, owned)
        new = step.next_member(member)
        if new == member:
            return new
        records.append(new.assignment_record(group.group_id))
        if new.state is MemberState.UNREVOKED_TASKS:
            self._leaves.schedule_rebalance(group.group_id, new)
        else:
            self._leaves.cancel_rebalance(group.group_id, new.member_id)
        return new

    def _response(
        self, group: StreamsGroup, member: StreamsGroupMember, new: StreamsGroupMember, request: StreamsGroupHeartbeatRequest
    ) -> answering.StreamsGroupHeartbeatResponse:
        response = answering.StreamsGroupHeartbeatResponse(
            member_id=new.member_id,
            member_epoch=new.member_epoch,
            heartbeat_interval_ms=self._lookup.heartbeat_interval_ms(group.group_id),
        )
        if request.member_epoch == 0 or member.assigned_tasks != new.assigned_tasks:
            tasks = new.assigned_tasks
            response.active_tasks = _listed(tasks.active)
            response.standby_tasks = _listed(tasks.standby)
            response.warmup_tasks = _listed(tasks.warmup)
            group.forget_endpoint(new.member_id)
            if new.user_endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = group.endpoints(new, self._lookup.image)
        if self._lookup.around.store.get(group.group_id) is not None:
            # A group that this request creates does not keep its endpoint epoch.
            response.endpoint_information_epoch = group.endpoint_epoch
        return response


def _updated(member: StreamsGroupMember, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> StreamsGroupMember:
    """Return the member with the fields of the request. Omitted fields do not change."""
    endpoint, tags = request.user_endpoint, request.client_tags
    client_tags = member.client_tags
    if tags is not None:
        client_tags = put_ordered({tag.key: tag.value for tag in tags}, text_hash)
        if len(client_tags) < len(tags):
            raise ApiError("UNKNOWN_SERVER_ERROR", "A client tag is there twice.")
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if request.rebalance_timeout_ms == _NO_TIMEOUT else request.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=context.client_id,
        client_host=context.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        client_tags=client_tags,
        user_endpoint=member.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
    )


def _update_topology(group: StreamsGroup, topology: Topology | None, records: list[CoordinatorRecord]) -> StreamsTopology:
    """Return the group's topology, which the first member sends. Raises ApiError INVALID_REQUEST for a different one."""
    known = group.topology
    if topology is None:
        if known is None:
            raise ApiError("UNKNOWN_SERVER_ERROR", "The topology is null and the group topology is also null.")
        return known
    value = topology_value(topology)
    new = StreamsTopology.from_record(value)
    if known is None:
        records.append(records_of.topology_record(group.group_id, value))
        return new
    if known.epoch <= new.epoch and known != new:
        raise ApiError("INVALID_REQUEST", "Topology updates are not supported yet.")
    return known


def _note_stale_topology(group: StreamsGroup, member: StreamsGroupMember, statuses: list[answering.Status]) -> None:
    topology = group.topology
    if topology is not None and member.topology_epoch < topology.epoch:
        text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}."
        statuses.append(answering.Status(Status.STALE_TOPOLOGY, text))


def _listed(tasks: Mapping[str, Collection[int]]) -> list[answering.TaskIds]:
    return [answering.TaskIds(subtopology_id, sorted(numbers)) for subtopology_id, numbers in tasks.items()]
