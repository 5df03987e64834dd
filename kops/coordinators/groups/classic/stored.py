"""A classic group as a record, and back (from Kafka's GroupCoordinatorRecordHelpers and GroupMetadataManager.replay)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kops.coordinators.groups.classic.group import ClassicGroup, broken
from kops.coordinators.groups.classic.member import ClassicGroupMember
from kops.coordinators.groups.classic.state import EMPTY, STABLE
from kops.coordinators.groups.records.classic import group_metadata_record
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol


def group_record(group: ClassicGroup, assignment: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a group with the members' assignment."""
    return group_metadata_record(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=_timestamp(group),
            members=[_member_metadata(group, member, assignment) for member in group.all_members()],
        ),
    )


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a new group."""
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=_timestamp(group))
    return group_metadata_record(group.group_id, value)


def group_from_record(group_id: str, value: GroupMetadataValue, now_ms: Callable[[], int]) -> ClassicGroup:
    """Return the group in a record."""
    group = ClassicGroup(
        group_id,
        now_ms,
        STABLE if value.members else EMPTY,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
        current_state_timestamp=None if value.current_state_timestamp == -1 else value.current_state_timestamp,
    )
    for member in value.members:
        group.add(
            ClassicGroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                member.session_timeout,
                value.protocol_type,
                [JoinGroupRequestProtocol(value.protocol or "", member.subscription)],
                member.assignment,
            )
        )
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def _timestamp(group: ClassicGroup) -> int:
    return -1 if group.current_state_timestamp is None else group.current_state_timestamp


def _member_metadata(group: ClassicGroup, member: ClassicGroupMember, assignment: Mapping[str, bytes]) -> MemberMetadata:
    if group.protocol_name is None:
        raise broken("Attempted to write non-empty group metadata with no defined protocol.")
    if member.member_id not in assignment:
        raise broken(f"Attempted to write member {member.member_id} of group {group.group_id} with no assignment.")
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=assignment[member.member_id],
    )
