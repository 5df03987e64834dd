"""Computes a new target assignment for a streams group (Kafka's streams TargetAssignmentBuilder, TopologyMetadata)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kops.coordinators.groups.assignors.java_maps import JavaMap, text_hash
from kops.coordinators.groups.streams.assignors.spec import NO_TARGET, GroupSpec, MemberSpec, SubtopologySpec, TargetTasks
from kops.coordinators.groups.streams.assignors.sticky import assign
from kops.coordinators.groups.streams.state.group import StreamsGroup
from kops.coordinators.groups.streams.state.member import StreamsGroupMember
from kops.coordinators.groups.streams.topics.configured import ConfiguredTopology


class TargetAssignment(NamedTuple):
    """The members whose assignments changed, in the order of their records, and all assignments."""

    changed: Mapping[str, TargetTasks]
    members: Mapping[str, TargetTasks]


def build_target_assignment(
    group: StreamsGroup, topology: ConfiguredTopology, configs: Mapping[str, str], updated: StreamsGroupMember | None
) -> TargetAssignment:
    """Compute the assignment of the group's members. `updated` has a changed member. Until the topology is ready, no member gets tasks.

    Raises TaskAssignorError.
    """
    targets = group.target_assignments
    specs: JavaMap[str, MemberSpec] = JavaMap(text_hash)
    for member in group.ordered_members():
        specs[member.member_id] = MemberSpec(member.process_id or "", targets.get(member.member_id, NO_TARGET))
    if updated is not None:
        member_id = updated.member_id
        specs[member_id] = MemberSpec(updated.process_id or "", targets.get(member_id, NO_TARGET))
    members = specs.to_dict()
    assigned: Mapping[str, TargetTasks] = {}
    if topology.is_ready and topology.subtopologies is not None:
        subtopologies = {
            subtopology_id: SubtopologySpec(each.task_count, bool(each.state_changelog_topics))
            for subtopology_id, each in topology.subtopologies.items()
        }
        assigned = assign(GroupSpec(members, configs, subtopologies))
    found = {member_id: assigned.get(member_id, NO_TARGET) for member_id in members}
    return TargetAssignment({member_id: tasks for member_id, tasks in found.items() if targets.get(member_id) != tasks}, found)
