"""The tasks of a member, with the epoch at which it got each active task (Kafka's TasksTupleWithEpochs, TasksTuple)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kops.coordinators.groups.assignors.java_maps import JavaMap, put_ordered, text_hash
from kops.coordinators.groups.streams.assignors.spec import NO_NUMBERS, TargetTasks, TaskNumbers
from kops.coordinators.groups.streams.topics.topology import java_order
from kops.errors import ApiError
from kops.protocol.messages import streams_group_current_member_assignment_value as current
from kops.protocol.messages import streams_group_target_assignment_member_value as target
from kops.protocol.messages.streams_group_heartbeat_request import TaskIds as RequestedTaskIds

ActiveTasks = Mapping[str, Mapping[int, int]]
"""The epochs of active tasks, by subtopology and number."""
NO_ACTIVE: Final[ActiveTasks] = MappingProxyType({})


class OwnedTasks(NamedTuple):
    """Tasks that a member owns or must revoke. Subtopologies are in the order of Kafka's maps."""

    active: ActiveTasks = NO_ACTIVE
    standby: TaskNumbers = NO_NUMBERS
    warmup: TaskNumbers = NO_NUMBERS

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)

    def merged_with(self, other: OwnedTasks) -> OwnedTasks:
        """Return the union of both. Epochs come from the second."""
        active: JavaMap[str, Mapping[int, int]] = JavaMap(text_hash)
        for subtopology_id, epochs in self.active.items():
            active[subtopology_id] = epochs
        for subtopology_id, epochs in other.active.items():
            before = active.compute_if_absent(subtopology_id, dict)
            active[subtopology_id] = {**before, **epochs}
        return OwnedTasks(active.to_dict(), _merged(self.standby, other.standby), _merged(self.warmup, other.warmup))


NO_TASKS: Final = OwnedTasks()


def has_any(tasks: TargetTasks, others: OwnedTasks) -> bool:
    """Whether `tasks` contains any task of `others` (TasksTuple.containsAny)."""
    pairs: tuple[tuple[TaskNumbers, Mapping[str, Collection[int]]], ...] = (
        (tasks.active, others.active),
        (tasks.standby, others.standby),
        (tasks.warmup, others.warmup),
    )
    return any(
        not numbers.isdisjoint(other[subtopology_id])
        for own, other in pairs
        for subtopology_id, numbers in own.items()
        if subtopology_id in other
    )


def requested_tasks(
    active: Iterable[RequestedTaskIds], standby: Iterable[RequestedTaskIds], warmup: Iterable[RequestedTaskIds]
) -> TargetTasks:
    """Return the tasks that a member reports. As in Kafka, raises ApiError UNKNOWN_SERVER_ERROR if a subtopology is listed twice."""
    return TargetTasks(_numbers_once(active), _numbers_once(standby), _numbers_once(warmup))


def target_from_record(value: target.StreamsGroupTargetAssignmentMemberValue) -> TargetTasks:
    """As a record says."""
    return TargetTasks(_numbers_once(value.active_tasks), _numbers_once(value.standby_tasks), _numbers_once(value.warmup_tasks))


def target_value(tasks: TargetTasks) -> target.StreamsGroupTargetAssignmentMemberValue:
    """Return the value of the record of a target assignment."""
    return target.StreamsGroupTargetAssignmentMemberValue(
        [target.TaskIds(*pair) for pair in sorted_tasks(tasks.active)],
        [target.TaskIds(*pair) for pair in sorted_tasks(tasks.standby)],
        [target.TaskIds(*pair) for pair in sorted_tasks(tasks.warmup)],
    )


def owned_from_lists(
    active: Iterable[current.TaskIds], standby: Iterable[current.TaskIds], warmup: Iterable[current.TaskIds], member_epoch: int
) -> OwnedTasks:
    """Return the tasks in a record. Older records have no task epochs, so the member's epoch is used."""
    epochs_of: dict[str, Mapping[int, int]] = {}
    for each in active:
        epochs = each.assignment_epochs
        if epochs is not None and len(epochs) == len(each.partitions):
            epochs_of[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
        else:
            epochs_of[each.subtopology_id] = dict.fromkeys(each.partitions, member_epoch)
    return OwnedTasks(put_ordered(epochs_of, text_hash), _numbers(standby), _numbers(warmup))


def active_lists(tasks: ActiveTasks) -> list[current.TaskIds]:
    """Return active tasks in the form of a record."""
    found = []
    for subtopology_id, numbers in sorted_tasks(tasks):
        epochs = tasks[subtopology_id]
        found.append(current.TaskIds(subtopology_id, numbers, [epochs[number] for number in numbers]))
    return found


def other_lists(tasks: TaskNumbers) -> list[current.TaskIds]:
    """Return standby or warmup tasks in the form of a record."""
    return [current.TaskIds(subtopology_id, numbers) for subtopology_id, numbers in sorted_tasks(tasks)]


def sorted_tasks(tasks: Mapping[str, Collection[int]]) -> list[tuple[str, list[int]]]:
    """Return subtopologies and their task numbers, sorted."""
    return [(subtopology_id, sorted(tasks[subtopology_id])) for subtopology_id in sorted(tasks, key=java_order)]


def _merged(first: TaskNumbers, second: TaskNumbers) -> TaskNumbers:
    found: JavaMap[str, frozenset[int]] = JavaMap(text_hash)
    for subtopology_id, numbers in first.items():
        found[subtopology_id] = numbers
    for subtopology_id, numbers in second.items():
        found[subtopology_id] = found.compute_if_absent(subtopology_id, frozenset) | numbers
    return found.to_dict()


def _numbers(lists: Iterable[Any]) -> TaskNumbers:
    return put_ordered({each.subtopology_id: frozenset(each.partitions) for each in lists}, text_hash)


def _numbers_once(lists: Iterable[Any]) -> TaskNumbers:
    listed = list(lists)
    found = _numbers(listed)
    if len(found) < len(listed):
        raise ApiError("UNKNOWN_SERVER_ERROR", "A subtopology is there twice.")
    return found
