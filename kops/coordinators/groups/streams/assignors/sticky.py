"""The assignor of streams groups, named `sticky` (Kafka's StickyTaskAssignor).

If the load allows, an active task stays on its member or moves to a member that has it as a standby task. Other tasks go to the processes
with the least load. Standby tasks of subtopologies with state are then assigned in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kops.coordinators.groups.assignors.java_maps import JavaMap, text_hash
from kops.coordinators.groups.streams.assignors.process_state import ProcessState
from kops.coordinators.groups.streams.assignors.queue import JavaPriorityQueue
from kops.coordinators.groups.streams.assignors.spec import GroupSpec, TargetTasks, Task, TaskAssignorError, TaskNumbers
from kops.errors import ApiError

NAME: Final = "sticky"
NUM_STANDBY_REPLICAS: Final = "num.standby.replicas"


def assign(group: GroupSpec) -> dict[str, TargetTasks]:
    """Return the target assignment of each member. Raises TaskAssignorError."""
    return _Assignment(group).run()


class _Member(NamedTuple):
    process: ProcessState
    member_id: str


class _Quota:
    """The number of tasks that a member may have: the number of remaining tasks divided by that of the members below their quota."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._task_count = task_count
        self._member_count = member_count
        self.per_member = self._divide()

    def note(self, count: int) -> None:
        """Update the quota for a member's new number of tasks."""
        if count == self.per_member:
            self._member_count -= 1
            self._task_count -= count
            self.per_member = self._divide()

    def _divide(self) -> int:
        if not self._member_count:
            return 0
        quotient = abs(self._task_count) // self._member_count  # Java's integer division
        quotient = -quotient if self._task_count < 0 else quotient
        return quotient + (self._task_count - quotient * self._member_count > 0)


