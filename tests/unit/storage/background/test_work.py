"""Work in side threads: its order, how much runs at once, its end and its errors."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from kops.broker.network.events.loop import Loop
from kops.storage.background.work import AT_ONCE, EndedError, SideWork
from kops.storage.failures.load_errors import KafkaStorageError
from tests.support.logs.twins.side_threads import SideThreads

PATIENCE_S = 60


class Side:
    """Side work, with records of what was done and reported."""

    def __init__(self) -> None:
        self.threads = SideThreads()
        self.side_work = SideWork(self.threads.in_thread)
        self.did: list[str] = []
        self.told: list[str] = []

    def add(self, name: str, error: Exception | None = None) -> None:
        def work() -> str:
            self.did.append(name)
            if error is not None:
                raise error
            return name

        def done(future: Future[str]) -> None:
            failed = future.exception()
            self.told.append(future.result() if failed is None else f"{name}: {failed}")

        self.side_work.add(work, done)


def test_work_begins_in_order_and_few_at_a_time() -> None:
    side = Side()
    for name in "abcd":
        side.add(name)
    assert len(side.threads.begun) == AT_ONCE == 2
    side.threads.work()
    assert (side.did, side.told, len(side.threads.begun)) == (["a"], [], 1)
    # The next one begins when the end is reported.
    side.threads.tell()
    assert (side.told, len(side.threads.begun)) == (["a"], 2)
    side.threads.run()
    assert side.did == side.told == list("abcd")


def test_an_error_is_told_and_the_next_begins() -> None:
    side = Side()
    side.add("a", OSError(errno.EIO, "broken"))
    side.add("b", KafkaStorageError("offline"))
    side.add("c")
    side.threads.run()
    assert side.told[0].startswith("a: [Errno 5]")
    assert side.told[1].startswith("b: ")
    assert side.told[2] == "c"


def test_what_the_end_raises_comes_out_and_the_next_begins() -> None:
    threads = SideThreads()
    side_work = SideWork(threads.in_thread)
    did: list[int] = []
    for number in range(3):
        side_work.add(lambda number=number: did.append(number), lambda future: 1 // 0)  # type: ignore[misc]
    threads.work()
    with pytest.raises(ZeroDivisionError):
        threads.tell()
    assert len(threads.begun) == 2


def test_nothing_begins_and_nothing_is_told_behind_the_end() -> None:
    side = Side()
    for name in "abc":
        side.add(name)
    side.threads.work()
    side.side_work.end()
    side.add("d")
    # b is in the queue of the threads and must not begin any more.
    side.threads.work()
    assert isinstance(side.threads.ended[-1][0].exception(), EndedError)
    side.threads.run()
    assert (side.did, side.told) == (["a"], [])


def test_failures_that_nobody_was_told_of_are_told_behind_the_end() -> None:
    side = Side()
    side.add("told", OSError("one"))
    side.threads.run()
    side.add("failed", OSError("two"))
    side.add("went well")
    side.threads.work()
    side.threads.work()
    side.side_work.end()
    side.threads.tell()
    side.threads.tell()
    assert side.told == ["told: one"]
    assert side.side_work.join()
    side.side_work.tell_failures()
    assert side.told == ["told: one", "failed: two"]
    side.side_work.tell_failures()
    assert len(side.told) == 2


def test_work_that_did_not_begin_is_no_failure() -> None:
    side = Side()
    side.add("a")
    side.side_work.end()
    side.threads.run()
    side.side_work.tell_failures()
    assert side.told == []


def test_join_waits_for_a_thread_that_is_at_work() -> None:
    loop, may_end, has_begun = Loop(), threading.Event(), threading.Event()
    side_work = SideWork(loop.in_thread)
    told: list[Future[Any]] = []

    def work() -> None:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)

    try:
        side_work.add(work, told.append)
        assert has_begun.wait(PATIENCE_S)
        side_work.end()
        assert not side_work.join(0.01)
        may_end.set()
        assert side_work.join(PATIENCE_S)
        loop.run_once(100)
        assert told == []
    finally:
        may_end.set()
        loop.close()


def test_join_without_work_comes_back_at_once() -> None:
    in_thread: Callable[..., None] = SideThreads().in_thread
    side_work = SideWork(in_thread)
    side_work.end()
    assert side_work.join(0)
