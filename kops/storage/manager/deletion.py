"""Logs that are marked for deletion. Their `-delete` folders are kept for `file.delete.delay.ms` (Kafka LogManager.deleteLogs)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kops.storage.failures.load_errors import KafkaStorageError

_LOGS_AT_ONCE: Final = 20

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.storage.scheduler import Scheduler
    from kops.storage.unified_log import UnifiedLog


class LogsToBeDeleted:
    """The queue of logs whose folders are marked, oldest first."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._queue: deque[tuple[UnifiedLog, int]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, log: UnifiedLog) -> None:
        """Add a log. Its delay begins now."""
        self._queue.append((log, self._now_ms()))

    def drop_dir(self, log_dir: str) -> list[UnifiedLog]:
        """Remove the logs of a failed directory, and return them, still open."""
        dropped = [log for log, _ in self._queue if log.parent_dir == log_dir]
        self._queue = deque(entry for entry in self._queue if entry[0].parent_dir != log_dir)
        return dropped

    def delete_due(self, delay_ms: int, scheduler: Scheduler) -> int:
        """Begin to delete the logs that have waited for `delay_ms`, and return the time in ms until the next call.

        Side threads of `scheduler` delete the files of a few logs per call. A log that can't be deleted is dropped.
        """
        for _ in range(_LOGS_AT_ONCE):
            if not self._queue:
                return max(delay_ms, 1)
            log, since_ms = self._queue[0]
            wait_ms = since_ms + delay_ms - self._now_ms()
            if wait_ms > 0:
                return wait_ms
            self._queue.popleft()
            try:
                log.delete_aside(scheduler)
            except KafkaStorageError:
                # The log has reported the error to the failure channel. The rest of the folder is deleted after the next start.
                continue
        # Not 0: a task that is due now still runs in this turn of the loop.
        return 1

    def close(self) -> None:
        """Close the files of the waiting logs. The next start finds their folders again."""
        while self._queue:
            self._queue.popleft()[0].close_handlers()
