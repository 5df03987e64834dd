"""Kafka's CoordinatorRuntime in the oracle's JVM. A test moves its log, loader, timers and event queue by hand."""

from __future__ import annotations

from collections import deque
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.coordinators.runtime.records import CoordinatorRecord
from tests.support.kafka.manual_jvm import ManualClock, constant, named, proxy
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_groups import RUNTIME, Calls

TOPIC, PARTITION = "__consumer_offsets", 3


class _Answers:
    """A handle for InvocationHandler that calls one supplier for each method."""

    def __init__(self, java: JavaCoordinators) -> None:
        oracle = self._oracle = java.oracle
        self._handles = handles = oracle.jvm.java.lang.invoke
        self._map = oracle.jvm.java.util.HashMap()
        types, lookup = handles.MethodType, handles.MethodHandles.publicLookup()
        obj, method, array = (named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"))
        supplier, text = named(oracle, "java.util.function.Supplier"), named(oracle, "java.lang.String")
        get = lookup.findVirtual(named(oracle, "java.util.HashMap"), "get", types.methodType(obj, obj)).bindTo(self._map)
        get = get.asType(types.methodType(supplier, text))
        filters = oracle.gateway.new_array(handles.MethodHandle, 1)
        filters[0] = lookup.findVirtual(method, "getName", types.methodType(text))
        found = handles.MethodHandles.filterArguments(get, 0, filters)
        answer = handles.MethodHandles.filterReturnValue(found, lookup.findVirtual(supplier, "get", types.methodType(obj)))
        answer = handles.MethodHandles.dropArguments(answer, 0, oracle.jvm.java.util.List.of(obj))
        self.handle = handles.MethodHandles.dropArguments(answer, 2, oracle.jvm.java.util.List.of(array))

    def always(self, name: str, value: object) -> None:
        """Let this method always return this value."""
        oracle = self._oracle
        self._put(name, self._handles.MethodHandles.constant(named(oracle, "java.lang.Object"), value))

    def joined(self, name: str) -> Any:
        """Let this method return the value of the next CompletableFuture in the queue, or raise its error."""
        return self._queued(name, joins=True)

    def queued(self, name: str) -> Any:
        """Let this method return the next item of the queue."""
        return self._queued(name, joins=False)

    def _queued(self, name: str, *, joins: bool) -> Any:
        oracle, handles = self._oracle, self._handles
        queue = oracle.jvm.java.util.concurrent.ConcurrentLinkedQueue()
        types, lookup = handles.MethodType, handles.MethodHandles.publicLookup()
        kind = types.methodType(named(oracle, "java.lang.Object"))
        poll = lookup.findVirtual(named(oracle, "java.util.concurrent.ConcurrentLinkedQueue"), "poll", kind).bindTo(queue)
        if joins:
            future = named(oracle, "java.util.concurrent.CompletableFuture")
            join = lookup.findVirtual(future, "join", kind)
            poll = handles.MethodHandles.filterReturnValue(poll.asType(types.methodType(future)), join)
        self._put(name, poll)
        return queue

    def _put(self, name: str, handle: Any) -> None:
        supplier = named(self._oracle, "java.util.function.Supplier")
        self._map.put(name, self._handles.MethodHandleProxies.asInterfaceInstance(supplier, handle))


def _entering(java: JavaCoordinators) -> Any:
    """Return a handle for `Timer.add` that gives the task its entry. Without one, a task that is cancelled at once would not know it."""
    oracle = java.oracle
    handles, jvm = oracle.jvm.java.lang.invoke, oracle.jvm
    timer = f"{KAFKA}server.util.timer."
    obj, method, array = (named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"))
    kinds = jvm.java.util.List.of(named(oracle, f"{timer}TimerTask"), jvm.java.lang.Long.TYPE)
    made = handles.MethodType.methodType(jvm.java.lang.Void.TYPE, kinds)
    entry = handles.MethodHandles.publicLookup().findConstructor(named(oracle, f"{timer}TimerTaskEntry"), made)
    when = oracle.gateway.new_array(jvm.java.lang.Object, 1)
    when[0] = java.long(0)
    entry = handles.MethodHandles.insertArguments(entry, 1, when).asType(handles.MethodType.methodType(obj, obj))
    return handles.MethodHandles.dropArguments(entry.asSpreader(array, 1), 0, jvm.java.util.List.of(obj, method))


class JavaRuntime:
    """A runtime of Kafka. The test sets the outcomes of appends (`outcome`) and runs events and timers."""

    def __init__(self, java: JavaCoordinators, clock: ManualClock, *, max_batch_bytes: int, linger_ms: int | None, timeout_ms: int) -> None:
        self.java, self.clock = java, clock
        oracle = self._oracle = java.oracle
        jvm = oracle.jvm
        self.key = java.make("common.TopicPartition", TOPIC, PARTITION)
        self.serde = java.make("coordinator.group.GroupCoordinatorRecordSerde")
        self.shard_calls = Calls(java, f"{RUNTIME}CoordinatorShard", None)
        builder = _Answers(java)
        built = proxy(oracle, f"{RUNTIME}CoordinatorShardBuilder", builder.handle)
        for name in ("LogContext", "SnapshotRegistry", "Time", "Timer", "Executor", "CoordinatorMetrics", "TopicPartition"):
            builder.always(f"with{name}", built)
        builder.always("build", self.shard_calls.object)
        writer = _Answers(java)
        self.outcomes = writer.joined("append")
        self.verifications = writer.queued("maybeStartTransactionVerification")
        for name in ("registerListener", "deregisterListener"):
            writer.always(name, None)
        props = jvm.java.util.HashMap()
        props.put("max.message.bytes", str(max_batch_bytes))
        writer.always("config", java.make("storage.internals.log.LogConfig", props))
        self.writer = Calls(java, f"{RUNTIME}PartitionWriter", None, answering=writer.handle)
        loader = _Answers(java)
        self.loads = loader.queued("load")
        loader.always("close", None)
        self._loader = Calls(java, f"{RUNTIME}CoordinatorLoader", None, answering=loader.handle)
        self._processor = Calls(java, f"{RUNTIME}CoordinatorEventProcessor", None)
        self._timer = Calls(java, f"{KAFKA}server.util.timer.Timer", None, answering=_entering(java))
        self._events: deque[Any] = deque()
        self._tasks: list[tuple[int, int, Any]] = []
        self._count = 0
        self.listener: Any = None
        self.batches: list[tuple[bytes, int]] = []
        handles = jvm.java.lang.invoke
        get = handles.MethodHandles.publicLookup().findVirtual(
            named(oracle, "java.util.List"),
            "get",
            handles.MethodType.methodType(named(oracle, "java.lang.Object"), jvm.java.lang.Integer.TYPE),
        )
        zero = oracle.gateway.new_array(jvm.java.lang.Object, 1)
        zero[0] = 0
        first = handles.MethodHandles.insertArguments(get, 1, zero)
        self._first = handles.MethodHandleProxies.asInterfaceInstance(named(oracle, "java.util.function.Function"), first)
        no_linger, some_linger = jvm.java.util.OptionalInt.empty, jvm.java.util.OptionalInt.of
        made = oracle.java_class(f"{RUNTIME}CoordinatorRuntime$Builder")()
        made = made.withTime(clock.time).withTimer(self._timer.object).withEventProcessor(self._processor.object)
        made = made.withPartitionWriter(self.writer.object).withLoader(self._loader.object)
        supplier = proxy(oracle, f"{RUNTIME}CoordinatorShardBuilderSupplier", constant(oracle, built))
        made = made.withCoordinatorShardBuilderSupplier(supplier).withSerializer(self.serde)
        made = made.withWriteTimeout(jvm.java.time.Duration.ofMillis(timeout_ms))
        made = made.withCoordinatorRuntimeMetrics(proxy(oracle, f"{RUNTIME}CoordinatorRuntimeMetrics", constant(oracle, None)))
        made = made.withCoordinatorMetrics(
            java.make(
                "coordinator.group.metrics.GroupCoordinatorMetrics",
                jvm.com.yammer.metrics.core.MetricsRegistry(),
                java.make("common.metrics.Metrics"),
            )
        )
        made = made.withAppendLingerMs(no_linger() if linger_ms is None else some_linger(linger_ms))
        made = made.withExecutorService(proxy(oracle, "java.util.concurrent.ExecutorService", constant(oracle, None)))
        # A reused buffer would change the batches that were noted.
        self.runtime = made.withCachedBufferMaxBytesSupplier(proxy(oracle, "java.util.function.Supplier", constant(oracle, 0))).build()

    # what the test does -----------------------------------------------------------------------------------------------------------

    def load(self, epoch: int) -> Any:
        """Load the partition. Return the future that the test completes to end the load."""
        future = self._future()
        self.loads.add(future)
        self.runtime.scheduleLoadOperation(self.key, epoch)
        self.turn()
        return future

    def write(self, records: list[CoordinatorRecord], response: str, *, is_atomic: bool, producer: tuple[int, int] | None) -> Any:
        """Start a write. Return its future."""
        found = [self._record(record) for record in records]
        make = self._oracle.java_class(f"{RUNTIME}CoordinatorResult")
        result = make(self._oracle.jvm.java.util.ArrayList(found), response, None, True, is_atomic)
        operation = proxy(self._oracle, f"{RUNTIME}CoordinatorRuntime$CoordinatorWriteOperation", constant(self._oracle, result))
        if producer is None:
            return self.runtime.scheduleWriteOperation("write", self.key, operation)
        guard = self._future()
        guard.complete(self._oracle.java_class(f"{KAFKA}storage.internals.log.VerificationGuard").SENTINEL)
        self.verifications.add(guard)
        epoch = self.java.short(producer[1])
        return self.runtime.scheduleTransactionalWriteOperation("write", self.key, "id", self.java.long(producer[0]), epoch, operation, 5)

    def complete(self, producer: tuple[int, int], *, is_commit: bool) -> Any:
        """Start the end of a transaction. Return its future."""
        result = self._oracle.java_class(f"{KAFKA}common.requests.TransactionResult").valueOf("COMMIT" if is_commit else "ABORT")
        producer_id, epoch = self.java.long(producer[0]), self.java.short(producer[1])
        return self.runtime.scheduleTransactionCompletion("end", self.key, producer_id, epoch, 9, result, self.java.short(2))

    def outcome(self, outcome: int | str) -> None:
        """Set how the next append ends: with the log's end, or with an error."""
        future = self._future()
        if isinstance(outcome, int):
            # A Python number that is passed as an Object would become an Integer.
            numbers = self._oracle.jvm.java.util.stream.LongStream.of(self.java.long(outcome)).boxed().toList()
            future = self._oracle.jvm.java.util.concurrent.CompletableFuture.completedFuture(numbers).thenApply(self._first)
        else:
            future.completeExceptionally(self._oracle.java_class(f"{KAFKA}common.protocol.Errors").valueOf(outcome).exception())
        self.outcomes.add(future)

    def commit(self, offset: int) -> None:
        """Move the high watermark."""
        self.listener.onHighWatermarkUpdated(self.key, self.java.long(offset))
        self.turn()

    def turn(self) -> None:
        """Run the events, and those that they cause."""
        self._collect()
        while self._events:
            self._events.popleft().run()
            self._collect()

    def advance(self, ms: int) -> None:
        """Move the clock and run the tasks that become due."""
        end = self.clock.now_ms + ms
        while due := sorted(task for task in self._tasks if task[0] <= end):
            entry = due[0]
            self._tasks.remove(entry)
            self.clock.now_ms = max(self.clock.now_ms, entry[0])
            if not entry[2].isCancelled():
                entry[2].run()
            self.turn()
        self.clock.now_ms = end

    def answer(self, future: Any) -> Any:
        """Return the value of a future or the name of its error, or None if it is not done."""
        if not future.isDone():
            return None
        try:
            return ("value", future.join())
        except Py4JJavaError as error:
            errors = self._oracle.java_class(f"{KAFKA}common.protocol.Errors")
            return ("error", errors.forException(errors.maybeUnwrapException(error.java_exception)).name())

    def replayed(self) -> list[Any]:
        """Return the shard's calls since the last time."""
        found: list[Any] = []
        for name, arguments in self.shard_calls.drain():
            if name == "replay":
                found.append((arguments[0], arguments[1]))
            elif name == "replayEndTransactionMarker":
                found.append((arguments[0], arguments[2].name() == "COMMIT"))
            else:
                found.append(name)
        return found

    def _future(self) -> Any:
        return self._oracle.jvm.java.util.concurrent.CompletableFuture()

    def _record(self, record: CoordinatorRecord) -> Any:
        value = record.value_bytes()
        return self.serde.deserialize(self.java.wrap(record.key_bytes()), None if value is None else self.java.wrap(value))

    def _collect(self) -> None:
        for name, arguments in self._processor.drain():
            if name == "enqueueFirst":
                self._events.appendleft(arguments[0])
            elif name == "enqueueLast":
                self._events.append(arguments[0])
        for name, arguments in self._timer.drain():
            if name == "add":
                self._count += 1
                self._tasks.append((self.clock.now_ms + get_field(arguments[0], "delayMs"), self._count, arguments[0]))
        for name, arguments in self.writer.drain():
            if name == "append":
                buffer = arguments[2].buffer()
                utils = self._oracle.java_class(f"{KAFKA}common.utils.Utils")
                self.batches.append((bytes(utils.toArray(buffer)), arguments[3]))
            elif name == "registerListener":
                self.listener = arguments[1]
