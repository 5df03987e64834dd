"""A CoordinatorRuntime over a log in memory, with a clock that a test moves."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any

from kops.coordinators.runtime.context import MakeShard
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.runtime import CoordinatorRuntime
from kops.coordinators.runtime.surroundings import CoordinatorPlayback, HighWatermarkListener, LoadSummary
from kops.errors import ApiError, KopsError
from kops.records import Batch, read_batches
from kops.records.log_offsets import TopicPartition


class _Call:
    def __init__(self, run: Callable[[], object]) -> None:
        self.run: Callable[[], object] | None = run

    def cancel(self) -> None:
        self.run = None


class ManualTimers:
    """Timers that call functions in order of time. `turn` ends a turn of the loop, `advance` moves the clock."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self._soon: list[Callable[[], object]] = []
        self._heap: list[tuple[float, int, _Call]] = []
        self._numbers = itertools.count()

    def call_soon(self, run: Callable[[], object]) -> None:
        self._soon.append(run)

    def call_later(self, delay_ms: float, run: Callable[[], object]) -> _Call:
        call = _Call(run)
        heapq.heappush(self._heap, (self.now_ms + delay_ms, next(self._numbers), call))
        return call

    def replace(self, call: _Call, delay_ms: float, run: Callable[[], object]) -> _Call:
        call.cancel()
        return self.call_later(delay_ms, run)

    def turn(self) -> None:
        """Make the calls that are planned for this turn, and those that they plan."""
        while self._soon:
            calls, self._soon = self._soon, []
            for run in calls:
                run()

    def advance(self, ms: int) -> None:
        """Move the clock and make the calls that become due."""
        end = self.now_ms + ms
        self.turn()
        while self._heap and self._heap[0][0] <= end:
            due, _, call = heapq.heappop(self._heap)
            self.now_ms = max(self.now_ms, int(due))
            if call.run is not None:
                run, call.run = call.run, None
                run()
            self.turn()
        self.now_ms = end

    @property
    def planned_count(self) -> int:
        """How many calls are planned."""
        return sum(1 for _, _, call in self._heap if call.run is not None)

    @property
    def planned_times(self) -> list[float]:
        """When the planned calls are due, in order."""
        return sorted(due for due, _, call in self._heap if call.run is not None)


class ManualLog:
    """The logs of partitions in memory. `commit` moves the high watermark. With `auto_commit` every append does."""

    def __init__(self, *, max_batch_bytes: int = 1_048_588, auto_commit: bool = False) -> None:
        self.max_bytes = max_batch_bytes
        self.auto_commit = auto_commit
        self.batches: list[Batch] = []
        self.guards: list[Any] = []
        self.versions: list[int] = []
        self.end = 0
        self.skew = 0
        self.failures: list[KopsError] = []
        self.listeners: list[HighWatermarkListener] = []
        self.attempts: list[tuple[bytes, int]] = []
        """Batches and transaction versions, including those of appends that failed."""
        self.outcomes: list[int | str] = []
        """The end offset or the error of each attempt."""
        self.verifications: list[tuple[tuple[Any, ...], Promise[Any]]] = []

    def register_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        self.listeners.append(listener)

    def deregister_listener(self, key: TopicPartition, listener: HighWatermarkListener) -> None:
        self.listeners.remove(listener)

    def max_batch_bytes(self, key: TopicPartition) -> int:
        return self.max_bytes

    def append(self, key: TopicPartition, guard: Any, batch: bytes, transaction_version: int) -> int:
        self.attempts.append((batch, transaction_version))
        if self.failures:
            failure = self.failures.pop(0)
            self.outcomes.append(failure.name if isinstance(failure, ApiError) else "UNKNOWN_SERVER_ERROR")
            raise failure
        if len(batch) > self.max_bytes:
            self.outcomes.append("RECORD_LIST_TOO_LARGE")
            raise ApiError("RECORD_LIST_TOO_LARGE")
        found: list[Batch] = [one for one in read_batches(batch) if isinstance(one, Batch)]
        assert len(found) == 1
        found[0].ensure_valid()
        self.batches += found
        self.guards.append(guard)
        self.versions.append(transaction_version)
        self.end += (found[0].count or 0) + self.skew
        self.outcomes.append(self.end)
        if self.auto_commit:
            self.commit(self.end)
        return self.end

    def start_verification(self, *question: Any) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        self.verifications.append((question, promise))
        return promise

    def commit(self, offset: int) -> None:
        """Move the high watermark."""
        for listener in list(self.listeners):
            listener(offset)

    @property
    def counts(self) -> list[int | None]:
        """How many records each batch has."""
        return [batch.count for batch in self.batches]


class ManualLoader:
    """A loader whose loads end when the test ends them."""

    def __init__(self) -> None:
        self.loads: list[tuple[TopicPartition, CoordinatorPlayback, Promise[LoadSummary]]] = []
        self.is_closed = False

    def load(self, key: TopicPartition, playback: CoordinatorPlayback) -> Promise[LoadSummary]:
        promise: Promise[LoadSummary] = Promise()
        self.loads.append((key, playback, promise))
        return promise

    def close(self) -> None:
        self.is_closed = True

    def finish(self, written: int = 0) -> None:
        """End the oldest load as if `written` records had been read and committed."""
        _, playback, promise = self.loads.pop(0)
        if written:
            playback.update_last_written_offset(written)
            playback.update_last_committed_offset(written)
        promise.complete(LoadSummary(written, 0, 0))

    def fail(self, error: KopsError) -> None:
        """Let the oldest load fail."""
        self.loads.pop(0)[2].fail(error)


class EmptyImage:
    """An image without metadata."""

    version = 0
    is_empty = True

    def topic_names(self) -> Iterable[str]:
        return ()

    def topic(self, name: str) -> None:
        return None

    def topic_by_id(self, topic_id: bytes) -> None:
        return None


class ManualRuntime:
    """A runtime together with everything outside it."""

    def __init__(self, make_shard: MakeShard[Any], **settings: Any) -> None:
        self.timers = ManualTimers()
        self.log = ManualLog(max_batch_bytes=settings.pop("max_batch_bytes", 1_048_588), auto_commit=settings.pop("auto_commit", False))
        self.loader = ManualLoader()
        self.tasks: list[tuple[Callable[[], Any], Callable[[Any, KopsError | None], object]]] = []
        settings.setdefault("write_timeout_ms", 5000)
        self.runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
            make_shard,
            self.log,
            self.loader,
            self.timers,
            lambda task, done: self.tasks.append((task, done)),
            now_ms=lambda: self.timers.now_ms,
            image=EmptyImage(),
            log=logging.getLogger("test"),
            **settings,
        )

    def activate(self, key: TopicPartition, epoch: int = 1) -> None:
        """Load an empty partition."""
        self.runtime.schedule_load_operation(key, epoch)
        self.loader.finish()
