"""What a broker does again and again: one table of all of it, and the timer that runs it on the loop.

Source: Kafka's LogManager.startupWithConfigOverrides, ReplicaManager.startup and startHighWatermarkCheckPointThread, LogCleaner. Delays are
counted on the monotonic clock, as by Java's executors: a wall clock that jumps makes nothing run late or twice.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kops.storage.background.work import SideWork
from kops.storage.manager.settings import PERIODIC_TASKS, PeriodicTask
from kops.storage.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.controller_link.lifecycle import Cancellable
    from kops.broker.network.loop import Loop
    from kops.config import BrokerConfig
    from kops.storage.cleaning.log_cleaner import LogCleaner

log = logging.getLogger(__name__)

ISR_EXPIRATION: Final = PeriodicTask("isr-expiration", "replica.lag.time.max.ms", None)
LOG_CLEANER: Final = PeriodicTask("kafka-log-cleaner", "log.cleaner.backoff.ms", None, schedules_itself=True)
BROKER_TASKS: Final = (*PERIODIC_TASKS, ISR_EXPIRATION, LOG_CLEANER)
"""All of them. In-sync sets are looked at twice within `replica.lag.time.max.ms`, as in Kafka; the cleaner waits only when all is clean."""
_LONGEST_SLEEP_MS: Final = 3_600_000


def describe_tasks(config: BrokerConfig) -> list[tuple[str, str, int]]:
    """(task, key of its period, the period in ms) of all periodic tasks."""
    return [(task.name, task.period_key, config[task.period_key]) for task in BROKER_TASKS]


class PeriodicTasks:
    """A `Scheduler` that runs on the loop. What a task raises of what storage may raise ends that run of it and is logged."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._owner = threading.get_ident()
        self._timer: Cancellable | None = None
        self._is_running = False
        self.scheduler = Scheduler(lambda: int(loop.monotonic_ms()), on_error=_tell)
        self.scheduler.on_sooner = self._sooner
        self.side_work = self.scheduler.side_work = SideWork(loop.in_thread)

    def start_isr_expiration(self, replica_lag_time_max_ms: int, shrink: Callable[[], object]) -> None:
        """Take out of the in-sync sets who has fallen behind."""
        self.scheduler.schedule(ISR_EXPIRATION.name, shrink, replica_lag_time_max_ms // 2)

    def start_cleaner(self, cleaner: LogCleaner) -> None:
        """Clean in small steps between everything else."""

        def step() -> None:
            delay_ms = cleaner.step()
            self.scheduler.schedule_once(LOG_CLEANER.name, step, delay_ms)

        self.scheduler.schedule_once(LOG_CLEANER.name, step)

    def shut_down(self) -> None:
        """Nothing runs any more."""
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
