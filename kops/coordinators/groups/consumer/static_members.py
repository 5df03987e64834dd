"""Static members of consumer groups: those that join, which may replace one that has left, and those that stay (from Kafka's
GroupMetadataManager).
"""

from __future__ import annotations

from dataclasses import replace

from kops.coordinators.groups.consumer.checks import (
    check_epoch,
    check_instance_is_not_fenced,
    check_instance_is_released,
    known_static_member,
)
from kops.coordinators.groups.consumer.state.current_assignment import OwnedTopics
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember
from kops.coordinators.groups.records import consumer as records_of
from kops.coordinators.runtime.records import CoordinatorRecord


def join_static_member(
    group: ConsumerGroup, member_id: str, instance_id: str, records: list[CoordinatorRecord], *, uses_classic_protocol: bool
) -> ConsumerGroupMember:
    """Return a static member, which is new or replaces one that has left. Raises ApiError UNRELEASED_INSTANCE_ID."""
    existing = group.static_member(instance_id)
    if existing is None:
        return group.member_or_new(member_id)
    if not uses_classic_protocol and not existing.uses_classic_protocol:
        check_instance_is_released(existing, member_id, instance_id)
    new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += records_of.removed_member_records(group.group_id, existing.member_id)
    records.append(new.subscription_record(group.group_id))
    target = group.target_assignment(existing.member_id)
    records.append(records_of.target_assignment_record(group.group_id, member_id, target))
    records.append(new.assignment_record(group.group_id))
    return new


def stay_static_member(
    group: ConsumerGroup, member_id: str, instance_id: str, epoch: int | None, owned: OwnedTopics
) -> ConsumerGroupMember:
    """Return a known static member. Its epoch is checked if one is given."""
    existing = known_static_member(group, instance_id)
    check_instance_is_not_fenced(existing, member_id, instance_id)
    if epoch is not None:
        check_epoch(existing, epoch, owned)
    return existing
