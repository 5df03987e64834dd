"""Logs that are deleted, or about to be: `-delete` folders wait `file.delete.delay.ms` before they go (Kafka LogManager.deleteLogs)."""

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
    """The queue of logs whose folder is marked, oldest first."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._queue: deque[tuple[UnifiedLog, int]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, log: UnifiedLog) -> None:
        """The log's time begins now."""
        self._queue.append((log, self._now_ms()))

    def drop_dir(self, log_dir: str) -> list[UnifiedLog]:
        """Forget the logs of a directory that failed; -> them, open as they are."""
        dropped = [log for log, _ in self._queue if log.parent_dir == log_dir]
        self._queue = deque(entry for entry in self._queue if entry[0].parent_dir != log_dir)
        return dropped

    def delete_due(self, delay_ms: int, scheduler: Scheduler) -> int:
        """Begin to delete what has waited `delay_ms`; -> how long until this is to be done again (ms).

        Files go in side threads of `scheduler`, a few logs a call. A log that can't be deleted is given up.
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
                # The log has told the failure channel; what is left of the folder is deleted after the next start.
                continue
        return 0

    def close(self) -> None:
        """Let go of the files of what still waits; the folders are found again by the next start."""
        while self._queue:
            self._queue.popleft()[0].close_handlers()
