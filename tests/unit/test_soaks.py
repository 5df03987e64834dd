"""Workers of the soaks: a life whose client hangs is given up, any other is not."""

from __future__ import annotations

import threading

import pytest

from tests.support.nodes.soaks.transfers import Life, Watched
from tests.support.patience import until


class Caller(Watched):
    """A worker whose first life waits for `answer` in a call of 10 ms. `gone_on` tells of each life that ended whether it was to go on."""

    def __init__(self, *, hang_s: float) -> None:
        super().__init__("caller", "127.0.0.1:1")
        self.hang_s = hang_s
        self.answer = threading.Event()
        self.lives = 0
        self.gone_on: list[bool] = []

    def work(self, life: Life) -> None:
        self.lives += 1
        if self.lives == 1:
            with life.call(0.01):
                self.answer.wait()
            self.gone_on.append(self.goes_on(life))
        else:
            self._ending.wait()


def test_a_life_whose_call_does_not_return_is_given_up() -> None:
    caller = Caller(hang_s=0.01)
    caller.start()
    until(lambda: caller.lives == 2)
    caller.answer.set()
    until(lambda: caller.gone_on == [False])
    caller.end()
    assert (caller.lives, caller.hung) == (2, 1)


def test_a_life_whose_call_returns_late_goes_on() -> None:
    caller = Caller(hang_s=60)
    caller.start()
    until(lambda: caller.lives == 1)
    caller.answer.set()
    until(lambda: caller.gone_on == [True])
    caller.end()
    assert caller.hung == 0


class Failing(Watched):
    """A worker whose life fails."""

    def work(self, life: Life) -> None:
        raise ValueError("the life failed")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_a_life_ends_the_worker() -> None:
    failing = Failing("failing", "127.0.0.1:1")
    failing.start()
    failing.join(60)
    assert not failing.is_alive()
    assert failing.errors == ["ValueError('the life failed')"]
