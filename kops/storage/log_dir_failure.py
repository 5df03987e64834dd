"""Where an I/O error in a log directory is told, once for each directory (Kafka LogDirFailureChannel).

Whoever meets the error adds the directory and goes on; who owns the directories takes it from here and stops serving it
(`LogManager.handle_log_dir_failure`). A directory that has failed stays offline until the next start.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class LogDirFailure(NamedTuple):
    """The first failure of a directory: what was being done, and the error of the operating system (or what counts as one)."""

    message: str
    error: Exception


class LogDirFailureChannel:
    """The failed directories, by absolute path. Safe from several threads; `on_failure` is called once a directory, to wake the owner."""

    def __init__(self, on_failure: Callable[[str], None] | None = None) -> None:
        self._on_failure = on_failure
        self._offline: dict[str, LogDirFailure] = {}
        self.offline: Mapping[str, LogDirFailure] = self._offline
        """All directories that have failed, in order, with their first failure."""
        self._queue: deque[str] = deque()

    def maybe_add_offline_log_dir(self, log_dir: str, message: str, error: Exception) -> None:
        """Tell that `log_dir` failed; only the first time counts."""
        failure = LogDirFailure(message, error)
        if self._offline.setdefault(log_dir, failure) is failure:
            self._queue.append(log_dir)
            if self._on_failure is not None:
                self._on_failure(log_dir)

    def has_offline(self, log_dir: str) -> bool:
        """Whether the directory has failed."""
        return log_dir in self._offline

    def take_next(self) -> str | None:
        """The next failed directory that was not taken yet, None if there is none; it does not wait."""
        return self._queue.popleft() if self._queue else None
