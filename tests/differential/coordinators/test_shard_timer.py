"""A shard's timers and background tasks compared with Kafka's CoordinatorTimerImpl and CoordinatorExecutorImpl.

Random timers of a few keys are replaced, cancelled and expire. Their write operations run, fail with every error, or never run.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.result import CoordinatorResult
from kops.coordinators.runtime.shard_timer import OverriddenError, ShardExecutor, ShardTimer
from kops.errors import ApiError, KopsError
from kops.protocol.errors import ERRORS
from tests.support.coordinators.manual_runtime import ManualTimers
from tests.support.kafka.manual_jvm import constant, named, proxy
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA
from tests.support.kafka.twins.java_groups import RUNTIME, Calls
from tests.support.kafka.twins.share_partition_twins import JavaSide

KEYS: Final = ("a", "b", "c")
CODES: Final = [each for each in ERRORS if each.code]
STEPS: Final = 80
Operation = Callable[[], CoordinatorResult[None]]


class Write:
    """A write operation that waits in the queue of both."""

    def __init__(self, name: str, operation: Operation) -> None:
        self.name, self.operation = name, operation
        self.promise: Promise[None] = Promise()
        self.theirs: Any = None
        self.future: Any = None

    def run(self) -> str:
        """Run it in both. Return `done`, or `overridden` if its timer or task has been replaced or cancelled."""
        try:
            self.operation()
            ours = "done"
        except OverriddenError as error:
            ours = str(error)
        try:
            self.theirs.generate()
            theirs = "done"
        except Py4JJavaError as caught:
            assert caught.java_exception.getClass().getName() == "java.util.concurrent.RejectedExecutionException"
            theirs = str(caught.java_exception.getMessage())
            self.future.completeExceptionally(caught.java_exception)
        assert ours == theirs
        if ours != "done":
            self.promise.fail(OverriddenError(ours))
            return "overridden"
        return ours


class Twins:
    """Both timers and both executors, with one clock and one queue of writes."""

    def __init__(self, oracle: Oracle, side: JavaSide, rng: random.Random) -> None:
        self.oracle, self.side, self.rng = oracle, side, rng
        self.timers = ManualTimers()
        self.writes: list[Write] = []
        self._new: list[Write] = []
        self.ran: Counter[str] = Counter()
        self.tasks: list[tuple[Callable[[], None], Any]] = []
        self._our_tasks: list[Callable[[], None]] = []
        log = logging.getLogger("test")
        self.ours = ShardTimer(self.timers, self._schedule_write, log)
        self.our_executor = ShardExecutor(self._background, self._schedule_write, log)
        timer, self._added = side.timer()
        self.entries: list[tuple[int, Any]] = []
        self._scheduled, self._futures = self._scheduler()
        self._given: list[Any] = []
        """The futures that Kafka's next writes will get, in order."""
        self._refill()
        context = side.java.make("common.utils.LogContext")
        self.theirs = oracle.java_class(f"{RUNTIME}CoordinatorTimerImpl")(context, timer, self._scheduled.object)
        self._submitted = Calls(side.java, "java.util.concurrent.ExecutorService", None)
        self.their_executor = oracle.java_class(f"{RUNTIME}CoordinatorExecutorImpl")(
            context, self._submitted.object, self._scheduled.object
        )
        result = side.java.make("coordinator.common.runtime.CoordinatorResult", side.list_of())
        self._operation = proxy(oracle, f"{RUNTIME}CoordinatorTimer$TimeoutOperation", constant(oracle, result))
        self._task = oracle.java_class(f"{RUNTIME}CoordinatorExecutor$TaskRunnable")
        self._task_operation = proxy(oracle, f"{RUNTIME}CoordinatorExecutor$TaskOperation", constant(oracle, result))
        self._milliseconds = oracle.jvm.java.util.concurrent.TimeUnit.MILLISECONDS

    def _scheduler(self) -> tuple[Calls, Any]:
        """Return a CoordinatorShardScheduler. Its futures come out of the returned queue."""
        handles = self.oracle.jvm.java.lang.invoke
        queue = self.oracle.jvm.java.util.concurrent.ConcurrentLinkedQueue()
        kind = handles.MethodType.methodType(named(self.oracle, "java.lang.Object"))
        poll = handles.MethodHandles.publicLookup().findVirtual(
            named(self.oracle, "java.util.concurrent.ConcurrentLinkedQueue"), "poll", kind
        )
        kinds = [named(self.oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")]
        handle = handles.MethodHandles.dropArguments(poll.bindTo(queue), 0, self.side.list_of(*kinds))
        return Calls(self.side.java, f"{RUNTIME}CoordinatorShardScheduler", None, answering=handle), queue

    def _refill(self) -> None:
        while len(self._given) < 20:
            self._given.append(self.oracle.jvm.java.util.concurrent.CompletableFuture())
            self._futures.add(self._given[-1])

    def _schedule_write(self, name: str, operation: Operation) -> Promise[None]:
        write = Write(name, operation)
        self._new.append(write)
        return write.promise

    def _background(self, task: Callable[[], Any], done: Callable[[Any, KopsError | None], object]) -> None:
        def run() -> None:
            try:
                result = task()
            except KopsError as error:
                done(None, error)
            else:
                done(result, None)

        self._our_tasks.append(run)

    def _no_records(self) -> CoordinatorResult[None]:
        return CoordinatorResult([], None)

    # steps of both ----------------------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        rng = self.rng
        key, delay_ms, retry, backoff_ms = rng.choice(KEYS), rng.choice((0, 1, 10, 1000)), rng.random() < 0.7, rng.choice((0, 20, 500))
        delay = self.side.java.long(delay_ms), self._milliseconds
        choice = rng.random()
        if choice < 0.2:
            self.restart(key, delay_ms)
        elif choice < 0.5:
            self.ours.schedule(key, delay_ms, self._no_records, retry=retry, retry_backoff_ms=backoff_ms)
            self.theirs.schedule(key, *delay, retry, self.side.java.long(backoff_ms), self._operation)
        elif choice < 0.7:
            self.ours.schedule(key, delay_ms, self._no_records, retry=retry)
            self.theirs.schedule(key, *delay, retry, self._operation)
        else:
            self.ours.schedule_if_absent(key, delay_ms, self._no_records, retry=retry)
            self.theirs.scheduleIfAbsent(key, *delay, retry, self._operation)

    def restart(self, key: str, delay_ms: int) -> None:
        """Restart a timer that has not expired. Kafka's gets the same operation again."""
        is_waiting = any(write.name == f"Timeout(key={key})" for write in self.writes)
        if self.ours.restart(key, delay_ms):
            backoff_ms = self.ours._tasks[key].retry_backoff_ms
            delay = self.side.java.long(delay_ms), self._milliseconds
            self.theirs.schedule(key, *delay, backoff_ms is not None, self.side.java.long(backoff_ms or 0), self._operation)
            self.ran["restarted"] += 1
        else:
            assert is_waiting or not self.theirs.isScheduled(key)

    def cancel(self) -> None:
        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.7:
            self.ours.cancel(key)
            self.theirs.cancel(key)
        else:
            self.our_executor.cancel(key)
            self.their_executor.cancel(key)

    def unload(self) -> None:
        """End the shard. Its queued writes may fail, or have yet to run."""
        self.ours.cancel_all()
        self.theirs.cancelAll()
        self.our_executor.cancel_all()
        self.their_executor.cancelAll()
        if self.rng.random() < 0.5:
            while self.writes:
                self.fail(self.writes.pop(0), ApiError("NOT_COORDINATOR"))

    def submit(self) -> None:
        """Give the executor a task that succeeds or fails."""
        key, is_failing = self.rng.choice(KEYS), self.rng.random() < 0.3

        def task() -> str:
            if is_failing:
                raise KopsError("no")
            return "found"

        handle = constant(self.oracle, "found")
        if is_failing:
            thrown = self.oracle.jvm.java.lang.IllegalStateException("no")
            objects = named(self.oracle, "java.lang.Object")
            handles = self.oracle.jvm.java.lang.invoke
            raising = handles.MethodHandles.throwException(objects, thrown.getClass()).bindTo(thrown)
            kinds = [named(self.oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")]
            handle = handles.MethodHandles.dropArguments(raising, 0, self.side.list_of(*kinds))
        runnable = proxy(self.oracle, f"{RUNTIME}CoordinatorExecutor$TaskRunnable", handle)
        ours = self.our_executor.schedule(key, task, lambda _result, _error: self._no_records())
        assert ours == self.their_executor.schedule(key, runnable, self._task_operation)

    def run_task(self) -> None:
        if self.tasks:
            ours, theirs = self.tasks.pop(self.rng.randrange(len(self.tasks)))
            ours()
            theirs.run()

    def advance(self) -> None:
        """Move the clock, and let the timers expire that become due."""
        ms = self.rng.choice((0, 1, 5, 500))
        end_ms = self.timers.now_ms + ms
        self.timers.advance(ms)
        due = sorted((each for each in self.entries if each[0] <= end_ms), key=lambda each: each[0])
        for entry in due:
            self.entries.remove(entry)
            if not entry[1].cancelled():
                get_field(entry[1], "timerTask").run()

    def end_write(self) -> None:
        """Let a write end: it succeeds, fails after its operation ran, or fails without having run."""
        rng = self.rng
        if not self.writes:
            return
        write = self.writes.pop(rng.randrange(len(self.writes)))
        if rng.random() < 0.25:
            self.fail(write, ApiError(rng.choice(CODES).name))
            return
        how = write.run()
        self.ran[how] += 1
        if how == "overridden":
            return
        if rng.random() < 0.3:
            self.schedule()  # as an operation does that plans its key's next timer
            self.collect()
        if rng.random() < 0.5:
            write.promise.complete(None)
            write.future.complete(None)
        else:
            self.fail(write, ApiError(rng.choice(CODES).name))

    def fail(self, write: Write, error: ApiError) -> None:
        """Let a write fail."""
        self.ran[error.name] += 1
        errors = self.oracle.java_class(f"{KAFKA}common.protocol.Errors")
        write.promise.fail(error)
        write.future.completeExceptionally(errors.valueOf(error.name).exception())

    def collect(self) -> None:
        """Take over the timers, writes and tasks that the last step has added."""
        for _ in range(self._added.size()):
            entry = self._added.poll()
            self.entries.append((self.timers.now_ms + get_field(get_field(entry, "timerTask"), "delayMs"), entry))
        self.entries = [each for each in self.entries if not each[1].cancelled()]
        for (_, (name, operation)), write in zip(self._scheduled.drain(), self._new, strict=True):
            assert write.name == name
            write.theirs, write.future = operation, self._given.pop(0)
            self.writes.append(write)
        self._new.clear()
        self._refill()
        theirs = [arguments[0] for _, arguments in self._submitted.drain()]
        self.tasks += zip(self._our_tasks, theirs, strict=True)
        self._our_tasks.clear()

    def compare(self) -> None:
        self.collect()
        assert len(self.ours) == self.theirs.size()
        for key in KEYS:
            assert self.ours.is_scheduled(key) == self.theirs.isScheduled(key)
            assert self.our_executor.is_scheduled(key) == self.their_executor.isScheduled(key)
        assert self.timers.planned_times == sorted(due_ms for due_ms, _ in self.entries)


def _live(oracle: Oracle, side: JavaSide, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    twins = Twins(oracle, side, rng)
    steps = [twins.schedule] * 6 + [twins.advance] * 5 + [twins.end_write] * 6 + [twins.cancel, twins.submit, twins.submit, twins.run_task]
    for _ in range(STEPS):
        (twins.unload if rng.random() < 0.02 else rng.choice(steps))()
        twins.compare()
    return twins.ran


@pytest.fixture(scope="module")
def side(oracle: Oracle) -> JavaSide:
    return JavaSide(oracle)


@pytest.mark.slow
def test_many_timers_and_tasks(oracle: Oracle, side: JavaSide, seed_count: int | None) -> None:
    ran: Counter[str] = Counter()
    for seed in range(seed_count or 8):
        ran += _live(oracle, side, seed)
    assert min(ran["done"], ran["overridden"], ran["NOT_COORDINATOR"], ran["restarted"]) > 3, ran


@pytest.mark.slow
def test_every_error_of_a_timers_write(oracle: Oracle, side: JavaSide) -> None:
    """Errors of a shard that is not active end a timer that repeats failed operations. After every other error it starts again."""
    twins = Twins(oracle, side, random.Random(0))
    for code in CODES:
        twins.ours.schedule("a", 5, twins._no_records)
        twins.theirs.schedule("a", side.java.long(5), twins._milliseconds, True, twins._operation)
        twins.collect()
        twins.timers.advance(5)
        ((_, entry),) = twins.entries
        twins.entries.clear()
        get_field(entry, "timerTask").run()
        twins.compare()
        (write,) = twins.writes
        twins.writes.clear()
        assert write.run() == "done"
        twins.fail(write, ApiError(code.name))
        twins.compare()
        assert twins.ours.is_scheduled("a") == (code.name not in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"))
        twins.ours.cancel("a")
        twins.theirs.cancel("a")
        twins.compare()
