"""The periodic tasks of a leading controller (Kafka PeriodicTaskControlManager, PeriodicTask)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kops.metadata.controller.base.result import Record

_IMMEDIATE_MS: Final = 10


@dataclass(slots=True)
class PeriodicTask:
    """A task that is due at `due_ms`. `run(now_ms)` returns records, and whether there is more to do at once."""

    name: str
    period_ms: int
    run: Callable[[int], tuple[list[Record], bool]]
    due_ms: int = 0


class PeriodicTasks:
    """The tasks of a controller. Each runs one period after its last run."""

    def __init__(self, tasks: list[PeriodicTask]) -> None:
        self._tasks = tasks
        self._is_active = False

    def activate(self, now_ms: int) -> None:
        """Start all tasks. Each first runs one period from now."""
        self._is_active = True
        for task in self._tasks:
            task.due_ms = now_ms + task.period_ms

    def deactivate(self) -> None:
        """Stop all tasks."""
        self._is_active = False

    @property
    def next_due_ms(self) -> int | None:
        """The time at which the next task is due."""
        return min((task.due_ms for task in self._tasks), default=None) if self._is_active else None

    def run_due(self, now_ms: int) -> list[Record]:
        """Run due tasks until one has records, which must be replayed before the next task runs."""
        while True:
            due_ms = self.next_due_ms
            if due_ms is None or due_ms > now_ms:
                return []
            task = next(task for task in self._tasks if task.due_ms == due_ms)
            records, has_more = task.run(now_ms)
            task.due_ms = now_ms + (_IMMEDIATE_MS if has_more else task.period_ms)
            if records:
                return records
