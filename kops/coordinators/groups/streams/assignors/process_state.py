"""The load of a process of a Streams application during an assignment (Kafka's ProcessState)."""

from __future__ import annotations

from dataclasses import dataclass

from kops.coordinators.groups.assignors.java_maps import JavaMap, JavaSet, text_hash
from kops.coordinators.groups.streams.assignors.queue import JavaPriorityQueue
from kops.coordinators.groups.streams.assignors.spec import Task, task_hash


@dataclass(slots=True)
class _Counted:
    member_id: str
    count: int


class ProcessState:
    """One process: its members, which are threads, and the tasks assigned to them so far."""

    def __init__(self) -> None:
        self.load = 0.0
        self.task_counts: JavaMap[str, int] = JavaMap(text_hash)
        """The number of tasks of each member."""
        self.active: dict[str, JavaSet[Task]] = {}
        self.standby: dict[str, JavaSet[Task]] = {}
        self._tasks: set[Task] = set()
        self._added_count = 0
        self._by_load: JavaPriorityQueue[_Counted] | None = None

    def add_member(self, member_id: str) -> None:
        """Add a member to the process."""
        self.task_counts[member_id] = 0

    def has_task(self, task: Task) -> bool:
        """Whether a member of this process has the task."""
        return task in self._tasks

    def count_of(self, member_id: str) -> int:
        """Return the number of a member's tasks."""
        return self.task_counts[member_id]

    def add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Assign a task to a member. Returns the member's number of tasks."""
        self._by_load = None
        return self._add(member_id, task, is_active=is_active)

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Assign a task to the member with the fewest tasks. Returns that member's number of tasks."""
        if len(self.task_counts) == 1:
            return self._add(next(iter(self.task_counts)), task, is_active=is_active)
        if self._by_load is None:
            entries = (_Counted(member_id, count) for member_id, count in self.task_counts.items())
            self._by_load = JavaPriorityQueue(lambda entry: entry.count, entries)
        entry = self._by_load.poll()
        assert entry is not None, "a process has members"
        entry.count = self._add(entry.member_id, task, is_active=is_active)
        self._by_load.add(entry)
        return entry.count

    def _add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self._tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, JavaSet(task_hash)).add(task)
        count = self.task_counts[member_id] = self.task_counts[member_id] + 1
        self._added_count += 1
        self.load = self._added_count / len(self.task_counts)
        return count
