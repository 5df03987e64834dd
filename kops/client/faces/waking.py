"""What makes a client look at its connections: the thread that polls them and any thread that ends its wait, or an event loop of asyncio.

Source: Kafka's NetworkClient.wakeup (Selector.wakeup).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps: its enums cost more than the rest of a short call
import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar
from weakref import WeakSet

from kops.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from kops.client.network import NetworkClient

_Result = TypeVar("_Result")
_SIGINT: Final = int(signal.SIGINT)


class WakePipe:
    """A pipe that a network polls together with its connections. Close it when that network is no longer polled."""

    __slots__ = ("_in", "_network", "_out")

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._in, self._out = os.pipe()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        network.watch(self._in, self._drain)

    def wake(self) -> None:
        """End the wait, or the next one. Does nothing after `close`."""
        if self._out >= 0:
            try:
                os.write(self._out, b"\x00")
            except OSError:
                return  # enough wakes are waiting, or the pipe was closed just now

    def close(self) -> None:
        """Release the descriptors."""
        closing, self._out = self._out, -1
        os.close(closing)
        os.close(self._in)

    def cancel(self) -> None:
        """Release the descriptors of a pipe whose network may still be polled."""
        self._network.unwatch(self._in)
        self.close()

    def _drain(self) -> None:
        _drain(self._in)


class Gate:
    """A pipe that wakes one thread, which polls it together with a socket."""

    __slots__ = ("_out", "fd")

    def __init__(self) -> None:
        self.fd, self._out = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._out, False)

    def release(self) -> None:
        """Wake the thread."""
        with suppress(BlockingIOError):  # enough wakes are waiting
            os.write(self._out, b"\x00")

    def drain(self) -> None:
        """Forget all wakes until now."""
        _drain(self.fd)

    def close(self) -> None:
        """Release the descriptors."""
        os.close(self._out)
        os.close(self.fd)


def _drain(fd: int) -> None:
    try:
        while len(os.read(fd, 4096)) == 4096:
            continue
    except BlockingIOError:
        return


@contextmanager
def closed_on_error(network: NetworkClient) -> Iterator[None]:
    """Close the network if the constructor of its client fails, because nobody gets the client to close it."""
    try:
        yield
    except BaseException:
        network.close()
        raise


def start_thread(run: Callable[[], object], client_id: str, wakes: WakePipe) -> threading.Thread:
    """Start the thread of a client, which polls the network of a pipe. If the system has no thread left, close the pipe."""
    thread = threading.Thread(target=run, name=f"kops-{client_id}", daemon=True)
    try:
        thread.start()
    except BaseException:
        wakes.cancel()
        raise
    return thread


def without_interrupt(function: Callable[[], _Result], interrupted: Callable[[], object] | None = None) -> _Result:
    """Run a function that Ctrl-C must not end halfway: KeyboardInterrupt is raised after it. Only the main thread is interrupted.

    `interrupted()` is called at the time of Ctrl-C, so that a function that waits can end early.
    """
    is_main = threading.get_ident() == threading.main_thread().ident
    if not is_main or _signal.getsignal(_SIGINT) is not _signal.default_int_handler:
        return function()
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        if interrupted is not None:
            interrupted()

    _signal.signal(_SIGINT, note)
    try:
        return function()
    finally:
        _signal.signal(_SIGINT, _signal.default_int_handler)
        if came:
            raise KeyboardInterrupt


_clients: WeakSet[object] = WeakSet()  # those with a thread


def refuse_in_forks(client: object) -> None:
    """Let all calls of a client fail in a process that is forked later. They would wait for a thread that the fork does not have."""
    _clients.add(client)


def _refuse_all() -> None:
    """Runs in the forked process. Locks of the clients may be held for ever there, so nothing of them is touched but their methods."""
    for client in list(_clients):
        names = [name for name in dir(type(client)) if not name.startswith("_") and callable(getattr(type(client), name))]
        for name in (*names, "_use", "_used", "_run"):
            setattr(client, name, _refuse)
        setattr(client, "close", _do_nothing)  # noqa: B010 - an instance has no such attribute


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UsageError("this process was forked after the client was made; make a client in it")


def _do_nothing(*_: object, **__: object) -> None:
    """The close of a client in a fork. Its connections belong to the other process."""


os.register_at_fork(after_in_child=_refuse_all)


class Turns:
    """The turns of an asyncio client: when its connections have something to do, at a time, and soon after `soon`.

    `turn()` polls the network, and says with `at` when the next turn is due. `name` is that of the client in an error. With `skips_parts`,
    for a client with large answers, a part of an answer is received without a turn. During a turn, `may_have_input` says whether anything
    but `soon` was the reason.
    """

    __slots__ = ("_has_ended", "_network", "_skips_parts", "_soon", "_timer", "_turn", "loop", "may_have_input", "name")

    def __init__(self, network: NetworkClient, turn: Callable[[], object], name: str, *, skips_parts: bool = False) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.name = name
        self._network = network
        self._turn = turn
        self._skips_parts = skips_parts
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False
        self.may_have_input = True

    def start(self) -> asyncio.AbstractEventLoop:
        """Bind the client to the running event loop, once. Raises UsageError in any other loop."""
        from asyncio import get_running_loop  # a program with threads does not need asyncio

        loop = get_running_loop()
        if self.loop is None:
            self.loop = loop
            loop.add_reader(self._network.fileno(), self._ready)
            self.soon()
        elif self.loop is not loop:
            raise UsageError(f"the {self.name} belongs to another event loop")
        return loop

    def soon(self) -> None:
        """Take a turn as soon as the loop can."""
        if self._soon is None and not self._has_ended and self.loop is not None:
            self._soon = self.loop.call_soon(self._take_soon)

    def now(self) -> None:
        """Take the turn of `soon` now. Do not call this in a turn."""
        if not self._has_ended and self.loop is not None:
            if self._soon is not None:
                self._soon.cancel()
            self._take_soon()

    def at(self, wait_ms: float) -> None:
        """Take a turn after this time at the latest. A timer that is due earlier is left: to replace it costs more than a turn."""
        if self._has_ended or self.loop is None:
            return
        if wait_ms <= 0:
            self.soon()
            return
        due = self.loop.time() + wait_ms / 1000
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._take_late)

    def rest(self) -> None:
        """Take the next turn only when the connections have something to do."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Take no more turns. Call this before the network is closed."""
        self.rest()
        if self.loop is not None and not self._has_ended:
            self.loop.remove_reader(self._network.fileno())
        self._has_ended = True

    def _take_soon(self) -> None:
        self._soon = None
        self.may_have_input = False
        try:
            self._turn()
        finally:
            self.may_have_input = True

    def _take_late(self) -> None:
        self._timer = None
        self._turn()

    def _ready(self) -> None:
        if not self._skips_parts or not self._network.look():
            self._turn()
