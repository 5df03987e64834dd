"""Checks of heartbeats against a streams group (the throwIf… methods of Kafka's GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kops.coordinators.groups.streams.state.group import StreamsGroup
from kops.coordinators.groups.streams.state.member import StreamsGroupMember
from kops.coordinators.groups.streams.topics.configured import ConfiguredSubtopology
from kops.errors import ApiError
from kops.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, TaskIds

RequestedTasks = Sequence[TaskIds] | None


def check_room(group: StreamsGroup, max_size: int) -> None:
    """Raise ApiError GROUP_MAX_SIZE_REACHED if the group is full, even for a member that joins again."""
    if group.member_count >= max_size:
        raise ApiError("GROUP_MAX_SIZE_REACHED", f"The streams group has reached its maximum capacity of {max_size} members.")


def check_epoch(member: StreamsGroupMember, request: StreamsGroupHeartbeatRequest) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH unless the epoch is the member's current one, or the previous one after a lost response."""
    epoch = request.member_epoch
    if epoch == 0 or epoch == member.member_epoch:
        return
    assigned = member.assigned_tasks
    if (
        epoch < member.member_epoch
        and epoch == member.previous_member_epoch
        and _are_among(request.active_tasks, assigned.active)
        and _are_among(request.standby_tasks, assigned.standby)
        and _are_among(request.warmup_tasks, assigned.warmup)
    ):
        return
    word = "greater" if epoch > member.member_epoch else "smaller"
    known = f"than the one known by the group coordinator ({member.member_epoch})"
    raise ApiError(
        "FENCED_MEMBER_EPOCH",
        f"The streams group member has a {word} member epoch ({epoch}) {known}. The member must abandon all its partitions and rejoin.",
    )


def check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], tasks: RequestedTasks) -> None:
    """Raise ApiError INVALID_REQUEST if the topology does not have a task."""
    for each in tasks or ():
        subtopology = subtopologies.get(each.subtopology_id)
        if subtopology is None:
            raise ApiError("INVALID_REQUEST", f"Subtopology {each.subtopology_id} does not exist in the topology.")
        for number in each.partitions:
            if not 0 <= number < subtopology.task_count:
                count = f"Number of tasks for this subtopology: {subtopology.task_count}"
                raise ApiError("INVALID_REQUEST", f"Task {number} for subtopology {each.subtopology_id} is invalid. {count}")


def _are_among(tasks: RequestedTasks, assigned: Mapping[str, Collection[int]]) -> bool:
    """Whether the member reports its tasks, and all of them are in its assignment."""
    if tasks is None:
        return False
    return all(
        each.subtopology_id in assigned and all(number in assigned[each.subtopology_id] for number in each.partitions) for each in tasks
    )
