"""Tasks that run later or again and again, without a thread: the owner of the loop says when (Kafka Scheduler, KafkaScheduler).

`schedule` puts a task into the table, `run_due` runs what is due, in order of time and, at the same time, of scheduling; so the same calls
give the same order. `next_due_ms` is when the loop has to look again: between that and now nothing has to wake.
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
    """A scheduled task; `period_ms` is None for one that runs once."""

    __slots__ = ("cancelled", "due_ms", "name", "period_ms", "run")

    def __init__(self, name: str, run: Callable[[], object], due_ms: int, period_ms: int | None) -> None:
        self.name = name
        self.run = run
        self.due_ms = due_ms
        self.period_ms = period_ms
        self.cancelled = False

    def cancel(self) -> None:
        """It does not run (again); a second call does nothing."""
        self.cancelled = True


class Scheduler:
    """The table of tasks. Scheduling is safe from several threads (logs are loaded in parallel), running is for one.

    `now_ms` is the clock that delays are counted from. A periodic task keeps to its rate: after a pause it runs as often as it missed, as
    Java's scheduleAtFixedRate does. An error that storage may raise (`KopsError`, `OSError`) ends that run of that task only and goes to
    `on_error(name, error)`; anything else is a fault of kops and comes out of `run_due`. `on_sooner`, which may be set at any time, is
    called where a task has become the next one, in the thread that scheduled it: whoever sleeps until `next_due_ms` has to look again.
    """

    def __init__(self, now_ms: Callable[[], int], *, on_error: Callable[[str, Exception], None] | None = None) -> None:
        self._now_ms = now_ms
        self._on_error = on_error
        self.on_sooner: Callable[[], object] | None = None
        self._numbers = itertools.count()
        # heapq and the counter are single steps to other threads; two entries never compare beyond the number.
        self._heap: list[tuple[int, int, Task]] = []
        self._is_shut_down = False
        self.side_work: SideWork | None = None
        """The owner's side threads; None: there are none."""

    def schedule_once(self, name: str, run: Callable[[], object], delay_ms: int = 0) -> Task:
        """Run `run` once, `delay_ms` from now."""
        return self._add(Task(name, run, self._now_ms() + max(delay_ms, 0), None))

    def schedule(self, name: str, run: Callable[[], object], period_ms: int, delay_ms: int = 0) -> Task:
        """Run `run` first `delay_ms` from now and then every `period_ms`; a period that is not above zero means once, as in Kafka."""
        return self._add(Task(name, run, self._now_ms() + max(delay_ms, 0), period_ms if period_ms > 0 else None))

    def aside(self, name: str, work: Callable[[], Result], done: Callable[[Future[Result]], object]) -> None:
        """Run `work`, which waits for the disk, in a side thread, then `done` with its future where tasks run.

        `work` may touch nothing that a task changes. What `done` raises is treated as a task's error. Without `side_work` both are called
        at once, and what `done` raises comes out. After a shutdown neither is called.
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
        """The time by the clock given."""
        return self._now_ms()

    def run_due(self, now_ms: int | None = None) -> int:
        """Run everything that is due at `now_ms` (the clock's time without it), also what these tasks schedule by then; how many ran."""
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
        """When the next task is due (ms, by the clock given), None without one."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def pending(self) -> list[Task]:
        """The tasks that are to run, in order."""
        return [task for _, _, task in sorted(self._heap, key=lambda entry: entry[:2]) if not task.cancelled]

    def shutdown(self) -> None:
        """Nothing runs any more; what is scheduled from now on is ignored, as by a scheduler of Kafka's that has ended."""
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
