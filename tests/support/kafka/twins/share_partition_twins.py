"""A share partition of kops and Kafka's SharePartition, with one clock. A test runs their timers and answers for their persister."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.batches import StateBatch
from kops.coordinators.share.key import SharePartitionKey
from kops.coordinators.share.partition.acknowledging import AcknowledgementBatch
from kops.coordinators.share.partition.acquired import slice_bounds
from kops.coordinators.share.partition.acquiring import AcquireRequest
from kops.coordinators.share.partition.persisting import PartitionPersister, PersistedState, StateWrite
from kops.coordinators.share.partition.share_partition import SharePartition, Surroundings
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.messages.share_acknowledge_request import AcknowledgementBatch as AcknowledgementMessage
from kops.protocol.messages.share_acknowledge_request import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from kops.records.batch import Batch
from kops.records.isolation import AbortedTransaction
from kops.records.scanning.scanner import read_batches
from tests.support.kafka.manual_jvm import ManualClock, named, proxy
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators

GROUP, TOPIC, PARTITION = "g", "orders", 3
TOPIC_ID = bytes(range(16))
LEADER_EPOCH = 5
NOW_MS = 1_700_000_000_000


def same(ours: object, theirs: object) -> None:
    """Check that both are equal. Raises AssertionError with both values if they are not."""
    if ours != theirs:
        raise AssertionError(f"kops:  {ours}\nKafka: {theirs}")


@dataclass
class Settings:
    """The settings of the group."""

    max_in_flight_records: int
    max_delivery_count: int
    record_lock_duration_ms: int
    is_renew_enabled: bool = True


class Handle:
    """A scheduled call."""

    def __init__(self, task: Callable[[], None]) -> None:
        self.task = task
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class OurPersister:
    """A persister that keeps requests until the test answers."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.read: Promise[PersistedState] = Promise()
        self.writes: list[tuple[StateWrite, Promise[None]]] = []

    def read_state(self, key: SharePartitionKey, leader_epoch: int) -> Promise[PersistedState]:
        assert (key, leader_epoch) == (SharePartitionKey(GROUP, TOPIC_ID, self._partition), LEADER_EPOCH)
        return self.read

    def write_state(self, key: SharePartitionKey, write: StateWrite) -> Promise[None]:
        promise: Promise[None] = Promise()
        self.writes.append((write, promise))
        return promise


