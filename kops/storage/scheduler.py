"""Delayed and periodic tasks without a thread: the loop's owner decides when they run (Kafka Scheduler, KafkaScheduler).

`schedule` adds a task, and `run_due` runs the tasks that are due. They run in the order of their times, and with equal times in the order
in which they were scheduled. So the same calls give the same order. The loop may sleep until `next_due_ms`.
"""

from __future__ import annotations

import heapq
import itertools
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from kops.errors import KopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.storage.background.work import SideWork

Result = TypeVar("Result")


class Task:
    """A scheduled task. `period_ms` is None for a task that runs once."""

    __slots__ = ("cancelled", "due_ms", "name", "period_ms", "run")

    def __init__(self, name: str, run: Callable[[], object], due_ms: int, period_ms: int | None) -> None:
        self.name = name
        self.run = run
        self.due_ms = due_ms
        self.period_ms = period_ms
        self.cancelled = False

    def cancel(self) -> None:
        """Prevent the task from running (again). A second call does nothing."""
        self.cancelled = True


class Scheduler:
    """The table of tasks. Several threads may schedule tasks (logs are loaded in parallel), but only one may run them.

    `now_ms` is the clock for delays. A periodic task keeps its rate: after a pause it runs once for each missed period, as with Java's
    scheduleAtFixedRate. An error that storage may raise (`KopsError`, `OSError`) ends only that run of that task and is passed to
    `on_error(name, error)`. Any other error is a bug in kops, and `run_due` raises it. `on_sooner` may be set at any time. It is called, in
    the thread that schedules, if a new task is due before all others, because a loop that sleeps until `next_due_ms` then has to wake.
    """

    def __init__(self, now_ms: Callable[[], int], *, on_error: Callable[[str, Exception], None] | None = None) -> None:
        self._now_ms = now_ms
        self._on_error = on_error
        self.on_sooner: Callable[[], object] | None = None
        self._numbers = itertools.count()
        # heapq and the counter are atomic for other threads. The numbers of two entries differ, so the tasks are never compared.
        self._heap: list[tuple[int, int, Task]] = []
        self._is_shut_down = False
        self.side_work: SideWork | None = None
        """The owner's side threads, or None if it has none."""

    def schedule_once(self, name: str, run: Callable[[], object], delay_ms: int = 0) -> Task:
        """Run `run` once, after `delay_ms`."""
        return self._add(Task(name, run, self._now_ms() + max(delay_ms, 0), None))

    def schedule(self, name: str, run: Callable[[], object], period_ms: int, delay_ms: int = 0) -> Task:
        """Run `run` after `delay_ms` and then every `period_ms`. As in Kafka, a period of 0 or less means once."""
        return self._add(Task(name, run, self._now_ms() + max(delay_ms, 0), period_ms if period_ms > 0 else None))

    def aside(self, name: str, work: Callable[[], Result], done: Callable[[Future[Result]], object]) -> None:
        """Run `work`, which waits for the disk, in a side thread. Then call `done` with its future in the thread of the tasks.

        `work` must not touch anything that a task changes. An error of `done` is handled like that of a task. Without `side_work`, both are
        called at once, and errors of `done` are raised. After a shutdown, neither is called.
        """

        def ended(future: Future[Result]) -> None:
            try:
                done(future)
            except (KopsError, OSError) as error:
                if self._on_error is not None:
                    self._on_error(name, error)

        if self.side_work is not None:
            self.side_work.add(work, ended)
            return
        future: Future[Result] = Future()
        try:
            future.set_result(work())
        except (KopsError, OSError) as error:
            future.set_exception(error)
        done(future)

    @property
    def now_ms(self) -> int:
        """The clock's time."""
        return self._now_ms()

    def run_due(self, now_ms: int | None = None) -> int:
        """Run everything that is due at `now_ms` (default: the clock's time), including tasks that these tasks schedule. Returns the number
        of runs.
        """
        now = self._now_ms() if now_ms is None else now_ms
        count = 0
        while self._heap and self._heap[0][0] <= now:
            task = heapq.heappop(self._heap)[2]
            if task.cancelled:
                continue
            if task.period_ms is not None:
                task.due_ms += task.period_ms
                self._add(task)
            count += 1
            try:
                task.run()
            except (KopsError, OSError) as error:
                if self._on_error is not None:
                    self._on_error(task.name, error)
        return count

    @property
    def next_due_ms(self) -> int | None:
        """The time at which the next task is due (ms), or None if there are no tasks."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def pending(self) -> list[Task]:
        """The scheduled tasks in order."""
        return [task for _, _, task in sorted(self._heap, key=lambda entry: entry[:2]) if not task.cancelled]

    def shutdown(self) -> None:
        """Stop running tasks. As with a Kafka scheduler that was shut down, tasks scheduled later are ignored."""
        self._is_shut_down = True
        self._heap.clear()
        if self.side_work is not None:
            self.side_work.end()

    def _add(self, task: Task) -> Task:
        if self._is_shut_down:
            task.cancel()
        else:
            heapq.heappush(self._heap, (task.due_ms, next(self._numbers), task))
            if self.on_sooner is not None and self._heap[0][2] is task:
                self.on_sooner()
        return task
