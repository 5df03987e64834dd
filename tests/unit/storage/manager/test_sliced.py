"""A long task in slices: others run in between, and an error ends one run of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kops.storage.manager.sliced import SLICE_MS, SlicedTask
from kops.storage.scheduler import Scheduler


class Sliced:
    """A task of `count` steps that take 2 ms each."""

    def __init__(self, count: int = 5) -> None:
        self.now_ms = 1_000
        self.scheduler = Scheduler(lambda: self.now_ms)
        self.count = count
        self.fails_at: int | None = None
        self.steps: list[int] = []
        self.begun = 0
        self.ended = 0
        self.task = SlicedTask(self.scheduler, "long", self._steps)

    def _steps(self) -> Iterator[None]:
        self.begun += 1
        try:
            for number in range(self.count):
                if number == self.fails_at:
                    raise OSError("broken")
                self.steps.append(number)
                self.now_ms += 2
                yield None
        finally:
            self.ended += 1

    def turn(self) -> None:
        """Run the loop's next turn, a little later."""
        self.now_ms += 1
        self.scheduler.run_due()


def test_it_goes_on_at_the_next_turn() -> None:
    sliced = Sliced()
    assert SLICE_MS == 3
    sliced.task.begin()
    assert sliced.steps == [0, 1]
    # Not within the same turn, however long it takes.
    assert sliced.scheduler.run_due() == 0
    sliced.turn()
    assert sliced.steps == [0, 1, 2, 3]
    sliced.turn()
    assert sliced.steps == [0, 1, 2, 3, 4]
    assert sliced.ended == 1
    assert sliced.scheduler.next_due_ms is None


def test_what_is_due_meanwhile_runs_in_between() -> None:
    sliced = Sliced()
    sliced.task.begin()
    sliced.scheduler.schedule_once("other", lambda: sliced.steps.append(-1))
    sliced.turn()
    assert sliced.steps == [0, 1, -1, 2, 3]


def test_it_does_not_begin_again_while_it_runs() -> None:
    sliced = Sliced()
    sliced.task.begin()
    sliced.task.begin()
    assert (sliced.begun, sliced.steps) == (1, [0, 1])
    sliced.turn()
    sliced.turn()
    sliced.task.begin()
    assert sliced.begun == 2


def test_a_short_task_ends_at_once() -> None:
    sliced = Sliced(1)
    sliced.task.begin()
    assert (sliced.ended, sliced.scheduler.next_due_ms) == (1, None)


def test_an_error_of_the_first_slice_comes_out_and_ends_the_run() -> None:
    sliced = Sliced()
    sliced.fails_at = 1
    with pytest.raises(OSError, match="broken"):
        sliced.task.begin()
    assert sliced.ended == 1
    sliced.fails_at = None
    sliced.task.begin()
    assert sliced.begun == 2


def test_an_error_of_a_later_slice_is_the_schedulers() -> None:
    sliced = Sliced()
    errors: list[str] = []
    sliced.scheduler = Scheduler(lambda: sliced.now_ms, on_error=lambda name, error: errors.append(f"{name}: {error}"))
    sliced.task = SlicedTask(sliced.scheduler, "long", sliced._steps)
    sliced.fails_at = 3
    sliced.task.begin()
    sliced.turn()
    assert errors == ["long: broken"]
    assert sliced.scheduler.next_due_ms is None
    sliced.fails_at = None
    sliced.task.begin()
    assert sliced.begun == 2


def test_nothing_goes_on_behind_a_shutdown() -> None:
    sliced = Sliced()
    sliced.task.begin()
    sliced.scheduler.shutdown()
    sliced.turn()
    assert sliced.steps == [0, 1]
