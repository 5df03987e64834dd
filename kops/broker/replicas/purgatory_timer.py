"""The time-outs of requests in a broker's purgatories, on the loop (Kafka SystemTimer).

Nearly all parked requests are completed long before their time-out. So there is one timer of the loop, for the first time-out, and it stays
when its request ends early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.replication.waiting.purgatory import OperationTimer

if TYPE_CHECKING:
    from kops.broker.network.events.loop import Loop, Timer
    from kops.replication.waiting.purgatory import DelayedOperation


class PurgatoryTimer(OperationTimer):
    """A timer for purgatories, on the monotonic clock."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(lambda: int(loop.monotonic_ms()))
        self._loop = loop
        self._timer: Timer | None = None

    def add(self, operation: DelayedOperation) -> int:
        due_ms = super().add(operation)
        timer = self._timer
        # `due_ms` is in whole milliseconds: a timer within the same millisecond is early enough.
        if timer is None or timer.due_ms >= due_ms + 1:
            self._arm()
        return due_ms

    def close(self) -> None:
        """Stop: waiting requests get no answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.close()
        due_ms = self.next_due_ms
        if due_ms is not None:
            self._timer = self._loop.call_later(due_ms - self._loop.monotonic_ms(), self._run)

    def _run(self) -> None:
        self._timer = None
        self.run_due()
        self._arm()
