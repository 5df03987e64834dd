"""A clock and a scheduler for Kafka's classes in the oracle's JVM. They stand still until a test moves them.

Kafka's MockTime and MockScheduler are in none of the jars. Both interfaces are small enough for java.lang.reflect.Proxy: every method of
the clock returns the one number that is set, and every method of the scheduler puts its arguments into a queue. The proxies call a
java.lang.invoke.MethodHandle, which is put together from public methods of the JDK. So nothing is compiled, and no call comes back to
Python.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any

from tests.support.kafka.oracle import Oracle

_INVOKE = ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")


class ManualClock:
    """An org.apache.kafka.common.utils.Time (`time`) that shows `now_ms`, which must be above 2^31. Its nanoseconds are the same number."""

    def __init__(self, oracle: Oracle, now_ms: int) -> None:
        handles = oracle.jvm.java.lang.invoke
        self._oracle = oracle
        self._number = oracle.jvm.java.util.concurrent.atomic.AtomicReference(now_ms)
        self._now_ms = now_ms
        kind = handles.MethodType.methodType(named(oracle, "java.lang.Object"))
        get = handles.MethodHandles.publicLookup().findVirtual(named(oracle, "java.util.concurrent.atomic.AtomicReference"), "get", kind)
        self.time = proxy(oracle, "org.apache.kafka.common.utils.Time", ignoring_arguments(oracle, get.bindTo(self._number)))

    @property
    def now_ms(self) -> int:
        """The time that it shows."""
        return self._now_ms

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._now_ms = value
        self._number.set(value)


class ManualScheduler:
    """An org.apache.kafka.server.util.Scheduler (`scheduler`). `run_due` runs its tasks in order of time and of scheduling.

    A scheduled task cannot be cancelled; `clear` forgets all of them. `collect` must be called before the clock moves on.
    """

    def __init__(self, oracle: Oracle, clock: ManualClock) -> None:
        jvm = oracle.jvm
        handles = jvm.java.lang.invoke
        self._clock = clock
        self._queue = jvm.java.util.concurrent.ConcurrentLinkedQueue()
        self._numbers = itertools.count()
        self._heap: list[tuple[int, int, str, Any, int]] = []
        kind = handles.MethodType.methodType(jvm.java.lang.Boolean.TYPE, named(oracle, "java.lang.Object"))
        add = handles.MethodHandles.publicLookup().findVirtual(named(oracle, "java.util.concurrent.ConcurrentLinkedQueue"), "add", kind)
        add = add.bindTo(self._queue).asType(handles.MethodType.methodType(jvm.java.lang.Void.TYPE, named(oracle, _INVOKE[2])))
        add = handles.MethodHandles.dropArguments(add, 0, jvm.java.util.List.of(*(named(oracle, name) for name in _INVOKE[:2])))
        future = proxy(oracle, "java.util.concurrent.ScheduledFuture", constant(oracle, True))
        handle = handles.MethodHandles.foldArguments(constant(oracle, future), add)
        self.scheduler = proxy(oracle, "org.apache.kafka.server.util.Scheduler", handle)

    def collect(self) -> None:
        """Take over the tasks that were scheduled since the last call. Their delays count from now."""
        for _ in range(self._queue.size()):
            name, task, *times = self._queue.poll()
            delay_ms = times[0] if times else 0
            period_ms = times[1] if len(times) > 1 else -1
            heapq.heappush(self._heap, (self._clock.now_ms + max(delay_ms, 0), next(self._numbers), name, task, period_ms))

    def run_due(self) -> int:
        """Run the tasks that are due, and those that they schedule for now. Return how many ran."""
        self.collect()
        count = 0
        while self._heap and self._heap[0][0] <= self._clock.now_ms:
            due_ms, _, name, task, period_ms = heapq.heappop(self._heap)
            if period_ms > 0:
                heapq.heappush(self._heap, (due_ms + period_ms, next(self._numbers), name, task, period_ms))
            task.run()
            self.collect()
            count += 1
        return count

    def names(self) -> list[str]:
        """Return the names of the waiting tasks in order, without the periodic ones."""
        self.collect()
        return [name for _, _, name, _, period_ms in sorted(self._heap, key=lambda entry: entry[:2]) if period_ms <= 0]

    def clear(self) -> None:
        """Forget all tasks, as a killed broker does."""
        self._queue.clear()
        self._heap.clear()


def named(oracle: Oracle, name: str) -> Any:
    """Return the java.lang.Class with a name."""
    return oracle.jvm.java.lang.Class.forName(name)


def ignoring_arguments(oracle: Oracle, handle: Any) -> Any:
    """Turn a handle without arguments into one for InvocationHandler.invoke."""
    return oracle.jvm.java.lang.invoke.MethodHandles.dropArguments(
        handle, 0, oracle.jvm.java.util.List.of(*(named(oracle, name) for name in _INVOKE))
    )


def constant(oracle: Oracle, value: object) -> Any:
    """Return a handle for InvocationHandler.invoke that always returns `value`."""
    return ignoring_arguments(oracle, oracle.jvm.java.lang.invoke.MethodHandles.constant(named(oracle, "java.lang.Object"), value))


def proxy(oracle: Oracle, interface: str, handle: Any) -> Any:
    """Return an object of an interface that handles all its methods with one handle."""
    jvm = oracle.jvm
    handler = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(named(oracle, "java.lang.reflect.InvocationHandler"), handle)
    interfaces = oracle.gateway.new_array(jvm.java.lang.Class, 1)
    interfaces[0] = named(oracle, interface)
    loader = named(oracle, "org.apache.kafka.common.utils.Time").getClassLoader()
    return jvm.java.lang.reflect.Proxy.newProxyInstance(loader, interfaces, handler)
