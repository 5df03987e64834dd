"""A long task that runs in short slices. Between two slices, the loop handles everything that has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kops.storage.scheduler import Scheduler

SLICE_MS: Final = 3


class SlicedTask:
    """A task whose `steps()` returns an iterator over short steps. `begin` runs it to its end, about `SLICE_MS` at a time."""

    def __init__(self, scheduler: Scheduler, name: str, steps: Callable[[], Iterator[object]]) -> None:
        self._scheduler = scheduler
        self._name = name
        self._steps = steps
        self._running: Iterator[object] | None = None

    def begin(self) -> None:
        """Start the task, unless it is running. An error of a step ends the run and is raised."""
        if self._running is None:
            self._running = self._steps()
            self._go_on()

    def _go_on(self) -> None:
        running = self._running
        assert running is not None, f"{self._name} does not run"
        end_ms = self._scheduler.now_ms + SLICE_MS
        try:
            for _ in running:
                if self._scheduler.now_ms >= end_ms:
                    # The delay makes it wait for the next turn, because tasks that are due now still run in this one.
                    self._scheduler.schedule_once(self._name, self._go_on, 1)
                    return
        except BaseException:
            self._running = None
            raise
        self._running = None
