"""The timers and background tasks that the runtime offers a shard (Kafka's CoordinatorTimer and CoordinatorExecutor)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import KopsError

R = TypeVar("R")
DEFAULT_RETRY_BACKOFF_MS = 500


class CoordinatorTimer(Protocol):
    """Timers by key. A timer's operation runs as a write operation of the shard."""

    def schedule(
        self,
        key: str,
        delay_ms: int,
        operation: Callable[[], CoordinatorResult[None]],
        *,
        retry: bool = True,
        retry_backoff_ms: int = DEFAULT_RETRY_BACKOFF_MS,
    ) -> None:
        """Run `operation` in `delay_ms`. It replaces the key's previous timer. With `retry`, a failed operation runs again after
        `retry_backoff_ms`, unless the error is final (Kafka's RejectedExecutionException).
        """

    def restart(self, key: str, delay_ms: int) -> bool:
        """Like `schedule` with the operation that the key's timer has, so use it only if that can't be another one. Returns False, and does
        nothing, if the key has no timer."""

    def schedule_if_absent(self, key: str, delay_ms: int, operation: Callable[[], CoordinatorResult[None]], *, retry: bool = True) -> None:
        """Like `schedule`, but do nothing if the key has a timer."""

    def cancel(self, key: str) -> None:
        """Cancel the key's timer."""

    def is_scheduled(self, key: str) -> bool:
        """Whether the key has a timer."""


class CoordinatorExecutor(Protocol):
    """Runs long tasks that do not change the state, such as resolving regular expressions."""

    def schedule(self, key: str, task: Callable[[], R], operation: Callable[[R | None, KopsError | None], CoordinatorResult[None]]) -> bool:
        """Run `task`, then `operation` with its result as a write operation. Returns False if the key already has a task."""

    def is_scheduled(self, key: str) -> bool:
        """Whether the key has a task."""

    def cancel(self, key: str) -> None:
        """Cancel the key's task."""
