"""A streams group (Kafka's StreamsGroup)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from enum import Enum
from typing import Final

from kops.coordinators.groups.assignors.java_maps import text_hash
from kops.coordinators.groups.group import CommitPartitionValidator, GroupType, any_partition
from kops.coordinators.groups.modern.assigned_group import AssignedGroup
from kops.coordinators.groups.offset_and_metadata import BaseTimestamp, commit_timestamp
from kops.coordinators.groups.records import streams as records_of
from kops.coordinators.groups.streams.assignors.spec import NO_TARGET, TargetTasks
from kops.coordinators.groups.streams.state.endpoints import endpoint_partitions
from kops.coordinators.groups.streams.state.member import StreamsGroupMember
from kops.coordinators.groups.streams.state.task_owners import TaskOwners
from kops.coordinators.groups.streams.topics.configured import ConfiguredTopology
from kops.coordinators.groups.streams.topics.topology import StreamsTopology
from kops.coordinators.runtime.image import CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.timers import CoordinatorTimer
from kops.errors import ApiError
from kops.protocol.messages.streams_group_describe_response import DescribedGroup
from kops.protocol.messages.streams_group_heartbeat_response import EndpointToPartitions
from kops.timeline import Timeline, TimelineDict, TimelineValue

PROTOCOL_TYPE: Final = "streams"
_FIRST_COMMIT_VERSION: Final = 9


class StreamsGroupState(Enum):
    """The states of a group."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"

    @property
    def filter_name(self) -> str:
        """The name of the state in filters of ListGroups."""
        return "not_ready" if self is StreamsGroupState.NOT_READY else self.value.lower()


def initial_rebalance_key(group_id: str) -> str:
    """The key of the timer that delays the first assignment of a group, so that more members can join."""
    return f"initial-rebalance-timeout-{group_id}"


