"""The input and output of an assignor of tasks (Kafka's streams GroupSpec, TopologyDescriber, TaskId, TasksTuple)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from kops.coordinators.groups.assignors.java_maps import text_hash
from kops.errors import KopsError

TaskNumbers = Mapping[str, frozenset[int]]
"""Tasks by subtopology."""
NO_NUMBERS: Final[TaskNumbers] = MappingProxyType({})


class TaskAssignorError(KopsError):
    """The assignor cannot assign (Kafka's TaskAssignorException)."""


class Task(NamedTuple):
    """One task: a subtopology and a number."""

    subtopology_id: str
    number: int


def task_hash(task: Task) -> int:
    """Return the hashCode of Kafka's record TaskId as an unsigned 32-bit number."""
    return (31 * text_hash(task.subtopology_id) + task.number) & 0xFFFF_FFFF


class TargetTasks(NamedTuple):
    """The target assignment of a member."""

    active: TaskNumbers = NO_NUMBERS
    standby: TaskNumbers = NO_NUMBERS
    warmup: TaskNumbers = NO_NUMBERS


NO_TARGET: Final = TargetTasks()


class MemberSpec(NamedTuple):
    """A member, the process to which it belongs as a thread, and its current tasks."""

    process_id: str
    tasks: TargetTasks


class SubtopologySpec(NamedTuple):
    """The number of tasks of a subtopology, and whether they have state."""

    task_count: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members in the order of Kafka's map, the settings of the assignor, and the subtopologies in order of their ids."""

    members: Mapping[str, MemberSpec]
    configs: Mapping[str, str]
    subtopologies: Mapping[str, SubtopologySpec]
