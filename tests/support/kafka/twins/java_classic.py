"""Kafka's ConsumerCoordinator in the oracle's JVM. Its requests go to a queue, and a test answers them.

Its network is a proxy of KafkaClient that is always ready. It has no heartbeat thread: `beat` does what one turn of that thread does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kops.protocol import messages
from kops.protocol.declaration import Message
from kops.protocol.messages import MetadataResponse
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from tests.support.kafka.manual_jvm import ManualClock, named, proxy
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_groups import Calls
from tests.support.kafka.twins.java_members import keys_of

INTERNALS: Final = "clients.consumer.internals."
SESSION_MS, INTERVAL_MS, POLL_MS = 45_000, 3_000, 300_000
_WITH_VERSION: Final = ("JoinGroupResponse", "OffsetFetchResponse")
_LATEST: Final = {"OffsetCommitResponse": 9, "OffsetFetchResponse": 9}  # without topic ids


class Request(NamedTuple):
    """A request that waits for an answer."""

    message: Message
    callback: Any


class JavaNetwork:
    """A KafkaClient that is always ready and keeps the requests. Its polls bring new metadata."""

    def __init__(self, java: JavaCoordinators) -> None:
        oracle = java.oracle
        self._java, jvm = java, oracle.jvm
        self._handles = handles = jvm.java.lang.invoke
        self._of, self._types, self._lookup = handles.MethodHandles, handles.MethodType, handles.MethodHandles.publicLookup()
        self._obj, self._method, self._array = (
            named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;")
        )
        self.sent = jvm.java.util.concurrent.ConcurrentLinkedQueue()
        self.disconnects = jvm.java.util.concurrent.ConcurrentLinkedQueue()
        answers = jvm.java.util.HashMap()
        for name in ("ready", "isReady", "hasReadyNodes", "active"):
            answers.put(name, True)
        for name in ("connectionFailed", "hasInFlightRequests"):
            answers.put(name, False)
        for name in ("connectionDelay", "pollDelayMs"):
            answers.put(name, 2**40)  # which py4j makes a Long
        answers.put("inFlightRequestCount", 0)
        answers.put("poll", jvm.java.util.List.of())
        node = java.make("common.Node", 7, "h", 9)
        answers.put("leastLoadedNode", java.make("clients.LeastLoadedNode", node, True))
        get = self._virtual("java.util.HashMap", "get", self._types.methodType(self._obj, self._obj)).bindTo(answers)
        name_of = self._virtual("java.lang.reflect.Method", "getName", self._types.methodType(named(oracle, "java.lang.String")))
        handle = self._filtered(get, name_of.asType(self._types.methodType(self._obj, self._method)))
        handle = self._dropped(self._of.dropArguments(handle, 1, jvm.java.util.List.of(self._array)))
        self._metadata = handles.MutableCallSite(self._types.methodType(jvm.java.lang.Void.TYPE))
        renew = self._of.dropArguments(self._metadata.dynamicInvoker(), 0, jvm.java.util.List.of(self._obj, self._method, self._array))
        handle = self._guarded("poll", self._of.foldArguments(handle, renew), handle)
        handle = self._guarded("send", self._adding(self.sent), handle)
        handle = self._guarded("disconnect", self._adding(self.disconnects), handle)
        handle = self._guarded("newClientRequest", self._new_request(), handle)
        self.client = proxy(oracle, f"{KAFKA}clients.KafkaClient", handle)

    def bring(self, metadata: Any, response: Any, now_ms: int) -> None:
        """Let every poll bring this metadata."""
        jvm = self._java.oracle.jvm
        kind = self._types.methodType(
            jvm.java.lang.Void.TYPE,
            jvm.java.util.List.of(
                named(self._java.oracle, f"{KAFKA}common.requests.MetadataResponse"), jvm.java.lang.Boolean.TYPE, jvm.java.lang.Long.TYPE
            ),
        )
        update = self._virtual(f"{KAFKA}clients.Metadata", "updateWithCurrentRequestVersion", kind).bindTo(metadata)
        arguments = self._java.oracle.gateway.new_array(jvm.java.lang.Object, 3)
        arguments[0], arguments[1], arguments[2] = response, False, self._java.long(now_ms)
        self._metadata.setTarget(self._of.insertArguments(update, 0, arguments))

    def _new_request(self) -> Any:
        """Return the constructor of ClientRequest as a handle for the array of KafkaClient.newClientRequest's arguments."""
        jvm = self._java.oracle.jvm
        found = named(self._java.oracle, f"{KAFKA}clients.ClientRequest").getConstructors()[0]
        arguments = self._java.oracle.gateway.new_array(jvm.java.lang.Object, 2)
        arguments[0], arguments[1] = 0, "c"
        handle = self._of.insertArguments(self._lookup.unreflectConstructor(found), 2, arguments)
        handle = handle.asSpreader(self._array, 6)
        return self._dropped(
            self._of.dropArguments(handle.asType(self._types.methodType(self._obj, self._array)), 0, jvm.java.util.List.of(self._method))
        )

    def _adding(self, queue: Any) -> Any:
        """Return a handle that adds the first argument to a queue."""
        jvm = self._java.oracle.jvm
        kind = self._types.methodType(jvm.java.lang.Boolean.TYPE, self._obj)
        add = self._virtual("java.util.concurrent.ConcurrentLinkedQueue", "add", kind).bindTo(queue)
        zero = self._java.oracle.gateway.new_array(jvm.java.lang.Object, 1)
        zero[0] = 0
        add = self._filtered(add, self._of.insertArguments(self._of.arrayElementGetter(self._array), 1, zero))
        add = add.asType(self._types.methodType(self._obj, self._array))
        return self._dropped(self._of.dropArguments(add, 0, jvm.java.util.List.of(self._method)))

    def _guarded(self, name: str, handle: Any, other: Any) -> Any:
        """Return a handle that calls one handle for one method, and the other one for the rest."""
        jvm, oracle = self._java.oracle.jvm, self._java.oracle
        equals = self._virtual("java.lang.String", "equals", self._types.methodType(jvm.java.lang.Boolean.TYPE, self._obj)).bindTo(name)
        name_of = self._virtual("java.lang.reflect.Method", "getName", self._types.methodType(named(oracle, "java.lang.String")))
        test = self._filtered(equals, name_of.asType(self._types.methodType(self._obj, self._method)))
        return self._of.guardWithTest(self._dropped(test), handle, other)

    def _virtual(self, owner: str, name: str, kind: Any) -> Any:
        return self._lookup.findVirtual(named(self._java.oracle, owner), name, kind)

    def _filtered(self, handle: Any, inner: Any) -> Any:
        filters = self._java.oracle.gateway.new_array(self._java.oracle.jvm.java.lang.invoke.MethodHandle, 1)
        filters[0] = inner
        return self._of.filterArguments(handle, 0, filters)

    def _dropped(self, handle: Any) -> Any:
        """Return the handle as one that ignores the proxy itself."""
        return self._of.dropArguments(handle, 0, self._java.oracle.jvm.java.util.List.of(self._obj))


