"""The periodic tasks of a broker: a table of all of them, and the timer that runs them on the loop.

Source: Kafka's LogManager.startupWithConfigOverrides, ReplicaManager.startup and startHighWatermarkCheckPointThread, LogCleaner. As in
Java's executors, delays are measured with the monotonic clock: if the wall clock jumps, no task runs late or twice.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kops.broker.transactions.surroundings import ABORT, EXPIRY
from kops.storage.background.work import SideWork
from kops.storage.manager.settings import PERIODIC_TASKS, PeriodicTask
from kops.storage.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.controller_link.lifecycle import Cancellable
    from kops.broker.network.events.loop import Loop
    from kops.config import BrokerConfig
    from kops.storage.cleaning.log_cleaner import LogCleaner

log = logging.getLogger(__name__)

ISR_EXPIRATION: Final = PeriodicTask("isr-expiration", "replica.lag.time.max.ms", None)
LOG_CLEANER: Final = PeriodicTask("kafka-log-cleaner", "log.cleaner.backoff.ms", None, schedules_itself=True)
BROKER_TASKS: Final = (*PERIODIC_TASKS, ISR_EXPIRATION, LOG_CLEANER, ABORT, EXPIRY)
"""All periodic tasks; the last two run when there is a transaction coordinator. As in Kafka, in-sync sets are checked twice within
`replica.lag.time.max.ms`. The cleaner waits only when all logs are clean."""
_LONGEST_SLEEP_MS: Final = 3_600_000


def describe_tasks(config: BrokerConfig) -> list[tuple[str, str, int]]:
    """(task, key of its period, the period in ms) of all periodic tasks."""
    return [(task.name, task.period_key, config[task.period_key]) for task in BROKER_TASKS]


class PeriodicTasks:
    """Runs a `Scheduler` on the loop. If a task raises one of storage's errors, that run of it ends and the error is logged."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._owner = threading.get_ident()
        self._timer: Cancellable | None = None
        self._is_running = False
        self.scheduler = Scheduler(lambda: int(loop.monotonic_ms()), on_error=_tell)
        self.scheduler.on_sooner = self._sooner
        self.side_work = self.scheduler.side_work = SideWork(loop.in_thread)

    def start_isr_expiration(self, replica_lag_time_max_ms: int, shrink: Callable[[], object]) -> None:
        """Remove replicas that have fallen behind from the in-sync sets, periodically."""
        self.scheduler.schedule(ISR_EXPIRATION.name, shrink, replica_lag_time_max_ms // 2)

    def start_cleaner(self, cleaner: LogCleaner) -> None:
        """Run the cleaner in small steps between other work."""

        def step() -> None:
            delay_ms = cleaner.step()
            self.scheduler.schedule_once(LOG_CLEANER.name, step, delay_ms)

        self.scheduler.schedule_once(LOG_CLEANER.name, step)

    def shut_down(self) -> None:
        """Stop all tasks."""
        self.scheduler.shutdown()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sooner(self) -> None:
        if threading.get_ident() != self._owner:
            self._loop.call_from_thread(self._arm)
        elif not self._is_running:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.scheduler.next_due_ms
        if due_ms is not None:
            delay_ms = min(due_ms - self._loop.monotonic_ms(), _LONGEST_SLEEP_MS)
            self._timer = self._loop.call_later(delay_ms, self._run)

    def _run(self) -> None:
        self._timer = None
        self._is_running = True
        try:
            self.scheduler.run_due()
        finally:
            self._is_running = False
        self._arm()


def _tell(name: str, error: Exception) -> None:
    log.error("Uncaught exception in scheduled task '%s': %s", name, error)
