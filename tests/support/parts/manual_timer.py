"""Timers of a coordinator's shard that a test lets expire (kops.coordinators.runtime.timers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ManualTimer:
    """Operations by key, each with the time when it is due. `pop_due` returns them in order of time, then of key."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.entries: dict[str, tuple[int, Any]] = {}

    def schedule(self, key: str, delay_ms: int, operation: Any, *, retry: bool = True, retry_backoff_ms: int = 500) -> None:
        """Schedule as CoordinatorTimer does, but without retries."""
        self.entries[key] = (self._now_ms() + delay_ms, operation)

    def restart(self, key: str, delay_ms: int) -> bool:
        """Restart as CoordinatorTimer does."""
        if key not in self.entries:
            return False
        self.schedule(key, delay_ms, self.entries[key][1])
        return True

    def schedule_if_absent(self, key: str, delay_ms: int, operation: Any, *, retry: bool = True) -> None:
        """Schedule as CoordinatorTimer does, if the key has no timer."""
        if key not in self.entries:
            self.schedule(key, delay_ms, operation)

    def cancel(self, key: str) -> None:
        """Cancel as CoordinatorTimer does."""
        self.entries.pop(key, None)

    def is_scheduled(self, key: str) -> bool:
        """Return whether the key has a timer."""
        return key in self.entries

    def dues(self) -> dict[str, int]:
        """Return when each key is due."""
        return {key: due_ms for key, (due_ms, _) in self.entries.items()}

    def next_due(self) -> tuple[int, str] | None:
        """Return when the next one is due, and its key."""
        return min(((due_ms, key) for key, (due_ms, _) in self.entries.items()), default=None)

    def pop(self, key: str) -> Any:
        """Remove an operation and return it."""
        return self.entries.pop(key)[1]
