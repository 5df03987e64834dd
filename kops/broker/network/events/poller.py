"""Waits for sockets, with epoll if the system has it, else with the best of Python's `selectors`.

This module is not compiled. Compiled code does not run the handlers of signals, and a signal before the wait would not end it.
`selectors` works everywhere, but creates a key and a list for each ready socket, which a turn of the loop does not need.
"""

from __future__ import annotations

import math
import select
import selectors
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import HasFileno

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
_MOST_EVENTS: Final = 1024


class Poller(Protocol):
    """Sockets and the events to wait for (`READ`, `WRITE` or both). `wait` returns the `data` of a socket.

    One wait finds at most `most_events` sockets; the next wait finds the others.
    """

    most_events: int

    def register(self, sock: HasFileno, events: int, data: Any) -> None: ...
    def modify(self, sock: HasFileno, events: int, data: Any) -> None: ...
    def unregister(self, sock: HasFileno) -> None: ...
    def wait(self, timeout_s: float | None) -> Iterable[tuple[Any, int]]:
        """Return (data, events) of the ready sockets, after `timeout_s` at the latest (None: no limit)."""

    def nested(self) -> Poller | None:
        """Return a new poller that this one can watch as if it were a socket, or None if the system has no such thing."""

    def close(self) -> None: ...


class EpollPoller:
    """Waits with epoll, on Linux."""

    def __init__(self, most_events: int = _MOST_EVENTS) -> None:
        self.most_events = most_events
        self._epoll = select.epoll()
        self._data: dict[int, Any] = {}

    def register(self, sock: HasFileno, events: int, data: Any) -> None:
        number = sock.fileno()
        self._epoll.register(number, _mask(events))
        self._data[number] = data

    def modify(self, sock: HasFileno, events: int, data: Any) -> None:
        number = sock.fileno()
        self._epoll.modify(number, _mask(events))
        self._data[number] = data

    def unregister(self, sock: HasFileno) -> None:
        number = sock.fileno()
        self._epoll.unregister(number)
        del self._data[number]

    def wait(self, timeout_s: float | None) -> Iterable[tuple[Any, int]]:
        # epoll counts in milliseconds and would wake just before the time.
        timeout_s = -1 if timeout_s is None else math.ceil(timeout_s * 1000) / 1000
        data = self._data
        # A socket that fails or hangs up is both readable and writable: the next operation on it reports the error.
        return [
            (data[number], (READ if events & ~select.EPOLLOUT else 0) | (WRITE if events & ~select.EPOLLIN else 0))
            for number, events in self._epoll.poll(timeout_s, self.most_events)
        ]

    def nested(self) -> Poller | None:
        return EpollPoller(self.most_events)

    def fileno(self) -> int:
        """Return the number of the descriptor, for the poller that watches this one."""
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()


def _mask(events: int) -> int:
    return (select.EPOLLIN if events & READ else 0) | (select.EPOLLOUT if events & WRITE else 0)


class SelectorPoller:
    """Everything else: kqueue, poll, select."""

    def __init__(self) -> None:
        self.most_events = _MOST_EVENTS  # Its wait finds more if there are more.
        self._selector = selectors.DefaultSelector()

    def register(self, sock: HasFileno, events: int, data: Any) -> None:
        self._selector.register(sock, events, data)

    def modify(self, sock: HasFileno, events: int, data: Any) -> None:
        self._selector.modify(sock, events, data)

    def unregister(self, sock: HasFileno) -> None:
        self._selector.unregister(sock)

    def wait(self, timeout_s: float | None) -> Iterable[tuple[Any, int]]:
        return [(key.data, events) for key, events in self._selector.select(timeout_s)]

    def nested(self) -> Poller | None:
        return None

    def close(self) -> None:
        self._selector.close()


def make_poller() -> Poller:
    """The best poller that this system has."""
    return EpollPoller() if hasattr(select, "epoll") else SelectorPoller()
