"""Replay of the records of streams groups (from Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kops.coordinators.groups.modern.replaying import broken, replay_target_assignment_epoch
from kops.coordinators.groups.streams.lookup import GroupLookup
from kops.coordinators.groups.streams.state.group import StreamsGroup
from kops.coordinators.groups.streams.state.member import LEAVE_EPOCH, StreamsGroupMember
from kops.coordinators.groups.streams.state.tasks import target_from_record
from kops.coordinators.groups.streams.topics.topology import StreamsTopology
from kops.protocol.declaration import Message
from kops.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kops.protocol.messages.streams_group_current_member_assignment_value import StreamsGroupCurrentMemberAssignmentValue
from kops.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kops.protocol.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kops.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kops.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kops.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kops.protocol.messages.streams_group_target_assignment_member_value import StreamsGroupTargetAssignmentMemberValue
from kops.protocol.messages.streams_group_target_assignment_metadata_key import StreamsGroupTargetAssignmentMetadataKey
from kops.protocol.messages.streams_group_target_assignment_metadata_value import StreamsGroupTargetAssignmentMetadataValue
from kops.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kops.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue


class Replays:
    """The replay function of each record type. A tombstone for a missing entry changes nothing."""

    def __init__(self, lookup: GroupLookup) -> None:
        self._lookup = lookup
        self.by_key: Mapping[type[Message], Callable[[Any, Any], None]] = {
            StreamsGroupMetadataKey: self._metadata,
            StreamsGroupMemberMetadataKey: self._member,
            StreamsGroupTargetAssignmentMetadataKey: self._target_assignment_epoch,
            StreamsGroupTargetAssignmentMemberKey: self._target_assignment,
            StreamsGroupCurrentMemberAssignmentKey: self._current_assignment,
            StreamsGroupTopologyKey: self._topology,
        }

    def _group(self, group_id: str, value: Message | None) -> StreamsGroup | None:
        return self._lookup.persisted_group(group_id, create=value is not None)

    def _metadata(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is not None:
            configs = {config.key: config.value for config in value.last_assignment_configs or ()}
            group.set_metadata(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)
            return
        delete = f"Received a tombstone record to delete group {key.group_id} but"
        if group.members:
            raise broken(f"{delete} the group still has {group.member_count} members.")
        if group.assignment_epoch != -1:
            raise broken(f"{delete} did not receive StreamsGroupTargetAssignmentMetadataValue tombstone.")
        self._lookup.around.store.remove(key.group_id)

    def _member(self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None) -> None:
        group, member_id = self._group(key.group_id, value), key.member_id
        if group is None:
            return
        if value is not None:
            group.update_member((group.members.get(member_id) or StreamsGroupMember(member_id)).with_metadata(value))
            return
        member = group.members.get(member_id)
        if member is None:
            return
        missing = f"Received a tombstone record to delete member {member_id} but did not receive"
        if member.member_epoch != LEAVE_EPOCH:
            raise broken(f"{missing} StreamsGroupCurrentMemberAssignmentValue tombstone.")
        if member_id in group.target_assignments:
            raise broken(f"{missing} StreamsGroupTargetAssignmentMetadataValue tombstone.")
        group.remove_member(member_id)

    def _target_assignment_epoch(
        self, key: StreamsGroupTargetAssignmentMetadataKey, value: StreamsGroupTargetAssignmentMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            replay_target_assignment_epoch(group, value)

    def _target_assignment(self, key: StreamsGroupTargetAssignmentMemberKey, value: StreamsGroupTargetAssignmentMemberValue | None) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.remove_target_assignment(key.member_id)
        else:
            group.update_target_assignment(key.member_id, target_from_record(value))

    def _current_assignment(
        self, key: StreamsGroupCurrentMemberAssignmentKey, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        group, member_id = self._group(key.group_id, value), key.member_id
        if group is None:
            return
        member = group.members.get(member_id)
        if value is not None:
            group.update_member((member or StreamsGroupMember(member_id)).with_assignment(value))
        elif member is not None:
            group.update_member(member.without_assignment())

    def _topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        before = [] if group.topology is None else group.topology.required_topics()
        topology = None if value is None else StreamsTopology.from_record(value)
        group.set_topology(topology)
        after = [] if topology is None else topology.required_topics()
        self._lookup.around.store.update_subscriptions(key.group_id, before, after)
