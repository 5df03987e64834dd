"""The loop: order of calls, timers, threads, watched sockets, and that it sleeps."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial

import pytest

from kops.broker.network.events.loop import Loop, Timer
from kops.broker.network.events.poller import SelectorPoller, make_poller

pytestmark = pytest.mark.hot

Clock = Callable[[float], None]
LONG_MS = 60_000


class ClockLoop(Loop):
    """A loop whose monotonic clock may stand still: at `time_ms`, once that is set."""

    time_ms: float | None = None

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() if self.time_ms is None else self.time_ms


@pytest.fixture(params=[make_poller, SelectorPoller], ids=["of this system", "of selectors"])
def loop(request: pytest.FixtureRequest) -> Iterator[ClockLoop]:
    """Provide a loop with each kind of poller."""
    with closing(ClockLoop(request.param())) as loop:
        yield loop


@pytest.fixture
def clock(loop: ClockLoop) -> Clock:
    """Provide a monotonic clock that stands still until it is set."""

    def set_to(time_ms: float) -> None:
        loop.time_ms = time_ms

    set_to(1000.0)
    return set_to


def test_calls_in_their_order(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_soon(lambda: seen.append("a"))
    loop.call_soon(lambda: loop.call_soon(lambda: seen.append("behind")))
    loop.call_soon(lambda: seen.append("b"))
    loop.run_once()
    assert seen == ["a", "b"]
    loop.run_once()
    assert seen == ["a", "b", "behind"]


def test_timers_by_time_then_by_age(loop: Loop, clock: Clock) -> None:
    seen: list[str] = []
    for delay_ms, name in [(30, "late"), (10, "first"), (10, "second"), (-5, "at once")]:
        loop.call_later(delay_ms, lambda name=name: seen.append(name))  # type: ignore[misc]
    loop.run_once(0)
    assert seen == ["at once"]
    clock(1009.999)
    loop.run_once(0)
    assert seen == ["at once"]
    clock(1010)
    loop.run_once(0)
    assert seen == ["at once", "first", "second"]
    clock(5000)
    loop.run_once(0)
    assert seen == ["at once", "first", "second", "late"]


def test_a_cancelled_timer_is_not_called_and_holds_nothing(loop: Loop, clock: Clock) -> None:
    seen: list[int] = []
    timers = [loop.call_later(10 + number, lambda number=number: seen.append(number)) for number in range(3)]  # type: ignore[misc]
    timers[1].cancel()
    timers[1].cancel()
    assert timers[1].run is None
    clock(2000)
    loop.run_once(0)
    assert seen == [0, 2]
    timers[0].cancel()
    assert not timers[0].cancelled


def test_a_timer_may_cancel_another_of_the_same_turn(loop: Loop, clock: Clock) -> None:
    seen: list[str] = []
    later: list[Timer] = []

    def cancel_it() -> None:
        later[0].cancel()

    loop.call_later(1, cancel_it)
    later.append(loop.call_later(2, lambda: seen.append("never")))
    loop.call_later(3, lambda: seen.append("then"))
    clock(2000)
    loop.run_once(0)
    assert seen == ["then"]


def test_a_timer_that_is_put_off_is_called_once_at_its_last_time(loop: Loop, clock: Clock) -> None:
    seen: list[str] = []
    timer = loop.call_later(10, lambda: seen.append("first"))
    loop.call_later(20, lambda: seen.append("another"))
    clock(1009)
    timer = loop.replace(timer, 21, lambda: seen.append("second"))
    timer = loop.replace(timer, 41, lambda: seen.append("third"))
    both = ["another", "third"]
    for now_ms, expected in [(1010, []), (1030, ["another"]), (1049, ["another"]), (1050, both), (9000, both)]:
        clock(now_ms)
        loop.run_once(0)
        assert seen == expected


def test_a_timer_is_replaced_by_an_earlier_one_or_cancelled(loop: Loop, clock: Clock) -> None:
    seen: list[str] = []
    timer = loop.replace(loop.call_later(1000, lambda: seen.append("late")), 10, lambda: seen.append("early"))
    put_off = loop.replace(loop.call_later(10, lambda: seen.append("never")), 500, lambda: seen.append("never either"))
    put_off.cancel()
    clock(1010)
    loop.run_once(0)
    assert seen == ["early"]
    loop.replace(timer, 5, lambda: seen.append("after it was called"))
    clock(3000)
    loop.run_once(0)
    assert seen == ["early", "after it was called"]


def test_cancelled_timers_leave_the_table(loop: Loop, clock: Clock) -> None:
    seen: list[int] = []
    timers = [loop.call_later(60_000 + number, lambda number=number: seen.append(number)) for number in range(20_000)]  # type: ignore[misc]
    for timer in timers[:-10]:
        timer.cancel()
    assert len(loop._timers) < 2100
    clock(1e6)
    loop.run_once(0)
    assert seen == list(range(19_990, 20_000))
    assert loop._cancelled_timers == 0


def test_it_sleeps_until_the_next_timer(loop: Loop) -> None:
    loop.call_later(100, loop.stop)
    loop.run()
    assert loop.turn_count <= 2


def test_a_timer_waits_for_what_came_while_a_callback_took_long(loop: Loop, clock: Clock) -> None:
    """After a long callback, an answer that is already in the socket must not count as missing."""
    told: list[str] = []
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def readable() -> None:
        told.append(ours.recv(10).decode())
        if told == ["first"]:
            clock(2000)
            theirs.send(b"second")

    watch = loop.watch(ours, readable, lambda: None)
    watch.want(reading=True)
    loop.call_later(500, lambda: told.append("late"))
    theirs.send(b"first")
    loop.run_once()
    assert told == ["first"]
    loop.run_once()
    assert told == ["first", "second", "late"]
    watch.close()
    ours.close()
    theirs.close()


def test_a_stop_before_the_run_is_not_lost(loop: Loop) -> None:
    loop.stop()
    loop.run()
    assert loop.turn_count == 0
    loop.call_soon(loop.stop)
    loop.run()
    assert loop.turn_count == 1


def test_a_thread_wakes_the_loop(loop: Loop) -> None:
    seen: list[int] = []

    def woken() -> None:
        seen.append(threading.get_ident())
        loop.stop()

    thread = threading.Thread(target=loop.call_from_thread, args=[woken])
    thread.start()
    loop.run()
    thread.join()
    assert seen == [threading.get_ident()]


def test_many_wakes_at_once(loop: Loop) -> None:
    seen: list[int] = []
    for number in range(100_000):
        loop.call_from_thread(lambda number=number: seen.append(number))  # type: ignore[misc]
    loop.run_once(0)
    assert seen == list(range(100_000))
    loop.run_once(0)
    turns = loop.turn_count
    loop.call_later(20, loop.stop)
    loop.run()
    assert loop.turn_count - turns <= 2


def test_work_in_a_thread(loop: Loop) -> None:
    ended: list[Future[int]] = []

    def done(future: Future[int]) -> None:
        ended.append(future)
        if len(ended) == 2:
            loop.stop()

    loop.in_thread(threading.get_ident, done)
    loop.in_thread(lambda: os.stat("/no such file").st_size, done)
    loop.run()
    failed = [future for future in ended if future.exception()]
    assert len(failed) == 1
    with pytest.raises(FileNotFoundError):
        failed[0].result()
    (good,) = [future for future in ended if not future.exception()]
    assert good.result() != threading.get_ident()


def test_what_a_callback_raises_comes_out(loop: Loop) -> None:
    loop.call_soon(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_sockets_are_watched_for_what_is_wanted(loop: Loop) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        seen: list[str] = []
        watch = loop.watch(here, lambda: seen.append(here.recv(10).decode()), lambda: seen.append("writable"))
        there.send(b"a")
        loop.run_once(0)
        assert seen == []
        watch.want(reading=True)
        loop.run_once(0)
        assert seen == ["a"]
        watch.want(writing=True)
        there.send(b"b")
        loop.run_once(0)
        assert seen == ["a", "b", "writable"]
        watch.want(reading=False, writing=False)
        there.send(b"c")
        loop.run_once(0)
        assert len(seen) == 3
        assert (watch.is_reading, watch.is_writing) == (False, False)
        watch.close()


def test_a_socket_closed_by_another_callback_of_the_turn_is_not_called(loop: Loop) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    seen: list[int] = []

    def closes_both(number: int) -> None:
        seen.append(number)
        for watch, (near, _) in zip(watches, pairs, strict=True):
            watch.close()
            near.close()

    watches = [loop.watch(near, lambda number=number: closes_both(number), loop.stop) for number, (near, _) in enumerate(pairs)]  # type: ignore[misc]
    for watch, (_, far) in zip(watches, pairs, strict=True):
        watch.want(reading=True)
        far.send(b"x")
    loop.run_once(0)
    assert len(seen) == 1
    for _, far in pairs:
        far.close()


def test_a_socket_whose_other_end_is_gone_is_readable(loop: Loop) -> None:
    here, there = socket.socketpair()
    with here:
        here.setblocking(False)
        seen: list[bytes | str] = []
        watch = loop.watch(here, lambda: seen.append(here.recv(10)), lambda: seen.append("writable"))
        watch.want(reading=True)
        there.close()
        loop.run_once(0)
        assert seen == [b""]
        watch.close()


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        loop = Loop()
        loop.in_thread(lambda: None, lambda _: loop.stop())  # noqa: B023 run in this very turn of the for
        loop.run()
        loop.close()
        loop.call_from_thread(loop.stop)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_signal_during_a_turn_is_handled_before_the_next_wait() -> None:
    """No line of the turn is interpreted, except in the poller."""
    with closing(Loop()) as loop:
        before = signal.signal(signal.SIGVTALRM, lambda *_: loop.call_from_thread(loop.stop))
        try:
            loop.call_later(LONG_MS, loop.stop)
            loop.call_soon(partial(sum, range(3_000_000)))
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.005)
            began_s = time.monotonic()
            loop.run()
            assert time.monotonic() - began_s < LONG_MS / 2000
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
