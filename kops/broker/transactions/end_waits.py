"""Holds AddPartitionsToTxn requests of brokers until the previous transaction has ended.

A producer often begins its next transaction while the markers of the last one are being written. Kafka's coordinator then answers
CONCURRENT_TRANSACTIONS, and the broker with the records repeats the request every `add.partitions.to.txn.retry.backoff.ms`, for
`add.partitions.to.txn.retry.backoff.max.ms` at most. In kops the request waits at the coordinator and continues when the transaction ends.
If the end does not come soon, the request is rejected as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop


class _Waiting:
    """A waiting request, which runs once."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[], object]) -> None:
        self._run: Callable[[], object] | None = run

    def end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run()


class EndWaits:
    """The waiting requests by transactional id. `limit_ms(transactional_id)` is the longest wait."""

    def __init__(self, loop: Loop, limit_ms: Callable[[str], int]) -> None:
        self._loop = loop
        self._limit_ms = limit_ms
        self._waiting: dict[str, list[_Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, transactional_id: str, run: Callable[[], object]) -> None:
        """Call `run` when the transaction has ended, or after the longest wait."""
        waiting = _Waiting(run)
        self._waiting.setdefault(transactional_id, []).append(waiting)

        def time_is_over() -> None:
            left = self._waiting.get(transactional_id, [])
            if waiting in left:
                left.remove(waiting)
                if not left:
                    del self._waiting[transactional_id]
                waiting.end()

        self._loop.call_later(self._limit_ms(transactional_id), time_is_over)

    def ended(self, transactional_id: str) -> None:
        """Continue the requests that wait for a transaction. They run in the next turn of the loop, because this turn is in the middle of
        an append."""
        for waiting in self._waiting.pop(transactional_id, ()):
            self._loop.call_soon(waiting.end)
