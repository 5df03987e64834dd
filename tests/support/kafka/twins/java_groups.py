"""Kafka's GroupCoordinatorShard in the oracle's JVM. A test runs its timers and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.support.kafka.manual_jvm import ManualClock, constant, named, proxy
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.parts.manual_timer import ManualTimer

RUNTIME = f"{KAFKA}coordinator.common.runtime."


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, (list, tuple)) else str(value)


class Calls:
    """An object of an interface that notes its calls. All calls return one answer, or the result of `answering`."""

    def __init__(self, java: JavaCoordinators, interface: str, answer: object, *, answering: Any = None) -> None:
        oracle = java.oracle
        handles = oracle.jvm.java.lang.invoke
        types, lookup = handles.MethodType, handles.MethodHandles.publicLookup()
        self._queue = oracle.jvm.java.util.concurrent.ConcurrentLinkedQueue()
        obj, method, array = (named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"))
        kind = types.methodType(oracle.jvm.java.lang.Boolean.TYPE, obj)
        add = lookup.findVirtual(named(oracle, "java.util.concurrent.ConcurrentLinkedQueue"), "add", kind).bindTo(self._queue)
        void = oracle.jvm.java.lang.Void.TYPE
        name = lookup.findVirtual(method, "getName", types.methodType(named(oracle, "java.lang.String")))
        filters = oracle.gateway.new_array(oracle.jvm.java.lang.invoke.MethodHandle, 1)
        filters[0] = name
        add_name = handles.MethodHandles.filterArguments(add.asType(types.methodType(void, named(oracle, "java.lang.String"))), 0, filters)
        lists = named(oracle, "java.util.Arrays")
        as_list = lookup.findStatic(lists, "asList", types.methodType(named(oracle, "java.util.List"), array)).asFixedArity()
        # A method without arguments gets null instead of an array.
        objects = named(oracle, "java.util.Objects")
        or_else = lookup.findStatic(objects, "requireNonNullElse", types.methodType(obj, oracle.jvm.java.util.List.of(obj, obj)))
        none = oracle.gateway.new_array(oracle.jvm.java.lang.Object, 1)
        none[0] = oracle.gateway.new_array(oracle.jvm.java.lang.Object, 0)
        or_none = handles.MethodHandles.insertArguments(or_else, 1, none)
        filters = oracle.gateway.new_array(oracle.jvm.java.lang.invoke.MethodHandle, 1)
        filters[0] = handles.MethodHandles.filterReturnValue(or_none.asType(types.methodType(array, array)), as_list)
        add_arguments = handles.MethodHandles.filterArguments(
            add.asType(types.methodType(void, named(oracle, "java.util.List"))), 0, filters
        )
        add_name = handles.MethodHandles.dropArguments(add_name, 0, oracle.jvm.java.util.List.of(obj))
        add_arguments = handles.MethodHandles.dropArguments(add_arguments, 0, oracle.jvm.java.util.List.of(obj, method))
        handle = handles.MethodHandles.foldArguments(answering or constant(oracle, answer), add_arguments)
        self.object = proxy(oracle, interface, handles.MethodHandles.foldArguments(handle, add_name))

    def drain(self) -> list[tuple[str, list[Any]]]:
        """Return the calls since the last time."""
        found = []
        while (name := self._queue.poll()) is not None:
            found.append((name, list(self._queue.poll())))
        return found


class ScheduledKeys:
    """The keys of a CoordinatorTimer, because `isScheduled` is called in the middle of an operation.

    `answer` is what its methods return.
    """

    def __init__(self, oracle: Any) -> None:
        handles = oracle.jvm.java.lang.invoke
        types, lookup, of = handles.MethodType, handles.MethodHandles.publicLookup(), handles.MethodHandles
        obj, method, array = (named(oracle, name) for name in ("java.lang.Object", "java.lang.reflect.Method", "[Ljava.lang.Object;"))
        self._keys = oracle.jvm.java.util.HashSet()
        boolean = oracle.jvm.java.lang.Boolean.TYPE
        kind = types.methodType(boolean, obj)
        zero = oracle.gateway.new_array(oracle.jvm.java.lang.Object, 1)
        zero[0] = 0
        first = of.insertArguments(of.arrayElementGetter(array), 1, zero)

        def filtered(handle: Any, inner: Any) -> Any:
            filters = oracle.gateway.new_array(oracle.jvm.java.lang.invoke.MethodHandle, 1)
            filters[0] = inner
            return of.filterArguments(handle, 0, filters)

        def on_keys(name: str) -> Any:
            found = lookup.findVirtual(named(oracle, "java.util.HashSet"), name, kind).bindTo(self._keys)
            found = filtered(found, first).asType(types.methodType(obj, array))
            return of.dropArguments(found, 0, oracle.jvm.java.util.List.of(obj, method))

        def is_named(name: str) -> Any:
            equals = lookup.findVirtual(named(oracle, "java.lang.String"), "equals", kind).bindTo(name)
            get = lookup.findVirtual(method, "getName", types.methodType(named(oracle, "java.lang.String")))
            found = filtered(equals, get.asType(types.methodType(obj, method)))
            return of.dropArguments(found, 0, oracle.jvm.java.util.List.of(obj))

        changes = of.guardWithTest(is_named("cancel"), on_keys("remove"), on_keys("add"))
        self.answer = of.guardWithTest(is_named("isScheduled"), on_keys("contains"), changes)

    def forget(self, key: str) -> None:
        """Remove the key of a timer that has expired."""
        self._keys.remove(key)


class JavaTimer(ManualTimer):
    """The timers of a shard of Kafka. Their keys are also kept in the JVM."""

    def __init__(self, now_ms: Callable[[], int], keys: ScheduledKeys) -> None:
        super().__init__(now_ms)
        self._keys = keys

    def pop(self, key: str) -> Any:
        self._keys.forget(key)
        return super().pop(key)


class JavaGroups:
    """A shard of Kafka. After `collect`, `timer` has its timers; `tasks` has the executor's tasks and operations by key."""

    def __init__(self, java: JavaCoordinators, clock: ManualClock, settings: Mapping[str, object]) -> None:
        self.java = java
        oracle = java.oracle
        group = f"{KAFKA}coordinator.group."
        self.registry = java.make("timeline.SnapshotRegistry", java.make("common.utils.LogContext"))
        keys = ScheduledKeys(oracle)
        self._timer_calls = Calls(java, f"{RUNTIME}CoordinatorTimer", None, answering=keys.answer)
        self._executor_calls = Calls(java, f"{RUNTIME}CoordinatorExecutor", False)
        self.timer = JavaTimer(lambda: clock.now_ms, keys)
        self.tasks: dict[str, tuple[Any, Any]] = {}
        props = oracle.jvm.java.util.HashMap()
        for key, value in settings.items():
            props.put(key, _text(value))
        config = oracle.java_class(f"{group}GroupCoordinatorConfig").fromProps(props)
        share = java.make("coordinator.group.modern.share.ShareGroupConfig", self._share_config(settings))
        self.configs = java.make("coordinator.group.GroupConfigManager", oracle.jvm.java.util.HashMap(), config, share)
        metrics = java.make(
            "coordinator.group.metrics.GroupCoordinatorMetrics",
            oracle.jvm.com.yammer.metrics.core.MetricsRegistry(),
            java.make("common.metrics.Metrics"),
        )
        builder = oracle.java_class(f"{group}GroupCoordinatorShard$Builder")(config, self.configs)
        builder = builder.withLogContext(java.make("common.utils.LogContext")).withSnapshotRegistry(self.registry).withTime(clock.time)
        builder = builder.withTimer(self._timer_calls.object).withExecutor(self._executor_calls.object).withCoordinatorMetrics(metrics)
        builder = builder.withTopicPartition(java.make("common.TopicPartition", "__consumer_offsets", 0))
        self.shard = builder.withAuthorizerPlugin(oracle.jvm.java.util.Optional.empty()).build()
        self.serde = java.make("coordinator.group.GroupCoordinatorRecordSerde")
        self.manager = self._field(self.shard, "groupMetadataManager")
        self._contexts: dict[tuple[Any, ...], Any] = {}

    def _share_config(self, settings: Mapping[str, object]) -> Any:
        definition = self.java.oracle.java_class(f"{KAFKA}server.config.AbstractKafkaConfig").CONFIG_DEF
        node = {"process.roles": "broker", "node.id": "1", "controller.listener.names": "C", "controller.quorum.voters": "2@localhost:1"}
        return self.java.make(
            "common.config.AbstractConfig", definition, node | {key: _text(value) for key, value in settings.items()}, False
        )

    def _field(self, of: Any, name: str) -> Any:
        field = of.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(of)

    def context(self, api: str, version: int, client_id: str) -> Any:
        """Return a RequestContext of a client on 127.0.0.1."""
        key = (api, version, client_id)
        if key not in self._contexts:
            oracle = self.java.oracle
            api_key = oracle.java_class(f"{KAFKA}common.protocol.ApiKeys").valueOf(api)
            header = self.java.make("common.requests.RequestHeader", api_key, self.java.short(version), client_id, 1)
            address = oracle.jvm.java.net.InetAddress.getByName("127.0.0.1")
            principal = oracle.java_class(f"{KAFKA}common.security.auth.KafkaPrincipal").ANONYMOUS
            listener = oracle.java_class(f"{KAFKA}common.network.ListenerName")("PLAINTEXT")
            security = oracle.java_class(f"{KAFKA}common.security.auth.SecurityProtocol").PLAINTEXT
            client = oracle.java_class(f"{KAFKA}common.network.ClientInformation").EMPTY
            self._contexts[key] = self.java.make(
                "common.requests.RequestContext", header, "1", address, principal, listener, security, client, False
            )
        return self._contexts[key]

    def collect(self) -> None:
        """Take over the calls of the shard to its timer and its executor."""
        for name, arguments in self._timer_calls.drain():
            if name == "cancel":
                self.timer.cancel(arguments[0])
            elif name == "schedule":
                self.timer.schedule(arguments[0], arguments[1], arguments[-1])
            elif name == "scheduleIfAbsent":
                self.timer.schedule_if_absent(arguments[0], arguments[1], arguments[-1])
        for name, arguments in self._executor_calls.drain():
            if name == "cancel":
                self.tasks.pop(arguments[0], None)
            elif name == "schedule":
                self.tasks.setdefault(arguments[0], (arguments[1], arguments[2]))

    def member_ids(self, group_id: str) -> set[str]:
        """Return the ids of a group's members."""
        try:
            group = self.manager.group(group_id)
        except Py4JJavaError:  # there is no such group
            return set()
        ids = group.allMemberIds() if group.type().toString() == "classic" else group.members().keySet()
        text = self.java.oracle.java_class("java.lang.String").join("\n", ids)
        return set(text.split("\n")) if text else set()

    def future(self) -> Any:
        """Return a CompletableFuture."""
        return self.java.oracle.jvm.java.util.concurrent.CompletableFuture()