class JavaSide:
    """The part that all share partitions of Kafka in a test have in common: classes, and interfaces whose calls go to queues."""

    def __init__(self, oracle: Oracle) -> None:
        self.java = JavaCoordinators(oracle)
        self.oracle = oracle
        self.jvm = oracle.jvm
        self.byte = oracle.java_class("java.lang.Byte")
        self.list_of = oracle.jvm.java.util.List.of
        self.optional = oracle.java_class("java.util.Optional")
        self.state_batch = oracle.java_class(f"{KAFKA}server.share.persister.PersisterStateBatch")
        self.factory = oracle.java_class(f"{KAFKA}server.share.persister.PartitionFactory")
        self.topic_data = oracle.java_class(f"{KAFKA}server.share.persister.TopicData")
        self.modes = oracle.java_class(f"{KAFKA}clients.consumer.internals.ShareAcquireMode")
        self.isolation = oracle.java_class(f"{KAFKA}server.storage.log.FetchIsolation")
        self.fetch_data = oracle.java_class(f"{KAFKA}server.storage.log.FetchPartitionData")
        self.acknowledgement = oracle.java_class(f"{KAFKA}server.share.acknowledge.ShareAcknowledgementBatch")
        self.aborted = oracle.java_class(f"{KAFKA}common.message.FetchResponseData$AbortedTransaction")
        self.readable = oracle.java_class(f"{KAFKA}common.record.internal.MemoryRecords").readableRecords
        self.slice = self._method("kafka.server.share.ShareFetchUtils", "maybeSliceFetchRecords")
        self.methods: dict[str, Any] = {}
        self.constructor = next(
            each for each in named(oracle, "kafka.server.share.SharePartition").getDeclaredConstructors() if each.getParameterCount() == 12
        )
        self.constructor.setAccessible(True)
        settings = self.jvm.java.util.HashMap()
        for name, value in (
            ("process.roles", "broker"),
            ("node.id", "1"),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.voters", "9@localhost:9093"),
            ("group.share.min.delivery.count.limit", "2"),
        ):
            settings.put(name, value)
        config = oracle.java_class("kafka.server.KafkaConfig")(settings)
        self.configs = config.groupCoordinatorConfig(), config.shareGroupConfig()

    def array(self, *values: object) -> Any:
        made = self.oracle.gateway.new_array(self.jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def _method(self, class_name: str, name: str) -> Any:
        method = next(each for each in named(self.oracle, class_name).getDeclaredMethods() if each.getName() == name)
        method.setAccessible(True)
        return method

    def call(self, target: Any, name: str, *arguments: object) -> Any:
        """Call a method of SharePartition of any visibility. Raises ApiError for an exception."""
        if name not in self.methods:
            self.methods[name] = self._method("kafka.server.share.SharePartition", name)
        try:
            return self.methods[name].invoke(target, self.array(*arguments))
        except Py4JJavaError as caught:
            raise self.api_error(caught.java_exception.getCause() or caught.java_exception) from caught

    def api_error(self, thrown: Any) -> ApiError:
        """Return an exception of Kafka as in kops: with its code and its own message."""
        name = errors.by_exception(str(thrown.getClass().getName())).name
        return ApiError(name, str(thrown.getMessage()))

    def failure(self, future: Any) -> ApiError | None:
        """Return the error with which a CompletableFuture has failed."""
        try:
            future.get()
        except Py4JJavaError as caught:
            return self.api_error(caught.java_exception.getCause())
        return None

    def timer(self) -> tuple[Any, Any]:
        """Return a Timer and the queue of the entries that are added to it."""
        handles, lang = self.jvm.java.lang.invoke, self.jvm.java.lang
        queue = self.jvm.java.util.concurrent.ConcurrentLinkedQueue()
        array_class, number = named(self.oracle, "[Ljava.lang.Object;"), lang.Integer.TYPE
        first = handles.MethodHandles.insertArguments(
            handles.MethodHandles.arrayElementGetter(array_class), 1, self.array(lang.Integer.valueOf(0))
        )
        task_class = named(self.oracle, f"{KAFKA}server.util.timer.TimerTask")
        entry_class = named(self.oracle, f"{KAFKA}server.util.timer.TimerTaskEntry")
        entry = handles.MethodHandles.publicLookup().findConstructor(
            entry_class, handles.MethodType.methodType(lang.Void.TYPE, task_class, self._classes(lang.Long.TYPE))
        )
        entry = handles.MethodHandles.insertArguments(entry, 1, self.array(self.java.long(0)))
        add = handles.MethodHandles.publicLookup().findVirtual(
            named(self.oracle, "java.util.concurrent.ConcurrentLinkedQueue"),
            "add",
            handles.MethodType.methodType(lang.Boolean.TYPE, named(self.oracle, "java.lang.Object")),
        )
        add = add.bindTo(queue).asType(handles.MethodType.methodType(lang.Boolean.TYPE, entry_class))
        first = first.asType(handles.MethodType.methodType(task_class, array_class))
        chain = handles.MethodHandles.filterReturnValue(handles.MethodHandles.filterReturnValue(first, entry), add)
        chain = chain.asType(handles.MethodType.methodType(named(self.oracle, "java.lang.Object"), array_class))
        kinds = self.list_of(named(self.oracle, "java.lang.Object"), named(self.oracle, "java.lang.reflect.Method"))
        assert number is not None
        handler = handles.MethodHandles.dropArguments(chain, 0, kinds)
        return proxy(self.oracle, f"{KAFKA}server.util.timer.Timer", handler), queue

    def persister(self) -> tuple[Any, Any, Any]:
        """Return a Persister, the queue of its arguments, and the reference to the future that the next call returns."""
        handles = self.jvm.java.lang.invoke
        queue = self.jvm.java.util.concurrent.ConcurrentLinkedQueue()
        reference = self.jvm.java.util.concurrent.atomic.AtomicReference(self.jvm.java.util.concurrent.CompletableFuture())
        lookup = handles.MethodHandles.publicLookup()
        objects, arrays = named(self.oracle, "java.lang.Object"), named(self.oracle, "[Ljava.lang.Object;")
        kinds = self.list_of(objects, named(self.oracle, "java.lang.reflect.Method"), arrays)
        get = lookup.findVirtual(
            named(self.oracle, "java.util.concurrent.atomic.AtomicReference"), "get", handles.MethodType.methodType(objects)
        )
        give = handles.MethodHandles.dropArguments(get.bindTo(reference), 0, kinds)
        add = lookup.findVirtual(
            named(self.oracle, "java.util.concurrent.ConcurrentLinkedQueue"),
            "add",
            handles.MethodType.methodType(self.jvm.java.lang.Boolean.TYPE, objects),
        )
        add = add.bindTo(queue).asType(handles.MethodType.methodType(self.jvm.java.lang.Void.TYPE, arrays))
        add = handles.MethodHandles.dropArguments(add, 0, self.list_of(objects, named(self.oracle, "java.lang.reflect.Method")))
        handle = handles.MethodHandles.foldArguments(give, add)
        return proxy(self.oracle, f"{KAFKA}server.share.persister.Persister", handle), queue, reference

    def _classes(self, *values: object) -> Any:
        made = self.oracle.gateway.new_array(self.jvm.java.lang.Class, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def bytes(self, values: Sequence[int]) -> Any:
        """Return a List of Bytes. py4j cannot make one, so it is taken out of a message."""
        batch = AcknowledgementMessage(0, 0, list(values))
        topic = AcknowledgeTopic(TOPIC_ID, [AcknowledgePartition(PARTITION, [batch])])
        made = self.java.message(ShareAcknowledgeRequest(topics=[topic]), 1)
        return made.topics().iterator().next().partitions().iterator().next().acknowledgementBatches().get(0).acknowledgeTypes()

    def state_batches(self, batches: Sequence[StateBatch]) -> Any:
        """Return PersisterStateBatches."""
        found = self.jvm.java.util.ArrayList()
        for each in batches:
            state = self.byte.valueOf(str(int(each.delivery_state)))
            ends = self.java.long(each.first_offset), self.java.long(each.last_offset)
            found.add(self.state_batch(*ends, state, self.java.short(each.delivery_count)))
        return found


class Twins:
    """Both share partitions. Every step compares the results, and then the whole state. Several may share one clock."""

    def __init__(
        self,
        side: JavaSide,
        settings: Settings,
        *,
        partition: int = PARTITION,
        clock: ManualClock | None = None,
        persister: PartitionPersister | None = None,
    ) -> None:
        self.side, self.settings, self.partition = side, settings, partition
        java = side.java
        self.clock = ManualClock(side.oracle, NOW_MS) if clock is None else clock
        self.changes = 0
        self._numbers = itertools.count()
        self._our_timers: list[tuple[int, int, Handle]] = []
        self._their_timers: list[tuple[int, int, Any]] = []
        self.persister = OurPersister(partition)
        surroundings = Surroundings(
            settings, persister or self.persister, lambda: self.clock.now_ms, self._schedule, lambda: 0, self._changed
        )
        self.ours = SharePartition(SharePartitionKey(GROUP, TOPIC_ID, partition), TOPIC, LEADER_EPOCH, surroundings)
        timer, self._queue = side.timer()
        their_persister, self.asked, self.next_future = side.persister()
        self.topic_id = java.uuid(TOPIC_ID)
        part = java.make("common.TopicIdPartition", self.topic_id, java.make("common.TopicPartition", TOPIC, partition))
        self.their_key = part
        self._groups = java.make("coordinator.group.GroupConfigManager", side.jvm.java.util.HashMap(), *side.configs)
        if not settings.is_renew_enabled:
            self._groups.updateGroupConfig(GROUP, side.oracle.properties(self._group_settings()))
        limits = settings.max_in_flight_records, settings.max_delivery_count, settings.record_lock_duration_ms
        self.theirs = side.constructor.newInstance(
            side.array(GROUP, part, LEADER_EPOCH, *limits, timer, self.clock.time, their_persister, None, self._groups, None)
        )
        self.pending: list[tuple[Promise[None], Any]] = []
        """Writes that wait for an answer: ours and Kafka's."""
        self.waiting: list[tuple[Promise[None], Any]] = []
        """Acknowledgements and releases that wait for a write."""

    def _group_settings(self) -> dict[str, object]:
        return {
            "share.renew.acknowledge.enable": "false",
            "share.delivery.count.limit": self.settings.max_delivery_count,
            "share.record.lock.duration.ms": self.settings.record_lock_duration_ms,
            "share.partition.max.record.locks": self.settings.max_in_flight_records,
        }

    def _schedule(self, delay_ms: int, task: Callable[[], None]) -> Handle:
        handle = Handle(task)
        heapq.heappush(self._our_timers, (self.clock.now_ms + delay_ms, next(self._numbers), handle))
        return handle

    def _changed(self) -> None:
        self.changes += 1

    def initialize(self, state: PersistedState | ApiError) -> ApiError | None:
        """Read the state. Return the error of both."""
        side = self.side
        mine = self.ours.maybe_initialize()
        theirs = side.call(self.theirs, "maybeInitialize")
        future = self.next_future.get()
        self.next_future.set(side.jvm.java.util.concurrent.CompletableFuture())
        self.asked.clear()
        is_error = isinstance(state, ApiError)
        code = errors.by_name(state.name).code if isinstance(state, ApiError) else 0
        known = PersistedState(0, 0) if isinstance(state, ApiError) else state
        data = side.factory.newPartitionAllData(
            self.partition,
            known.state_epoch,
            side.java.long(known.start_offset),
            side.java.short(code),
            state.message if isinstance(state, ApiError) else "NONE",
            side.state_batches(known.batches),
        )
        result = side.oracle.java_class(f"{KAFKA}server.share.persister.ReadShareGroupStateResult$Builder")()
        result = result.setTopicsData(side.list_of(side.topic_data(self.topic_id, side.list_of(data)))).build()
        if is_error:
            assert isinstance(state, ApiError)
            self.persister.read.fail(state)
        else:
            self.persister.read.complete(known)
        future.complete(result)
        error = self._same_end(mine, theirs)
        if error is None:
            self.check()
        return error

    def acquire(
        self, member_id: str, is_record_limit: bool, size: int, limit: int, offset: int, data: bytes, aborted: Sequence[AbortedTransaction]
    ) -> int:
        """Fetch and acquire. Return how many offsets were acquired."""
        side, java = self.side, self.side.java
        batches = read_batches(data)
        optional: Any = side.optional.empty()
        if aborted:
            found = [side.aborted().setProducerId(java.long(each)).setFirstOffset(java.long(first)) for each, first in aborted]
            optional = side.optional.of(side.jvm.java.util.ArrayList(found))
        optional_int, optional_long = side.oracle.java_class("java.util.OptionalInt"), side.oracle.java_class("java.util.OptionalLong")
        records = side.readable(side.java.wrap(data))
        none = side.oracle.java_class(f"{KAFKA}common.protocol.Errors").NONE
        fetched = side.fetch_data(
            none, java.long(100), java.long(0), records, side.optional.empty(), optional_long.empty(), optional, optional_int.empty(), False
        )
        mode = side.modes.RECORD_LIMIT if is_record_limit else side.modes.BATCH_OPTIMIZED
        arguments = member_id, mode, size, limit, java.long(offset), fetched, side.isolation.TXN_COMMITTED
        theirs: Any = None
        mine: Any = None
        try:
            theirs = side.call(self.theirs, "acquire", *arguments)
            expected: object = theirs.acquiredRecords().toString(), theirs.count()
        except ApiError as error:
            expected = error.name, error.message
        try:
            mine = self.ours.acquire(AcquireRequest(member_id, is_record_limit, size, limit, offset, batches), aborted)
            shown = [
                f"AcquiredRecords(firstOffset={each.first_offset}, lastOffset={each.last_offset}, deliveryCount={each.delivery_count})"
                for each in mine.ranges
            ]
            result: object = f"[{', '.join(shown)}]", mine.offset_count
        except ApiError as error:
            result = error.name, error.message
        same(result, expected)
        if mine is not None and mine.ranges:
            self._check_slice(batches, mine.ranges, records, theirs)
        self.check()
        return 0 if mine is None else int(mine.offset_count)

    def _check_slice(self, batches: Sequence[Batch], ranges: Any, records: Any, theirs: Any) -> None:
        first, end = slice_bounds(batches, ranges)
        expected = self.side.slice.invoke(None, self.side.array(records, theirs))
        assert sum(batch.size for batch in batches[first:end]) == expected.sizeInBytes()
        assert batches[first].base_offset == expected.batches().iterator().next().baseOffset()

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch]) -> str:
        """Acknowledge. Return the error's name, "written" or "done"."""
        side = self.side
        theirs = side.jvm.java.util.ArrayList()
        for each in batches:
            ends = side.java.long(each.first_offset), side.java.long(each.last_offset)
            theirs.add(side.acknowledgement(*ends, side.bytes(each.types)))
        try:
            future = side.call(self.theirs, "acknowledge", member_id, theirs)
        except ApiError as error:  # a bug of Kafka
            mine = self.ours.acknowledge(member_id, batches)
            assert mine.is_done
            try:
                mine.result()
            except ApiError as found:
                same(found.name, error.name)
            self.check()
            return error.name
        return self._end_of(self.ours.acknowledge(member_id, batches), future)

    def release(self, member_id: str) -> str:
        """End the member's session."""
        future = self.side.call(self.theirs, "releaseAcquiredRecords", member_id)
        return self._end_of(self.ours.release_acquired_records(member_id), future)

    def _end_of(self, mine: Promise[None], future: Any) -> str:
        self._same_writes()
        if mine.is_done:
            error = self._same_end(mine, future)
            self.check()
            return "done" if error is None else error.name
        assert not future.isDone()
        self.waiting.append((mine, future))
        self.check()
        return "written"

    def answer(self, index: int, error: ApiError | None) -> None:
        """Let the persister answer a write."""
        side = self.side
        mine, future = self.pending.pop(index)
        if error is None:
            mine.complete(None)
        else:
            mine.fail(error)
        code = 0 if error is None else errors.by_name(error.name).code
        data = side.factory.newPartitionErrorData(self.partition, side.java.short(code), "NONE" if error is None else error.message)
        result = side.oracle.java_class(f"{KAFKA}server.share.persister.WriteShareGroupStateResult$Builder")()
        future.complete(result.setTopicsData(side.list_of(side.topic_data(self.topic_id, side.list_of(data)))).build())
        for promise, theirs in self.waiting:
            assert promise.is_done == theirs.isDone()
            if promise.is_done:
                self._same_end(promise, theirs)
        self.waiting = [each for each in self.waiting if not each[0].is_done]
        self.check()

    def log_start(self, offset: int) -> None:
        """Move the log's start, as if records were deleted."""
        self.side.call(self.theirs, "updateCacheAndOffsets", self.side.java.long(offset))
        self.ours.on_log_start_offset(offset)
        self.check()

    def advance(self, delay_ms: int) -> int:
        """Let time pass. Return how many locks expired."""
        self.clock.now_ms += delay_ms
        return self.expire()

    def expire(self) -> int:
        """Run the timers that are due. Return how many locks expired."""
        count = 0
        while self._our_timers and self._our_timers[0][0] <= self.clock.now_ms:
            _, _, handle = heapq.heappop(self._our_timers)
            _, _, entry = heapq.heappop(self._their_timers)
            assert handle.is_cancelled == entry.cancelled()
            if handle.is_cancelled:
                continue
            count += 1
            changes = self.changes
            handle.task()
            try:
                get_field(entry, "timerTask").run()
                notified = False
            except Py4JJavaError as caught:  # there is no replica manager to call
                assert "completeDelayedShareFetchRequest" in str(caught.java_exception.getMessage())
                notified = True
            assert (self.changes > changes) == notified
            self._same_writes()
            self.check()
        return count

    def _same_writes(self) -> None:
        """Check that both have made the same request to the persister."""
        while self.persister.writes:
            write, promise = self.persister.writes.pop(0)
            parameters = self.asked.poll()[0].groupTopicPartitionData().topicsData().get(0).partitions().get(0)
            shown = ", ".join(
                f"PersisterStateBatch(firstOffset={each.first_offset},lastOffset={each.last_offset},"
                f"deliveryCount={each.delivery_count},deliveryState={int(each.delivery_state)})"
                for each in write.batches
            )
            numbers = write.state_epoch, write.leader_epoch, write.start_offset, write.delivery_complete_count, f"[{shown}]"
            ends = parameters.stateEpoch(), parameters.leaderEpoch(), parameters.startOffset(), parameters.deliveryCompleteCount()
            same((*numbers,), (*ends, parameters.stateBatches().toString()))
            self.pending.append((promise, self.next_future.get()))
            self.next_future.set(self.side.jvm.java.util.concurrent.CompletableFuture())
        assert self.asked.isEmpty()

    def _same_end(self, mine: Promise[None], future: Any) -> ApiError | None:
        expected = self.side.failure(future)
        found: ApiError | None = None
        try:
            mine.result()
        except ApiError as error:
            found = error
        shown = None if found is None else (found.name, found.message)
        same(shown, None if expected is None else (expected.name, expected.message))
        return found

    def check(self) -> None:
        """Compare the whole state of both."""
        for _ in range(self._queue.size()):
            entry = self._queue.poll()
            due_ms = self.clock.now_ms + get_field(get_field(entry, "timerTask"), "delayMs")
            heapq.heappush(self._their_timers, (due_ms, next(self._numbers), entry))
        same([each[0] for each in sorted(self._our_timers)], [each[0] for each in sorted(self._their_timers)])
        cache = self.ours.cache
        shown = ", ".join(f"{batch.first_offset}={batch}" for batch in cache.batches)
        same(f"{{{shown}}}", str(self.side.call(self.theirs, "cachedState").toString()))
        ours = [self.ours.next_fetch_offset, self.ours.can_acquire, cache.start_offset, cache.end_offset, cache.must_search]
        names = "nextFetchOffset", "canAcquireRecords", "startOffset", "endOffset", "findNextFetchOffset", "deliveryCompleteCount"
        same([*ours, cache.delivery_complete_count], [self.side.call(self.theirs, name) for name in names])
