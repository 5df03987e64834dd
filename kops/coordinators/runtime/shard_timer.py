"""A shard's timers and background tasks, which end in write operations (Kafka's CoordinatorTimerImpl, CoordinatorExecutorImpl)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.surroundings import Background, Cancellable, Log, Timers
from kops.coordinators.runtime.timers import DEFAULT_RETRY_BACKOFF_MS
from kops.errors import ApiError, KopsError

R = TypeVar("R")
ScheduleWrite = Callable[[str, Callable[[], CoordinatorResult[None]]], Promise[None]]
"""Runs an operation of the shard under a name."""
_INACTIVE = frozenset({"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"})


class OverriddenError(KopsError):
    """The timer or task was overridden or cancelled while its operation waited (Kafka's RejectedExecutionException)."""


def is_final(error: KopsError) -> bool:
    """Whether an operation must not be retried, because it was cancelled or the shard is not active."""
    return isinstance(error, OverriddenError) or (isinstance(error, ApiError) and error.name in _INACTIVE)


class _Task:
    """One timer of a key."""

    __slots__ = ("_owner", "has_expired", "key", "operation", "planned", "retry_backoff_ms")

    def __init__(self, owner: ShardTimer, key: str, operation: Callable[[], CoordinatorResult[None]], retry_backoff_ms: int | None) -> None:
        self._owner = owner
        self.key = key
        self.operation = operation
        self.retry_backoff_ms = retry_backoff_ms  # None: an operation that failed does not run again
        self.planned: Cancellable | None = None
        self.has_expired = False

    def run(self) -> None:
        """Handle its expiration."""
        self.has_expired = True
        self._owner.run(self)


class ShardTimer:
    """See `CoordinatorTimer`."""

    def __init__(self, timers: Timers, schedule_write: ScheduleWrite, log: Log) -> None:
        self._timers = timers
        self._schedule_write = schedule_write
        self._log = log
        self._tasks: dict[str, _Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def schedule(
        self,
        key: str,
        delay_ms: int,
        operation: Callable[[], CoordinatorResult[None]],
        *,
        retry: bool = True,
        retry_backoff_ms: int = DEFAULT_RETRY_BACKOFF_MS,
    ) -> None:
        """See `CoordinatorTimer.schedule`."""
        before = self._tasks.get(key)
        task = self._tasks[key] = _Task(self, key, operation, retry_backoff_ms if retry else None)
        if before is None or before.planned is None:
            task.planned = self._timers.call_later(delay_ms, task.run)
        else:
            task.planned = self._timers.replace(before.planned, delay_ms, task.run)

    def restart(self, key: str, delay_ms: int) -> bool:
        """See `CoordinatorTimer.restart`."""
        task = self._tasks.get(key)
        if task is None or task.planned is None or task.has_expired:
            return False
        task.planned = self._timers.replace(task.planned, delay_ms, task.run)
        return True

    def run(self, task: _Task) -> None:
        """Run the operation of an expired timer."""
        key = task.key

        def generate() -> CoordinatorResult[None]:
            if self._tasks.get(key) is not task:
                raise OverriddenError(f"Timer {key} was overridden or cancelled")
            del self._tasks[key]
            return task.operation()

        def ended(_: None, error: KopsError | None) -> None:
            if error is None:
                return
            if self._tasks.get(key) is task:
                del self._tasks[key]
            if is_final(error):
                return
            if task.retry_backoff_ms is not None:
                self._log.info("The write event for the timer %s failed due to %s. Rescheduling it.", key, error)
                self.schedule(key, task.retry_backoff_ms, task.operation, retry_backoff_ms=task.retry_backoff_ms)
            else:
                self._log.error("The write event for the timer %s failed due to %s. Ignoring it.", key, error)

        self._schedule_write(f"Timeout(key={key})", generate).when_done(ended)

    def schedule_if_absent(self, key: str, delay_ms: int, operation: Callable[[], CoordinatorResult[None]], *, retry: bool = True) -> None:
        """See `CoordinatorTimer.schedule_if_absent`."""
        if key not in self._tasks:
            self.schedule(key, delay_ms, operation, retry=retry)

    def cancel(self, key: str) -> None:
        """See `CoordinatorTimer.cancel`."""
        task = self._tasks.pop(key, None)
        if task is not None and task.planned is not None:
            task.planned.cancel()

    def is_scheduled(self, key: str) -> bool:
        """See `CoordinatorTimer.is_scheduled`."""
        return key in self._tasks

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for key in list(self._tasks):
            self.cancel(key)


class ShardExecutor:
    """See `CoordinatorExecutor`."""

    def __init__(self, background: Background, schedule_write: ScheduleWrite, log: Log) -> None:
        self._background = background
        self._schedule_write = schedule_write
        self._log = log
        self._tasks: dict[str, object] = {}

    def schedule(self, key: str, task: Callable[[], R], operation: Callable[[R | None, KopsError | None], CoordinatorResult[None]]) -> bool:
        """See `CoordinatorExecutor.schedule`."""
        if key in self._tasks:
            return False
        token = self._tasks[key] = object()

        def ended(_: None, error: KopsError | None) -> None:
            if error is None:
                return
            if self._tasks.get(key) is token:
                del self._tasks[key]
            if not is_final(error):
                self._log.error("The write event for the task %s failed due to %s. Ignoring it.", key, error)

        def done(result: R | None, failure: KopsError | None) -> None:
            if self._tasks.get(key) is not token:
                return

            def generate() -> CoordinatorResult[None]:
                if self._tasks.get(key) is not token:
                    raise OverriddenError(f"Task {key} was overridden or cancelled")
                del self._tasks[key]
                return operation(result, failure)

            self._schedule_write(key, generate).when_done(ended)

        self._background(task, done)
        return True

    def is_scheduled(self, key: str) -> bool:
        """See `CoordinatorExecutor.is_scheduled`."""
        return key in self._tasks

    def cancel(self, key: str) -> None:
        """See `CoordinatorExecutor.cancel`."""
        self._tasks.pop(key, None)

    def cancel_all(self) -> None:
        """Cancel all tasks."""
        self._tasks.clear()
