"""Connections that only send heartbeats are read together.

Source: none in Kafka, which has a thread for each few connections. Most of what a heartbeat costs is to wake the process, whose code and
objects other processes have evicted from the caches meanwhile. A heartbeat that follows another at once costs a fraction of that.

Such connections have an epoll instance of their own, which the loop's poller watches. A heartbeat that comes alone is read at once. After
two within `SOON_MS`, the loop looks at these connections `TOGETHER_MS` after it found something, or somewhat earlier if it is awake for
something else (`AWAKE_MS`), until it finds one or none. So a node with few members is not woken more often, and no request waits longer
than `TOGETHER_MS`.

While a group changes, its members learn of it with their heartbeats. So nothing waits for `HURRY_MS` after a request that changes one, or
after the end of a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from kops.broker.network.events.poller import READ, WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.poller import Poller

SOON_MS: Final = 100
TOGETHER_MS: Final = 1000
AWAKE_MS: Final = 800
_MOST_ROUNDS: Final = 64  # of `most_events` sockets each: a heartbeat that waits must not be missed.
HURRY_MS: Final = 5000  # The default interval of a consumer group's heartbeats.


class Cancellable(Protocol):
    """A timer."""

    def cancel(self) -> None: ...


class Waker(Protocol):
    """What is needed of the loop. It imports this module."""

    def monotonic_ms(self) -> float: ...
    def call_later(self, delay_ms: float, run: Callable[[], object]) -> Cancellable: ...
    def watch(self, sock: Any, on_readable: Callable[[], object], on_writable: Callable[[], object]) -> Any: ...


class QuietSockets:
    """The sockets of a loop from which only heartbeats are expected. `poller` has them and nothing else."""

    def __init__(self, loop: Waker, poller: Poller) -> None:
        self.poller = poller
        self.is_waiting = False  # Whether the loop's poller does not watch these sockets for a while.
        self._loop = loop
        self._last_ms = 0.0
        self._hurry_until_ms = 0.0
        self._timer: Cancellable | None = None
        self._watch = loop.watch(poller, self._on_readable, _never)
        self._watch.want(reading=True)

    def _on_readable(self) -> None:
        """Read at once. If it is the second time in a short time, wait before the next time."""
        last_ms, self._last_ms = self._last_ms, self._loop.monotonic_ms()
        self._read()
        if self._last_ms - last_ms < SOON_MS and self._last_ms >= self._hurry_until_ms:
            self._watch.want(reading=False)
            self.is_waiting = True
            self._timer = self._loop.call_later(TOGETHER_MS, self._look)

    def hurry(self) -> None:
        """Let nothing wait for a while."""
        self._hurry_until_ms = self._loop.monotonic_ms() + HURRY_MS
        if self.is_waiting:
            self._end_waiting()

    def end_wait(self) -> None:
        """Read now what waits. The sockets must wait."""
        self._last_ms = self._loop.monotonic_ms()
        self._end_waiting()
        self._read()

    def look_while_awake(self) -> None:
        """Read, unless it is too early. The loop calls this in its turns while these sockets wait."""
        now_ms = self._loop.monotonic_ms()
        if now_ms - self._last_ms >= AWAKE_MS:
            self._last_ms = now_ms
            if self._read() and self.is_waiting:
                assert self._timer is not None
                self._timer.cancel()
                self._timer = self._loop.call_later(TOGETHER_MS, self._look)

    def _look(self) -> None:
        self._last_ms = self._loop.monotonic_ms()
        count = self._read()
        if not self.is_waiting:
            return  # What was read has ended the wait.
        if count > 1:
            self._timer = self._loop.call_later(TOGETHER_MS, self._look)
        else:
            self._end_waiting()

    def _end_waiting(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self.is_waiting = False
        self._watch.want(reading=True)

    def _read(self) -> int:
        """Call what waits for the ready sockets, and return their number."""
        total = 0
        for _ in range(_MOST_ROUNDS):
            count = 0
            for watch, events in self.poller.wait(0):
                count += 1
                # An earlier callback may have changed the wanted events, or closed the socket.
                if events & READ and watch.is_reading:
                    watch.on_readable()
                if events & WRITE and watch.is_writing:
                    watch.on_writable()
            total += count
            if count < self.poller.most_events:
                break
        return total


def _never() -> None:
    raise AssertionError("an epoll instance is only watched for reading")
