"""The queue of the runtime's events, and the events that wait until their offset is committed.

Source: Kafka's CoordinatorEventProcessor (here a single queue, because everything runs on one thread), DeferredEventQueue,
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kops.coordinators.runtime.surroundings import Log, Timers
from kops.errors import ApiError, KopsError


def failure_of(run: Callable[[], object], log: Log, what: object) -> KopsError | None:
    """Call `run` and return the KopsError that it raised, or None. As in Kafka, a bug in one operation must not stop other shards."""
    try:
        run()
    except KopsError as error:
        return error
    except Exception as error:
        log.exception("%s failed unexpectedly", what)
        failure = ApiError("UNKNOWN_SERVER_ERROR", str(error))
        failure.__cause__ = error
        return failure
    return None


class EventQueue:
    """Runs events in order. If none is running, a new event runs at once. An event that is added by a running event waits for its end."""

    def __init__(self, timers: Timers, log: Log) -> None:
        self._timers = timers
        self._log = log
        self._events: deque[tuple[object, Callable[[], object]]] = deque()
        self._is_running = False
        self._is_called = False
        self.is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether a new event would run at once."""
        return not (self.is_closed or self._is_running or self._events)

    def run_last(self, name: object, event: Callable[[], object]) -> None:
        """Run an event after all waiting events. Raises ApiError NOT_COORDINATOR if the queue is closed."""
        if self.is_closed:
            self._check()
        if self._is_running or self._events:
            self._events.append((name, event))
            if not self._is_running:
                self._drain()
            return
        self._is_running = True
        try:
            self._run(name, event)
        finally:
            self._is_running = False
        if self._events:
            self._drain()

    def run_first(self, name: object, event: Callable[[], object]) -> None:
        """Run an event next. If none is running, run it at the end of the loop's turn, because the caller may be in the middle of an
        append."""
        self._check()
        self._events.appendleft((name, event))
        if not self._is_running and not self._is_called:
            self._is_called = True
            self._timers.call_soon(self._called)

    def close(self) -> None:
        """Run all waiting events, then reject new ones."""
        if not self._is_running:
            self._drain()
        self.is_closed = True

    def _check(self) -> None:
        if self.is_closed:
            raise ApiError("NOT_COORDINATOR", "Can't accept an event because the processor is closed")

    def _called(self) -> None:
        self._is_called = False
        if not self._is_running:
            self._drain()

    def _drain(self) -> None:
        self._is_running = True
        try:
            while self._events:
                name, event = self._events.popleft()
                self._run(name, event)
        finally:
            self._is_running = False

    def _run(self, name: object, event: Callable[[], object]) -> None:
        error = failure_of(event, self._log, name)
        if error is not None:
            self._log.error("Execution of %s failed due to %s.", name, error)


class DeferredEvent(Protocol):
    """An event that waits for a commit."""

    def complete(self, error: KopsError | None) -> None:
        """Complete the event, with an error or None."""


def complete_all(events: Sequence[DeferredEvent], error: KopsError | None, log: Log) -> None:
    """Complete several events. An exception in one of them does not affect the others."""
    for event in events:
        failure = failure_of(partial(event.complete, error), log, "Completion of an event")
        if failure is not None:
            log.error("Completion of event %s failed due to %s.", event, failure)


class DeferredEventQueue:
    """Events by the offset that must be committed before they complete. Offsets never decrease."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._pending: deque[tuple[int, list[DeferredEvent]]] = deque()

    def add(self, offset: int, events: list[DeferredEvent]) -> None:
        """Complete the events when everything below `offset` is committed. The list is kept."""
        if self._pending:
            last = self._pending[-1][0]
            assert offset >= last, f"a deferred event already waits for {last}, which is above {offset}"
            if last == offset:
                self._pending[-1][1].extend(events)
                return
        self._pending.append((offset, events))

    def complete_up_to(self, offset: int) -> None:
        """Complete the events below `offset`, which are now committed."""
        while self._pending and self._pending[0][0] <= offset:
            complete_all(self._pending.popleft()[1], None, self._log)

    def fail_all(self, error: KopsError) -> None:
        """Fail all events, because their records will not be committed here."""
        while self._pending:
            complete_all(self._pending.popleft()[1], error, self._log)
