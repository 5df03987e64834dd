"""Kafka's ConsumerMembershipManager and ConsumerHeartbeatRequestManager, or those of share groups, in the oracle's JVM.

They come with the managers that they need: coordinator, commits, metadata, subscriptions. A test moves the clock, lets them send, and
answers.

Classes that are not public in Kafka are reached by reflection. Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from py4j.java_gateway import get_field

from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorResponse,
    MetadataResponse,
    OffsetCommitResponse,
    ShareGroupHeartbeatRequest,
)
from kops.protocol.messages.find_coordinator_response import Coordinator
from kops.protocol.messages.metadata_response import MetadataResponseTopic
from kops.protocol.messages.offset_commit_response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from tests.support.kafka.manual_jvm import ManualClock, named, proxy
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators

INTERNALS: Final = "clients.consumer.internals."
BACKOFF_MS, BACKOFF_MAX_MS = 100, 1000


class Beat(NamedTuple):
    """A heartbeat that a manager has built."""

    message: Message
    handler: Any


class TimerClock(ManualClock):
    """A clock that also creates timers (Time.timer)."""

    def __init__(self, java: JavaCoordinators, now_ms: int) -> None:
        oracle = java.oracle
        super().__init__(oracle, now_ms)
        handles = oracle.jvm.java.lang.invoke
        of, types, lookup = handles.MethodHandles, handles.MethodType, handles.MethodHandles.publicLookup()
        obj, method, array = (named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"))
        constructor = named(oracle, f"{KAFKA}common.utils.Timer").getDeclaredConstructors()[0]
        constructor.setAccessible(True)
        make = lookup.unreflectConstructor(constructor).bindTo(self.time).asType(types.methodType(obj, obj))
        zero = oracle.gateway.new_array(oracle.jvm.java.lang.Object, 1)
        zero[0] = 0
        make = self._filtered(make, of.insertArguments(of.arrayElementGetter(array), 1, zero))
        make = of.dropArguments(make, 0, oracle.jvm.java.util.List.of(obj, method))
        equals = lookup.findVirtual(named(oracle, "java.lang.String"), "equals", types.methodType(oracle.jvm.java.lang.Boolean.TYPE, obj))
        name = lookup.findVirtual(method, "getName", types.methodType(named(oracle, "java.lang.String")))
        is_timer = self._filtered(equals.bindTo("timer"), name.asType(types.methodType(obj, method)))
        is_timer = of.dropArguments(is_timer, 0, oracle.jvm.java.util.List.of(obj))
        get = lookup.findVirtual(named(oracle, "java.util.concurrent.atomic.AtomicReference"), "get", types.methodType(obj))
        get = of.dropArguments(get.bindTo(self._number), 0, oracle.jvm.java.util.List.of(obj, method, array))
        self.time = proxy(oracle, f"{KAFKA}common.utils.Time", of.guardWithTest(is_timer, make, get))

    def _filtered(self, handle: Any, inner: Any) -> Any:
        filters = self._oracle.gateway.new_array(self._oracle.jvm.java.lang.invoke.MethodHandle, 1)
        filters[0] = inner
        return self._oracle.jvm.java.lang.invoke.MethodHandles.filterArguments(handle, 0, filters)


class JavaMember:
    """A member of Kafka of a consumer group, or of a share group (`is_share`)."""

    def __init__(self, java: JavaCoordinators, clock: ManualClock, settings: Mapping[str, object], *, is_share: bool = False) -> None:
        self.java, self.clock, self.is_share = java, clock, is_share
        self._jvm = jvm = java.oracle.jvm
        self._none = java.oracle.gateway.new_array(jvm.java.lang.Object, 0)
        self._methods: dict[str, Any] = {}
        self._optional = jvm.java.util.Optional
        self.listener = jvm.java.util.Optional.empty()
        if settings["has_listener"]:
            name = f"{KAFKA}clients.consumer.ConsumerRebalanceListener"
            handles = jvm.java.lang.invoke.MethodHandles
            self.listener = jvm.java.util.Optional.of(proxy(java.oracle, name, _nothing(java.oracle, handles)))
        config = self._config(settings)
        log = java.make("common.utils.LogContext")
        metrics = java.make("common.metrics.Metrics")
        reset = java.oracle.java_class(f"{KAFKA}{INTERNALS}AutoOffsetResetStrategy").NONE
        self.subscriptions = java.make(f"{INTERNALS}SubscriptionState", log, reset)
        self.events = jvm.java.util.concurrent.LinkedBlockingQueue()
        async_metrics = java.make(f"{INTERNALS}metrics.AsyncConsumerMetrics", metrics, "consumer")
        handler = java.make(f"{INTERNALS}events.BackgroundEventHandler", self.events, clock.time, async_metrics)
        group_id = settings["group_id"]
        wait, longest = java.long(BACKOFF_MS), java.long(BACKOFF_MAX_MS)
        self.coordinator = java.make(f"{INTERNALS}CoordinatorRequestManager", log, wait, wait, group_id)
        search = self._make("RequestState", log, "search", wait, 2, longest, 0.0)  # without jitter
        _set_hidden(java, "CoordinatorRequestManager", "coordinatorRequestState", self.coordinator, search)
        listeners = java.make("common.internals.ClusterResourceListeners")
        self.metadata = java.make("clients.Metadata", wait, wait, java.long(300_000), log, listeners)
        beats = java.make(f"{INTERNALS}HeartbeatRequestState", log, clock.time, java.long(0), wait, longest, 0.0)
        timer = clock.time.timer(java.long(int(str(settings["max_poll_interval_ms"]))))
        self.commits = None
        if is_share:
            rack = settings["rack"]
            self.member = java.make(
                f"{INTERNALS}ShareMembershipManager", log, group_id, rack, self.subscriptions, self.metadata, clock.time, metrics
            )
            state = self._make("ShareHeartbeatRequestManager$HeartbeatState", self.subscriptions, self.member)
            parts = [log, timer, config, self.coordinator, self.member, state, beats, handler, metrics]
            self.beats = self._make("ShareHeartbeatRequestManager", *parts)
        else:
            consumer_metadata = self.consumer_metadata = java.make(
                f"{INTERNALS}ConsumerMetadata", config, self.subscriptions, log, listeners
            )
            instance = self._optional.ofNullable(settings["instance_id"])
            callbacks = self._make("OffsetCommitCallbackInvoker", None)
            self.commits = java.make(
                f"{INTERNALS}CommitRequestManager",
                *(clock.time, log, self.subscriptions, config, self.coordinator, callbacks, group_id, instance, metrics, consumer_metadata),
            )
            self.member = java.make(
                f"{INTERNALS}ConsumerMembershipManager",
                *(group_id, instance, self._optional.ofNullable(settings["rack"]), settings["max_poll_interval_ms"]),
                *(self._optional.ofNullable(settings["server_assignor"]), self.subscriptions, self.commits, consumer_metadata, log),
                *(handler, clock.time, metrics, settings["auto_commits"]),
            )
            _set_hidden(java, "AbstractMembershipManager", "metadata", self.member, self.metadata)  # this one keeps every topic
            self.member.registerStateListener(self.commits)
            interval = settings["max_poll_interval_ms"]
            state = self._make("ConsumerHeartbeatRequestManager$HeartbeatState", self.subscriptions, self.member, interval)
            parts = [log, timer, config, self.coordinator, self.member, state, beats, handler, metrics]
            self.beats = self._make("ConsumerHeartbeatRequestManager", *parts)
        self._any = java.oracle.java_class("java.util.function.Predicate").isEqual(None).negate()
        self.member_id = str(self.member.memberId())

    def _config(self, settings: Mapping[str, object]) -> Any:
        deserializer = f"{KAFKA}common.serialization.ByteArrayDeserializer"
        values = {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": settings["group_id"],
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            "retry.backoff.ms": BACKOFF_MS,
            "retry.backoff.max.ms": BACKOFF_MS,
            "max.poll.interval.ms": settings["max_poll_interval_ms"],
            "enable.auto.commit": str(settings["auto_commits"]).lower(),
        }
        return self.java.make("clients.consumer.ConsumerConfig", self.java.oracle.properties(values))

    def _make(self, name: str, *args: object) -> Any:
        """Return a new object from the constructor with this number of arguments, which need not be public."""
        array = self.java.oracle.gateway.new_array(self._jvm.java.lang.Object, len(args))
        for index, value in enumerate(args):
            array[index] = value
        makers = named(self.java.oracle, f"{KAFKA}{INTERNALS}{name}").getDeclaredConstructors()
        maker = next(each for each in makers if each.getParameterCount() == len(args))
        maker.setAccessible(True)
        return maker.newInstance(array)

    def hidden(self, owner: str, name: str, target: Any) -> Any:
        """Return the result of a method that takes no arguments and need not be public."""
        if name not in self._methods:
            found = named(self.java.oracle, f"{KAFKA}{INTERNALS}{owner}").getDeclaredMethod(
                name, self.java.oracle.gateway.new_array(self._jvm.java.lang.Class, 0)
            )
            found.setAccessible(True)
            self._methods[name] = found
        return self._methods[name].invoke(target, self._none)

    # requests

    def sent(self) -> tuple[list[Beat], list[Any], list[Any]]:
        """Let all managers send until they have nothing left to send. Return heartbeats, handlers of look-ups and handlers of commits."""
        beats: list[Beat] = []
        finds: list[Any] = []
        commits: list[Any] = []
        now_ms = self.clock.now_ms
        state, count = "", -1
        while (state, count) != (state := str(self.member.state()), count := len(beats) + len(finds) + len(commits)):
            finds += self._handlers(self.coordinator.poll(now_ms))
            if self.commits is not None:
                commits += self._handlers(self.commits.poll(now_ms))
            beats += self._beats(self.beats.poll(now_ms))
            self.member.poll(now_ms)
        return beats, finds, commits

    def last_words(self) -> list[Beat]:
        """Return the requests that are sent when the consumer stops."""
        return self._beats(self.beats.pollOnClose(self.clock.now_ms))

    def _handlers(self, result: Any) -> list[Any]:
        return [self.hidden("NetworkClientDelegate$UnsentRequest", "handler", each) for each in get_field(result, "unsentRequests")]

    def _beats(self, result: Any) -> list[Beat]:
        found = []
        for each in get_field(result, "unsentRequests"):
            data = self.hidden("NetworkClientDelegate$UnsentRequest", "requestBuilder", each).build(self.java.short(1)).data()
            kind = ShareGroupHeartbeatRequest if self.is_share else ConsumerGroupHeartbeatRequest
            message = kind.decode(self.java.message_bytes(data, 1), 1)
            found.append(Beat(message, self.hidden("NetworkClientDelegate$UnsentRequest", "handler", each)))
        return found

    # answers

    def answer(self, handler: Any, message: Message, version: int | None = None) -> None:
        """Let a request succeed with an answer."""
        name = type(message).__name__
        version = _VERSIONS.get(name, 1) if version is None else version
        data = self.java.message(message, version)
        more = (self.java.short(version),) if name == "OffsetFetchResponse" else ()
        body = self.java.make(f"common.requests.{name}", data, *more)
        now_ms = self.clock.now_ms
        handler.onComplete(self.java.make("clients.ClientResponse", None, None, "1", now_ms, now_ms, False, None, None, body))

    def fail(self, handler: Any, error: str) -> None:
        """Let a request fail with the error of this name. A lost connection is Kafka's DisconnectException."""
        if error in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"):
            exception = self.java.oracle.java_class(f"{KAFKA}common.errors.DisconnectException").INSTANCE
        else:
            exception = getattr(self.java.oracle.java_class(f"{KAFKA}common.protocol.Errors"), error).exception()
        handler.onFailure(self.clock.now_ms, exception)

    def found(self, handler: Any, error: str) -> None:
        """Answer a look-up of the coordinator."""
        one = Coordinator(str(self.member.groupId()), 1, "h", 9, by_name(error).code)
        self.answer(handler, FindCoordinatorResponse(coordinators=[one]))

    def committed(self, handler: Any, keys: Sequence[tuple[str, int]], error: str) -> None:
        """Answer a commit."""
        code = by_name(error).code
        topics = [OffsetCommitResponseTopic(topic, b"\0" * 16, [OffsetCommitResponsePartition(index, code)]) for topic, index in keys]
        self.answer(handler, OffsetCommitResponse(topics=topics))

    # the consumer

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        """Replace the subscription."""
        if self.is_share:
            self.subscriptions.subscribeToShareGroup(self._jvm.java.util.HashSet(list(topics)))
        elif pattern is not None:
            self.subscriptions.subscribe(self.java.make("clients.consumer.SubscriptionPattern", pattern), self.listener)
        else:
            self.subscriptions.subscribe(self._jvm.java.util.HashSet(list(topics)), self.listener)
        self.member.onSubscriptionUpdated()

    def polled(self) -> None:
        """Let the application poll (ApplicationEventProcessor, AsyncPollEvent)."""
        self.member.maybeReconcile(True)
        self.member.onConsumerPoll()
        self.beats.resetPollTimer(self.clock.now_ms)

    def learn_for_consumer(self, names: Mapping[bytes, str]) -> None:
        """Set the metadata of the manager of commits, which keeps the topics of the subscription."""
        self.subscriptions.subscribe(self._jvm.java.util.HashSet(list(names.values())), self._optional.empty())
        self._learn(self.consumer_metadata, names)

    def learn(self, names: Mapping[bytes, str]) -> None:
        """Set metadata with these topics."""
        self._learn(self.metadata, names)

    def _learn(self, metadata: Any, names: Mapping[bytes, str]) -> None:
        topics = [MetadataResponseTopic(0, name, topic_id) for topic_id, name in names.items()]
        data = self.java.message(MetadataResponse(topics=topics), 12)
        response = self.java.make("common.requests.MetadataResponse", data, self.java.short(12))
        metadata.updateWithCurrentRequestVersion(response, False, self.clock.now_ms)

    def seek(self, keys: Sequence[tuple[str, int]]) -> None:
        """Set the positions of these partitions."""
        for topic, index in keys:
            self.subscriptions.seek(self.java.make("common.TopicPartition", topic, index), self.java.long(5))

    def owned(self) -> list[tuple[str, int]]:
        """Return the assigned partitions."""
        return keys_of(self.subscriptions.assignedPartitions())

    def fetchable(self) -> list[tuple[str, int]]:
        """Return the partitions that it would read."""
        return keys_of(self.subscriptions.fetchablePartitions(self._any))


_VERSIONS: Final = {"FindCoordinatorResponse": 4, "OffsetCommitResponse": 9, "OffsetFetchResponse": 9}


def _set_hidden(java: JavaCoordinators, owner: str, name: str, target: Any, value: Any) -> None:
    field = named(java.oracle, f"{KAFKA}{INTERNALS}{owner}").getDeclaredField(name)
    field.setAccessible(True)
    field.set(target, value)


def _nothing(oracle: Any, handles: Any) -> Any:
    """Return a handle for InvocationHandler.invoke that returns null."""
    types = [named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")]
    return handles.dropArguments(handles.constant(types[0], None), 0, oracle.jvm.java.util.List.of(*types))


def keys_of(partitions: Any) -> list[tuple[str, int]]:
    """Return Kafka's collection of TopicPartitions."""
    text = str(partitions.toString())[1:-1]
    found = [one.rpartition("-") for one in text.split(", ")] if text else []
    return sorted((topic, int(index)) for topic, _, index in found)
