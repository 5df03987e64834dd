"""The event loop of a node: sockets, timers, and a few side threads for calls that block.

Kafka has a thread each for acceptors, processors, request handlers, fetchers and timers; here they are callbacks of one loop, so nothing
needs a lock. Calls that block (fsync, recovery, cleaning) run in a side thread, and their results arrive as callbacks.
The loop sleeps until a socket is ready, a timer is due or a thread has ended. Nothing polls. Nodes that share a loop are connected by
pipes, which need no kernel (`kops.broker.network.events.pipe`).
"""

from __future__ import annotations

import heapq
import itertools
import socket
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from mypy_extensions import mypyc_attr

from kops.broker.network.events.pipe import PipeEnd
from kops.broker.network.events.poller import READ, WRITE, make_poller
from kops.broker.network.events.quiet import QuietSockets

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.pipe import Stream
    from kops.broker.network.events.poller import Poller

Result = TypeVar("Result")

SIDE_THREADS: Final = 12
"""The most threads. A thread is made when there is work and no other is free. Nodes that share a loop share them."""
_CANCELLED_TO_KEEP: Final = 100
_monotonic: Final = time.monotonic  # Compiled code would look up both names for each call.
_FIRST_PORT: Final = 32_768  # Linux gives clients the ports 32768 to 60999.
_PORT_COUNT: Final = 28_232


