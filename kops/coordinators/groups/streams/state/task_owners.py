"""The processes that own tasks, including tasks pending revocation (from Kafka's StreamsGroup)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from kops.coordinators.groups.streams.assignors.spec import TaskNumbers
from kops.coordinators.groups.streams.state.member import StreamsGroupMember
from kops.timeline import Timeline, TimelineDict

_Place = tuple[str, int]
_NOBODY: Set[str] = frozenset()


class TaskOwners:
    """The processes by task. A task is active on one process and may be a standby or warmup task on several.

    Kafka keeps the latter in plain sets, so a failed write does not undo a change of an existing set. kops does
    the same.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._active: TimelineDict[_Place, str] = TimelineDict(timeline)
        self._standby: TimelineDict[_Place, set[str]] = TimelineDict(timeline)
        self._warmup: TimelineDict[_Place, set[str]] = TimelineDict(timeline)

    def active(self, subtopology_id: str, number: int) -> str | None:
        """The process that owns the active task, or None."""
        return self._active.get((subtopology_id, number))

    def standby(self, subtopology_id: str, number: int) -> Set[str]:
        """The processes that have the task as a standby task."""
        return self._standby.get((subtopology_id, number), _NOBODY)

    def warmup(self, subtopology_id: str, number: int) -> Set[str]:
        """The processes that have the task as a warmup task."""
        return self._warmup.get((subtopology_id, number), _NOBODY)

    def add(self, member: StreamsGroupMember) -> None:
        """Add a member's tasks."""
        process_id = member.process_id
        if process_id is None:
            return
        for tasks in (member.assigned_tasks, member.tasks_pending_revocation):
            for place in _places(tasks.active):
                self._active[place] = process_id
            for table, numbers in ((self._standby, tasks.standby), (self._warmup, tasks.warmup)):
                for place in _places(numbers):
                    processes = table.get(place)
                    if processes is None:
                        processes = table[place] = set()
                    processes.add(process_id)

    def remove(self, member: StreamsGroupMember) -> None:
        """Remove a member's previous tasks. An active task may already belong to another process."""
        process_id = member.process_id
        if process_id is None:
            return
        for tasks in (member.assigned_tasks, member.tasks_pending_revocation):
            for place in _places(tasks.active):
                if self._active.get(place) == process_id:
                    del self._active[place]
            for table, numbers in ((self._standby, tasks.standby), (self._warmup, tasks.warmup)):
                for place in _places(numbers):
                    processes = table.get(place)
                    if processes is not None:
                        processes.discard(process_id)


def _places(tasks: Mapping[str, Mapping[int, int]] | TaskNumbers) -> list[_Place]:
    return [(subtopology_id, number) for subtopology_id, numbers in tasks.items() for number in numbers]