class StreamsGroup(AssignedGroup[StreamsGroupMember, TargetTasks]):
    """The group. The timeline tracks all changes except the state that only heartbeats use: endpoints and a shutdown request."""

    def __init__(self, timeline: Timeline, group_id: str) -> None:
        super().__init__(timeline, group_id)
        self._state: TimelineValue[StreamsGroupState] = TimelineValue(timeline, StreamsGroupState.EMPTY)
        self.static_members: TimelineDict[str, str] = TimelineDict(timeline)
        self._validated_topology_epoch: TimelineValue[int] = TimelineValue(timeline, 0)
        self._topology: TimelineValue[StreamsTopology | None] = TimelineValue(timeline, None)
        self._configured_topology: TimelineValue[ConfiguredTopology | None] = TimelineValue(timeline, None)
        self._assignment_configs: TimelineValue[Mapping[str, str]] = TimelineValue(timeline, {})
        self.owners = TaskOwners(timeline)
        self.shutdown_member_id: str | None = None
        """The member that requested the shutdown of the whole application."""
        self.endpoint_epoch = 0
        """An epoch that rises when the partitions of a member with an endpoint change."""
        self._endpoints: dict[str, EndpointToPartitions] = {}

    @property
    def type(self) -> GroupType:
        return GroupType.STREAMS

    @property
    def state(self) -> StreamsGroupState:
        """The state."""
        return self._state.value

    @property
    def state_text(self) -> str:
        return self._state.value.value

    @property
    def committed_state_text(self) -> str:
        return self._state.committed.value

    @property
    def protocol_type_text(self) -> str:
        return PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return self._state.value is StreamsGroupState.EMPTY

    def is_in_states(self, states: Set[str]) -> bool:
        return self._state.committed.filter_name in states

    # Epochs and topology

    @property
    def validated_topology_epoch(self) -> int:
        """The epoch of the topology for which all topics exist, or -1."""
        return self._validated_topology_epoch.value

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """The assignor's settings at the last change of the group's epoch."""
        return self._assignment_configs.value

    def set_metadata(self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]) -> None:
        """Set the values of a record."""
        self._group_epoch.value = epoch
        self._metadata_hash.value = metadata_hash
        self._validated_topology_epoch.value = validated_topology_epoch
        self._assignment_configs.value = configs
        self._update_state()

    @property
    def topology(self) -> StreamsTopology | None:
        """The topology of the members."""
        return self._topology.value

    def set_topology(self, topology: StreamsTopology | None) -> None:
        """Set the topology from a record, or remove it."""
        self._topology.value = topology
        self._update_state()

    @property
    def configured_topology(self) -> ConfiguredTopology | None:
        """The topology configured with the cluster's topics. It is None until this coordinator has handled a heartbeat."""
        return self._configured_topology.value

    @configured_topology.setter
    def configured_topology(self, topology: ConfiguredTopology) -> None:
        self._configured_topology.value = topology
        self._endpoints.clear()

    # Members

    def update_member(self, new: StreamsGroupMember) -> None:
        """Replay a record that adds or replaces a member."""
        old = self._members.get(new.member_id)
        self._slots.before_put(self.member_count)
        self._members[new.member_id] = new
        if old is not None:
            self.owners.remove(old)
        self.owners.add(new)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        self._update_state()
        self._endpoints.pop(new.member_id, None)

    def remove_member(self, member_id: str) -> None:
        """Replay the removal of a member."""
        old = self._members.pop(member_id)
        self.owners.remove(old)
        if old.instance_id is not None:
            self.static_members.pop(old.instance_id, None)
        self._update_state()
        self._endpoints.pop(member_id, None)

    def target_assignment(self, member_id: str) -> TargetTasks:
        """Return the target assignment of a member."""
        return self._target_assignment.get(member_id, NO_TARGET)

    def update_target_assignment(self, member_id: str, tasks: TargetTasks) -> None:
        """Set a member's target assignment from a record."""
        self._target_assignment[member_id] = tasks

    def remove_target_assignment(self, member_id: str) -> None:
        """Remove a member's target assignment after a tombstone."""
        self._target_assignment.pop(member_id, None)

    def request_shutdown(self, member_id: str) -> None:
        """Record that a member requests the shutdown of the application. The first request counts until the group is empty."""
        if self.shutdown_member_id is None:
            self.shutdown_member_id = member_id

    def _update_state(self) -> None:
        topology = self.topology
        if not self._members:
            state = StreamsGroupState.EMPTY
            self.shutdown_member_id = None
        elif topology is None or topology.epoch != self.validated_topology_epoch:
            state = StreamsGroupState.NOT_READY
        elif self.group_epoch > self.assignment_epoch:
            state = StreamsGroupState.ASSIGNING
        elif all(member.is_reconciled_to(self.assignment_epoch) for member in self._members.values()):
            state = StreamsGroupState.STABLE
        else:
            state = StreamsGroupState.RECONCILING
        if state is not self._state.value:
            self._state.value = state

    # Endpoints

    def forget_endpoint(self, member_id: str) -> None:
        """Drop the cached endpoint of a member whose partitions have changed."""
        self._endpoints.pop(member_id, None)

    def endpoints(self, updated: StreamsGroupMember, image: CoordinatorImage) -> list[EndpointToPartitions]:
        """Return the partitions of all members with endpoints. The updated member comes last."""
        members: Iterable[StreamsGroupMember] = (each for each in self.ordered_members() if each.member_id != updated.member_id)
        found = [self._endpoint(member, image) for member in (*members, updated)]
        return [endpoint for endpoint in found if endpoint is not None]

    def _endpoint(self, member: StreamsGroupMember, image: CoordinatorImage) -> EndpointToPartitions | None:
        if member.user_endpoint is None:
            return None
        known = self._endpoints.get(member.member_id)
        if known is None:
            known = endpoint_partitions(member, self.configured_topology, image)
            if known is not None:
                self._endpoints[member.member_id] = known
        return known

    # Offsets

    def is_subscribed_to_topic(self, topic: str) -> bool:
        known = self.topology
        return not self.is_empty and known is not None and topic in known.source_topics

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id_or_member_epoch: int, is_transactional: bool, api_version: int
    ) -> CommitPartitionValidator:
        epoch = generation_id_or_member_epoch
        if epoch < 0 and not self._members:
            return any_partition
        if is_transactional and epoch == -1 and not member_id and group_instance_id is None:
            return any_partition
        member = self.member(member_id)
        if not is_transactional and api_version < _FIRST_COMMIT_VERSION:
            raise ApiError(
                "UNSUPPORTED_VERSION", "OffsetCommit version 9 or above must be used by members using the streams group protocol"
            )
        if epoch == member.member_epoch:
            return any_partition
        if epoch > member.member_epoch:
            raise _stale(f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}.")
        return self._commit_validator(member, epoch)

    def _commit_validator(self, member: StreamsGroupMember, epoch: int) -> CommitPartitionValidator:
        """Return the validator for a commit at an older epoch: it accepts tasks that the member has owned since that epoch."""
        topology = self.topology
        if topology is None:
            raise _stale("Topology is not available for offset commit validation.")
        subtopologies = topology.source_topics

        def validate(topic: str, topic_id: bytes, partition: int) -> None:
            subtopology = subtopologies.get(topic)
            if subtopology is None:
                raise _stale(f"Topic {topic} is not in the topology.")
            subtopology_id = subtopology.subtopology_id
            assigned_at = member.assigned_tasks.active.get(subtopology_id, {}).get(partition)
            if assigned_at is None:
                assigned_at = member.tasks_pending_revocation.active.get(subtopology_id, {}).get(partition)
            if assigned_at is None:
                raise _stale(f"Task {subtopology_id}-{partition} is not assigned or pending revocation for member.")
            if epoch < assigned_at:
                older = f"is older than assignment epoch {assigned_at} for task {subtopology_id}-{partition}."
                raise _stale(f"Received member epoch {epoch} {older}")

        return validate

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, *, require_stable: bool) -> None:
        if member_id is None and member_epoch < 0:
            return
        members = self._members
        member = None if member_id is None else members.get(member_id) if require_stable else members.committed(member_id)
        if member is None:
            raise self._unknown_member(member_id)
        if member_epoch != member.member_epoch:
            raise _stale(f"The received member epoch {member_epoch} does not match the expected member epoch {member.member_epoch}.")

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete_group(self) -> None:
        if not self.is_empty:
            raise ApiError("NON_EMPTY_GROUP")

    def offset_expiration_condition(self) -> BaseTimestamp | None:
        return commit_timestamp

    # Records

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        ids = [member.member_id for member in self.ordered_members()]
        records += (records_of.current_assignment_tombstone(self.group_id, member_id) for member_id in ids)
        records += (records_of.target_assignment_tombstone(self.group_id, member_id) for member_id in ids)
        records.append(records_of.target_assignment_epoch_tombstone(self.group_id))
        records += (records_of.member_tombstone(self.group_id, member_id) for member_id in ids)
        records.append(records_of.metadata_tombstone(self.group_id))
        records.append(records_of.topology_tombstone(self.group_id))

    def cancel_timers(self, timer: CoordinatorTimer) -> None:
        timer.cancel(initial_rebalance_key(self.group_id))

    def describe(self) -> DescribedGroup:
        """Describe the committed group. As in Kafka, raises ApiError UNKNOWN_SERVER_ERROR if it has no topology."""
        configured, topology = self._configured_topology.committed, self._topology.committed
        if configured is not None and configured.is_ready:
            described = configured.describe()
        elif topology is not None:
            described = topology.describe()
        else:
            raise ApiError("UNKNOWN_SERVER_ERROR", "There should always be a topology for a streams group.")
        members = dict(self._members.committed_items())
        targets = self._target_assignment
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self._state.committed.value,
            group_epoch=self._group_epoch.committed,
            assignment_epoch=self._assignment.committed.epoch,
            topology=described,
            members=[members[member_id].describe(targets.committed(member_id)) for member_id in self._slots.ordered(members, text_hash)],
        )


def _stale(text: str) -> ApiError:
    return ApiError("STALE_MEMBER_EPOCH", text)
