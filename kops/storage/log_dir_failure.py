"""The channel to which I/O errors in log directories are reported, once for each directory (Kafka LogDirFailureChannel)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class LogDirFailure(NamedTuple):
    """The first failure of a directory: the operation that failed, and the error of the operating system (or an error that counts as
    one).
    """

    message: str
    error: Exception


class LogDirFailureChannel:
    """The failed directories by absolute path. Threads may share it. `on_failure` is called once for each directory, to wake the owner."""

    def __init__(self, on_failure: Callable[[str], None] | None = None) -> None:
        self._on_failure = on_failure
        self._offline: dict[str, LogDirFailure] = {}
        self.offline: Mapping[str, LogDirFailure] = self._offline
        """All failed directories in order, with their first failure."""
        self._queue: deque[str] = deque()

    def maybe_add_offline_log_dir(self, log_dir: str, message: str, error: Exception) -> None:
        """Report that `log_dir` failed. Only the first report counts."""
        failure = LogDirFailure(message, error)
        if self._offline.setdefault(log_dir, failure) is failure:
            self._queue.append(log_dir)
            if self._on_failure is not None:
                self._on_failure(log_dir)

    def has_offline(self, log_dir: str) -> bool:
        """Whether the directory has failed."""
        return log_dir in self._offline

    def take_next(self) -> str | None:
        """Return the next failed directory that has not been returned yet, or None. Does not wait."""
        return self._queue.popleft() if self._queue else None
