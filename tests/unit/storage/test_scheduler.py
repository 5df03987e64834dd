"""The table of tasks: order, rate, errors, the end."""

from __future__ import annotations

import pytest

from kops.errors import ApiError
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler


class Clock:
    def __init__(self, now_ms: int = 1_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def test_tasks_run_in_order_of_time_and_then_of_scheduling() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    ran: list[str] = []
    scheduler.schedule_once("late", lambda: ran.append("late"), 20)
    scheduler.schedule_once("first", lambda: ran.append("first"), 10)
    scheduler.schedule_once("second", lambda: ran.append("second"), 10)
    scheduler.schedule_once("now", lambda: ran.append("now"))
    assert [task.name for task in scheduler.pending] == ["now", "first", "second", "late"]
    assert scheduler.run_due() == 1
    assert scheduler.next_due_ms == 1_010
    assert scheduler.run_due(1_009) == 0
    assert scheduler.run_due(1_020) == 3
    assert ran == ["now", "first", "second", "late"]
    assert scheduler.next_due_ms is None


def test_a_periodic_task_keeps_its_rate_and_catches_up() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    ran: list[int] = []
    task = scheduler.schedule("every ten", lambda: ran.append(clock.now_ms), 10, 30)
    assert scheduler.run_due(1_029) == 0
    assert scheduler.run_due(1_030) == 1
    assert scheduler.run_due(1_065) == 3
    assert task.due_ms == scheduler.next_due_ms == 1_070
    task.cancel()
    task.cancel()
    assert scheduler.next_due_ms is None
    assert scheduler.run_due(2_000) == 0
    assert len(ran) == 4


def test_a_task_may_cancel_itself_and_schedule_others() -> None:
    scheduler = Scheduler(Clock())
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        task.cancel()
        scheduler.schedule_once("due too", lambda: ran.append("due too"))
        scheduler.schedule_once("later", lambda: ran.append("later"), 1)

    task = scheduler.schedule("first", first, 5)
    assert scheduler.run_due() == 2
    assert ran == ["first", "due too"]
    assert [each.name for each in scheduler.pending] == ["later"]


def test_a_period_of_zero_means_once() -> None:
    scheduler = Scheduler(Clock())
    assert scheduler.schedule("once", lambda: None, 0).period_ms is None
    assert scheduler.run_due() == 1
    assert scheduler.next_due_ms is None


def test_an_error_ends_one_run_of_one_task() -> None:
    told: list[tuple[str, str]] = []
    scheduler = Scheduler(Clock(), on_error=lambda name, error: told.append((name, str(error))))
    ran: list[str] = []

    def refused() -> None:
        raise ApiError("KAFKA_STORAGE_ERROR", "the disk is gone")

    def failed() -> None:
        raise OSError("the disk is gone, too")

    scheduler.schedule("refused", refused, 10)
    scheduler.schedule_once("failed", failed)
    scheduler.schedule_once("good", lambda: ran.append("good"))
    assert scheduler.run_due() == 3
    assert told == [("refused", "the disk is gone"), ("failed", "the disk is gone, too")]
    assert ran == ["good"]
    assert scheduler.run_due(1_010) == 1
    silent = Scheduler(Clock())
    silent.schedule_once("failed", failed)
    assert silent.run_due() == 1


def test_a_fault_of_the_program_comes_out() -> None:
    scheduler = Scheduler(Clock())
    nothing: dict[str, int] = {}
    scheduler.schedule("fault", lambda: nothing["no"], 10)
    with pytest.raises(KeyError):
        scheduler.run_due()
    assert scheduler.next_due_ms == 1_010


def test_nothing_runs_after_the_end() -> None:
    scheduler = Scheduler(Clock())
    scheduler.schedule("before", lambda: None, 1)
    scheduler.shutdown()
    assert scheduler.schedule_once("after", lambda: None).cancelled
    assert scheduler.pending == []
    assert scheduler.run_due(10_000) == 0


def test_a_log_directory_fails_once() -> None:
    woken: list[str] = []
    channel = LogDirFailureChannel(woken.append)
    first = OSError(5, "first")
    channel.maybe_add_offline_log_dir("/a", "writing", first)
    channel.maybe_add_offline_log_dir("/b", "reading", OSError(5, "second"))
    channel.maybe_add_offline_log_dir("/a", "again", OSError(5, "third"))
    assert woken == ["/a", "/b"]
    assert channel.has_offline("/a")
    assert not channel.has_offline("/c")
    assert channel.offline["/a"] == ("writing", first)
    assert [channel.take_next(), channel.take_next(), channel.take_next()] == ["/a", "/b", None]
    assert channel.has_offline("/a")


def test_nobody_has_to_be_woken() -> None:
    channel = LogDirFailureChannel()
    channel.maybe_add_offline_log_dir("/a", "writing", OSError(5, "first"))
    assert channel.take_next() == "/a"
