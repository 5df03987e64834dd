"""The broker's tasks on a loop: when it wakes, and for what."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from kops.broker.life.periodic import BROKER_TASKS, PeriodicTasks, describe_tasks
from kops.broker.network.events.loop import Loop
from kops.config import BrokerConfig
from kops.errors import KopsError
from kops.storage.cleaning.log_cleaner import LogCleaner
from tests.support.nodes.node_properties import COMBINED
from tests.support.parts.manual_loop import ManualLoop


def make(loop: ManualLoop) -> PeriodicTasks:
    """Return the tasks on a loop whose time stands still."""
    return PeriodicTasks(loop)


def test_every_task_has_its_key_and_period() -> None:
    config = BrokerConfig.from_properties(COMBINED)
    assert [(name, period_ms) for name, _, period_ms in describe_tasks(config)] == [
        ("kafka-log-retention", 300_000),
        ("kafka-log-flusher", 2**63 - 1),
        ("kafka-recovery-point-checkpoint", 60_000),
        ("kafka-log-start-offset-checkpoint", 60_000),
        ("kafka-delete-logs", 60_000),
        ("highwatermark-checkpoint", 5_000),
        ("PeriodicProducerExpirationCheck", 600_000),
        ("isr-expiration", 30_000),
        ("kafka-log-cleaner", 15_000),
        ("transaction-abort", 10_000),
        ("transactionalId-expiration", 3_600_000),
    ]
    assert len({task.name for task in BROKER_TASKS}) == len(BROKER_TASKS)


def test_the_loop_wakes_for_the_next_task_only() -> None:
    loop = ManualLoop()
    tasks = make(loop)
    ran: list[str] = []
    assert loop.timer_count == 0
    tasks.scheduler.schedule("slow", lambda: ran.append("slow"), 1000, 1000)
    tasks.scheduler.schedule_once("soon", lambda: ran.append("soon"), 10)
    assert loop.timer_count == 1
    loop.advance(10)
    assert ran == ["soon"]
    loop.advance(989)
    assert ran == ["soon"]
    loop.advance(1001)
    assert ran == ["soon", "slow", "slow"]
    tasks.shut_down()
    assert loop.timer_count == 0
    loop.advance(10_000)
    assert ran == ["soon", "slow", "slow"]


def test_a_task_that_fails_is_logged_and_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    loop = ManualLoop()
    tasks = make(loop)

    def fail() -> None:
        raise KopsError("the disk is full")

    tasks.scheduler.schedule("flush", fail, 100)
    loop.advance(100)
    assert [record.getMessage() for record in caplog.records] == ["Uncaught exception in scheduled task 'flush': the disk is full"] * 2


def test_in_sync_sets_are_looked_at_twice_in_the_time_that_a_replica_may_lag() -> None:
    loop = ManualLoop()
    looks: list[float] = []
    make(loop).start_isr_expiration(30_000, lambda: looks.append(loop.time_ms))
    loop.advance(60_000)
    assert looks == [0, 15_000, 30_000, 45_000, 60_000]


def test_the_cleaner_goes_on_at_once_or_waits() -> None:
    loop = ManualLoop()
    steps: list[float] = []

    class Cleaner:
        def step(self) -> int:
            steps.append(loop.time_ms)
            return 15_000 if len(steps) % 3 == 0 else 0

    make(loop).start_cleaner(cast("LogCleaner", Cleaner()))
    loop.advance(15_000)
    assert steps == [0, 0, 0, 15_000, 15_000, 15_000]


def test_a_task_from_another_thread_wakes_the_loop() -> None:
    loop = Loop()
    tasks = PeriodicTasks(loop)
    thread = threading.Thread(target=tasks.scheduler.schedule_once, args=("there", loop.stop))
    thread.start()
    loop.run()
    thread.join()
    loop.close()
    assert tasks.scheduler.pending == []