class Timer:
    """A call at a given time."""

    __slots__ = ("_loop", "cancelled", "due_ms", "run", "was_postponed")

    def __init__(self, loop: Loop, due_ms: float, run: Callable[[], object]) -> None:
        self._loop = loop
        self.due_ms = due_ms
        self.was_postponed = False
        self.run: Callable[[], object] | None = run
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call, and release the objects that it holds. Does nothing if it was called or cancelled before."""
        if not self.cancelled and self.run is not None:
            self.cancelled = True
            self.run = None
            self._loop.forget_timer()


class Watch:
    """A socket or a pipe that the loop watches, for reading (`is_reading`), writing (`is_writing`) or both."""

    __slots__ = ("_loop", "is_due", "is_quiet", "is_reading", "is_writing", "on_readable", "on_writable", "pipe", "sock")

    def __init__(
        self, loop: Loop, sock: socket.socket | Stream, on_readable: Callable[[], object], on_writable: Callable[[], object]
    ) -> None:
        self._loop = loop
        self.sock = sock
        self.pipe = sock if isinstance(sock, PipeEnd) else None
        self.is_due = False  # The loop will look at the pipe in its next turn.
        self.on_readable = on_readable
        self.on_writable = on_writable
        self.is_reading = self.is_writing = False
        # Whether it is read together with others that are quiet, somewhat later than at once.
        self.is_quiet = False

    def rest(self, is_quiet: bool) -> None:
        """Change whether only heartbeats are expected from this socket."""
        if is_quiet is not self.is_quiet:
            self._loop.change_rest(self, is_quiet)

    def want(self, *, reading: bool | None = None, writing: bool | None = None) -> None:
        """Change the events to watch for; None leaves a value unchanged."""
        reading = self.is_reading if reading is None else reading
        writing = self.is_writing if writing is None else writing
        if reading is not self.is_reading or writing is not self.is_writing:
            before = self.is_reading or self.is_writing
            self.is_reading, self.is_writing = reading, writing
            self._loop.change_watch(self, before, (READ if reading else 0) | (WRITE if writing else 0))

    def close(self) -> None:
        """Stop watching. Call this before the socket is closed."""
        self.want(reading=False, writing=False)


@mypyc_attr(allow_interpreted_subclasses=True)
class Loop:
    """Callbacks in one thread. Times are milliseconds; `now_ms` is the wall clock, delays use the monotonic one.

    `turn_count` counts how often it woke. Only `call_from_thread` may be called from other threads.
    """

    def __init__(self, poller: Poller | None = None) -> None:
        self._poller = make_poller() if poller is None else poller
        self._ready: deque[Callable[[], object]] = deque()
        self._from_threads: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._cancelled_timers = 0
        self._pool: ThreadPoolExecutor | None = None
        self._stopping = self._closed = False
        self.turn_count = 0
        self._due: list[Watch] = []  # Pipes that were ready when something happened to them.
        self._listeners: dict[tuple[str, int], Callable[[PipeEnd], bool]] = {}
        self._pipe_count = 0
        self._wake_receiver, self._wake_sender = socket.socketpair()
        for end in (self._wake_receiver, self._wake_sender):
            end.setblocking(False)
        self._poller.register(self._wake_receiver, READ, None)
        self._quiet: QuietSockets | None = None
        self._can_rest = True

    # time and calls ---------------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The wall clock, ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """A clock that never goes back, ms."""
        return _monotonic() * 1000

    def ticks_ms(self) -> int:
        """Whole milliseconds of the clock that never goes back."""
        return int(self.monotonic_ms())

    def call_soon(self, run: Callable[[], object]) -> None:
        """Call in the next turn, in the order of these calls."""
        self._ready.append(run)

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Timer:
        """Call once, `delay_ms` from now at the earliest."""
        timer = Timer(self, self.monotonic_ms() + max(delay_ms, 0), run)
        heapq.heappush(self._timers, (timer.due_ms, next(self._numbers), timer))
        return timer

    def replace(self, timer: Timer, delay_ms: float, run: Callable[[], object]) -> Timer:
        """Call `run` in `delay_ms` instead of the timer's call. Returns the timer for it.

        Each heartbeat postpones the end of its session, and hardly any session ends. So a postponed timer keeps its place in the heap, and
        gets its new place when it comes up.
        """
        due_ms = self.monotonic_ms() + max(delay_ms, 0)
        if timer.run is None or due_ms < timer.due_ms:
            timer.cancel()
            return self.call_later(delay_ms, run)
        timer.due_ms = due_ms
        timer.run = run
        timer.was_postponed = True
        return timer

    def forget_timer(self) -> None:
        """Count a cancelled timer. The table is rebuilt when most of its timers are cancelled."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_TO_KEEP and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def call_from_thread(self, run: Callable[[], object]) -> None:
        """Like `call_soon`, but callable from any thread or signal handler."""
        self._from_threads.append(run)
        self._wake()

    def in_thread(self, work: Callable[[], Result], done: Callable[[Future[Result]], object]) -> None:
        """Run `work` in a side thread, then `done` with its future on the loop: `future.result()` returns the result or raises the
        error."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SIDE_THREADS, thread_name_prefix="kops-side")
        future = self._pool.submit(work)
        future.add_done_callback(lambda ended: self.call_from_thread(lambda: done(ended)))

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except BlockingIOError:
            return  # It is already full of wake-ups.
        except OSError:
            if not self._closed:
                raise

    # sockets ----------------------------------------------------------------------------------------------------------------------

    def new_socket(self, family: int) -> socket.socket:
        """Return a new TCP socket. Simulated machines override this: compiled callers would not see another module `socket`."""
        return socket.socket(family, socket.SOCK_STREAM)

    def watch(self, sock: socket.socket | Stream, on_readable: Callable[[], object], on_writable: Callable[[], object]) -> Watch:
        """Watch a socket or the end of a pipe, at first for no events: see `Watch.want`."""
        return Watch(self, sock, on_readable, on_writable)

    def change_watch(self, watch: Watch, before: bool, events: int) -> None:
        """Change the events that a socket is watched for."""
        pipe = watch.pipe
        if pipe is not None:
            pipe.watch = watch if events else None
            self.look_at(pipe)
            return
        poller = self._poller
        if watch.is_quiet:
            assert self._quiet is not None
            poller = self._quiet.poller
        if not events:
            poller.unregister(watch.sock)
        elif before:
            poller.modify(watch.sock, events, watch)
        else:
            poller.register(watch.sock, events, watch)

    def change_rest(self, watch: Watch, is_quiet: bool) -> None:
        """Watch a socket with the quiet ones or with the others."""
        if watch.pipe is not None:
            return
        if self._quiet is None:
            if not self._can_rest:
                return
            poller = self._poller.nested()
            if poller is None:
                self._can_rest = False
                return
            self._quiet = QuietSockets(self, poller)
        events = (READ if watch.is_reading else 0) | (WRITE if watch.is_writing else 0)
        if events:
            self.change_watch(watch, True, 0)
        watch.is_quiet = is_quiet
        if events:
            self.change_watch(watch, False, events)

    def hurry(self) -> None:
        """Read quiet sockets at once for a while."""
        if self._quiet is not None:
            self._quiet.hurry()

    # pipes ------------------------------------------------------------------------------------------------------------------------

    def listen(self, address: tuple[str, int], offer: Callable[[PipeEnd], bool]) -> None:
        """Connect nodes of this loop to an address with pipes. `offer` gets the far end, and returns False if it has no room for it."""
        self._listeners[address] = offer

    def end_listening(self, address: tuple[str, int]) -> None:
        """Make no more pipes to an address."""
        self._listeners.pop(address, None)

    def pipe_to(self, address: tuple[str, int]) -> PipeEnd | None:
        """Return the end of a new pipe to an address. Returns None if no node of this loop listens there, or its backlog is full."""
        offer = self._listeners.get(address)
        if offer is None:
            return None
        own_address = (address[0], _FIRST_PORT + self._pipe_count % _PORT_COUNT)
        self._pipe_count += 1
        near, far = PipeEnd(self, own_address, address), PipeEnd(self, address, own_address)
        near.connect(far)
        return near if offer(far) else None

    def look_at(self, pipe: PipeEnd) -> None:
        """Call the watch of a pipe in the next turn, if a wanted event has happened."""
        watch = pipe.watch
        if watch is not None and not watch.is_due and ((watch.is_reading and pipe.is_readable) or (watch.is_writing and pipe.is_writable)):
            watch.is_due = True
            self._due.append(watch)

    def _run_pipes(self, due: list[Watch]) -> None:
        for watch in due:
            watch.is_due = False
            pipe = watch.pipe
            assert pipe is not None
            if watch.is_reading and pipe.is_readable:
                watch.on_readable()
            if watch.is_writing and pipe.is_writable:
                watch.on_writable()
            self.look_at(pipe)  # There may be more to read. That waits until the others had their turn.

    # running ----------------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until `stop` is called, or was called before. An exception of a callback, which is a bug in kops, is raised here."""
        while not self._stopping:
            self.run_once()
        self._stopping = False

    def stop(self) -> None:
        """End `run` after this turn. From another thread: `call_from_thread(loop.stop)`."""
        self._stopping = True

    def run_once(self, max_wait_ms: float | None = None) -> None:
        """One turn: wait for something to do, at most `max_wait_ms`, and do it."""
        self.turn_count += 1
        ready = self._poller.wait(self._wait_s(max_wait_ms))
        due = self._due
        if due:
            self._due = []  # What happens to a pipe in this turn waits for the next one, as with a socket.
        now_ms = self.monotonic_ms() if self._timers else 0.0
        for watch, events in ready:
            if watch is None:
                self._drain_wakes()
                continue
            # An earlier callback of this turn may have changed the wanted events, or closed the socket.
            if events & READ and watch.is_reading:
                watch.on_readable()
            if events & WRITE and watch.is_writing:
                watch.on_writable()
        if due:
            self._run_pipes(due)
        # Timers that became due meanwhile wait for the next turn. If a callback took long, data that arrived on sockets since then (a
        # heartbeat, an answer) is handled before a timer finds it missing.
        if self._timers and self._timers[0][0] <= now_ms:
            self._run_timers(now_ms)
        quiet = self._quiet
        if quiet is not None and quiet.is_waiting:
            quiet.look_while_awake()
        ready_calls = self._ready
        while self._from_threads:
            ready_calls.append(self._from_threads.popleft())
        for _ in range(len(ready_calls)):
            ready_calls.popleft()()

    def _wait_s(self, max_wait_ms: float | None) -> float | None:
        if self._ready or self._due or self._from_threads:
            return 0
        timers = self._timers
        while timers and timers[0][2].cancelled:
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        wait_ms = max_wait_ms
        if timers:
            until_due_ms = timers[0][0] - self.monotonic_ms()
            if until_due_ms < 0:
                return 0
            if wait_ms is None or until_due_ms < wait_ms:
                wait_ms = until_due_ms
        return None if wait_ms is None else wait_ms / 1000

    def _run_timers(self, now_ms: float) -> None:
        quiet = self._quiet
        while self._timers and self._timers[0][0] <= now_ms:
            timer = self._timers[0][2]
            if timer.was_postponed and timer.run is not None and timer.due_ms <= now_ms and quiet is not None and quiet.is_waiting:
                # A session ends, although the next heartbeat may have arrived and wait.
                quiet.end_wait()
                continue
            heapq.heappop(self._timers)
            if timer.run is None:
                self._cancelled_timers -= 1
                continue
            if timer.due_ms > now_ms:
                heapq.heappush(self._timers, (timer.due_ms, next(self._numbers), timer))
                continue
            if timer.was_postponed and quiet is not None:
                quiet.hurry()  # A session has ended: the other members of the group learn of it with their heartbeats.
            run, timer.run = timer.run, None
            run()

    def _drain_wakes(self) -> None:
        try:
            while len(self._wake_receiver.recv(4096)) == 4096:
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        """Release everything. Side threads finish their current call; waiting calls are dropped."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._poller.close()
        if self._quiet is not None:
            self._quiet.poller.close()
        self._wake_receiver.close()
        self._wake_sender.close()
