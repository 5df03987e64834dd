"""Checks of requests against a consumer group (the throwIf… methods of Kafka's GroupMetadataManager)."""

from __future__ import annotations

from kops.coordinators.groups.consumer.state.current_assignment import OwnedTopics
from kops.coordinators.groups.consumer.state.group import ConsumerGroup
from kops.coordinators.groups.consumer.state.member import STATIC_LEAVE_EPOCH, ConsumerGroupMember, Owned
from kops.errors import ApiError


def _is_subset(owned: OwnedTopics, assigned: Owned) -> bool:
    """Whether the member reports its partitions, and all of them are in its assignment."""
    if owned is None:
        return False
    return all(
        topic.topic_id in assigned and all(partition in assigned[topic.topic_id] for partition in topic.partitions) for topic in owned
    )


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: OwnedTopics) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH unless the epoch is the member's current one, or the previous one after a lost response."""
    if epoch == 0 or epoch == member.member_epoch:
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _is_subset(owned, member.assigned_partitions):
        return
    word = "greater" if epoch > member.member_epoch else "smaller"
    known = f"than the one known by the group coordinator ({member.member_epoch})"
    raise ApiError(
        "FENCED_MEMBER_EPOCH",
        f"The consumer group member has a {word} member epoch ({epoch}) {known}. The member must abandon all its partitions and rejoin.",
    )


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Raise ApiError GROUP_MAX_SIZE_REACHED if the member is new and the group is full."""
    if group.member_count >= max_size and (not member_id or not group.has_member(member_id)):
        raise ApiError("GROUP_MAX_SIZE_REACHED", f"The consumer group has reached its maximum capacity of {max_size} members.")


def check_instance_is_released(member: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    """Raise ApiError UNRELEASED_INSTANCE_ID if the static member has not left."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        owner = f"the instance id is owned by {member.member_id} member."
        raise ApiError(
            "UNRELEASED_INSTANCE_ID",
            f"Static member {member_id} with instance id {instance_id} cannot join the group because {owner}",
        )


def check_instance_is_not_fenced(member: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    """Raise ApiError FENCED_INSTANCE_ID if the static member now has another id."""
    if member.member_id != member_id:
        raise ApiError(
            "FENCED_INSTANCE_ID", f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )


def known_static_member(group: ConsumerGroup, instance_id: str) -> ConsumerGroupMember:
    """Return the static member. Raises ApiError UNKNOWN_MEMBER_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError("UNKNOWN_MEMBER_ID", f"Instance id {instance_id} is unknown.")
    return member


def classic_speaker(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Return the member of a classic request. Raises ApiError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        found = group.static_member(instance_id)
        if found is None:
            raise ApiError("UNKNOWN_MEMBER_ID", f"Member with instance id {instance_id} is not a member of group {group.group_id}.")
        member = found
        check_instance_is_not_fenced(member, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise ApiError("UNKNOWN_MEMBER_ID", f"Member {member.member_id} does not use the classic protocol.")
    return member


def check_generation(member: ConsumerGroupMember, generation_id: int) -> None:
    """Raise ApiError ILLEGAL_GENERATION unless the generation is the member's epoch."""
    if member.member_epoch != generation_id:
        raise ApiError(
            "ILLEGAL_GENERATION",
            f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} of member "
            f"{member.member_id}.",
        )