class JavaClassicMember:
    """A ConsumerCoordinator without auto commit."""

    def __init__(
        self,
        java: JavaCoordinators,
        clock: ManualClock,
        assignors: Sequence[str],
        topics: Mapping[str, int],
        instance_id: str | None,
        rack: str | None,
    ) -> None:
        self.java, self.clock = java, clock
        oracle, jvm = java.oracle, java.oracle.jvm
        self._oracle = oracle
        self._methods: dict[tuple[str, str], Any] = {}
        self.network = JavaNetwork(java)
        self.listener = Calls(java, f"{KAFKA}clients.consumer.ConsumerRebalanceListener", None)
        log, metrics = java.make("common.utils.LogContext"), java.make("common.metrics.Metrics")
        reset = oracle.java_class(f"{KAFKA}{INTERNALS}AutoOffsetResetStrategy").NONE
        self.subscriptions = java.make(f"{INTERNALS}SubscriptionState", log, reset)
        listeners = java.make("common.internals.ClusterResourceListeners")
        zero = java.long(0)
        self.metadata = java.make(
            f"{INTERNALS}ConsumerMetadata", zero, zero, java.long(10**12), False, False, self.subscriptions, log, listeners
        )
        client = java.make(
            f"{INTERNALS}ConsumerNetworkClient", log, self.network.client, self.metadata, clock.time, zero, 30_000, 2**31 - 1
        )
        self.client = client
        optional = jvm.java.util.Optional
        config = java.make(
            "clients.GroupRebalanceConfig",
            *(SESSION_MS, POLL_MS, INTERVAL_MS, "g", optional.ofNullable(instance_id), rack, zero, zero),
        )
        made = jvm.java.util.ArrayList()
        for name in assignors:
            made.add(java.make(f"clients.consumer.{name}"))
        threads = jvm.java.util.Optional.of(self._threads())
        self.coordinator = java.make(
            f"{INTERNALS}ConsumerCoordinator",
            *(config, log, client, made, self.metadata, self.subscriptions, metrics, "consumer", clock.time, False, 5000),
            *(None, False, optional.empty(), threads),
        )
        self._heartbeat = self.call("AbstractCoordinator", "heartbeat", self.coordinator)
        self._is_enabled = False
        self.beats: list[Any] = []  # futures
        self._markers = [
            each
            for each in named(oracle, f"{KAFKA}{INTERNALS}AbstractCoordinator").getDeclaredMethods()
            if each.getName() == "markCoordinatorUnknown" and str(each.getParameterTypes()[0].getSimpleName()) == "String"
        ]
        self._markers[0].setAccessible(True)
        self._session_over = oracle.gateway.new_array(jvm.java.lang.Object, 1)
        self._session_over[0] = "session timed out without receiving a heartbeat response"
        self.topics = dict(topics)
        self.update()

    def _threads(self) -> Any:
        """Return a Supplier of threads that do nothing."""
        jvm, of = self._oracle.jvm, self._oracle.jvm.java.lang.invoke.MethodHandles
        types = jvm.java.lang.invoke.MethodType
        kind = types.methodType(
            jvm.java.lang.Void.TYPE, jvm.java.util.List.of(named(self._oracle, "java.lang.String"), jvm.java.lang.Boolean.TYPE)
        )
        make = of.publicLookup().findConstructor(named(self._oracle, f"{KAFKA}{INTERNALS}BaseHeartbeatThread"), kind)
        arguments = self._oracle.gateway.new_array(jvm.java.lang.Object, 2)
        arguments[0], arguments[1] = "beats", True
        make = of.insertArguments(make, 0, arguments).asType(types.methodType(named(self._oracle, "java.lang.Object")))
        return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(named(self._oracle, "java.util.function.Supplier"), make)

    def call(self, owner: str, name: str, target: Any, *args: Any) -> Any:
        """Call a hidden method."""
        if (owner, name) not in self._methods:
            methods = named(self._oracle, f"{KAFKA}{INTERNALS}{owner}").getDeclaredMethods()
            found = next(each for each in methods if each.getName() == name and each.getParameterCount() == len(args))
            found.setAccessible(True)
            self._methods[owner, name] = found
        array = self._oracle.gateway.new_array(self._oracle.jvm.java.lang.Object, len(args))
        for index, value in enumerate(args):
            array[index] = value
        return self._methods[owner, name].invoke(target, array)

    def field(self, name: str, owner: str = "AbstractCoordinator") -> Any:
        """Return a hidden field of the coordinator."""
        if ("field", name) not in self._methods:
            found = named(self._oracle, f"{KAFKA}{INTERNALS}{owner}").getDeclaredField(name)
            found.setAccessible(True)
            self._methods["field", name] = found
        return self._methods["field", name].get(self.coordinator)

    def update(self) -> None:
        """Let the cluster have these topics."""
        made = [
            MetadataResponseTopic(
                0, name, bytes([index + 1]) * 16, partitions=[MetadataResponsePartition(0, one, 7) for one in range(count)]
            )
            for index, (name, count) in enumerate(self.topics.items())
        ]
        data = self.java.message(MetadataResponse(brokers=[MetadataResponseBroker(7, "h", 9)], topics=made), 12)
        self.network.bring(self.metadata, self.java.make("common.requests.MetadataResponse", data, self.java.short(12)), self.clock.now_ms)

    # what it does

    def poll(self) -> None:
        """Poll as the application does, without waiting. Raises Py4JJavaError."""
        self.coordinator.poll(self.clock.time.timer(self.java.long(0)), True)

    def fire(self) -> None:
        """Let answers take effect, unless a rebalance is in progress, which a poll of the application drives."""
        if self.field("joinFuture") is None:
            self.client.pollNoWakeup()
        self.note()

    def note(self) -> None:
        """Do what Kafka's heartbeat thread does when it is enabled, or when a heartbeat was answered."""
        thread = self.field("heartbeatThread")
        if thread is not None and thread.isEnabled():
            thread.disable()
            self._is_enabled = True
            self.call("Heartbeat", "resetTimeouts", self._heartbeat)
        for future in [one for one in self.beats if one.isDone()]:
            self.beats.remove(future)
            self._beat_done(future)

    def _beat_done(self, future: Any) -> None:
        """Do what the listener of a heartbeat does, which the heartbeat thread adds."""
        name = "" if future.succeeded() else str(future.exception().getClass().getSimpleName())
        if name in ("", "RebalanceInProgressException"):
            self.call("Heartbeat", "receiveHeartbeat", self._heartbeat)
        elif name == "FencedInstanceIdException":
            self.field("heartbeatThread").setFailureCause(future.exception())
        else:
            self.call("Heartbeat", "failHeartbeat", self._heartbeat)

    def beat(self) -> None:
        """Run one turn of the heartbeat thread, without the look-up of the coordinator, which is part of the application's poll."""
        now_ms = self.java.long(self.clock.now_ms)
        if not self._is_enabled or self.state in ("UNJOINED", "PREPARING_REBALANCE"):
            self._is_enabled = False
        elif self.coordinator.coordinatorUnknown():
            return
        elif self.call("Heartbeat", "sessionTimeoutExpired", self._heartbeat, now_ms):
            self._markers[0].invoke(self.coordinator, self._session_over)
        elif not self.beats and self.call("Heartbeat", "shouldHeartbeat", self._heartbeat, now_ms):
            self.call("Heartbeat", "sentHeartbeat", self._heartbeat, now_ms)
            self.beats.append(self.call("AbstractCoordinator", "sendHeartbeatRequest", self.coordinator))
            self.client.pollNoWakeup()

    @property
    def state(self) -> str:
        """The state of the member."""
        return str(self.field("state").toString())

    def generation(self) -> str:
        """Return generation, member id and assignor."""
        return str(self.field("generation").toString())

    def owned(self) -> list[tuple[str, int]]:
        """Return the assigned partitions."""
        return keys_of(self.subscriptions.assignedPartitions())

    def subscribe(self, topics: Sequence[str]) -> None:
        """Replace the subscription."""
        optional = self._oracle.jvm.java.util.Optional
        if self.subscriptions.subscribe(self._oracle.jvm.java.util.HashSet(list(topics)), optional.of(self.listener.object)):
            self.metadata.requestUpdateForNewTopics()
            self.client.pollNoWakeup()
            self.call("ConsumerCoordinator", "maybeUpdateSubscriptionMetadata", self.coordinator)

    def calls(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Return the calls of the listener since the last time."""
        return [(name, keys_of(arguments[0])) for name, arguments in self.listener.drain() if name.startswith("onPartitions")]

    def requests(self) -> list[Request]:
        """Return the requests since the last time."""
        found = []
        while (one := self.network.sent.poll()) is not None:
            name = f"{one.requestBuilder().getClass().getDeclaringClass().getSimpleName()}"
            kind = getattr(messages, name)
            version = int(one.requestBuilder().latestAllowedVersion())  # without topic ids in commits
            data = one.requestBuilder().build(self.java.short(version)).data()
            found.append(Request(kind.decode(self.java.message_bytes(data, version), version), one.callback()))
        return found

    def is_disconnected(self) -> bool:
        """Return whether it has closed the connection to the coordinator since the last time."""
        found = not self.network.disconnects.isEmpty()
        self.network.disconnects.clear()
        return found

    def answer(self, callback: Any, answer: Message | None) -> None:
        """Answer a request. None means that the connection is lost."""
        now_ms = self.clock.now_ms
        body = None
        if answer is not None:
            name = type(answer).__name__
            version = _LATEST.get(name, type(answer).VERSIONS.stop - 1)
            data = self.java.message(answer, version)
            arguments = (data, self.java.short(version)) if name in _WITH_VERSION else (data,)
            body = self.java.make(f"common.requests.{name}", *arguments)
        header = None
        if body is None:
            header = self.java.make(
                "common.requests.RequestHeader",
                self.java.oracle.java_class(f"{KAFKA}common.protocol.ApiKeys").HEARTBEAT,
                self.java.short(4),
                "c",
                0,
            )
        callback.onComplete(self.java.make("clients.ClientResponse", header, None, "1", now_ms, now_ms, body is None, None, None, body))