class _Assignment:
    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._replica_count = _replica_count(group.configs)
        active = sum(each.task_count for each in group.subtopologies.values())
        standby = sum(each.task_count for each in group.subtopologies.values() if each.is_stateful) * self._replica_count
        self._active_quota = _Quota(active, len(group.members))
        self._quota = _Quota(active + standby, len(group.members))
        self._processes: JavaMap[str, ProcessState] = JavaMap(text_hash, capacity=len(group.members))
        self._was_active: dict[Task, _Member] = {}
        self._was_standby: dict[Task, list[_Member]] = {}
        for member_id, spec in group.members.items():
            process = self._processes.get(spec.process_id)
            if process is None:
                process = self._processes[spec.process_id] = ProcessState()
            process.add_member(member_id)
            member = _Member(process, member_id)
            for task in _tasks(spec.tasks.active):
                self._was_active[task] = member
            for task in _tasks(spec.tasks.standby):
                self._was_standby.setdefault(task, []).append(member)

    def run(self) -> dict[str, TargetTasks]:
        """Compute the assignment."""
        self._assign_active()
        if self._replica_count > 0:
            self._assign_standby()
        found = dict.fromkeys(self._group.members, TargetTasks())
        for _, process in self._processes.items():
            for member_id in process.task_counts:
                active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
                found[member_id] = TargetTasks(_numbers(active), _numbers(standby), {})
        return found

    def _assign_active(self) -> None:
        left = sorted(self._all_tasks(stateful_only=False), key=_by_number)
        left = [task for task in left if not self._gets_active(self._was_active.get(task), task)]
        left = [task for task in left if not self._gets_active(self._least_loaded(self._was_standby.get(task), None), task)]
        left.sort(key=lambda task: (_java_order(task.subtopology_id), task.number))
        by_load = self._by_load()
        for task in left:
            process = by_load.poll()
            if process is None:
                raise TaskAssignorError(f"No process available to assign active task {task.subtopology_id}_{task.number}.")
            self._note_active(process.add_to_least_loaded(task, is_active=True))
            by_load.add(process)

    def _gets_active(self, member: _Member | None, task: Task) -> bool:
        """Assign the active task to a member if it is below its quota. Returns whether it was assigned."""
        if member is None or member.process.count_of(member.member_id) >= self._active_quota.per_member:
            return False
        self._note_active(member.process.add(member.member_id, task, is_active=True))
        return True

    def _note_active(self, count: int) -> None:
        self._active_quota.note(count)
        self._quota.note(count)

    def _assign_standby(self) -> None:
        left: list[tuple[Task, int]] = []
        for task in sorted(self._all_tasks(stateful_only=True), key=_by_number, reverse=True):
            for done in range(self._replica_count):
                if self._gets_standby_back(task):
                    continue
                left.append((task, self._replica_count - done))
                break
        left.sort(key=lambda each: (_java_order(each[0].subtopology_id), each[0].number), reverse=True)
        by_load = self._by_load()
        for task, count in left:
            for _ in range(count):
                if not self._gets_standby(by_load, task):
                    break  # there are more replicas than processes

    def _gets_standby_back(self, task: Task) -> bool:
        """Assign a standby task to the previous owner of the active task, or of the standby task, if it has room."""
        before = self._was_active.get(task)
        if before is not None and not before.process.has_task(task) and self._gets_standby_as(before, task):
            return True
        before = self._least_loaded(self._was_standby.get(task), task)
        return before is not None and self._gets_standby_as(before, task)

    def _gets_standby_as(self, member: _Member, task: Task) -> bool:
        if member.process.count_of(member.member_id) >= self._quota.per_member:
            return False
        self._quota.note(member.process.add(member.member_id, task, is_active=False))
        return True

    def _gets_standby(self, by_load: JavaPriorityQueue[ProcessState], task: Task) -> bool:
        """Assign a standby task to the process with the least load that does not have the task."""
        passed: list[ProcessState] = []
        found = None
        while (process := by_load.poll()) is not None:
            if not process.has_task(task):
                found = process
                self._quota.note(process.add_to_least_loaded(task, is_active=False))
                by_load.add(process)
                break
            passed.append(process)
        for process in reversed(passed):
            by_load.add(process)
        return found is not None

    @staticmethod
    def _least_loaded(members: list[_Member] | None, task: Task | None) -> _Member | None:
        """Return the member with the least load. A process that has the task is counted as in Kafka."""
        if not members:
            return None
        found = members[0]
        load, count = found.process.load, found.process.count_of(found.member_id)
        for member in members[1:]:
            if member.process.load < load and (task is None or not member.process.has_task(task)):
                own = member.process.count_of(member.member_id)
                if own < count:
                    found, load, count = member, member.process.load, own
        # Kafka checks the first member's process, even if another member was found.
        return found if task is None or not members[0].process.has_task(task) else None

    def _by_load(self) -> JavaPriorityQueue[ProcessState]:
        return JavaPriorityQueue(lambda process: process.load, (process for _, process in self._processes.items()))

    def _all_tasks(self, *, stateful_only: bool) -> list[Task]:
        return [
            Task(subtopology_id, number)
            for subtopology_id, each in self._group.subtopologies.items()
            if each.is_stateful or not stateful_only
            for number in range(each.task_count)
        ]


def _by_number(task: Task) -> tuple[int, bytes]:
    return task.number, _java_order(task.subtopology_id)


def _replica_count(configs: Mapping[str, str]) -> int:
    """Return the number of standby replicas for each task with state."""
    if not configs:
        return 0
    try:
        return int(configs[NUM_STANDBY_REPLICAS])
    except (KeyError, ValueError):
        raise ApiError("UNKNOWN_SERVER_ERROR", f"{NUM_STANDBY_REPLICAS} is not a number") from None


def _tasks(numbers: TaskNumbers) -> list[Task]:
    return [Task(subtopology_id, number) for subtopology_id, each in numbers.items() for number in each]


def _numbers(tasks: Iterable[Task]) -> dict[str, frozenset[int]]:
    """Group tasks by subtopology, in the order of Kafka's map."""
    found: JavaMap[str, set[int]] = JavaMap(text_hash)
    for subtopology_id, number in tasks:
        numbers = found.get(subtopology_id)
        if numbers is None:
            numbers = found[subtopology_id] = set()
        numbers.add(number)
    return {subtopology_id: frozenset(numbers) for subtopology_id, numbers in found.items()}


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
